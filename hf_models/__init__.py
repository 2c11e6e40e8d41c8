"""Hugging Face models for telling nearly identical videos apart."""
