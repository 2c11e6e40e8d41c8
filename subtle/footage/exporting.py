"""Found moments as files: clips, a contact sheet, timelines for editing programs and a playlist."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import opentimelineio as otio
from PIL import Image, ImageDraw

from hf_datasets.drafts import replacing, write_json
from hf_datasets.footage.files import path_of_video
from hf_datasets.video import VideoError, VideoStore, read_frames
from hf_datasets.video.backends import open_video
from hf_datasets.video.cutting import copy_clip, encode_clip, sound_channels
from subtle.footage.annotating import write_tasks
from subtle.footage.output import records, shown
from subtle.running import CONTROL_CHARACTERS

EARLY_SECONDS = 0.1
SHEET_COLUMNS = 4
PICTURE_SIZE = (240, 135)
LINE_HEIGHT = 14
CAPTION_HEIGHT = 2 * LINE_HEIGHT + 4
MOST_SECONDS = 1e7  # which have names of files
TIMELINES = {"moments.edl": "cmx_3600", "moments.xml": "fcp_xml", "moments.fcpxml": "fcpx_xml"}
"""Files with one frame rate, and the adapters that write them: CMX 3600, Final Cut Pro 7 (Premiere, Resolve) and X."""


def export(found: Sequence[dict[str, Any]], root: str, folder: Path, *, exact: bool, mute: bool = False) -> list[str]:
    """Write the moments into a new folder.

    `clips/` has each moment with its sound; a copied clip begins at the last keyframe before it, an exact one is
    encoded again. `contact_sheet.jpg` shows the middle of each, `moments.otio`, `.edl`, `.xml` and `.fcpxml` are
    timelines of the videos, `moments.m3u` is a playlist of media fragments, `moments.json` says how each clip was made,
    `annotate/` has tasks for Label Studio and CVAT.

    Args:
        found: As `search_moments` gives them.
        root: The folder of the videos.
        folder: Missing or empty.
        exact: Encode every clip again.
        mute: Leave the sound out.

    Returns:
        Why moments could not be cut; they are left out of everything.

    Raises:
        FileExistsError: The folder is not empty.
        VideoError: The folder of the videos is not there.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(f"{folder} is not empty; name another folder for --export")
    store = VideoStore(root)
    rows, pictures, failures = [], [], []
    with replacing(folder) as draft:
        (draft / "clips").mkdir(parents=True)
        for rank, (row, record) in enumerate(zip(found, records(found), strict=True), start=1):
            try:
                check_span(row)
                path = path_of_video(store.root, row["video"])
                made = cut_moment(path, draft / "clips", rank, row, exact=exact, mute=mute)
                pictures.append((rank, row, picture_of(path, row)))
            except VideoError as error:
                failures.append(str(error))
                continue
            rows.append(record | {"rank": rank, "path": str(path), **made})
        contact_sheet(pictures).save(draft / "contact_sheet.jpg", quality=88)
        if rows:
            write_timelines(rows, draft)
            write_tasks(rows, draft / "annotate")
        (draft / "moments.m3u").write_text(playlist(rows), encoding="utf-8")
        kept = [{name: value for name, value in row.items() if name not in {"path", "frame_rate"}} for row in rows]
        write_json(draft / "moments.json", kept)
    return failures


def check_span(row: dict[str, Any]) -> None:
    """Refuse a moment that cannot be cut: an index may come from anyone, a span from a model.

    Raises:
        VideoError: It has no span of seconds.
    """
    start, end = row["start_seconds"], row["end_seconds"]
    if not all(isinstance(seconds, int | float) for seconds in (start, end)) or not 0 <= start < end < MOST_SECONDS:
        raise VideoError(f"{row['video']}: {start} to {end} is no span; it is 0 <= start < end in seconds")


def told_of_copies(folder: Path) -> str | None:
    """How much earlier than their moments exported clips begin; None where they do not."""
    rows = json.loads((folder / "moments.json").read_text(encoding="utf-8"))
    early = [lead for row in rows if (lead := row["start_seconds"] - row["clip_begins_seconds"]) >= EARLY_SECONDS]
    if not early:
        return None
    return (
        f"{len(early)} of {len(rows)} clips begin before their moments, up to {max(early):.1f} s, at the keyframe "
        "before them; --exact cuts them to the frame"
    )


def cut_moment(path: Path, folder: Path, rank: int, row: dict[str, Any], *, exact: bool, mute: bool) -> dict[str, Any]:
    """One clip; how it was made, and where it begins in its video."""
    span = row["start_seconds"], row["end_seconds"]
    stem = CONTROL_CHARACTERS.sub("_", path.stem)[:80]
    name = f"{rank:03}_{stem}_{span[0]:.3f}-{span[1]:.3f}"
    begin, method, output = span[0], "encoded", folder / f"{name}.mp4"
    if not exact:
        copied = folder / f"{name}{path.suffix.lower()}"
        try:
            begin, method, output = copy_clip(path, copied, *span, mute=mute), "copied", copied
        except VideoError:
            copied.unlink(missing_ok=True)
    if method == "encoded":
        encode_clip(path, output, *span, mute=mute)
    channels = 0 if mute else sound_channels(path)
    with open_video(path) as video:
        rate = video.frame_rate
    made = {"clip": f"clips/{output.name}", "method": method, "clip_begins_seconds": begin}
    return made | {"sound_channels": channels, "frame_rate": rate}


def picture_of(path: Path, row: dict[str, Any]) -> Image.Image:
    """The middle frame of a moment."""
    span = row["start_seconds"], row["end_seconds"]
    read = read_frames(path, 1, *span, size=PICTURE_SIZE[1], spread="seconds", display=True)
    return Image.fromarray(read.frames[0].permute(1, 2, 0).contiguous().numpy())


def contact_sheet(pictures: Sequence[tuple[int, dict[str, Any], Image.Image]]) -> Image.Image:
    """All pictures in a grid, each above its rank, file, seconds and score."""
    width, height = PICTURE_SIZE[0] + 8, PICTURE_SIZE[1] + CAPTION_HEIGHT + 8
    lines = max(1, -(-len(pictures) // SHEET_COLUMNS))
    sheet = Image.new("RGB", (SHEET_COLUMNS * width, lines * height), "white")
    draw = ImageDraw.Draw(sheet)
    for place, (rank, row, picture) in enumerate(pictures):
        left, top = place % SHEET_COLUMNS * width + 4, place // SHEET_COLUMNS * height + 4
        picture.thumbnail(PICTURE_SIZE)
        sheet.paste(picture, (left + (PICTURE_SIZE[0] - picture.width) // 2, top))
        file, facts = texts_below(rank, row, draw)
        draw.text((left, top + PICTURE_SIZE[1] + 2), file, fill="black")
        draw.text((left, top + PICTURE_SIZE[1] + 2 + LINE_HEIGHT), facts, fill="black")
    return sheet


def texts_below(rank: int, row: dict[str, Any], draw: ImageDraw.ImageDraw) -> tuple[str, str]:
    """What stands below a picture: the end of its file's name, as much as there is room for, and its facts."""
    video = shown(row["video"])
    file = f"{rank}.  {video}"
    while draw.textlength(file) > PICTURE_SIZE[0] and video:
        video = video[1:]
        file = f"{rank}.  …{video}"
    return file, f"{row['start_seconds']:.2f} - {row['end_seconds']:.2f} s   score {row['score']:.3f}"


def timeline(rows: Sequence[dict[str, Any]], rate: float | None = None) -> otio.schema.Timeline:
    """The moments in their order, on a track of pictures and, where one has sound, a track of sound.

    Args:
        rows: One or more of `export`, with the `path` of the video, its `frame_rate` in frames per second and
            its `sound_channels`.
        rate: Frames per second of all clips; None: each as its video.
    """
    times, kinds = otio.opentime, otio.schema.TrackKind
    tracks = [otio.schema.Track(kind, kind=kind) for kind in (kinds.Video, kinds.Audio)]
    for row in rows:
        own = rate or row["frame_rate"]
        begin, end = (round(row[name] * own) for name in ("start_seconds", "end_seconds"))
        span = times.TimeRange(times.RationalTime(begin, own), times.RationalTime(max(1, end - begin), own))
        title = " ".join(filter(None, [shown(row["label"]), f"{row['score']:.3f}"]))
        for track in tracks:
            if track.kind == kinds.Audio and not row["sound_channels"]:
                track.append(otio.schema.Gap(duration=span.duration))
                continue
            whole = times.TimeRange(times.RationalTime(0, own), span.end_time_exclusive())
            media = otio.schema.ExternalReference(Path(row["path"]).as_uri(), whole)
            clip = otio.schema.Clip(shown(row["video"]), media, span)
            facts = {name: row[name] for name in ("moment_id", "score", "label") if row.get(name) is not None}
            clip.metadata["subtle"] = facts
            clip.markers.append(otio.schema.Marker(title, times.TimeRange(span.start_time, times.RationalTime(1, own))))
            track.append(clip)
    made = otio.schema.Timeline("found moments")
    made.tracks.extend(tracks if any(row["sound_channels"] for row in rows) else tracks[:1])
    return made


def write_timelines(rows: Sequence[dict[str, Any]], folder: Path) -> None:
    """Write `moments.otio`, where each clip has the frame rate of its video, and `TIMELINES`.

    These have the rate with a timecode that is nearest to the first video's; Final Cut Pro X, whose times are seconds,
    a whole one. An edit list has pictures only.
    """
    otio.adapters.write_to_file(timeline(rows), str(folder / "moments.otio"))
    rate = otio.opentime.RationalTime.nearest_smpte_timecode_rate(rows[0]["frame_rate"]) or 25.0
    for name, adapter in TIMELINES.items():
        own = round(rate) if adapter == "fcpx_xml" else rate
        otio.adapters.write_to_file(timeline(rows, own), str(folder / name), adapter)


def playlist(rows: Sequence[dict[str, Any]]) -> str:
    """An extended M3U of media fragments: each video at its seconds."""
    lines = ["#EXTM3U"]
    for row in rows:
        start, end = row["start_seconds"], row["end_seconds"]
        title = " ".join(filter(None, [shown(row["video"]), shown(row["label"])]))
        lines += [f"#EXTINF:{end - start:.3f},{title}", f"{Path(row['path']).as_uri()}#t={start:.3f},{end:.3f}"]
    return "\n".join([*lines, ""])
