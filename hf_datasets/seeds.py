"""Random numbers that depend on a row alone."""

import hashlib
import random


def generator_for(key: str, seed: int) -> random.Random:
    """The random numbers of one row: the same for a key and seed, whatever else is built with it.

    Example:
        >>> generator_for("v_1/reorder", 0).random() == generator_for("v_1/reorder", 0).random()
        True
    """
    return random.Random(hashlib.sha256(f"{seed}:{key}".encode()).digest())
