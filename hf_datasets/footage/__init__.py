"""One's own footage: video files of a folder, and the moments of them that an index holds."""
