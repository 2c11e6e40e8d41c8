"""Cut a clip out of its video as a small H.264 data URL that every browser plays."""

import base64
import io
from typing import Any

import av
import torch
from torchvision.transforms.v2 import functional as transforms

from hf_datasets.video import VideoError, read_frames

FRAMES_PER_SECOND = 15
MAX_FRAMES = 90
SIDE = 160


def encode_clip(clip: dict[str, Any]) -> str | None:
    """The clip of a `tfcovr` clips row as a `data:video/mp4` URL; None where its video is not here."""
    if not clip["video"]:
        return None
    seconds = None if clip["end_seconds"] is None else clip["end_seconds"] - clip["start_seconds"]
    num_frames = (
        MAX_FRAMES if seconds is None else max(1, min(MAX_FRAMES, round(seconds * FRAMES_PER_SECOND)))
    )
    try:
        read = read_frames(
            clip["video"], num_frames, start_seconds=clip["start_seconds"], end_seconds=clip["end_seconds"]
        )
    except VideoError:
        return None
    return "data:video/mp4;base64," + base64.b64encode(encode_frames(read.frames)).decode()


def encode_frames(frames: torch.Tensor) -> bytes:
    """uint8 frames `(T, 3, H, W)` as an MP4 whose short side is `SIDE` pixels."""
    frames = transforms.resize(frames, [SIDE], antialias=True)
    height, width = (side // 2 * 2 for side in frames.shape[-2:])  # yuv420p halves both sides
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as container:
        stream = container.add_stream(
            "libx264", rate=FRAMES_PER_SECOND, options={"crf": "28", "preset": "veryfast"}
        )
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        for image in frames[..., :height, :width].permute(0, 2, 3, 1).contiguous().numpy():
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode())
    return buffer.getvalue()
