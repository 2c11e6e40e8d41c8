"""The videos of a folder at any depth, and a fingerprint of each, by which a moved one is recognized."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from hf_datasets.records import Rejection
from hf_datasets.video import VideoError
from hf_datasets.video.frame_folder import FrameFolder, is_frame, version_of
from hf_datasets.video.store import UNSAFE_ID, VIDEO_EXTENSIONS

BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class VideoFile:
    """A video file, or a folder of frames, as it was found.

    Attributes:
        video: Its path below the folder, with `/`.
        path: Where it is.
        size: In bytes, of all its frames.
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
            return version_of(self.path) == (self.size, self.modified_ns)
        except VideoError:
            return False


def find_videos(folder: Path) -> tuple[list[VideoFile], list[Rejection]]:
    """All video files of a folder at any depth, by their extensions, and all folders of frames, ordered by their paths.

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

    def reject(error: OSError) -> None:
        reason = f"unreadable folder: {error.filename} ({error.strerror})"
        rejections.append(Rejection(reason, str(error.filename)))

    for place, _, names in os.walk(root, onerror=reject):
        videos = [Path(place, name) for name in names if name.lower().endswith(VIDEO_EXTENSIONS)]
        if Path(place) != root and any(map(is_frame, names)):
            videos.append(Path(place))
        for path in videos:
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
    is_folder = real.is_dir() and real != root.resolve() and any(is_frame(path.name) for path in real.iterdir())
    if not is_inside or not (real.is_file() or is_folder):
        raise VideoError(f"{video!r} is refused: it is outside the folder of videos, or no ordinary file")
    return path


def _described(path: Path, root: Path) -> VideoFile | Rejection:
    video = path.relative_to(root).as_posix()
    shown = video.encode("utf-8", "backslashreplace").decode()
    try:
        video.encode()
        is_inside = path.resolve(strict=True).is_relative_to(root)
    except UnicodeEncodeError:
        return Rejection(f"file name that is not UTF-8: {shown}; rename it", shown, shown)
    except (OSError, RuntimeError) as error:  # a loop of links is either, by the version of Python
        return Rejection(f"file that cannot be reached: {video} ({error})", video, video)
    if UNSAFE_ID.search(video):
        return Rejection(f"file name with a control character or a backslash: {video!r}; rename it", video, video)
    if not is_inside:
        return Rejection(f"link out of the folder: {video}; copy the file into the folder", video, video)
    try:
        return VideoFile(video, path, *version_of(path))
    except VideoError as error:
        return Rejection(f"unusable video: {error}", video, video)


def file_fingerprint(path: Path) -> str:
    """A hash of the content of a file or of a folder's frames, with its size: `<40 hexadecimal digits>-<bytes>`.

    Raises:
        OSError: It cannot be read, is a pipe or a device, which would be waited for, or a folder without frames.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "vault.mp4"
        >>> _ = path.write_bytes(b"...")
        >>> file_fingerprint(path)[40:]
        '-3'
    """
    try:
        version_of(path)
        parts = [path / name for name in FrameFolder.of(path).names] if path.is_dir() else [path]
    except VideoError as error:
        raise OSError(str(error)) from error
    digest, size = hashlib.blake2b(digest_size=20), 0
    for part in parts:
        with part.open("rb") as file:
            while block := file.read(BLOCK_BYTES):
                digest.update(block)
                size += len(block)
    return f"{digest.hexdigest()}-{size}"
