"""The video files of a folder at any depth, and a fingerprint of each, by which a moved file is recognized."""

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from hf_datasets.records import Rejection
from hf_datasets.video import VideoError
from hf_datasets.video.store import UNSAFE_ID, VIDEO_EXTENSIONS

BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class VideoFile:
    """A video file as it was found.

    Attributes:
        video: Its path below the folder, with `/`.
        path: Where it is.
        size: In bytes.
        modified_ns: When it was last written, in nanoseconds since 1970.
    """

    video: str
    path: Path
    size: int
    modified_ns: int

    @property
    def is_unchanged(self) -> bool:
        """Whether the file still has this size and time; False where it is gone."""
        try:
            status = self.path.stat()
        except OSError:
            return False
        return (status.st_size, status.st_mtime_ns) == (self.size, self.modified_ns)


def find_videos(folder: Path) -> tuple[list[VideoFile], list[Rejection]]:
    """All video files of a folder at any depth, by their extensions, ordered by their paths.

    Links to folders are not followed, and a link to a file outside is refused.

    Args:
        folder: An existing folder.

    Returns:
        The files, and a rejection for each one that cannot be used.

    Raises:
        NotADirectoryError: There is no such folder.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "vault.mp4").write_bytes(b"...")
        >>> files, rejections = find_videos(folder)
        >>> [(file.video, file.size) for file in files], rejections
        ([('vault.mp4', 3)], [])
    """
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} is not a folder; give the one that holds the videos")
    root = folder.resolve()
    files: list[VideoFile] = []
    rejections: list[Rejection] = []
    for place, _, names in os.walk(root, onerror=lambda error: rejections.append(_unreadable(error))):
        for name in names:
            if name.lower().endswith(VIDEO_EXTENSIONS):
                path = Path(place, name)
                found = _described(path, root)
                if isinstance(found, VideoFile):
                    files.append(found)
                else:
                    rejections.append(found)
    return sorted(files, key=lambda file: file.video), rejections


def path_of_video(root: Path, video: str) -> Path:
    """The file of a video that `find_videos` named; an index may come from anyone, so nothing outside is opened.

    Args:
        root: The folder.
        video: A path below it, with `/`.

    Raises:
        VideoError: The path could leave the folder, or there is no such file.

    Example:
        >>> path_of_video(Path("archive"), "../private.mp4")
        Traceback (most recent call last):
        ...
        hf_datasets.video.failures.VideoError: '../private.mp4' is refused: it could be outside the folder of videos
    """
    if UNSAFE_ID.search(video) or ".." in video.split("/"):
        raise VideoError(f"{video!r} is refused: it could be outside the folder of videos")
    path = root / video
    try:
        real = path.resolve(strict=True)
        is_inside = real.is_relative_to(root.resolve())
    except (OSError, RuntimeError, ValueError) as error:
        raise VideoError(
            f"{video} is no longer in the folder of videos; put it back, or run `subtle index` again"
        ) from error
    if not is_inside or not real.is_file():
        raise VideoError(f"{video!r} is refused: it is outside the folder of videos, or no ordinary file")
    return path


def _unreadable(error: OSError) -> Rejection:
    return Rejection(f"unreadable folder: {error.filename} ({error.strerror})", str(error.filename))


def _described(path: Path, root: Path) -> VideoFile | Rejection:
    video = path.relative_to(root).as_posix()
    shown = video.encode("utf-8", "backslashreplace").decode()
    try:
        video.encode()
        is_inside = path.resolve(strict=True).is_relative_to(root)
        status = path.stat()
    except UnicodeEncodeError:
        return Rejection(f"file name that is not UTF-8: {shown}; rename it", shown, shown)
    except (OSError, RuntimeError) as error:  # a loop of links is either, by the version of Python
        return Rejection(f"file that cannot be reached: {video} ({error})", video, video)
    if UNSAFE_ID.search(video):
        return Rejection(f"file name with a control character or a backslash: {video!r}; rename it", video, video)
    if not is_inside:
        return Rejection(f"link out of the folder: {video}; copy the file into the folder", video, video)
    if not stat.S_ISREG(status.st_mode):
        return Rejection(f"no ordinary file: {video} is a folder, pipe, socket or device; remove it", video, video)
    return VideoFile(video, path, status.st_size, status.st_mtime_ns)


def fingerprint(path: Path) -> str:
    """A hash of a file's content, with its size in bytes: `<40 hexadecimal digits>-<size>`.

    Raises:
        OSError: It cannot be read, or it is a pipe or a device, which would be waited for.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "vault.mp4"
        >>> _ = path.write_bytes(b"...")
        >>> fingerprint(path)[40:]
        '-3'
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(f"{path} is no ordinary file, but a folder, pipe, socket or device")
    digest, size = hashlib.blake2b(digest_size=20), 0
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            digest.update(block)
            size += len(block)
    return f"{digest.hexdigest()}-{size}"
