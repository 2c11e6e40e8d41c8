"""Decoders that read the same frames: PyAV decides for all of them which frames a span holds.

Nothing is imported before it is used. Open files are kept in a bounded cache per process and per backend: on a
long video, opening costs more than decoding. A cache never survives a fork, because the file offset would be shared.
"""

import ctypes
import os
import sys
import threading
import warnings
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import numpy as np

from .colors import to_rgb
from .failures import VideoError
from .frame_folder import version_of
from .pyav import OpenVideo, VideoLimits

if TYPE_CHECKING:
    from decord import VideoReader
    from torchcodec.decoders import VideoDecoder

Backend = Literal["auto", "pyav", "torchcodec", "torchcodec-cuda", "decord"]
GPU_TOLERANCE = 3.0
"""Largest mean difference of a frame that a GPU decodes from PyAV's, in levels of 255: it rounds colors otherwise."""
MAX_OPEN_FILES = 8
MAX_BYTES_IN_ORDER = 1 << 30

Opened = TypeVar("Opened")


class OpenFiles(Generic[Opened]):
    """The most recently used open files of one backend; a file in use by one thread is not lent to another."""

    def __init__(self, open_file: Callable[[Path], Opened]) -> None:
        self._open_file = open_file
        self.clear()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._abandon)

    def __len__(self) -> int:
        return len(self._idle)

    def clear(self) -> None:
        """Forget every open file."""
        self._lock = threading.Lock()
        self._idle: OrderedDict[tuple[str, int, int], Opened] = OrderedDict()

    def _abandon(self) -> None:
        """Forget the open files of the process that forked, and never close them.

        Closing waits for a decoder's threads (decord's for ever), and threads do not exist in a fork.
        """
        for opened in self._idle.values():
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(opened))
        self.clear()

    @contextmanager
    def lend(self, path: Path) -> Iterator[Opened]:
        """Lend the open file of `path`, reopened if it changed on disk, and forgotten if reading it fails.

        Yields:
            The file, to this thread alone.

        Raises:
            VideoError: If it is neither a file nor a folder of frames, or the backend cannot open it.
        """
        key = (str(path), *version_of(path))
        with self._lock:
            opened = self._idle.pop(key, None)
        if opened is None:
            opened = self._open_file(path)
        yield opened
        with self._lock:
            self._idle[key] = opened
            if len(self._idle) > MAX_OPEN_FILES:
                self._idle.popitem(last=False)


@dataclass
class _DecordFile:
    reader: "VideoReader"
    keys: Sequence[int] | None = None  # of all its frames, once it is known that decord finds them


def _open_decord(path: Path) -> _DecordFile:
    from decord import VideoReader

    return _DecordFile(VideoReader(str(path), num_threads=1))


def _open_torchcodec(path: Path, **options: Any) -> "VideoDecoder":
    from torchcodec.decoders import VideoDecoder

    return VideoDecoder(path, dimension_order="NHWC", seek_mode="exact", **options or {"num_ffmpeg_threads": 1})


PYAV_FILES = OpenFiles(OpenVideo)
_TORCHCODEC_FILES = OpenFiles(_open_torchcodec)
_TORCHCODEC_CUDA_FILES = OpenFiles(partial(_open_torchcodec, device="cuda"))
_DECORD_FILES = OpenFiles(_open_decord)


@contextmanager
def open_video(path: Path, limits: VideoLimits = VideoLimits()) -> Iterator[OpenVideo]:  # noqa: B008 frozen
    """Lend a video, opened with PyAV and within the limits.

    Yields:
        The video, to this thread alone.

    Raises:
        VideoError: It cannot be opened, or is too large.
    """
    with PYAV_FILES.lend(path) as video:
        video.check(limits)
        yield video


class _Gpu:
    """What this process knows of decoding on its GPU.

    Attributes:
        agrees: By codec and pixel format, whether a frame was that of PyAV within `GPU_TOLERANCE`.
        is_used: Whether this process uses a GPU; one that is forked from it may not.
        is_forked: Whether this process is forked from such a one.
    """

    def __init__(self) -> None:
        self.agrees: dict[tuple[str, str | None], bool] = {}
        self.is_used = self.is_forked = False
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._look, after_in_child=self._inherit)

    def _look(self) -> None:
        self.is_used |= "torch" in sys.modules and sys.modules["torch"].cuda.is_initialized()

    def _inherit(self) -> None:
        self.is_forked |= self.is_used


_GPU = _Gpu()


def pyav_pixels(video: OpenVideo, keys: Sequence[int], size: tuple[int, int] | None = None) -> dict[int, np.ndarray]:
    """Frames by key, of another height and width if given; what does not decode is tried again from further back."""
    height, width = size or video.size
    pixels = {key: to_rgb(frame, height, width) for key, frame in video.decode(keys)}
    lost = [key for key in keys if key not in pixels]
    if lost and video.has_timestamps:
        pixels |= {key: to_rgb(frame, height, width) for key, frame in video.decode(lost, thorough=True)}
    return pixels


def torchcodec_pixels(video: OpenVideo, keys: Sequence[int]) -> dict[int, np.ndarray]:
    """Frames by key; a frame that torchcodec presents at another time is left out."""
    if not video.has_timestamps:
        return _torchcodec_in_order(video, keys)
    return _torchcodec_at_times(_TORCHCODEC_FILES, video, keys)


def torchcodec_cuda_pixels(video: OpenVideo, keys: Sequence[int]) -> dict[int, np.ndarray]:
    """Frames by key, on the GPU where it gives those of PyAV, else by PyAV; what of a video it leaves out, too.

    The first frame of each codec and pixel format is compared; that they differ is said once.

    Raises:
        VideoError: In a process that was forked from one that uses a GPU.
    """
    if _GPU.is_forked:
        raise VideoError(
            f"{video.path}: backend='torchcodec-cuda' cannot be used in a process that was forked from one that uses "
            "a GPU, as a DataLoader's workers are; read with VideoReaderPool, whose workers are programs of their own"
        )
    codec = video.stream.codec_context
    kind, pixels = (codec.name, codec.pix_fmt), dict[int, np.ndarray]()
    if video.has_timestamps and _GPU.agrees.get(kind, True):
        _GPU.is_used = True
        pixels = _torchcodec_at_times(_TORCHCODEC_CUDA_FILES, video, keys)
        if pixels and kind not in _GPU.agrees:
            first = next(iter(pixels))
            expected = pyav_pixels(video, [first])[first]
            apart = np.abs(pixels[first].astype(np.int16) - expected).mean()
            _GPU.agrees[kind] = bool(apart <= GPU_TOLERANCE)
            if not _GPU.agrees[kind]:
                warnings.warn(
                    f"the GPU decodes {'/'.join(map(str, kind))} as frames that differ from PyAV's by {apart:.1f} of "
                    f"255 on average, more than {GPU_TOLERANCE:g}: PyAV reads them",
                    stacklevel=2,
                )
                pixels = {}
    return pixels | pyav_pixels(video, [key for key in keys if key not in pixels])


def _torchcodec_at_times(
    files: "OpenFiles[VideoDecoder]", video: OpenVideo, keys: Sequence[int]
) -> dict[int, np.ndarray]:
    with files.lend(video.path) as decoder:
        wanted = [float(key * video.tick) for key in keys]
        half_tick = float(video.tick) / 2
        batch = decoder.get_frames_played_at([seconds + half_tick for seconds in wanted])
    right = np.abs(batch.pts_seconds.cpu().numpy() - wanted) < half_tick
    return {key: frame for key, frame, is_right in zip(keys, batch.data.cpu().numpy(), right, strict=True) if is_right}


def _torchcodec_in_order(video: OpenVideo, keys: Sequence[int]) -> dict[int, np.ndarray]:
    # Without presentation timestamps torchcodec seeks to wrong frames; from the first one on its frames are right.
    height, width = video.size
    if (keys[-1] + 1) * height * width * 3 > MAX_BYTES_IN_ORDER:
        raise VideoError(f"{video.path}: too long for torchcodec, as it has no timestamps; use backend='pyav'")
    frames = _open_torchcodec(video.path).get_frames_in_range(0, keys[-1] + 1).data.numpy()
    return {key: frames[key] for key in keys}


def decord_pixels(video: OpenVideo, keys: Sequence[int]) -> dict[int, np.ndarray]:
    """Frames by key; refuses files of which decord 0.6 is known to return other frames than the requested ones.

    Raises:
        VideoError: For such a file.
    """
    with _DECORD_FILES.lend(video.path) as opened:
        if opened.keys is None:
            if not _has_closed_gops(video):
                raise VideoError(
                    f"{video.path}: decord would give wrong frames (edit list, open GOPs, or a container that it "
                    "cannot seek in); use backend='pyav'"
                )
            opened.keys = video.span(None, None).keys
        if len(opened.reader) != len(opened.keys):
            raise VideoError(f"{video.path}: decord counts other frames than there are; use backend='pyav'")
        numbers = [bisect_left(opened.keys, key) for key in keys]
        return dict(zip(keys, opened.reader.get_batch(numbers).asnumpy(), strict=True))


def _has_closed_gops(video: OpenVideo) -> bool:
    """Whether decoding can start at every keyframe: nothing decoded after it is presented before it."""
    if not video.format.startswith(("mov", "matroska", "avi")):
        return False
    num_keyframes, last_keyframe = 0, None
    for packet in video.packets(None):
        if packet.is_keyframe:
            num_keyframes, last_keyframe = num_keyframes + 1, packet.pts
        is_leading = last_keyframe is None or packet.pts is None or packet.pts < last_keyframe
        if packet.is_discard or (video.has_timestamps and is_leading):
            return False
    return video.has_timestamps or num_keyframes == 1


PIXELS = {
    "auto": pyav_pixels,
    "pyav": pyav_pixels,
    "torchcodec": torchcodec_pixels,
    "torchcodec-cuda": torchcodec_cuda_pixels,
    "decord": decord_pixels,
}


def pixels_of(video: OpenVideo, keys: Sequence[int], backend: Backend) -> dict[int, np.ndarray]:
    """The frames `keys` of a video, `(height, width, 3)` uint8 RGB each; one that does not decode is left out.

    Raises:
        VideoError: If the backend is not installed or fails on the file.
    """
    if backend not in PIXELS:
        raise VideoError(f"backend={backend!r} is unknown; choose one of {', '.join(PIXELS)}")
    if PIXELS[backend] is not pyav_pixels and video.path.is_dir():
        raise VideoError(f"{video.path}: only PyAV reads a folder of frames; use backend='pyav'")
    try:
        return PIXELS[backend](video, keys)
    except VideoError:
        raise
    except ImportError as error:
        raise VideoError(
            f"backend={backend!r} cannot be imported ({error}); install it, or use backend='pyav'"
        ) from error
    except Exception as error:  # the decoders raise types of their own
        if backend in {"auto", "pyav"}:
            raise
        raise VideoError(f"{video.path}: {backend} fails on it ({error}); use backend='pyav'") from error
