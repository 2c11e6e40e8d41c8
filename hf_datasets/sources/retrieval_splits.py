"""Whole videos with the texts that describe them, as retrieval is measured: MSR-VTT, and ActivityNet Captions."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, get_args

from hf_datasets.records import CaptionedVideo, Rejection
from hf_datasets.sources.activitynet_captions import load_object, read_activitynet_captions
from hf_datasets.sources.values import list_of, raw_of, text
from hf_datasets.tables import check_columns, check_rows, is_empty, read_table

Described = tuple[str, tuple[str, ...]]
"""The id of a video and the texts that describe it."""
RetrievalSplit = Literal["msrvtt_1ka", "msrvtt", "activitynet"]
SPLIT_FILES: Mapping[RetrievalSplit, tuple[str, ...]] = {
    "msrvtt_1ka": ("MSRVTT_JSFUSION_test.csv",),
    "msrvtt": ("MSRVTT_data.json", "test_videodatainfo.json"),
    "activitynet": ("val_1.json",),
}
"""The public file that says which videos and texts a split has; of several any one will do."""


def read_retrieval_split(folder: Path, split: RetrievalSplit) -> Iterator[Described | Rejection]:
    """Read a split of a retrieval benchmark.

    Args:
        folder: Holds one of the split's `SPLIT_FILES`, at any depth.
        split: "msrvtt_1ka", 1,000 videos with a sentence each (JSFusion's choice); "msrvtt", the 2,990 test videos with
            20 sentences each; "activitynet", the 4,917 videos of val_1, each with all its sentences as one paragraph.

    Yields:
        A video with its texts, or a rejection.

    Raises:
        FileNotFoundError: No file is there.
        ValueError: The file is not what its name says, or `split` is unknown.
    """
    if split not in SPLIT_FILES:
        raise ValueError(f"split is {split!r}; it may be {', '.join(get_args(RetrievalSplit))}")
    found = [path for name in SPLIT_FILES[split] for path in sorted(folder.rglob(name))]
    if not found:
        raise FileNotFoundError(f"{folder} has no {' or '.join(SPLIT_FILES[split])}, which says what {split} is")
    yield from SPLIT_READERS[split](found[0])


def _read_paragraphs(path: Path) -> Iterator[Described | Rejection]:
    for video in read_activitynet_captions(path):
        if isinstance(video, CaptionedVideo):
            yield video.video_id, (" ".join(event.caption for event in video.events),)
        else:
            yield video


def _read_1ka(path: Path) -> Iterator[Described | Rejection]:
    table, damaged = read_table(path)
    list(check_columns(table.columns, ("video_id", "sentence"), source=path.name, optional=table.columns))
    checks = {f"{name} is empty; fetch the file again": is_empty(name) for name in ("video_id", "sentence")}
    rows, refused = check_rows(table, checks, source=path.name, key="video_id")
    yield from [*damaged, *refused]
    for row in rows.iter_rows(named=True):
        yield row["video_id"], (" ".join(row["sentence"].split()),)


def _read_test_split(path: Path) -> Iterator[Described | Rejection]:
    content = load_object(path)
    try:
        tested = {text(video["video_id"]) for video in list_of(content["videos"]) if video["split"] == "test"}
        texts: dict[str, list[str]] = {video_id: [] for video_id in sorted(tested)}
        for sentence in list_of(content["sentences"]):
            if sentence["video_id"] in tested:
                texts[sentence["video_id"]].append(" ".join(text(sentence["caption"]).split()))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is not MSR-VTT's ({type(error).__name__}: {error}); fetch it again") from None
    if not texts:
        raise ValueError(f"{path} has no video of the split test; fetch the file that has")
    for video_id, several in texts.items():
        described = tuple(filter(None, several))
        yield (video_id, described) if described else Rejection("no text", raw_of(several), video_id)


SPLIT_READERS = {"msrvtt_1ka": _read_1ka, "msrvtt": _read_test_split, "activitynet": _read_paragraphs}
