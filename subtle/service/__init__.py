"""The page over an index: its media, its search, its marks, and how it looks."""
