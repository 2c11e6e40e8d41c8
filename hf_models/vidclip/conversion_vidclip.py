"""From CLIP to VidCLIP: a checkpoint with both towers, and its text positions stretched to paragraphs."""

from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import AutoConfig, CLIPModel


def extend_positions(positions: Tensor, num_positions: int, num_kept: int = 20) -> Tensor:
    """Stretch learned text positions as Long-CLIP does (Zhang et al., ECCV 2024, section 3.2).

    CLIP was trained on captions of about 20 tokens, so its first positions are well learned and stay as they are; the
    later ones are interpolated linearly.

    Args:
        positions: `(n, width)`.
        num_positions: How many there shall be, at least n.
        num_kept: How many at the start stay.

    Returns:
        `(num_positions, width)`.

    Raises:
        ValueError: Fewer positions are asked for than there are, or none is left to stretch.

    Example:
        >>> extend_positions(torch.arange(4.0)[:, None], 6, num_kept=2).flatten()
        tensor([0.0000, 1.0000, 2.0000, 2.3333, 2.6667, 3.0000])
    """
    if num_positions == len(positions):
        return positions.clone()
    if num_positions < len(positions) or num_kept >= len(positions):
        raise ValueError(
            f"{len(positions)} text positions cannot become {num_positions} with the first {num_kept} kept: ask for "
            f"more than {len(positions)} and keep fewer"
        )
    later = positions[num_kept:].T[None]
    stretched = F.interpolate(later, size=num_positions - num_kept, mode="linear", align_corners=True)
    return torch.cat([positions[:num_kept], stretched[0].T])


def load_clip(name_or_path: str, revision: str = "main") -> CLIPModel:
    """Load a CLIP checkpoint with both towers.

    Args:
        name_or_path: A folder or a name on the Hub.
        revision: Branch, tag or commit on the Hub.

    Raises:
        ValueError: There is no model, another architecture, or a CLIP of which weights are missing.
    """
    try:
        found = AutoConfig.from_pretrained(name_or_path, revision=revision).model_type
        if found != "clip":
            raise ValueError(f"it is a {found!r} model")
        loaded = CLIPModel.from_pretrained(
            name_or_path, revision=revision, output_loading_info=True, ignore_mismatched_sizes=True
        )
        clip, info = cast("tuple[CLIPModel, dict[str, Any]]", loaded)
    except (OSError, ValueError) as error:
        raise ValueError(f"{str(name_or_path)!r} is not a CLIP checkpoint with both towers: {error}") from error
    if lost := sorted({*info["missing_keys"], *(key for key, *_ in info["mismatched_keys"])}):
        raise ValueError(
            f"{str(name_or_path)!r} is not a whole CLIP: {len(lost)} weights are missing or of another shape, among "
            f"them {', '.join(lost[:5])}"
        )
    return clip
