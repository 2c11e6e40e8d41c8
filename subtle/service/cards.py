"""How moments look: HTML in which every text is escaped. `page.js` plays, trims and marks what is here."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from subtle.service.media import MAX_CLIP_SECONDS, Footage, Media
from subtle.service.searching import Query

MUTED = "muted playsinline"


def tell(text: str, *, wrong: bool = False) -> str:
    """A line for the visitor."""
    return f'<p class="said{" wrong" if wrong else ""}" role="{"alert" if wrong else "status"}">{escape(text)}</p>'


def choices(media: Media, rows: Sequence[Mapping[str, Any]]) -> str:
    """Moments to choose a query from: buttons with a picture and a label."""
    items = []
    for place, row in enumerate(rows):
        address = media.address("still", footage_of(row))
        label = title_of(row)
        items.append(
            f'<li><button type="button" data-place="{place}" title="{escape(label)}"><img src="{address}" alt="" '
            f'loading="lazy" width="120" height="120"><span>{escape(label)}</span></button></li>'
        )
    return f'<ul class="choices" aria-label="Moments to search with">{"".join(items)}</ul>' if items else ""


def query(media: Media, query: Query) -> str:
    """The query's clip with a timeline on which it is trimmed."""
    stretch = query.stretch
    least, most = stretch.start_seconds, stretch.end_seconds
    bounds = f'min="{least:.2f}" max="{most:.2f}" step="0.05"'
    ends = (("start", query.start_seconds), ("end", query.end_seconds))
    handles = "".join(
        f'<input type="range" class="{name}" aria-label="{name.capitalize()} of the clip, in seconds" {bounds} '
        f'value="{seconds:.2f}">'
        for name, seconds in ends
    )
    fields = "".join(
        f'<label>{name.capitalize()} <input type="number" class="{name}" inputmode="decimal" {bounds} '
        f'value="{seconds:.2f}"> s</label>'
        for name, seconds in ends
    )
    name = " · ".join(filter(None, (stretch.video, query.label)))
    return (
        f'<div class="trim" data-begin="{least:.3f}" data-end="{most:.3f}">'
        f'<video src="{query.copy}" aria-label="The query\'s clip" {MUTED}></video>'
        f'<p class="trouble" role="alert" hidden></p><p class="name">{escape(name)}</p>'
        f'<div class="timeline"><div class="strip"><img src="{media.address("strip", stretch)}" alt="">'
        f'<i class="before"></i><i class="after"></i><i class="now"></i>{handles}</div></div>'
        f'<div class="fields"><button type="button" data-do="play">Pause</button>{fields}'
        f'<output class="length">{query.end_seconds - query.start_seconds:.2f} s</output></div></div>'
    )


def found(
    media: Media,
    rows: Sequence[Mapping[str, Any]],
    troubles: Sequence[str],
    number: int,
    *,
    marks: Mapping[int, bool] | None = None,
    exports: bool = False,
) -> str:
    """The found moments as playing cards.

    Args:
        media: Makes what plays.
        rows: The moments, best first.
        troubles: Of each, why it cannot be shown, or nothing.
        number: Of the search.
        marks: By place, whether a moment was marked as right or wrong; None: none can be.
        exports: Whether moments can be chosen and exported.
    """
    if not rows:
        return ""
    cards = "".join(
        card(media, place, row, trouble, doings(place, marks, exports=exports))
        for place, (row, trouble) in enumerate(zip(rows, troubles, strict=True))
    )
    export = (
        '<button type="button" data-do="all">Export all</button>'
        '<button type="button" data-do="chosen" disabled>Export chosen</button>'
    )
    return (
        f'<div class="bar" data-search="{number}"><button type="button" data-do="together">Play from the start</button>'
        f'{export if exports else ""}</div><ol class="cards">{cards}</ol>'
    )


def doings(place: int, marks: Mapping[int, bool] | None, *, exports: bool) -> str:
    """What a visitor can do with a found moment; see `found`."""
    made = "".join(
        f'<button type="button" data-do="{name}" aria-pressed="{str(marks.get(place) is value).lower()}" '
        f'aria-label="Moment {place + 1} is {name}">{sign} {name.capitalize()}</button>'
        for name, sign, value in (("right", "✓", True), ("wrong", "✗", False))
        if marks is not None
    )
    if exports:
        made += f'<label><input type="checkbox" aria-label="Choose moment {place + 1} for export"> Choose</label>'
    return f'<div class="marks">{made}</div>' if made else ""


def card(media: Media, place: int, row: Mapping[str, Any], trouble: str, doings: str) -> str:
    """A found moment: it plays from its start to its end, again and again."""
    title = escape(title_of(row))
    shown = f'<p class="trouble" role="alert">{escape(trouble)}</p>'
    if not trouble:
        shown = (
            f'<video src="{media.address("clip", footage_of(row))}" aria-label="{place + 1}. {title}" {MUTED} loop '
            'controls preload="auto"></video><p class="trouble" role="alert" hidden></p>'
        )
    facts = [f"score {row['score']:.3f}"]
    if row["label"] or row["text"]:  # else they are the title
        facts += [row["video"], seconds_of(row)]
    return (
        f'<li data-place="{place}">{shown}<div class="text"><b>{place + 1}.</b> {title}<small>'
        f"{''.join(f'<span>{escape(fact)}</span>' for fact in facts)}</small></div>{doings}</li>"
    )


def download(address: str, name: str, said: str, left_out: Sequence[str] = ()) -> str:
    """A link to a file, and what it lacks."""
    lacks = "".join(f"<li>{escape(reason)}</li>" for reason in left_out)
    lacks = f'<ul class="lacks">{lacks}</ul>' if lacks else ""
    return (
        f'<p class="said" role="status"><a class="file" href="{address}" download="{escape(name)}">Download '
        f"{escape(name)}</a> {escape(said)}</p>{lacks}"
    )


def footage_of(row: Mapping[str, Any]) -> Footage:
    """The stretch of a moment that plays."""
    start = row["start_seconds"] or 0.0
    most = start + MAX_CLIP_SECONDS
    return Footage(row["video"], start, most if row["end_seconds"] is None else min(row["end_seconds"], most))


def title_of(row: Mapping[str, Any]) -> str:
    """Label and text of a moment, or else where it is."""
    return " ".join(filter(None, (row["label"], row["text"]))) or f"{row['video']}, {seconds_of(row)}"


def seconds_of(row: Mapping[str, Any]) -> str:
    """Start and end in words."""
    end = "the end" if row["end_seconds"] is None else f"{row['end_seconds']:.1f}"
    return f"{row['start_seconds'] or 0.0:.1f} to {end} s"
