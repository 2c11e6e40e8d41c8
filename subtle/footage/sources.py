"""What an index is to hold: the video files of a folder or a table, and which moments of each."""

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

from hf_datasets.footage.files import VideoFile, find_videos
from hf_datasets.footage.moments import VideoMoment, Windows, read_moments
from hf_datasets.records import Rejection
from hf_datasets.video import VideoError, VideoStore
from hf_datasets.video.frame_folder import version_of


@dataclass(frozen=True)
class WantedFile:
    """A video file and its moments.

    Attributes:
        file: As it was found.
        moments: Of a table; None where they follow from the video.
        windows: The rule for windows; None for shots, or with `moments`.
        detector: What finds shots, see `shot_detection`.
    """

    file: VideoFile
    moments: tuple[VideoMoment, ...] | None = None
    windows: Windows | None = None
    detector: str = "shots"

    @property
    def finds_shots(self) -> bool:
        """Whether its moments are its shots."""
        return self.moments is None and self.windows is None

    @property
    def moments_of(self) -> str:
        """A name for which moments are asked for, whatever the file's place is."""
        if self.moments is None:
            rule = self.windows
            return self.detector if rule is None else f"windows of {rule.seconds:g} s every {rule.stride_seconds:g} s"
        own = f"{self.file.video}#"
        rows = [
            astuple(replace(moment, video="", moment_id=moment.moment_id.removeprefix(own))) for moment in self.moments
        ]
        return "table " + hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Source:
    """Everything that an index is to hold.

    Attributes:
        root: The folder below which the videos are.
        files: Ordered by their paths.
        rejections: What cannot be indexed.
    """

    root: Path
    files: list[WantedFile]
    rejections: list[Rejection]


def folder_source(folder: Path, windows: Windows | None, detector: str = "shots") -> Source:
    """All videos of a folder, cut into windows, or into the shots that a detector finds.

    Raises:
        ValueError: There is no video.
    """
    files, rejections = find_videos(folder)
    if not files:
        why = f"; the first of {len(rejections)} that cannot be used: {rejections[0].reason}" if rejections else ""
        raise ValueError(f"{folder} holds no video file{why}; see that the disk is there, nothing was changed")
    return Source(
        folder.resolve(), [WantedFile(file, windows=windows, detector=detector) for file in files], rejections
    )


def check_source(config: Any) -> None:
    """Read the table of `index.py`, or see that the folder is there; imports nothing that takes long.

    Raises:
        FileNotFoundError: There is no such folder or table.
        ValueError: The table cannot be used.
    """
    if config.activate is None and config.source is not None:
        path = Path(config.source).expanduser()
        if not path.exists():
            raise FileNotFoundError(
                f"{path}: there is no such folder of videos or table of moments; check the name, and that the disk is "
                "there"
            )
        if not path.is_dir():
            read_moments(path, seconds_before=config.seconds_before, seconds_after=config.seconds_after)
            check_video_dir(Path(config.video_dir).expanduser() if config.video_dir else path.absolute().parent)


def check_video_dir(folder: Path) -> None:
    """Refuse a folder of videos that is not there.

    Raises:
        FileNotFoundError: It is not.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder; give the one that holds the videos as --video_dir")


def table_source(moments: Iterable[VideoMoment], folder: Path, rejections: list[Rejection], *, name: str) -> Source:
    """Moments with their video files, looked up with or without extension below a folder.

    Raises:
        FileNotFoundError: There is no such folder.
        ValueError: None of the videos is there.
    """
    check_video_dir(folder)
    store = VideoStore(folder)
    by_name: dict[str, list[VideoMoment]] = {}
    for moment in moments:
        by_name.setdefault(moment.video, []).append(moment)
    by_video: dict[str, list[VideoMoment]] = {}
    files: dict[str, VideoFile] = {}
    missing: list[Rejection] = []
    for given, theirs in by_name.items():
        try:
            path = store.path(given)
            size, modified_ns = version_of(path)
        except (VideoError, OSError) as error:
            reason = f"missing video: {given!r} of {name}, {len(theirs)} moments; {error}"
            missing.append(Rejection(reason, json.dumps([moment.moment_id for moment in theirs]), given))
            continue
        video = Path(os.path.relpath(path, store.root)).as_posix()
        files[video] = VideoFile(video, path, size, modified_ns)
        renamed = (replace(moment, video=video, moment_id=own_id(moment, given, video)) for moment in theirs)
        by_video.setdefault(video, []).extend(renamed)
    if not files:
        first = f"; the first: {missing[0].reason}" if missing else ""
        raise ValueError(f"{name}: none of its videos is in {folder}{first}; nothing was changed")
    wanted = [
        WantedFile(
            files[video],
            tuple(sorted(by_video[video], key=lambda moment: (moment.start_seconds or 0.0, moment.moment_id))),
        )
        for video in sorted(files)
    ]
    return Source(store.root, wanted, rejections + missing)


def own_id(moment: VideoMoment, given: str, video: str) -> str:
    """The id of a moment whose video has another path than its table says; ids that the table gives stay."""
    rest = moment.moment_id.removeprefix(f"{given}#t=")
    return moment.moment_id if rest == moment.moment_id else f"{video}#t={rest}"


def miniature_source() -> Source:
    """All clips of TF-CoVR's miniature."""
    from datasets import load_dataset

    import hf_datasets  # noqa: F401 - registers the datasets' names

    rows = [row for split in load_dataset("tfcovr", "mini-clips").values() for row in split]
    moments = [
        VideoMoment(
            row["clip_id"], row["video_id"], row["start_seconds"], row["end_seconds"], row["label"], row["description"]
        )
        for row in rows
    ]
    paths = [row["video"] for row in rows if row["video"]]
    return table_source(moments, Path(os.path.commonpath(paths)), [], name="the miniature")
