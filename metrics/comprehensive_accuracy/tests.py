"""Cases with known results, shown as examples on the Space's page and checked by the project's tests."""

metric = "comprehensive_accuracy"
test_cases = [
    {
        "predictions": [
            {"positive": 0.9, "negative": 0.1},
            {"positive": 0.2, "negative": 0.3},
            {"positive": 0.4, "negative": 0.4},
            {"positive": 0.6, "negative": 0.5},
        ],
        "references": ["temporal_reorder", "temporal_reorder", "action_replace", "action_replace"],
        "result": {
            "accuracy/temporal_reorder": 0.5,
            "accuracy/action_replace": 0.5,
            "comprehensive_accuracy": 0.25,
        },
    },
    {
        "predictions": ["1", "(2)", "the first"],
        "references": [
            {"disruption_type": "segment_mismatch", "answer": "1"},
            {"disruption_type": "multi", "answer": "2"},
            {"disruption_type": "multi", "answer": "1"},
        ],
        "result": {
            "accuracy/segment_mismatch": 1.0,
            "accuracy/multi": 0.5,
            "comprehensive_accuracy": 0.5,
            "unreadable_answers": 1,
        },
    },
]
