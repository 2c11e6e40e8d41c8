"""GPUs that estimates are for, and whose share of the peak a tracker is told: memory and speed."""

import re

from hf_models.encoders.estimates import FREE_SHARE

GPUS: dict[str, tuple[float, float]] = {
    "L4": (24, 121e12),
    "RTX 4090": (24, 165e12),
    "A100 40 GB": (40, 312e12),
    "L40S": (48, 362e12),
    "A100": (80, 312e12),
    "H100": (80, 989e12),
    "H200": (141, 989e12),
}
"""Name -> memory in GB (2^30 bytes, as cards are sold), and operations per second in bfloat16 without sparsity, as the
manufacturer's data sheets give them."""
VARIANTS = {"H100 PCIe": 756e12, "H100 NVL": 835e12, "H200 NVL": 835e12}
"""The same of those that are slower than their name alone says."""
UTILIZATION = 0.35
"""The share of that speed which a whole training step reaches; assumed, not measured."""


def peak_flops(device_name: str) -> float | None:
    """The peak of a GPU in half precision, in FLOP per second; None where it is not known.

    Example:
        >>> peak_flops("NVIDIA A100-SXM4-80GB"), peak_flops("NVIDIA A100-SXM4-40GB MIG 1g.5gb")
        (312000000000000.0, None)
    """
    peaks = VARIANTS | {name: flops for name, (_, flops) in GPUS.items()}
    fitting = [name for name in peaks if re.search(rf"\b{name}\b", device_name) and "MIG" not in device_name]
    return peaks[max(fitting, key=len)] if fitting else None


def cards_for(memory_bytes: float) -> str:
    """Which cards have so much memory, and which have not.

    >>> cards_for(30e9)
    'fits: A100 40 GB (40), L40S (48), A100 (80), H100 (80), H200 (141); does not fit: L4 (24), RTX 4090 (24)'
    """
    parts: dict[str, list[str]] = {"fits": [], "does not fit": []}
    for name, (gigabytes, _) in sorted(GPUS.items(), key=lambda item: item[1][0]):
        fits = memory_bytes <= FREE_SHARE * gigabytes * 2**30
        parts["fits" if fits else "does not fit"].append(f"{name} ({gigabytes:g})")
    return "; ".join(f"{what}: {', '.join(cards)}" for what, cards in parts.items() if cards)
