"""The frames that a model is given: which of a video, and how large they may be read."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import Tensor

FrameSize = int | tuple[int, int] | None
"""What frames are resized to while they are read: the shorter side, (height, width), or None."""


def frame_size_of(processor: Any = None) -> FrameSize:
    """What frames may be resized to before a processor of images or videos sees them."""
    size = getattr(processor, "size", None)
    if not size or hasattr(processor, "merge_size"):  # Qwen's sizes are numbers of pixels, not of a side
        return None
    shortest, height, width = (size.get(name) for name in ("shortest_edge", "height", "width"))
    return shortest or ((height, width) if height and width else None)


def frames_read(num_frames: int, spread: str, size: FrameSize = None) -> dict[str, str]:
    """What embeddings depend on beside what makes them: which frames of a video were read, and how large.

    Args:
        num_frames: how many.
        spread: which, as of `read_frames`: "middles", "seconds" or "ends"; further words where their order is another.
        size: what they were resized to while they were read; None: as filmed.
    """
    return {"frames": f"{num_frames} {spread}", "frame_size": json.dumps(size)}


def staged(frames: "Sequence[Tensor]", processor: Any, device: "torch.device") -> "list[Tensor]":
    """Videos, uint8, where a processor is to prepare them: on the model's device, if it works on tensors.

    Resized there, a value may differ by one of 255 from what the CPU makes of it.

    Args:
        frames: of each video.
        processor: of images or videos.
        device: the model's.
    """
    from transformers.image_processing_backends import TorchvisionBackend

    if device.type == "cpu" or not isinstance(processor, TorchvisionBackend):
        return list(frames)
    is_cuda = device.type == "cuda"
    pinned = (video.pin_memory() if is_cuda and video.device.type == "cpu" else video for video in frames)
    return [video.to(device, non_blocking=is_cuda) for video in pinned]
