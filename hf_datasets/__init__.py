"""Data sets of fine-grained video retrieval; importing this registers their names with `load_dataset`."""
