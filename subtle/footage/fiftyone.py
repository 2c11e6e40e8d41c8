"""Found moments as a dataset of FiftyOne."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hf_datasets.video.backends import open_video

if TYPE_CHECKING:
    from subtle.index import Moment


def to_fiftyone(found: Sequence["Moment"], name: str | None = None) -> Any:
    """A dataset with a sample for each video and its moments as temporal detections, in the field `moments`.

    `fiftyone.launch_app(subtle.to_fiftyone(found))` shows them on the timelines of their videos. A detection has the
    moment's label, its score as `confidence`, its frames (counted from 1, the last one within) and `moment_id`, `text`.

    Args:
        found: Moments with a `path`.
        name: Of the dataset, which must not exist; None: a name of FiftyOne's, and the dataset is not kept.

    Returns:
        A `fiftyone.Dataset` of videos, in the order in which they were found first.

    Raises:
        ImportError: FiftyOne is missing.
        ValueError: It is not known where a video is.
        VideoError: A video cannot be read.
    """
    try:
        import fiftyone
    except ImportError as error:
        raise ImportError("FiftyOne is missing; pip install 'subtle-video[fiftyone]'") from error
    videos: dict[Path, list[Moment]] = {}
    for moment in found:
        if moment.path is None:
            raise ValueError(f"it is not known where {moment.video} is; give video_dir to open_index")
        videos.setdefault(moment.path, []).append(moment)
    samples = []
    for path, moments in videos.items():
        with open_video(path) as video:
            rate, (height, width), seconds = float(video.frame_rate), video.size, video.promised_seconds
        metadata = fiftyone.VideoMetadata(
            frame_width=width,
            frame_height=height,
            frame_rate=rate,
            total_frame_count=round(seconds * rate),
            duration=seconds,
        )
        detections = []
        for moment in moments:
            first = round(moment.start_seconds * rate) + 1
            support = [first, max(first, round(moment.end_seconds * rate))]
            detection = fiftyone.TemporalDetection(label=moment.label, confidence=moment.score, support=support)
            detection["moment_id"], detection["text"] = moment.moment_id, moment.text
            detections.append(detection)
        sample = fiftyone.Sample(filepath=str(path), metadata=metadata)
        sample["moments"] = fiftyone.TemporalDetections(detections=detections)
        samples.append(sample)
    dataset = fiftyone.Dataset(name)
    dataset.add_samples(samples)
    return dataset
