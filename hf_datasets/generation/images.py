"""Frames as the image parts of a chat message."""

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from hf_datasets.video import read_frames

MAX_SIDE = 768
QUALITY = 85


def image_part(frame: npt.ArrayLike, *, max_side: int = MAX_SIDE) -> dict[str, Any]:
    """One frame as a JPEG data URL, the form in which OpenAI-compatible servers take images.

    The same pixels always give the same bytes, so that cached answers about them are found.

    Args:
        frame: `(C, H, W)` uint8 RGB, as `read_frames` gives it (a tensor works as well).
        max_side: The longer side is scaled down to this many pixels; small frames stay as they are.

    Returns:
        A content part of type `image_url`.

    Example:
        >>> image_part(np.zeros((3, 16, 32), np.uint8))["image_url"]["url"][:23]
        'data:image/jpeg;base64,'
    """
    image = Image.fromarray(np.ascontiguousarray(np.moveaxis(np.asarray(frame), 0, -1)))
    image.thumbnail((max_side, max_side))
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=QUALITY)
    data = base64.b64encode(buffer.getvalue()).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{data}"}}


def image_parts(
    path: Path | str,
    start_seconds: float | None,
    end_seconds: float | None,
    *,
    num_frames: int,
    max_side: int = MAX_SIDE,
    **options: Any,
) -> list[dict[str, Any]]:
    """The frames of a stretch of video, as `image_part` gives them.

    Args:
        path: Of the video.
        start_seconds: Where it starts; None: with the video.
        end_seconds: Where it ends; None: with the video.
        num_frames: How many.
        max_side: Longer side of a frame, in pixels.
        **options: Of `read_frames`.

    Returns:
        Their content parts, in order.

    Raises:
        VideoError: It cannot be read.
    """
    read = read_frames(path, num_frames, start_seconds, end_seconds, **options)
    return [image_part(frame, max_side=max_side) for frame in read.frames]
