"""Video files by id, and their frames: `(T, C, H, W)` uint8, with the indices and times that were really read."""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from .video_backends import PYAV_FILES, Backend, pixels_of
from .video_pyav import VideoError, VideoLimits, VideoSpanError

__all__ = [
    "VIDEO_EXTENSIONS",
    "Backend",
    "VideoCoverage",
    "VideoError",
    "VideoFrames",
    "VideoLimits",
    "VideoSpanError",
    "VideoStore",
    "frame_indices",
    "read_frames",
]

VIDEO_EXTENSIONS = (
    ".mp4",
    ".mkv",
    ".webm",
    ".avi",
    ".mov",
    ".m4v",
    ".mpg",
    ".mpeg",
    ".flv",
    ".wmv",
    ".3gp",
    ".ts",
    ".ogv",
)
# Control characters, a Windows drive, a backslash; `/` only separates folders below the root.
UNSAFE_ID = re.compile(r"[\x00-\x1f\x7f-\x9f\\]|^[A-Za-z]:|^/")


def frame_indices(num_frames_in_clip: int, num_frames: int) -> list[int]:
    """Which frames of a clip to read: the middle of each of `num_frames` equal segments, ascending.

    A clip with fewer frames than asked for gives each of them once, in order, and again from the first on.

    Source: `get_video_frames` of the TF-CoVR release. It cuts at floor(linspace(0, F, min(T, F) + 1)) and takes
    floor((c_i + c_{i+1} - 1) / 2).

    Args:
        num_frames_in_clip: F, at least 1.
        num_frames: T, at least 1.

    Raises:
        ValueError: If either is less than 1.

    Example:
        >>> frame_indices(100, 12)
        [3, 11, 20, 28, 36, 45, 53, 61, 70, 78, 86, 95]
        >>> frame_indices(5, 12)
        [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1]
    """
    if num_frames_in_clip < 1 or num_frames < 1:
        raise ValueError(
            f"num_frames_in_clip={num_frames_in_clip} and num_frames={num_frames} must be at least 1; "
            "a clip without frames has nothing to sample"
        )
    segments = min(num_frames, num_frames_in_clip)
    # Integers, because linspace in floating point can fall short of a whole number.
    cuts = [segment * num_frames_in_clip // segments for segment in range(segments + 1)]
    middles = [(first + last - 1) // 2 for first, last in pairwise(cuts)]
    return [middles[position % segments] for position in range(num_frames)]


@dataclass(frozen=True, slots=True)
class VideoFrames:
    """Frames of a clip and where they come from.

    Attributes:
        frames: `(num_frames, 3, height, width)` uint8 RGB; in memory the channels come last.
        indices: For each frame its number among the frames of the clip, 0 to `num_frames_in_clip - 1`.
        timestamps_seconds: For each frame when it is presented, from the start of the video.
        num_frames_in_clip: How many frames the clip really holds.
        missing_seconds: How much of the requested span (of the duration that the container promises, for a whole
            file) lies beyond the last frame or does not decode; 0.0 where all is there.
    """

    frames: torch.Tensor
    indices: tuple[int, ...]
    timestamps_seconds: tuple[float, ...]
    num_frames_in_clip: int
    missing_seconds: float


def read_frames(
    path: str | os.PathLike[str],
    num_frames: int,
    start_seconds: float | None = None,
    end_seconds: float | None = None,
    *,
    backend: Backend = "auto",
    size: int | tuple[int, int] | None = None,
    limits: VideoLimits = VideoLimits(),  # noqa: B008 frozen
) -> VideoFrames:
    """Read `num_frames` frames, spread over a clip by `frame_indices`.

    The clip is every frame presented in `[start_seconds, end_seconds)`, counted from the start of the container as
    players do and compared to half a millisecond, because annotations are rounded; a span that falls between two
    frames gives the frame on display. Timestamps are read from the file, so variable frame rates, B-frames and
    edit lists are right, and a container's claims about its length are not believed.

    Args:
        path: A video file.
        num_frames: T, at least 1.
        start_seconds: Where the clip starts; None is the beginning.
        end_seconds: Where it ends, exclusive; None is the end. Beyond the end of the video, what there is is read
            and `missing_seconds` says so.
        backend: Who decodes. "auto" is PyAV, the fastest on long videos. All give the same frames; pixels differ by
            rounding in the colour conversion.
        size: Resize in the same call: the shorter side, or (height, width); bicubic with antialiasing.
        limits: What a file may ask for.

    Raises:
        ValueError: If the span is empty or negative, or `num_frames` is less than 1.
        VideoError: If the file is missing, damaged, too large, or has no frame in the span (`VideoSpanError`).
    """
    path = Path(path)
    _check_span(start_seconds, end_seconds)
    end_seconds = None if end_seconds == float("inf") else end_seconds
    if not path.is_file():
        raise VideoError(f"{path}: no such video file; check the folder, or fetch the video")
    with PYAV_FILES.lend(path) as video:
        video.check(limits)
        span = video.span(start_seconds, end_seconds)
        indices = frame_indices(len(span.keys), num_frames)
        pixels = pixels_of(video, [span.keys[index] for index in sorted(set(indices))], backend)
        if len(pixels) < len(set(indices)):
            span = video.decodable(span)
            if not span.keys:
                raise VideoError(
                    f"{path}: no frame of the clip decodes; fetch the file again, or re-encode it"
                )
            indices = frame_indices(len(span.keys), num_frames)
            pixels = pixels_of(video, [span.keys[index] for index in sorted(set(indices))], backend)
        keys = [span.keys[index] for index in indices]
        if not pixels.keys() >= set(keys):
            cure = "re-encode the video" if backend in {"auto", "pyav"} else "use backend='pyav'"
            raise VideoError(f"{path}: {backend} does not give the frames that the file lists; {cure}")
        times = tuple(video.seconds(key) for key in keys)
    frames = torch.from_numpy(np.stack([pixels[key] for key in keys])).permute(0, 3, 1, 2)  # (T, C, H, W)
    if size is not None:
        frames = _resize(frames, size)
    return VideoFrames(frames, tuple(indices), times, len(span.keys), span.missing_seconds)


def _check_span(start_seconds: float | None, end_seconds: float | None) -> None:
    start = 0.0 if start_seconds is None else start_seconds
    end = float("inf") if end_seconds is None else end_seconds
    if not 0 <= start < end:
        raise ValueError(
            f"start_seconds={start_seconds}, end_seconds={end_seconds}: a clip is [start, end) in seconds with "
            "0 <= start < end; mend the annotation"
        )


def _resize(frames: torch.Tensor, size: int | tuple[int, int]) -> torch.Tensor:
    from torchvision.transforms.v2 import InterpolationMode, functional

    wanted = [size] if isinstance(size, int) else list(size)
    return functional.resize(frames, wanted, interpolation=InterpolationMode.BICUBIC, antialias=True)


@dataclass(frozen=True, slots=True)
class VideoCoverage:
    """Which of some ids a store can serve: the figure that stands beside every score."""

    found: tuple[str, ...]
    missing: tuple[str, ...]
    ambiguous: tuple[str, ...]

    @property
    def fraction(self) -> float:
        """Found over asked for, in [0, 1]; 1.0 if nothing was asked for."""
        asked = len(self.found) + len(self.missing) + len(self.ambiguous)
        return len(self.found) / asked if asked else 1.0


class VideoStore:
    """Videos of a folder by id: the file's name without its extension, at any depth.

    Ids come from annotation files and are not trusted: nothing outside the folder is ever opened.

    Args:
        root: The folder. It is listed once, at the first question.

    Raises:
        VideoError: If `root` is no folder.

    Example:
        >>> import tempfile
        >>> root = Path(tempfile.mkdtemp())
        >>> (root / "-a_B@c.mp4").touch()
        >>> VideoStore(root).path("-a_B@c").name
        '-a_B@c.mp4'
        >>> VideoStore(root).coverage(["-a_B@c", "other"])
        VideoCoverage(found=('-a_B@c',), missing=('other',), ambiguous=())
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        if not Path(root).is_dir():
            raise VideoError(f"{root}: no such folder of videos; give the folder that holds the files")
        self.root = Path(root).resolve()

    @cached_property
    def _files(self) -> dict[str, list[Path]]:
        """Files by stem, by name and by both below the root; symbolic links to folders are not followed."""
        files: dict[str, list[Path]] = {}
        for folder, _, names in os.walk(self.root):
            for name in names:
                stem, extension = os.path.splitext(name)  # noqa: PTH122 Path.stem makes ".mp4" a stem
                if extension.lower() in VIDEO_EXTENSIONS:
                    path = Path(folder, name)
                    below = path.relative_to(self.root).as_posix()
                    for key in {stem, name, below, below[: -len(extension)]}:
                        files.setdefault(key, []).append(path)
        return files

    def _candidates(self, video_id: str) -> list[Path]:
        if UNSAFE_ID.search(video_id) or ".." in video_id.split("/"):
            raise VideoError(
                f"video id {video_id!r} is refused: absolute paths, '..', backslashes and control characters are not "
                "ids; mend the annotation"
            )
        files = self._files.get(video_id, [])
        for path in files:
            if not path.resolve().is_relative_to(self.root):
                raise VideoError(f"{path} is a link that leaves {self.root}; copy the file into the folder")
        return files

    def path(self, video_id: str) -> Path:
        """The file of an id; ids may begin with `-`, hold `@`, `_` and `.`, and name subfolders with `/`.

        Raises:
            VideoError: If the id could leave the folder, or no file or several have it.
        """
        files = self._candidates(video_id)
        if not files:
            raise VideoError(
                f"video {video_id!r} is not under {self.root} with an extension of {', '.join(VIDEO_EXTENSIONS)}; "
                "fetch it, or give the folder that holds it (links to folders are not followed)"
            )
        if len({path.resolve() for path in files}) > 1:
            raise VideoError(
                f"video {video_id!r} is ambiguous: {', '.join(str(path) for path in sorted(files))}; keep one of them"
            )
        return files[0]

    def coverage(self, video_ids: Iterable[str]) -> VideoCoverage:
        """Which ids, each counted once and in order, have one file, none, or several.

        Raises:
            VideoError: If an id could leave the folder, or its file is a link that does.
        """
        found, missing, ambiguous = [], [], []
        for video_id in dict.fromkeys(video_ids):
            files = self._candidates(video_id)
            if len({path.resolve() for path in files}) > 1:
                ambiguous.append(video_id)
            elif files:
                found.append(video_id)
            else:
                missing.append(video_id)
        return VideoCoverage(tuple(found), tuple(missing), tuple(ambiguous))
