"""How moments look: HTML in which every text is escaped. `page.js` plays, trims and marks what is here."""

import time
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from subtle.service.media import MAX_CLIP_SECONDS, Footage, Media
from subtle.service.searching import Query

MUTED = "muted playsinline"
EMPTY_GALLERY = (
    '<div class="empty"><svg viewBox="0 0 240 120" width="240" height="120" fill="none" stroke="currentColor" '
    'stroke-width="3" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true">'
    '<rect x="16" y="22" width="76" height="56" rx="8"/><rect x="104" y="10" width="76" height="56" rx="8"/>'
    '<path d="M47 40v20l16-10zM135 28v20l16-10z"/><path d="M16 104h208" stroke-dasharray="1 9"/>'
    '<path class="found" d="M60 104h44M140 104h24"/><circle cx="190" cy="74" r="18"/><path d="M203 87l17 15"/></svg>'
    "<p>Choose a clip or write what to look for, and the moments that fit play here.</p></div>"
)
"""A drawing and a sentence where moments will be."""


def tell(text: str, *, wrong: bool = False) -> str:
    """A line for the visitor."""
    return f'<p class="said{" wrong" if wrong else ""}" role="{"alert" if wrong else "status"}">{escape(text)}</p>'


def choices(media: Media, rows: Sequence[Mapping[str, Any]]) -> str:
    """Moments to choose a query from: buttons with a picture and a label."""
    items = []
    for place, row in enumerate(rows):
        address = media.address("still", footage_of(row))
        label = moment_title(row)
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
    cards = "".join(
        card(media, place, row, trouble, doings(place, marks, exports=exports))
        for place, (row, trouble) in enumerate(zip(rows, troubles, strict=True))
    )
    export = (
        '<button type="button" data-do="all">Export all</button>'
        '<button type="button" data-do="chosen" disabled>Export chosen</button>'
    )
    again = '<button type="button" data-do="again" disabled>Search again with the marks</button>'
    keys = "<kbd>R</kbd> right, <kbd>W</kbd> wrong, " if marks is not None else ""
    return (
        f'<div class="bar" data-search="{number}"><button type="button" data-do="together">Play from the start</button>'
        f'{again if marks is not None else ""}{export if exports else ""}<p class="keys">Keys: <kbd>←</kbd> '
        f"<kbd>→</kbd> other moments, <kbd>Enter</kbd> large, {keys}<kbd>Esc</kbd> back</p></div>"
        f'<ol class="cards">{cards}</ol>'
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
    title = escape(moment_title(row))
    shown = f'<p class="trouble" role="alert">{escape(trouble)}</p>'
    if not trouble:
        clip, poster = (media.address(kind, footage_of(row)) for kind in ("clip", "poster"))
        shown = (
            f'<button type="button" class="open" data-do="open" aria-label="Show moment {place + 1} large: {title}">'
            f'<video src="{clip}" poster="{poster}" {MUTED} loop preload="none"></video></button>'
            '<p class="trouble" role="alert" hidden></p>'
        )
    facts = "".join(f"<span>{escape(fact)}</span>" for fact in facts_of(row))
    return (
        f'<li data-place="{place}">{shown}<div class="text"><b>{place + 1}.</b> {title}<small>{facts}</small></div>'
        f"{doings}</li>"
    )


def opened_moment(
    media: Media,
    place: int,
    rows: Sequence[Mapping[str, Any]],
    neighbors: Sequence[Mapping[str, Any]],
    places: Mapping[str, int],
    *,
    marks: bool,
) -> str:
    """A found moment, large, for a dialog that `page.js` makes of it.

    Its `neighbors` are the moments of its video in the order of time, with itself; `places` are those of the moments
    that were found, by their ids.
    """
    row = rows[place]
    stretches = [footage_of(one) for one in neighbors]
    begin, end = stretches[0].start_seconds, max(stretch.end_seconds for stretch in stretches)
    lanes: list[float] = []  # where the last moment of each ends: moments may overlap
    spans = ""
    for one, stretch in zip(neighbors, stretches, strict=True):
        lane = next((lane for lane, last in enumerate(lanes) if last <= stretch.start_seconds + 0.01), len(lanes))
        lanes[lane : lane + 1] = [stretch.end_seconds]
        left, width = (
            100 * seconds / max(end - begin, 0.01)
            for seconds in (stretch.start_seconds - begin, stretch.end_seconds - stretch.start_seconds)
        )
        title, facts = escape(moment_title(one)), escape(" · ".join(facts_of(one)))
        spans += (
            f'<li style="left:{left:.2f}%;width:{width:.2f}%;top:{52 * lane}px"><button type="button" data-do="show" '
            f'data-found="{places.get(one["moment_id"], "")}" data-clip="{media.address("clip", stretch)}" '
            f'data-poster="{media.address("poster", stretch)}" data-title="{title}" data-facts="{facts}" '
            f'title="{title}" aria-label="{title}, {escape(seconds_of(one))}" '
            f'aria-current="{str(one["moment_id"] == row["moment_id"]).lower()}">'
            f'<img src="{media.address("still", stretch)}" alt="" loading="lazy"></button></li>'
        )
    judge = "".join(
        f'<button type="button" data-do="{name}" aria-pressed="false" aria-keyshortcuts="{name[0].upper()}">{sign} '
        f"{name.capitalize()} <kbd>{name[0].upper()}</kbd></button>"
        for name, sign in (("right", "✓"), ("wrong", "✗"))
        if marks
    )
    return (
        f'<div class="moment" data-place="{place}" data-made="{time.monotonic_ns()}" hidden>'
        '<header><h2></h2><button type="button" data-do="close" aria-label="Close">✕</button></header>'
        f'<video {MUTED} loop controls></video><p class="trouble" role="alert" hidden></p><p class="facts"></p>'
        f'<div class="doings"><button type="button" data-do="before" aria-label="Moment before">←</button>{judge}'
        '<button type="button" data-do="after" aria-label="Next moment">→</button>'
        f"<span>{place + 1} of {len(rows)}</span></div><h3>In {escape(row['video'])}</h3>"
        f'<ol class="spans" style="height:{52 * len(lanes)}px" aria-label="Moments of this video">{spans}</ol>'
        f'<p class="ends"><span>{begin:.1f} s</span><span>{end:.1f} s</span></p></div>'
    )


def download_link(address: str, name: str, said: str, left_out: Sequence[str] = ()) -> str:
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


def facts_of(row: Mapping[str, Any]) -> list[str]:
    """Score, video and seconds, as far as they are not the title."""
    facts = [f"score {row['score']:.3f}"] if row.get("score") is not None else []
    return facts + ([row["video"], seconds_of(row)] if row["label"] or row["text"] else [])


def moment_title(row: Mapping[str, Any]) -> str:
    """Label and text of a moment, or else where it is."""
    return " ".join(filter(None, (row["label"], row["text"]))) or f"{row['video']}, {seconds_of(row)}"


def seconds_of(row: Mapping[str, Any]) -> str:
    """Start and end in words."""
    end = "the end" if row["end_seconds"] is None else f"{row['end_seconds']:.1f}"
    return f"{row['start_seconds'] or 0.0:.1f} to {end} s"
