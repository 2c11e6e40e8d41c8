"""The GPUs that estimates are for: memory and speed."""

from hf_models.encoders.estimates import FREE_SHARE

GPUS: dict[str, tuple[float, float]] = {
    "RTX 4090": (24, 165e12),
    "A100 40 GB": (40, 312e12),
    "L40S": (48, 362e12),
    "A100": (80, 312e12),
    "H100": (80, 989e12),
    "H200": (141, 989e12),
}
"""Name -> memory in GB (2^30 bytes, as cards are sold), and operations per second in bfloat16 without sparsity, as the
manufacturer's data sheets give them."""
UTILIZATION = 0.35
"""The share of that speed which a whole training step reaches; assumed, not measured."""


def cards_for(memory_bytes: float) -> str:
    """Which cards have so much memory, and which have not.

    >>> cards_for(30e9)
    'fits: A100 40 GB (40), L40S (48), A100 (80), H100 (80), H200 (141); does not fit: RTX 4090 (24)'
    """
    parts: dict[str, list[str]] = {"fits": [], "does not fit": []}
    for name, (gigabytes, _) in sorted(GPUS.items(), key=lambda item: item[1][0]):
        fits = memory_bytes <= FREE_SHARE * gigabytes * 2**30
        parts["fits" if fits else "does not fit"].append(f"{name} ({gigabytes:g})")
    return "; ".join(f"{what}: {', '.join(cards)}" for what, cards in parts.items() if cards)
