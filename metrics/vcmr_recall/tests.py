"""Cases with known results, shown as examples on the Space's page and checked by the project's tests."""

_PREDICTIONS = [
    {"video_id": ["a", "b", "b"], "start": [0.0, 9.0, 2.0], "end": [4.0, 12.0, 6.0]},
    {"video_id": ["c"], "start": [0.0], "end": [5.0]},
]
_REFERENCES = [
    {"video_id": "b", "spans": [[2.0, 7.0]]},
    {"video_id": "c", "spans": [[0.0, 5.0], [0.0, 5.0], [0.0, 9.9], [6.0, 9.0]]},
]

test_cases = [
    {
        "predictions": _PREDICTIONS,
        "references": _REFERENCES,
        "options": {"task": "vcmr", "k": [1, 5], "iou": [0.7]},
        "result": {"vcmr_recall@1_iou@0.7": 0.5, "vcmr_recall@5_iou@0.7": 1.0},
    },
    {
        "predictions": _PREDICTIONS,
        "references": _REFERENCES,
        "options": {"task": "svmr", "k": [1, 2], "iou": [0.7]},
        "result": {"svmr_recall@1_iou@0.7": 0.5, "svmr_recall@2_iou@0.7": 1.0},
    },
    {
        "predictions": _PREDICTIONS,
        "references": _REFERENCES,
        "options": {"task": "vr", "k": [1, 2]},
        "result": {"vr_recall@1": 0.5, "vr_recall@2": 1.0},
    },
]
