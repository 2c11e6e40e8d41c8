"""The upstream annotations that fine-grained moments are built from: the file of each split, and its moments."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from pathlib import Path

from hf_datasets.fig.release import FILES, read_released_moments
from hf_datasets.long_videos import Split
from hf_datasets.records import CaptionedVideo, Moment, Rejection
from hf_datasets.sources.activitynet_captions import read_activitynet_captions
from hf_datasets.sources.charades_sta import read_charades_durations, read_charades_sta
from hf_datasets.sources.didemo import read_didemo

VERIFIED_SPLITS: dict[str, Split] = {
    "train": "train",
    "val": "validation",
    "val_1": "validation",
    "val_2": "test",
    "test": "test",
}
"""How the stem of an annotation file ends, without `_data` or `_modified` -> split."""
MOMENT_FILE_SUFFIXES = (".json", ".jsonl", ".txt")
DURATIONS = "Charades_v1_*.csv"


def annotation_files(folder: Path) -> dict[Split, Path]:
    """The annotation file of each split in a folder.

    Raises:
        FileNotFoundError: The folder holds none.
    """
    found: dict[Split, Path] = {}
    for path in sorted(path for path in folder.glob("*") if path.suffix in MOMENT_FILE_SUFFIXES):
        stem = path.stem.removesuffix("_data").removesuffix("_modified")
        found |= {split: path for name, split in VERIFIED_SPLITS.items() if stem == name or stem.endswith(f"_{name}")}
    if not found:
        raise FileNotFoundError(
            f"{folder} holds no annotation file of a known name: *_train.jsonl of VERIFIED, charades_sta_train.txt, "
            "train_data.json of DiDeMo or train.json of ActivityNet-Captions; give the folder of the annotations"
        )
    return found


def dataset_of(files: Mapping[Split, Path]) -> str | None:
    """The dataset that annotation files are of, by their names; None where these are of another form.

    Example:
        >>> dataset_of({"train": Path("charades_sta_train.txt")}), dataset_of({"test": Path("didemo_fig_test.jsonl")})
        ('charades_fig', 'didemo_fig')
    """
    path = next(iter(files.values()))
    if path.suffix == ".jsonl":
        return next((dataset for dataset, names in FILES.items() if path.name in names.values()), None)
    return (
        "charades_fig" if path.suffix == ".txt" else f"{'didemo' if path.stem.endswith('_data') else 'activitynet'}_fig"
    )


def read_annotated_moments(path: Path) -> Iterator[Moment | Rejection]:
    """The moments of one annotation file of any of the datasets, in the order of the file, or rejections.

    Args:
        path: See `annotation_files`. The durations of Charades are read from the tables beside it (`DURATIONS`).
    """
    if path.suffix == ".jsonl":
        return read_released_moments(path)
    if path.suffix == ".txt":
        tables = [read_charades_durations(table) for table in sorted(path.parent.glob(DURATIONS))]
        return read_charades_sta(path, {video: seconds for table in tables for video, seconds in table.items()})
    return read_didemo(path) if path.stem.endswith("_data") else moments_of(read_activitynet_captions(path))


def moments_of(videos: Iterable[CaptionedVideo | Rejection]) -> Iterator[Moment | Rejection]:
    """Captioned events as moments, numbered in order.

    Yields:
        A moment for each event, or the rejection of a video.

    Example:
        >>> from hf_datasets.records import CaptionedEvent
        >>> events = (CaptionedEvent(0.0, 4.0, "A man runs."), CaptionedEvent(4.0, 9.0, "He sits."))
        >>> [(moment.desc_id, moment.coarse_caption) for moment in moments_of([CaptionedVideo("v_1", 9.0, events)])]
        [(0, 'A man runs.'), (1, 'He sits.')]
    """
    number = count()
    for video in videos:
        if isinstance(video, Rejection):
            yield video
            continue
        for event in video.events:
            span = (event.start_seconds, event.end_seconds)
            yield Moment(next(number), video.video_id, video.duration_seconds, *span, event.caption, "", None)
