"""mAP@K with the denominator min(relevant, K)."""
