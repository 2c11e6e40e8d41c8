"""Video files of a folder by id, and which of them are there: the coverage that is reported with every score."""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from .failures import VideoError
from .frame_folder import is_frame

VIDEO_EXTENSIONS = (
    ".mp4", ".mkv", ".webm", ".avi", ".mov", ".m4v", ".mpg", ".mpeg", ".flv", ".wmv", ".3gp", ".ts", ".ogv",
)  # fmt: skip
# Control characters, a Windows drive, a backslash; `/` only separates folders below the root.
UNSAFE_ID = re.compile(r"[\x00-\x1f\x7f-\x9f\\]|^[A-Za-z]:|^/")


@dataclass(frozen=True, slots=True)
class VideoCoverage:
    """Which of some ids have a video file; reported with every score."""

    found: tuple[str, ...]
    missing: tuple[str, ...]
    ambiguous: tuple[str, ...]

    @property
    def fraction(self) -> float:
        """The share of the ids that were found, in [0, 1]; 1.0 if there were none."""
        total = len(self.found) + len(self.missing) + len(self.ambiguous)
        return len(self.found) / total if total else 1.0


class VideoStore:
    """Videos of a folder by id: the file's name without its extension, at any depth.

    A folder of numbered frames is a video, too, whose id is its name, or that after the folder above it, as FineDiving
    has them: the dive `01_1` is `01/1/00001.jpg`, `01/1/00002.jpg` and so on.

    Ids come from annotation files and are not trusted: nothing outside the folder is ever opened.

    Args:
        root: The folder. It is listed once, when it is first needed.

    Raises:
        VideoError: If `root` is not a folder.

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
        """Files and folders of frames by the keys that may name them; symbolic links to folders are not followed."""
        files: dict[str, list[Path]] = {}
        for folder, _, names in os.walk(self.root):
            if any(map(is_frame, names)):
                frames = Path(folder).relative_to(self.root)
                for key in {frames.as_posix(), frames.name, "_".join(frames.parts[-2:])}:
                    files.setdefault(key, []).append(Path(folder))
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
                "ids; fix the annotation"
            )
        files = self._files.get(video_id, [])
        for path in files:
            if not _real(path).is_relative_to(self.root):
                raise VideoError(f"{path} is a link that leaves {self.root}; copy the file into the folder")
        return files

    def path(self, video_id: str) -> Path:
        """The file of an id; ids may begin with `-`, hold `@`, `_` and `.`, and name subfolders with `/`.

        Raises:
            VideoError: If the id could leave the folder, has no file or several, or is a link to itself.
        """
        files = self._candidates(video_id)
        if not files:
            raise VideoError(
                f"video {video_id!r} is not under {self.root} with an extension of {', '.join(VIDEO_EXTENSIONS)}; "
                "fetch it, or give the folder that holds it (links to folders are not followed)"
            )
        if len({_real(path) for path in files}) > 1:
            raise VideoError(
                f"video {video_id!r} is ambiguous: {', '.join(str(path) for path in sorted(files))}; keep one of them"
            )
        return files[0]

    def coverage(self, video_ids: Iterable[str]) -> VideoCoverage:
        """Which ids, each counted once and in order, have one file, none, or several.

        Raises:
            VideoError: If an id could leave the folder, or its file is a link that does, or a link to itself.
        """
        found, missing, ambiguous = [], [], []
        for video_id in dict.fromkeys(video_ids):
            files = self._candidates(video_id)
            if len({_real(path) for path in files}) > 1:
                ambiguous.append(video_id)
            elif files:
                found.append(video_id)
            else:
                missing.append(video_id)
        return VideoCoverage(tuple(found), tuple(missing), tuple(ambiguous))


def _real(path: Path) -> Path:
    try:
        return Path(os.path.realpath(path, strict=True))
    except FileNotFoundError:
        return path.resolve()  # a link to nothing: reading it is an error that names it
    except OSError as error:  # pathlib names a loop of links differently from one Python to the next
        raise VideoError(f"{path}: cannot be followed ({error.strerror}); copy the file there") from error
