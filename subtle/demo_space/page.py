"""The page: choose or upload a clip, write the change, see what is found play. It knows no model and no dataset.

`search` has `clips` and `find(text, clip=, upload=, leave_out_video=, k=)`, `footage` has `cut`, `still` and `take`;
both tell a visitor's mistake as a ValueError of one line. Another search fits behind the same page.
"""

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import gradio as gr

CHOICES = 24
"""Clips to choose from that are shown at once."""
HITS = 12
MAX_UPLOAD = "50mb"
CACHE_SECONDS = (3600, 24 * 3600)
"""How often files of visitors are looked through, and how old they become."""
CSS = """
.gradio-container { max-width: 1280px !important; margin: auto; }
.gradio-container .html-container { padding: 2px; }
#choices .grid-container { grid-template-columns: repeat(auto-fill, minmax(92px, 1fr)) !important; }
#choices .caption-label { font-size: 11px; max-width: 100%; }
.clips { list-style: none; margin: 0; padding: 0; display: grid; gap: 12px;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 136px), 1fr)); }
.clips li { margin: 0; border: 1px solid var(--border-color-primary); border-radius: 10px; overflow: hidden;
  background: var(--block-background-fill); }
.clips video { display: block; width: 100%; aspect-ratio: auto 1 / 1; max-height: 340px; object-fit: contain;
  background: #000; }
.clips .text { padding: 8px 10px 10px; font-size: 14px; line-height: 1.35; color: var(--body-text-color);
  overflow-wrap: anywhere; }
.clips .text small { display: flex; gap: 0 10px; flex-wrap: wrap;
  color: var(--body-text-color-subdued); font-size: 12px; margin-top: 3px; font-variant-numeric: tabular-nums; }
.clips .query { grid-column: 1 / -1; display: flex; align-items: center; }
.clips .query video { width: 148px; flex: none; }
.clips .text span { max-width: 100%; }
p.said { margin: 0; color: var(--body-text-color); }
p.said.wrong { border-left: 4px solid #d97706; padding: 6px 10px; background: var(--block-background-fill); }
@media (min-width: 900px) { .clips { grid-template-columns: repeat(auto-fill, minmax(200px, 1fr)); } }
video:focus-visible, #choices button:focus-visible { outline: 3px solid var(--color-accent); outline-offset: 2px; }
footer { display: none !important; }
"""


class Page:
    """What the page does, apart from how it looks.

    Args:
        search: Finds clips.
        footage: Makes files to show.
    """

    def __init__(self, search: Any, footage: Any) -> None:
        self.search, self.footage = search, footage

    def choices(self, words: str) -> tuple[Any, list[int], str]:
        """The clips whose label or id has all the words: thumbnails, their rows, and how many there are."""
        wanted = words[:200].lower().split()
        rows = [
            row
            for row, clip in enumerate(self.search.clips)
            if all(word in f"{clip.label} {clip.clip_id}".lower() for word in wanted)
        ]
        shown = spread(rows, CHOICES)
        thumbnails = [(str(self.still(row)), self.search.clips[row].label) for row in shown]
        if not rows:
            said = tell(f"No clip is called “{words[:60].strip()}”.", wrong=True)
        else:
            said = tell(f"{len(shown)} of {len(rows)} clips" if len(shown) < len(rows) else count(len(rows), "clip"))
        return gr.update(value=thumbnails, selected_index=None, visible=bool(rows)), shown, said

    def still(self, row: int) -> Path:
        """The thumbnail of a clip."""
        clip = self.search.clips[row]
        path: Path = self.footage.still(clip.video_id, clip.start_seconds, clip.end_seconds)
        return path

    def begin(self) -> tuple[dict[str, Any], str]:
        """The query that the page opens with."""
        return {"row": 0}, self.show_query({"row": 0})

    def choose(self, shown: list[int], event: gr.SelectData) -> tuple[dict[str, Any] | None, str]:
        """Take a clip of the gallery as the query."""
        if not isinstance(event.index, int) or not 0 <= event.index < len(shown):
            return None, tell("Choose a clip.")
        return {"row": shown[event.index]}, self.show_query({"row": shown[event.index]})

    def upload(self, path: str | None) -> tuple[dict[str, Any] | None, str]:
        """Take a visitor's file as the query, if it is a video within the limits."""
        if not path:
            return None, ""
        query = {"upload": path, "name": Path(path).name[-60:]}
        try:
            return query, self.show_query(query)
        except (ValueError, OSError) as error:
            return None, tell(f"{query['name']} cannot be used: {plain(error)}.", wrong=True)

    def show_query(self, query: dict[str, Any]) -> str:
        """The query's clip, playing.

        Raises:
            ValueError: It is not a video, or too long.
        """
        if "row" in query:
            clip = self.search.clips[query["row"]]
            return f'<ul class="clips">{self.card(clip, "query")}</ul>'
        shown = self.footage.take(Path(query["upload"]))
        return f'<ul class="clips">{card(shown, query["name"], ["your clip"], "query")}</ul>'

    def find(self, query: dict[str, Any] | None, text: str, leave_out_video: bool) -> tuple[str, str]:
        """What was found, and a line about it."""
        query = query or {}
        clip = self.search.clips[query["row"]] if "row" in query else None
        upload = Path(query["upload"]) if "upload" in query else None
        try:
            hits = self.search.find(text or "", clip=clip, upload=upload, leave_out_video=leave_out_video, k=HITS)
            cards = "".join(
                self.card(hit.clip, score=f"{rank}. score {hit.score:.2f}") for rank, hit in enumerate(hits, start=1)
            )
        except (ValueError, OSError) as error:
            said = plain(error)
            return tell(f"{said[:1].upper()}{said[1:]}.", wrong=True), ""
        if not hits:
            return tell("Nothing is left to show: every clip is of the query's own video.", wrong=True), ""
        asked = f"for “{' '.join(text.split())}”" if text and text.strip() else "that look most alike"
        return tell(f"The best {count(len(hits), 'clip')} {asked}"), f'<ul class="clips">{cards}</ul>'

    def card(self, clip: Any, kind: str = "", score: str = "") -> str:
        """A clip with its label, video, seconds, and rank and score."""
        path = self.footage.cut(clip.video_id, clip.start_seconds, clip.end_seconds)
        facts = [score, clip.video_id]
        if clip.start_seconds is not None and clip.end_seconds is not None:
            facts.append(f"{clip.start_seconds:.1f} to {clip.end_seconds:.1f} s")
        return card(path, clip.label, facts, kind)


def card(path: Path, label: str, facts: Sequence[str], kind: str = "") -> str:
    """A playing clip and what is known of it; every text is escaped."""
    source = escape(f"gradio_api/file={quote(str(path))}")
    return (
        f'<li class="{kind}"><video src="{source}" aria-label="{escape(label)}" controls autoplay muted loop '
        f'playsinline></video><div class="text">{escape(label)}<small>'
        f"{''.join(f'<span>{escape(fact)}</span>' for fact in facts if fact)}</small></div></li>"
    )


def tell(text: str, *, wrong: bool = False) -> str:
    """A line for the visitor."""
    return f'<p class="said{" wrong" if wrong else ""}" role="{"alert" if wrong else "status"}">{escape(text)}</p>'


def plain(error: Exception) -> str:
    """An error as one line; of one that the operating system gives, without the file's path."""
    text = getattr(error, "strerror", None) or str(error)
    return " ".join(text.split()).rstrip(".")


def count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def spread(rows: list[int], most: int) -> list[int]:
    """At most so many, evenly chosen.

    >>> spread([0, 1, 2, 3, 4, 5], 3)
    [0, 2, 4]
    """
    return rows if len(rows) <= most else [rows[number * len(rows) // most] for number in range(most)]


def build_page(search: Any, footage: Any, *, title: str, note: str, examples: Sequence[str]) -> gr.Blocks:
    """The page, not yet started.

    Args:
        search: Finds clips.
        footage: Makes files to show.
        title: Its heading.
        note: What a visitor must know of the clips, as Markdown.
        examples: Texts to click.
    """
    page = Page(search, footage)
    private: dict[str, Any] = {"api_visibility": "private"}
    quiet = private | {"show_progress": "hidden"}
    blocks: gr.Blocks
    with gr.Blocks(title=title, analytics_enabled=False, delete_cache=CACHE_SECONDS) as blocks:
        query, shown = gr.State(None), gr.State([])
        gr.Markdown(f"# {title}\n\n{note}")
        with gr.Row():
            with gr.Column(scale=2, min_width=320):
                words = gr.Textbox(
                    label="1. Choose a clip", placeholder="words of its label, such as: vault", max_lines=1
                )
                number = gr.HTML()
                choices = gr.Gallery(
                    show_label=False,
                    columns=4,
                    height=250,
                    allow_preview=False,
                    object_fit="cover",
                    buttons=[],
                    interactive=False,
                    elem_id="choices",
                )
                with gr.Row():
                    upload = gr.UploadButton(
                        "Upload a clip (up to 20 s)", file_types=["video"], size="sm", min_width=140
                    )
                    none = gr.Button("No clip, text alone", size="sm", min_width=140)
                chosen = gr.HTML(elem_id="chosen")
                text = gr.Textbox(
                    label="2. Say what to change", placeholder="empty: clips that look alike", max_lines=2, lines=1
                )
                gr.Examples([[example] for example in examples], inputs=text, label="Such as")
                leave_out = gr.Checkbox(label="Leave the query's own video out")
                start = gr.Button("Search", variant="primary")
            with gr.Column(scale=3, min_width=320):
                said = gr.HTML(elem_id="said")
                found = gr.HTML(elem_id="found")
        gr.on([blocks.load, words.change], page.choices, words, [choices, shown, number], **quiet)
        choices.select(page.choose, shown, [query, chosen], **quiet)
        none.click(lambda: (None, tell("No clip: the text alone is searched for.")), None, [query, chosen], **quiet)
        upload.upload(page.upload, upload, [query, chosen], **private)
        parts = {"fn": page.find, "inputs": [query, text, leave_out], "outputs": [said, found], **private}
        blocks.load(lambda: (*page.begin(), *examples[:1]), None, [query, chosen, text], **quiet).then(**parts)
        gr.on([start.click, text.submit], **parts)
    return blocks


def launch(blocks: gr.Blocks, folder: Path, **options: Any) -> Any:
    """Start the page; it serves what lies in `folder`, its own parts, and nothing else.

    Args:
        blocks: The page.
        folder: Where footage writes.
        **options: Of `gradio.Blocks.launch`.
    """
    dark_enough = {
        "button_primary_background_fill": "*primary_700",
        "button_primary_background_fill_hover": "*primary_800",
    }
    theme = gr.themes.Default(primary_hue="teal").set(
        **dark_enough, **{f"{name}_dark": color for name, color in dark_enough.items()}
    )
    return blocks.launch(
        allowed_paths=[str(folder)],
        max_file_size=MAX_UPLOAD,
        share=False,
        footer_links=[],
        css=CSS,
        theme=theme,
        ssr_mode=False,
        **options,
    )
