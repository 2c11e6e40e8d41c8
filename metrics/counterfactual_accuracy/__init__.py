"""Text, video and group score of counterfactual pairs, and StrictVLE."""
