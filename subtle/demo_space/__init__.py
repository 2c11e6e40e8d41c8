"""A page for composed search, as a Space on the Hub and on this machine; its files use public libraries only."""
