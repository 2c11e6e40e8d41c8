"""The learning rate of each optimizer step, as a share of the highest: what `LambdaLR` multiplies rates with."""

import math
from typing import Literal


def rate_factor(
    step: int,
    total_steps: int,
    warmup_steps: float,
    *,
    shape: Literal["cosine", "linear"] = "cosine",
    first: int = 1,
    steps_at_once: int = 1,
) -> float:
    """A linear warm-up, then a cosine or a line to zero.

    Args:
        step: optimizer steps done so far.
        total_steps: of the whole run.
        warmup_steps: the first steps, in which the rate rises.
        shape: of the fall.
        first: the rate of the first step of the warm-up, in its steps; 0: as in transformers.
        steps_at_once: how many steps the fall stays where it is; those of an epoch in the released TF-CoVR.

    Example:
        >>> [rate_factor(step, 6, 2) for step in (0, 1, 2, 4, 6)]
        [0.5, 1.0, 1.0, 0.5, 0.0]
    """
    if step < warmup_steps:
        return (step + first) / warmup_steps
    done, length = step - warmup_steps, max(1, total_steps - warmup_steps)
    done -= done % steps_at_once if steps_at_once > 1 else 0
    return (1 + math.cos(math.pi * done / length)) / 2 if shape == "cosine" else max(0.0, 1 - done / length)
