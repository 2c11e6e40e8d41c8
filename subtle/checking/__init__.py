"""What the verb check does: which data are there, what is missing or damaged, and what it is enough for."""
