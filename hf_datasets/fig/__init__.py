"""VERIFIED's fine-grained moments: a coarse caption of a stretch of video, and a fine one."""
