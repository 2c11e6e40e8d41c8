"""Cases with known results, shown as examples on the Space's page and checked by the project's tests."""

metric = "counterfactual_accuracy"
test_cases = [
    {
        "predictions": [
            [[0.9, 0.4], [0.7, 0.8]],
            [[0.9, 0.4], [0.7, 0.6]],
            [[0.6, 0.5], [0.7, 0.8]],
            [[0.5, 0.5], [0.1, 0.9]],
        ],
        "references": ["object", "object", "action", "action"],
        "options": {"threshold": 0.5},
        # Of the four groups: all right; video 1 prefers text 0; text 0 prefers video 1; a tie of video 0's texts.
        "result": {
            "text_score": 0.5,
            "video_score": 0.75,
            "group_score": 0.25,
            "classic_vle": 0.75,
            "strict_vle": 0.375,
            "text_score/action": 0.5,
            "video_score/action": 0.5,
            "group_score/action": 0.0,
            "strict_vle/action": 0.25,
            "text_score/object": 0.5,
            "video_score/object": 1.0,
            "group_score/object": 0.5,
            "strict_vle/object": 0.5,
        },
    },
    {
        "predictions": [[[0.9, 0.2]], [[0.8, 0.6]], [[0.4, 0.1]], [[0.3, 0.7]]],
        "references": [None, None, None, None],
        "options": {"threshold": 0.5},
        "result": {"classic_vle": 0.75, "strict_vle": 0.25},
    },
]
