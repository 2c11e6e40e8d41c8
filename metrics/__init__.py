"""Metrics of fine-grained video retrieval, loadable with `evaluate.load`."""
