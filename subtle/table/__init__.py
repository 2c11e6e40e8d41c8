"""Tables of composed retrieval: the runner of their rows, the kinds of rows, costs, embeddings and composed queries."""
