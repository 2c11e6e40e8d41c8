"""Footage of one's own: `index`, `search` and `tune`, and what they share."""
