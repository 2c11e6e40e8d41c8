"""What the verbs of compositionality share."""
