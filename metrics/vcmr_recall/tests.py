"""Cases with known results, shown as examples on the Space's page and checked by the project's tests."""

_PREDICTIONS = [
    {"video_id": ["a", "b", "b"], "start": [0.0, 9.0, 2.0], "end": [4.0, 12.0, 6.0]},
    {"video_id": ["c"], "start": [0.0], "end": [5.0]},
]
_REFERENCES = [
    {"video_id": "b", "spans": [[2.0, 7.0]]},
    {"video_id": "c", "spans": [[0.0, 5.0], [0.0, 5.0], [0.0, 9.9], [6.0, 9.0]]},
]
_SEVERAL = [
    {"video_id": ["a", "b"], "spans": [[0.0, 4.0], [2.0, 6.0]]},
    {"video_id": ["c", "d"], "spans": [[0.0, 5.0], [0.0, 9.0]]},
]
_WITH_SCORES = [
    {"video_id": ["a", "b"], "start": [0.0, 2.0], "end": [4.0, 6.0], "score": [0.9, 0.4]},
    {"video_id": ["b"], "start": [2.0], "end": [6.0], "score": [0.3]},
    {"video_id": ["c"], "start": [0.0], "end": [5.0], "score": [0.2]},
    {"video_id": ["c"], "start": [0.0], "end": [5.0], "score": [0.6]},
]
_SOME_WITHOUT = [
    {"video_id": "b", "spans": [[2.0, 6.0]]},
    {"video_id": "b", "spans": [[2.0, 6.0]]},
    {"video_id": None, "spans": []},
    {"video_id": None, "spans": []},
]

metric = "vcmr_recall"
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
    {
        "predictions": _PREDICTIONS,
        "references": _SEVERAL,
        "options": {"task": "vcmr", "k": [1, 3], "iou": [0.5], "moments": "any"},
        "result": {"vcmr_recall@1_iou@0.5": 1.0, "vcmr_recall@3_iou@0.5": 1.0},
    },
    {
        "predictions": _PREDICTIONS,
        "references": _SEVERAL,
        "options": {"task": "vcmr", "k": [1, 3], "iou": [0.5], "moments": "all"},
        "result": {"vcmr_recall@1_iou@0.5": 0.0, "vcmr_recall@3_iou@0.5": 0.5},
    },
    {
        "predictions": _WITH_SCORES,
        "references": _SOME_WITHOUT,
        "options": {"task": "vcmr", "k": [2], "iou": [0.5]},
        "result": {"vcmr_recall@2_iou@0.5": 1.0, "vcmr_answered": 1.0, "vcmr_true_rejection": 0.0},
    },
    {
        "predictions": _WITH_SCORES,
        "references": _SOME_WITHOUT,
        "options": {"task": "vcmr", "k": [2], "iou": [0.5], "threshold": 0.4},
        "result": {"vcmr_recall@2_iou@0.5": 0.5, "vcmr_answered": 0.5, "vcmr_true_rejection": 0.5},
    },
]
