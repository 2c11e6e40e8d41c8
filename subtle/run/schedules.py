"""Learning rate schedules."""

import math


def warmup_cosine(
    step: int,
    total_steps: int,
    warmup_steps: float,
    highest: float,
    *,
    steps_at_once: int = 1,
    divide_last: bool = False,
) -> float:
    """Linear warm-up, then a cosine to zero.

    Args:
        step: optimizer steps done so far.
        total_steps: of the whole run.
        warmup_steps: the first steps, in which the rate rises.
        highest: the rate after the warm-up.
        steps_at_once: how many steps the cosine stays where it is; those of an epoch in the released TF-CoVR.
        divide_last: multiply by pi before dividing. The last bit of the rate may differ; stage 1 has always rounded
            this way, and a run that an earlier version began must end with the same weights.

    Example:
        >>> [warmup_cosine(step, 6, 2, 1.0) for step in (0, 1, 2, 4, 6)]
        [0.5, 1.0, 1.0, 0.5, 0.0]
    """
    if step < warmup_steps:
        return highest * (step + 1) / warmup_steps
    done, length = step - warmup_steps, max(1, total_steps - warmup_steps)
    done -= done % steps_at_once if steps_at_once > 1 else 0
    angle = math.pi * done / length if divide_last else math.pi * (done / length)
    return highest * (1 + math.cos(angle)) / 2
