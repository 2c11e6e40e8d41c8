"""Embedding clips, texts and moments."""
