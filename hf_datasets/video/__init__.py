"""Video files by id, and their frames: `(T, C, H, W)` uint8, with the indices and times that were really read.

Importing this does not import torch; the first frames do.
"""

from .backends import Backend
from .failures import VideoError, VideoSpanError
from .pyav import VideoLimits
from .reading import VideoFrames, frame_indices, read_frames, read_frames_at
from .store import VIDEO_EXTENSIONS, VideoCoverage, VideoStore

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
    "read_frames_at",
]
