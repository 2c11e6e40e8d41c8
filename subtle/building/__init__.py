"""Building datasets with language models."""
