"""Training: the loop of each model in the module of its recipe's name."""
