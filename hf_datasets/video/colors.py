"""The pixels of a decoded frame."""

import threading
from collections import deque
from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import av
    import av.filter

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


def deinterlaced(frames: Iterator[tuple[int, "av.VideoFrame"]]) -> Iterator[tuple[int, "av.VideoFrame"]]:
    """Frames of a stream as whole pictures: of one that is interlaced, the lines of the later field are drawn anew.

    Args:
        frames: Keys and frames, one after the other as the stream has them.

    Yields:
        As many, at the same keys; those of a stream that is not interlaced as they are.
    """
    graph: av.filter.Graph | None = None
    keys = deque[int]()
    for key, frame in frames:
        if graph is None and frame.interlaced_frame:
            graph = _deinterlacer(frame)
        if graph is None:
            yield key, frame
            continue
        keys.append(key)
        graph.push(frame)
        yield from _pulled(graph, keys)
    if graph is not None:
        graph.push(None)
        yield from _pulled(graph, keys)


def _deinterlacer(frame: "av.VideoFrame") -> "av.filter.Graph":
    from av.filter import Graph

    graph = Graph()
    tick = frame.time_base or Fraction(1, 25)
    source = graph.add_buffer(width=frame.width, height=frame.height, format=frame.format, time_base=tick)
    bwdif = graph.add("bwdif", "mode=send_frame:deint=interlaced")
    graph.link_nodes(source, bwdif, graph.add("buffersink")).configure()
    return graph


def _pulled(graph: "av.filter.Graph", keys: deque[int]) -> Iterator[tuple[int, "av.VideoFrame"]]:
    import av

    while keys:
        try:
            frame = graph.vpull()
        except (av.BlockingIOError, av.EOFError):
            return
        yield keys.popleft(), frame
