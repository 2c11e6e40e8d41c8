"""How any run works: configuration, accelerator, checkpoints, training, results."""
