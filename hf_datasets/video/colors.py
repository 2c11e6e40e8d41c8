"""The pixels of a decoded frame."""

import threading
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import av

_local = threading.local()


def to_rgb(frame: "av.VideoFrame", height: int, width: int) -> np.ndarray:
    """A decoded frame as `(height, width, 3)` uint8 RGB, upright where the container asks for a rotation."""
    from av.video.reformatter import VideoReformatter

    # One reformatter per thread: a new one per frame builds its tables again, a quarter of the time of a small clip.
    if not hasattr(_local, "reformatter"):
        _local.reformatter = VideoReformatter()
    rgb = _local.reformatter.reformat(frame, width=width, height=height, format="rgb24", threads=1)
    plane = rgb.planes[0]
    pixels = np.frombuffer(plane, np.uint8).reshape(height, plane.line_size)[:, : 3 * width].reshape(height, width, 3)
    return np.rot90(pixels, frame.rotation // 90) if frame.rotation else pixels
