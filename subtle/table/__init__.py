"""What the tables of baselines and ablations share: their rows, costs, embeddings and composed queries."""
