"""What the verbs of composed retrieval share."""
