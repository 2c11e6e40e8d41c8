"""Frames as the image parts of a chat message."""

import base64
import io
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

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
