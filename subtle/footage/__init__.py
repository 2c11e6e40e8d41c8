"""What `index` and `search` share: the source of an index, the reading of its videos, its models and its output."""
