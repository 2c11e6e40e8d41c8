"""VideoComp: VidCLIP, a CLIP for videos and paragraphs, and the losses that teach it compositionality."""
