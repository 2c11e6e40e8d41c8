"""VideoComp: videos with a paragraph that fits and one that does not."""
