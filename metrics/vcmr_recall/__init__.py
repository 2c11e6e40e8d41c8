"""R@K of video corpus moment retrieval, single-video moment retrieval and video retrieval."""
