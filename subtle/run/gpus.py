"""The GPUs that estimates are for: memory and speed."""

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
