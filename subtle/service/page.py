"""The page: what its parts do for each visitor, whose state is in the session, and how it is served.

`subtle serve` shows it over an index on this machine alone; a Space shows everyone clips of a dataset with it, without
marks and export. What a Space imports is copied into it, so this imports neither.
"""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import gradio as gr
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from hf_datasets.video import VideoError
from subtle.service import cards
from subtle.service.media import MEDIA_FOLDER, plain, why_foreign
from subtle.service.searching import MomentSearch, Query

CHOICES = 24
EVERYWHERE = "all"
KEPT_EXPORTS = 8
CACHE_SECONDS = (600, 3600)
"""How often what Gradio keeps of uploads is looked through, and how old it becomes."""
MISTAKES = (VideoError, ValueError, OSError, RuntimeError)  # LanceDB's own are RuntimeErrors
HERE = Path(__file__).parent
NOT_SERVED = re.compile(r"^/+(gradio_api/+)?(file|proxy|stream)\b")


@dataclass
class Search:
    """What a visitor sees: the moments of one search.

    Attributes:
        number: Of the search in its session.
        query: Its clip.
        text: Its text.
        found: The moments.
        troubles: Why some of them cannot be shown.
        filters: What it was narrowed by, as `MomentSearch.find` takes it.
        judged: By the ids of moments, whether they were right; of marks that moved the query.
    """

    number: int = 0
    query: Query | None = None
    text: str = ""
    found: list[dict[str, Any]] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    filters: dict[str, Any] = field(default_factory=dict)
    judged: dict[str, bool] = field(default_factory=dict)


class Page:
    """What the page does, apart from how it is arranged.

    Args:
        search: Finds moments.
        marks: Keeps marks, a `Marks`; None: nothing is marked.
        export: Writes moments into a ZIP file beside a folder, and says what it lacks; None: nothing is exported.
        limit: Most moments to show.
    """

    def __init__(
        self,
        search: MomentSearch,
        *,
        marks: Any = None,
        export: Callable[[list[dict[str, Any]], Path], tuple[Path, list[str]]] | None = None,
        limit: int = 12,
    ) -> None:
        self.search, self.marks, self.write_archive, self.limit = search, marks, export, limit
        self.media = search.media
        self.exports: list[Path] = []

    def choices(self, words: str) -> tuple[str, list[dict[str, Any]], str]:
        """Moments to choose from, as HTML and as rows, and how many there are."""
        try:
            rows, number = self.search.choices(words or "", CHOICES)
        except MISTAKES as error:
            return "", [], told(error)
        if not rows:
            return "", [], cards.tell(f"No moment has “{(words or '')[:60].strip()}” in its label, text or video.")
        said = f"{len(rows)} of {number:,} moments" if len(rows) < number else f"{number:,} moments"
        most = f"{self.media.max_upload_seconds:.0f} s and {self.media.max_upload_bytes / 1e6:.0f} MB"
        return cards.choices(self.media, rows), rows, cards.tell(f"{said}; a clip to upload may have {most}")

    def begin(self, shown: list[dict[str, Any]]) -> tuple[Query | None, str]:
        """The query that the page opens with."""
        return self.take_moment(shown[0]) if shown else (None, "")

    def choose(self, shown: list[dict[str, Any]], event: gr.EventData) -> tuple[Query | None, str]:
        """Take one of the moments as the query."""
        place = whole_number(getattr(event, "place", None))
        return self.take_moment(shown[place]) if place in range(len(shown)) else (None, "")

    def take_moment(self, row: dict[str, Any]) -> tuple[Query | None, str]:
        """Take a moment as the query."""
        return self.shown_query(lambda: self.search.query_of_moment(row))

    def upload(self, path: str | None) -> tuple[Query | None, str]:
        """Take a visitor's file as the query."""
        if not path:
            return None, ""
        return self.shown_query(lambda: self.search.query_of_upload(self.media.take(Path(path))))

    def shown_query(self, make: Callable[[], Query]) -> tuple[Query | None, str]:
        """A query and how it looks, or why there is none."""
        try:
            query = make()
        except MISTAKES as error:
            return None, told(error)
        return query, cards.query(self.media, query)

    def trim(self, query: Query | None, event: gr.EventData) -> Query | None:
        """Another start and end of the query; one that cannot be changes nothing."""
        try:
            return query and query.trimmed(getattr(event, "start", None), getattr(event, "end", None))
        except ValueError:
            return query

    def find(
        self,
        last: Search,
        query: Query | None,
        text: str | None,
        folder: str | None,
        label: str | None,
        leave_out_video: bool,
        min_score: float | None,
    ) -> tuple[Search, str, str, str]:
        """Search; the state, a line about it, the cards, and nothing exported yet."""
        filters: dict[str, Any] = {"folder": picked(folder), "label": picked(label), "min_score": min_score}
        filters["leave_out_video"] = bool(leave_out_video)
        return self.answer(Search(last.number + 1, query, text or "", filters=filters))

    def again(self, last: Search, event: gr.EventData) -> tuple[Search, str, str, str]:
        """Search for the same with what was marked since; see `find`."""
        try:
            marks = self.marks.of(last.query, last.text, last.found)
        except MISTAKES as error:
            return last, told(error), gr.skip(), gr.skip()
        shown = {row["moment_id"]: marks.get(place) for place, row in enumerate(last.found)}
        judged = {name: is_right for name, is_right in (last.judged | shown).items() if is_right is not None}
        if getattr(event, "search", None) != last.number or not judged:
            return last, gr.skip(), gr.skip(), gr.skip()
        return self.answer(replace(last, number=last.number + 1, judged=judged))

    def answer(self, search: Search) -> tuple[Search, str, str, str]:
        """What `find` gives."""
        began = time.perf_counter()
        right = [one for one, is_right in search.judged.items() if is_right]
        wrong = [one for one, is_right in search.judged.items() if not is_right]
        marked: dict[str, Any] = search.filters | {"more_like": right, "less_like": wrong}
        try:
            found, why = self.search.find(search.query, search.text, limit=self.limit, **marked)
            seconds = time.perf_counter() - began
            search.found, search.troubles = found, [self.trouble(row) for row in found]
            shown = self.shown(search)
        except MISTAKES as error:
            return Search(search.number), told(error), cards.EMPTY_GALLERY, ""
        if not found:
            return search, cards.tell(f"Nothing fits: {why}.", wrong=True), cards.EMPTY_GALLERY, ""
        return search, cards.tell(self.about(search, seconds)), shown, ""

    def about(self, search: Search, seconds: float) -> str:
        """What was searched, in a line."""
        clip, words, only = search.query, " ".join(search.text.split()), search.filters
        right = sum(search.judged.values())
        parts: list[Any] = [
            f"{len(search.found)} of {self.search.count():,} moments in {seconds:.2f} s",
            f"like {clip.stretch.video}, {clip.start_seconds:.2f} to {clip.end_seconds:.2f} s" if clip else "no clip",
            f"“{words}”" if words else "no text",
            only["folder"] and f"in {only['folder']}",
            only["label"] and f"labeled “{only['label']}”",
            only["leave_out_video"] and clip and "without its video",
            only["min_score"] is not None and f"score at least {only['min_score']:g}",
            search.judged and f"marks: {right} right, {len(search.judged) - right} wrong",
            self.search.model_name,
        ]
        return " · ".join(filter(None, parts))

    def open(self, search: Search, event: gr.EventData) -> str:
        """A found moment, large, with its neighbors."""
        if (place := place_of(search, event)) is None:
            unchanged: str = gr.skip()
            return unchanged
        row = search.found[place]
        try:
            neighbors = self.search.neighbors(row)
        except MISTAKES:
            neighbors = [row]  # it is shown without them
        places = {one["moment_id"]: number for number, one in enumerate(search.found)}
        return cards.opened_moment(self.media, place, search.found, neighbors, places, marks=self.marks is not None)

    def trouble(self, row: dict[str, Any]) -> str:
        """Why a moment cannot be shown, or nothing."""
        try:
            return self.search.trouble_with(row)
        except (VideoError, OSError) as error:
            return plain(error)

    def shown(self, search: Search) -> str:
        """The cards of a search with their marks."""
        marks = self.marks and self.marks.of(search.query, search.text, search.found)
        exports = self.write_archive is not None
        return cards.found(self.media, search.found, search.troubles, search.number, marks=marks, exports=exports)

    def mark(self, search: Search, event: gr.EventData) -> tuple[str, str]:
        """Mark a found moment; the cards, and a line about the marks."""
        if (place := place_of(search, event)) is None:
            return gr.skip(), gr.skip()
        is_right = getattr(event, "is_right", None)
        try:
            self.marks.set(search.query, search.text, search.found[place], None if is_right is None else bool(is_right))
            return self.shown(search), self.kept()
        except MISTAKES as error:
            return gr.skip(), told(error)

    def kept(self) -> str:
        """The marks that are kept, to download."""
        try:
            number = len(self.marks.read())
        except MISTAKES as error:
            return told(error)
        if not number:
            return cards.tell("Marked moments are kept as a table from which a model can learn.")
        said = f"{number:,} mark{'' if number == 1 else 's'}, kept in {self.marks.path}"
        return cards.download_link(self.media.offer(self.marks.path, "marks.csv"), "marks.csv", said)

    def export(self, search: Search, event: gr.EventData) -> str:
        """Cut the chosen moments, or all, into a ZIP file to download."""
        assert self.write_archive is not None  # or nothing calls this
        places = getattr(event, "places", None)
        chosen = range(len(search.found)) if places is None else sorted({whole_number(place) for place in places})
        rows = [search.found[place] for place in chosen if place in range(len(search.found))]
        if getattr(event, "search", None) != search.number or not rows:
            unchanged: str = gr.skip()
            return unchanged
        folder = self.media.folder / "files" / f"moments-{id(rows):x}-{len(self.exports)}-{search.number}"
        try:
            archive, left_out = self.write_archive(rows, folder)
        except MISTAKES as error:
            return told(error)
        self.exports.append(archive)
        while len(self.exports) > KEPT_EXPORTS:
            self.exports.pop(0).unlink(missing_ok=True)
        size = archive.stat().st_size / 1e6
        said = f"{len(rows) - len(left_out)} moments, {size:.1f} MB"
        return cards.download_link(self.media.offer(archive, "moments.zip"), "moments.zip", said, left_out)


def told(error: BaseException) -> str:
    """An error as a line on the page."""
    said = plain(error)
    first = said.partition(" ")[0]
    begin = first if "." in first or "/" in first else first.capitalize()  # the name of a file stays
    return cards.tell(f"{begin}{said[len(first) :]}.", wrong=True)


def whole_number(value: Any) -> int:
    """A number that a browser sent; -1 where it is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) else -1


def place_of(search: Search, event: gr.EventData) -> int | None:
    """The place of the found moment that an event is about; None of another search, or where there is none."""
    place = whole_number(getattr(event, "place", None))
    is_here = getattr(event, "search", None) == search.number and place in range(len(search.found))
    return place if is_here else None


def picked(choice: str | None) -> str | None:
    """The choice of a filter; None: all."""
    return None if not choice or choice == EVERYWHERE else choice


def part(function: str, *events: str, **options: Any) -> gr.HTML:
    """A part of the page that a function of `page.js` brings to life."""
    script = (HERE / "page.js").read_text(encoding="utf-8")
    names = " ".join(f"'{event}'" for event in events)  # Gradio looks for the events' names here
    run = f"{script}\n{function}(element, trigger, watch); // {names}"
    return gr.HTML(elem_id=options.pop("elem_id"), js_on_load=run, apply_default_css=False, **options)


def build_page(page: Page, *, title: str, note: str, examples: Sequence[str] = ()) -> gr.Blocks:
    """The page, not yet started.

    Args:
        page: What it does.
        title: Its heading.
        note: What a visitor must know of the moments, as Markdown.
        examples: Texts to click; the page opens with a search for the first.
    """
    private: dict[str, Any] = {"api_visibility": "private"}
    quiet = private | {"show_progress": "hidden"}
    folders, labels = page.search.folders_and_labels()
    reads_texts = page.search.encoder.reads_texts
    blocks: gr.Blocks
    with gr.Blocks(title=title, analytics_enabled=False, delete_cache=CACHE_SECONDS) as blocks:
        query, shown, search = gr.State(None), gr.State([]), gr.State(Search())
        with gr.Row(elem_id="desk"):
            with gr.Column(scale=2, min_width=320, elem_id="asked"):
                gr.Markdown(f"# {title}\n\n{note}", elem_id="heading")
                words = gr.Textbox(
                    label="1. Choose a moment", placeholder="words of its label, text or video", max_lines=1
                )
                number = gr.HTML(elem_id="number")
                moments = part("choices", "choose", elem_id="choices")
                with gr.Row():
                    upload = gr.UploadButton("Upload a clip", file_types=["video"], size="md", min_width=130)
                    none = gr.Button("Text only", size="md", min_width=130, interactive=reads_texts)
                text = gr.Textbox(
                    label="2. Say what is different, or what to look for"
                    if reads_texts
                    else "2. The model of this index reads no text",
                    info=None
                    if reads_texts
                    else "It finds moments that look like the clip. Index with a model that "
                    "stage 2 or tune trained, VidCLIP, CLIP or SigLIP to search by text.",
                    value=examples[0] if examples else "",
                    placeholder="empty: moments that look alike" if reads_texts else "",
                    interactive=reads_texts,
                    max_lines=3,
                    lines=1,
                )
                clip = part("timeline", "trim", elem_id="query")
                if examples:
                    gr.Examples([[one] for one in examples], text, label="Such as", api_visibility="private")
                with gr.Accordion("Filters", open=False, elem_id="filters"):
                    every: dict[str, Any] = {"value": EVERYWHERE, "filterable": True}
                    folder = gr.Dropdown([EVERYWHERE, *folders], label="Folder", visible=bool(folders), **every)
                    label = gr.Dropdown([EVERYWHERE, *labels], label="Label", visible=bool(labels), **every)
                    leave_out = gr.Checkbox(label="Leave out the query's own video")
                    least = gr.Number(label="Lowest score; empty: any", value=None)
                start = gr.Button("Search", variant="primary", elem_id="start")
            with gr.Column(scale=3, min_width=320):
                said = gr.HTML(elem_id="said")
                exported = gr.HTML(elem_id="exported", apply_default_css=False)
                found = part("results", "mark", "export", "again", "open", elem_id="found", value=cards.EMPTY_GALLERY)
                moment = part("opened", elem_id="moment")
                kept = gr.HTML(elem_id="kept", apply_default_css=False)
        load: dict[str, Any] = {"fn": page.choices, "inputs": words, "outputs": [moments, shown, number], **quiet}
        words.change(trigger_mode="always_last", **load)
        begun = blocks.load(**load).then(page.begin, shown, [query, clip], **quiet)
        moments.choose(page.choose, shown, [query, clip], **private)
        clip.trim(page.trim, query, query, queue=False, **quiet)
        none.click(lambda: (None, cards.tell("No clip: only the text is used.")), None, [query, clip], **quiet)
        upload.upload(page.upload, upload, [query, clip], **private)
        filters = [folder, label, leave_out, least]
        inputs, outputs = [search, query, text, *filters], [search, said, found, exported]
        over: dict[str, Any] = {"show_progress_on": said}  # on each of them it would turn over empty space
        for event in [start.click, text.submit, *([begun.then] if examples else [])]:
            event(page.find, inputs, outputs, **over, **private)
        found.open(page.open, search, moment, **quiet)
        if page.marks is not None:
            found.again(page.again, search, outputs, **over, **private)
            blocks.load(page.kept, None, kept, **quiet)
            found.mark(page.mark, search, [found, kept], **quiet)
        if page.write_archive is not None:
            found.export(page.export, search, exported, **private)
    return blocks


class Guard:
    """Answers no request for files by their paths.

    Unless the page is public: only requests for this machine's own names, and no page may frame this one.
    """

    def __init__(self, app: Any, *, is_public: bool) -> None:
        self.app, self.is_public = app, is_public

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: D102 of ASGI
        async def send_unframed(message: Message) -> None:
            if message["type"] == "http.response.start" and not self.is_public:
                message["headers"] = [*message["headers"], (b"content-security-policy", b"frame-ancestors 'none'")]
            await send(message)

        if scope["type"] == "http" and (refused := self.reason(scope)):
            await PlainTextResponse(refused, 403)(scope, receive, send_unframed)
            return
        await self.app(scope, receive, send_unframed)

    def reason(self, scope: Scope) -> str:
        """Why a request is refused, or nothing."""
        if not self.is_public and (foreign := why_foreign(Headers(scope=scope), "page")):
            return foreign
        return "this page serves no files by their paths" if NOT_SERVED.match(scope["path"]) else ""


def launch(
    blocks: gr.Blocks,
    page: Page,
    *,
    port: int | None = None,
    is_public: bool = False,
    beside: Sequence[Middleware] = (),
) -> None:
    """Start the page on this machine alone or, as a Space, where the environment says; `beside` answers before it.

    Raises:
        OSError: The port is taken.
    """
    # None is fetched.
    fonts: dict[str, Any] = {"font": ["system-ui", "sans-serif"], "font_mono": ["ui-monospace", "monospace"]}
    dark_enough = {
        "button_primary_background_fill": "*primary_700",
        "button_primary_background_fill_hover": "*primary_800",
    }
    readable = {"body_text_color_subdued": "*neutral_600", "body_text_color_subdued_dark": "*neutral_300"}
    theme = gr.themes.Default(primary_hue="teal", **fonts).set(
        **dark_enough, **readable, **{f"{name}_dark": color for name, color in dark_enough.items()}
    )
    blocks.launch(
        server_name=None if is_public else "127.0.0.1",
        server_port=port,
        share=False,
        allowed_paths=[],
        max_file_size=page.media.max_upload_bytes,
        css=(HERE / "page.css").read_text(encoding="utf-8"),
        theme=theme,
        footer_links=[],
        run_history=False,
        ssr_mode=False,
        quiet=True,
        prevent_thread_lock=True,
        app_kwargs={
            "routes": [Route(f"/{MEDIA_FOLDER}/{{token}}", page.media.serve)],
            "middleware": [Middleware(Guard, is_public=is_public), *beside],
        },
    )
