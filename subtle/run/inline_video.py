"""Cut a clip out of its video as a small H.264 data URL that every browser plays, at the speed it was filmed."""

import base64
import io
from fractions import Fraction
from typing import Any

import av
import torch

from hf_datasets.video import VideoError, VideoFrames, read_frames

FRAMES_PER_SECOND = 15
MAX_FRAMES = 90
SIDE = 160


def clip_data_url(clip: dict[str, Any]) -> str | None:
    """The clip of a `tfcovr` clips row as a `data:video/mp4` URL; None where its video is not here or not readable."""
    if not clip["video"]:
        return None
    start, end = clip["start_seconds"], clip["end_seconds"]
    num_frames = MAX_FRAMES if end is None else max(1, min(MAX_FRAMES, round((end - (start or 0)) * FRAMES_PER_SECOND)))
    try:
        read = read_frames(clip["video"], num_frames, start_seconds=start, end_seconds=end, size=SIDE)
    except (VideoError, ValueError):  # ValueError: the row's span is not valid
        return None
    # A clip with fewer frames than requested has repeated ones.
    first_of_each = [place for place, index in enumerate(read.indices) if index not in read.indices[:place]]
    content = encode_frames(read.frames[first_of_each], frame_rate(read))
    return "data:video/mp4;base64," + base64.b64encode(content).decode()


def frame_rate(read: VideoFrames) -> Fraction:
    """Distinct frames per second of the clip, at which they play as fast as the clip does."""
    frames_apart = read.indices[-1] - read.indices[0]
    seconds_apart = read.timestamps_seconds[-1] - read.timestamps_seconds[0]
    if not frames_apart or seconds_apart <= 0:
        return Fraction(FRAMES_PER_SECOND)
    clip_seconds = seconds_apart / frames_apart * read.num_frames_in_clip
    return Fraction(len(set(read.indices)) / clip_seconds).limit_denominator(1000)


def encode_frames(frames: torch.Tensor, frames_per_second: Fraction) -> bytes:
    """uint8 frames `(T, 3, H, W)` as an MP4."""
    height, width = (side // 2 * 2 for side in frames.shape[-2:])  # yuv420p halves both sides
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=frames_per_second, options={"crf": "28", "preset": "veryfast"})
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        for image in frames[..., :height, :width].permute(0, 2, 3, 1).contiguous().numpy():
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode())
    return buffer.getvalue()
