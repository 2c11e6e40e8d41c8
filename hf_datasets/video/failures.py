"""How a clip that cannot be read is reported: the errors of reading one, the failure that a pool gives in its place."""

from dataclasses import dataclass

NO_FILE = "no video file"
"""The reason that is given for a clip whose dataset row names no video."""


class VideoError(RuntimeError):
    """A video that cannot be read; the message names the file, what is wrong and the cure."""


class VideoSpanError(VideoError):
    """A span that holds no frame of an otherwise readable video."""


@dataclass(frozen=True, slots=True)
class VideoFailure:
    """A clip that could not be read, and why."""

    path: str
    reason: str


def describe_failure(error: Exception) -> tuple[str, bool]:
    """Why a clip could not be read, and whether no other clip of its file can be read either."""
    is_fault_of_file = isinstance(error, VideoError) and not isinstance(error, VideoSpanError)
    reason = str(error) if isinstance(error, (VideoError, ValueError)) else f"{type(error).__name__}: {error}"
    return reason, is_fault_of_file
