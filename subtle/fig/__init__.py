"""What the verbs of moment retrieval share."""
