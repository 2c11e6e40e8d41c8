"""Videos that are folders of numbered pictures, as FineDiving publishes its dives; FFmpeg reads them as one stream."""

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from .failures import VideoError

FRAME_RATE = 30
"""Frames per second of a folder, in which no file says them: those of FineDiving."""
FRAME_NAME = re.compile(r"(\d{4,})(\.(?:jpe?g|png))", re.ASCII | re.IGNORECASE)
FRAMES_CURE = "fetch the folder again, or number its frames 00001.jpg, 00002.jpg, ..."


def is_frame(name: str) -> bool:
    """Whether a file is named as a frame: at least four digits, and .jpg, .jpeg or .png.

    >>> is_frame("00001.jpg"), is_frame("IMG_0001.jpg")
    (True, False)
    """
    return FRAME_NAME.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class FrameFolder:
    """The frames of a folder.

    Attributes:
        address: What FFmpeg's demuxer `image2` opens.
        first: Number of the first frame.
        names: Of the files, in order.
        size: Of all files, in bytes.
        modified_ns: When the last one was written, in nanoseconds since 1970.
    """

    address: str
    first: int
    names: tuple[str, ...]
    size: int
    modified_ns: int

    @classmethod
    def of(cls, folder: Path) -> "FrameFolder":
        """List a folder.

        Raises:
            VideoError: It has no frames, they have gaps or names of several forms, or one is a link.
        """
        try:
            with os.scandir(folder) as entries:
                found = {entry.name: entry.stat(follow_symlinks=False) for entry in entries if is_frame(entry.name)}
        except OSError as error:
            raise VideoError(f"{folder}: the folder cannot be read ({error.strerror}); {FRAMES_CURE}") from error
        if not found:
            raise VideoError(f"{folder}: no such video file, but a folder without numbered frames; {FRAMES_CURE}")
        forms = {
            (len(number), extension): number + extension
            for number, extension in sorted(map(_parts, found), reverse=True)
        }
        if len(forms) > 1:
            samples = " and ".join(sorted(forms.values())[:2])
            raise VideoError(f"{folder}: its frames are named in several ways, such as {samples}; {FRAMES_CURE}")
        for name, status in found.items():
            if not stat.S_ISREG(status.st_mode):
                raise VideoError(f"{folder}: {name} is a link or a folder, not a picture; copy the file there")
        ((width, extension),) = forms
        names = sorted(found)
        first, last = (int(_parts(name)[0]) for name in (names[0], names[-1]))
        if last - first + 1 > len(names):
            missing = next(number for number in range(first, last) if f"{number:0{width}}{extension}" not in found)
            raise VideoError(
                f"{folder}: {last - first + 1 - len(names)} of the frames {names[0]} to {names[-1]} are missing, the "
                f"first {missing:0{width}}{extension}; {FRAMES_CURE}"
            )
        address = str(folder.absolute()).replace("%", "%%") + f"/%0{width}d{extension}"
        size = sum(status.st_size for status in found.values())
        return cls(address, first, tuple(names), size, max(status.st_mtime_ns for status in found.values()))

    @property
    def options(self) -> dict[str, str]:
        """Of the demuxer."""
        return {"framerate": str(FRAME_RATE), "start_number": str(self.first), "protocol_whitelist": "file"}


def version_of(path: Path) -> tuple[int, int]:
    """Size in bytes and last change in nanoseconds since 1970 of a video, a file or a folder of frames.

    Raises:
        VideoError: It is neither: a pipe, a socket or a device would be waited for.
    """
    try:
        status = path.stat()
    except (OSError, ValueError) as error:  # a loop of links, a name too long; a null character
        what = getattr(error, "strerror", None) or error
        raise VideoError(f"{path}: no such video file ({what}); check the folder, or fetch the video") from error
    if stat.S_ISDIR(status.st_mode):
        frames = FrameFolder.of(path)
        return frames.size, frames.modified_ns
    if not stat.S_ISREG(status.st_mode):
        raise VideoError(
            f"{path}: no such video file, but a pipe, socket or device; give the path of an ordinary file, or of a "
            "folder of frames"
        )
    return status.st_size, status.st_mtime_ns


def _parts(name: str) -> tuple[str, str]:
    match = FRAME_NAME.fullmatch(name)
    assert match is not None
    return match[1], match[2]
