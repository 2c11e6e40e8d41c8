"""Found moments as timelines for editing programs, by OpenTimelineIO and its adapters."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import opentimelineio as otio

from subtle.footage.output import shown

TIMELINES = {"moments.edl": "cmx_3600", "moments.xml": "fcp_xml", "moments.fcpxml": "fcpx_xml"}
"""Files with one frame rate, and the adapters that write them: CMX 3600, Final Cut Pro 7 (Premiere, Resolve) and X."""


def timeline(rows: Sequence[dict[str, Any]], rate: float | None = None) -> otio.schema.Timeline:
    """The moments in their order, on a track of pictures and, where one has sound, a track of sound.

    Args:
        rows: One or more of `exporting.export`, with the `path` of the video, its `frame_rate` in frames per second and
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
