"""Cases with known results, shown as examples on the Space's page and checked by the project's tests."""

metric = "map_at_k"
test_cases = [
    {
        "predictions": [[1, 9, 2, 8, 3, 7]],
        "references": [[1, 2, 3]],
        "options": {"k": [1, 2, 3, 5, 10]},
        "result": {"map@1": 1.0, "map@2": 1 / 2, "map@3": 5 / 9, "map@5": 34 / 45, "map@10": 34 / 45},
    },
    {
        "predictions": [["query", "dive-2", "dive-7"], ["dive-4", "dive-2"]],
        "references": [["dive-2"], ["dive-1", "dive-2"]],
        "options": {"k": [1, 2], "exclude": ["query", "dive-9"], "recall": True},
        "result": {"map@1": 0.5, "map@2": 0.625, "recall@1": 0.5, "recall@2": 0.75},
    },
    {
        "predictions": [[1, 1, 1, 2, 3]],
        "references": [[1, 2, 3]],
        "options": {"k": [3, 5], "protocol": "tfcovr-official"},
        "result": {"map@3": 1.0, "map@5": 5 / 3},
    },
]
