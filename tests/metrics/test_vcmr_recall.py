"""VCMR recall against a second, plain implementation, the reference evaluator's results and malformed input."""

import gzip
import json
import math

import numpy as np
import pytest
from plain_metrics import plain_recall

from metrics.vcmr_recall.scoring import moment_retrieval_recall
from metrics.vcmr_recall.tvr import read_tvr_submission

CUTS, THRESHOLDS = (1, 5, 10, 100), (0.3, 0.5, 0.7)


def random_run(seed, num_queries=60):
    rng = np.random.default_rng(seed)

    def spans(count):
        return np.sort(rng.integers(0, 11, (count, 2)), axis=1)  # whole seconds, so IoU often meets a threshold

    predictions, references = [], []
    for _ in range(num_queries):
        ranked = spans(rng.integers(0, 130))
        videos = rng.integers(0, 4, len(ranked)).tolist()
        predictions.append({"video_id": videos, "start": ranked[:, 0].tolist(), "end": ranked[:, 1].tolist()})
        references.append({"video_id": int(rng.integers(4)), "spans": spans(rng.integers(1, 6)).tolist()})
    return predictions, references


@pytest.mark.parametrize("task", ["vcmr", "svmr", "vr"])
@pytest.mark.parametrize("seed", range(4))
def test_every_result_equals_the_plain_implementation(task, seed):
    predictions, references = random_run(seed)
    result = moment_retrieval_recall(predictions, references, task=task, k=CUTS, iou=THRESHOLDS)
    for k in CUTS:
        for threshold in THRESHOLDS:
            name = f"vr_recall@{k}" if task == "vr" else f"{task}_recall@{k}_iou@{threshold}"
            pairs = zip(predictions, references, strict=True)
            plain = [plain_recall(*pair, task, k, threshold) for pair in pairs]
            assert result[name] == pytest.approx(np.mean(plain), abs=1e-12)


@pytest.mark.parametrize("task", ["vcmr", "svmr", "vr"])
def test_real_queries_give_the_results_of_the_reference_evaluator(shared, task):
    stem = shared / "parity" / "charades_fig_test_300"
    submission = json.loads(gzip.decompress(stem.with_name(f"{stem.name}_predictions.json.gz").read_bytes()))
    ground_truth = [json.loads(line) for line in stem.with_name(f"{stem.name}_gt.jsonl").read_text().splitlines()]
    expected = json.loads(stem.with_name(f"{stem.name}_expected.json").read_text())[task.upper()]
    result = moment_retrieval_recall(*read_tvr_submission(submission, ground_truth, task), task=task)
    for key, value in expected.items():
        threshold, _, k = key.rpartition("r")
        name = f"{task}_recall@{k}" + (f"_iou@{threshold.rstrip('-')}" if threshold else "")
        assert round(100 * result[name], 2) == value
    assert len(expected) in {4, 8}


def one(video_ids, spans):
    return {"video_id": video_ids, "start": [span[0] for span in spans], "end": [span[1] for span in spans]}


TRUE = {"video_id": "v", "spans": [[0.0, 10.0]]}


def test_a_threshold_is_inclusive_in_float32():
    for threshold, end in ((0.5, 5.0), (0.7, 7.0)):
        result = moment_retrieval_recall([one(["v"], [(0.0, end)])], [TRUE], k=1, iou=threshold)
        assert result[f"vcmr_recall@1_iou@{threshold}"] == 1


def test_svmr_skips_other_videos_only_after_the_cut():
    ranked = one(["w"] * 100 + ["v"], [(0.0, 10.0)] * 101)
    assert moment_retrieval_recall([ranked], [TRUE], task="svmr")["svmr_recall@100_iou@0.5"] == 0
    longer = moment_retrieval_recall([ranked], [TRUE], task="svmr", k=1, max_predictions=101)
    assert longer["svmr_recall@1_iou@0.5"] == 1
    assert "cut:101" in longer["signature"]


def test_a_repeated_video_takes_ranks_in_vr():
    ranked = one(["w"] * 5 + ["v"], [(0.0, 0.0)] * 6)
    result = moment_retrieval_recall([ranked], [TRUE], task="vr", k=[5, 10])
    assert (result["vr_recall@5"], result["vr_recall@10"]) == (0, 1)


def test_two_of_four_annotators_must_agree_and_one_of_three():
    ranked = [one(["v"], [(0.0, 10.0)])]
    for others, right in ((2, 1), (3, 0)):
        reference = {"video_id": "v", "spans": [[0, 10]] + [[20, 30]] * others}
        assert moment_retrieval_recall(ranked, [reference], k=1)["vcmr_recall@1_iou@0.5"] == right


def test_miou_mrr_and_median_rank_equal_values_computed_by_hand():
    predictions = [one(["v", "v"], [(0, 4), (0, 9)]), one(["w", "v"], [(0, 10), (0, 10)]), one(["w"], [(0, 10)])]
    extra = ["miou", "mrr", "median_rank"]
    result = moment_retrieval_recall(predictions, [TRUE] * 3, extra=extra, iou=0.5, k=1)
    assert result["vcmr_miou@1"] == pytest.approx(0.4 / 3)
    assert result["vcmr_mrr_iou@0.5"] == pytest.approx((1 / 2 + 1 / 2) / 3)
    assert result["vcmr_median_rank_iou@0.5"] == 2
    svmr = moment_retrieval_recall(predictions, [TRUE] * 3, task="svmr", extra=extra, iou=0.5, k=1)
    assert svmr["svmr_miou@1"] == pytest.approx(1.4 / 3)
    nothing = moment_retrieval_recall(predictions[2:], [TRUE], task="vr", extra=["median_rank"], k=1)
    assert math.isinf(nothing["vr_median_rank"])


def test_results_per_type_equal_results_over_the_queries_of_that_type():
    predictions, references = random_run(9)
    types = ["v" if query % 3 else "vt" for query in range(len(predictions))]
    result = moment_retrieval_recall(predictions, references, types=types)
    for name in ("v", "vt"):
        chosen = [query for query, one_type in enumerate(types) if one_type == name]
        part = moment_retrieval_recall([predictions[q] for q in chosen], [references[q] for q in chosen])
        expected = {f"{metric}/{name}": value for metric, value in part.items() if metric != "signature"}
        assert {key: result[key] for key in expected} == pytest.approx(expected)


def test_a_missing_query_is_a_miss_only_on_request_and_an_empty_record_is_an_answer():
    answered = one(["v"], [(0.0, 10.0)])
    with pytest.raises(ValueError, match=r'1 of 2 .* query 1; missing="miss"'):
        moment_retrieval_recall([answered, None], [TRUE, TRUE])
    result = moment_retrieval_recall([answered, None], [TRUE, TRUE], missing="miss")
    assert (result["vcmr_recall@1_iou@0.5"], result["missing_queries"]) == (0.5, 1)
    assert moment_retrieval_recall([answered, one([], [])], [TRUE, TRUE])["vcmr_recall@1_iou@0.5"] == 0.5


def test_arrays_give_the_same_results_as_records():
    rng = np.random.default_rng(3)
    videos, spans = rng.integers(0, 5, (40, 30)), np.sort(rng.random((40, 30, 2)) * 20, axis=2)
    true_videos, true = rng.integers(0, 5, 40), np.sort(rng.random((40, 2)) * 20, axis=1)
    predictions = {"video_id": videos, "start": spans[..., 0], "end": spans[..., 1]}
    records = [
        {"video_id": v.tolist(), "start": s[:, 0].tolist(), "end": s[:, 1].tolist()}
        for v, s in zip(videos, spans, strict=True)
    ]
    rows = [{"video_id": int(v), "spans": [s.tolist()]} for v, s in zip(true_videos, true, strict=True)]
    columns = {"video_id": true_videos, "spans": true}
    assert moment_retrieval_recall(predictions, columns) == moment_retrieval_recall(records, rows)


BAD_INPUT = {
    "an unknown task": ([one(["v"], [(0, 1)])], [TRUE], {"task": "mr"}, "task must be one of"),
    "different lengths": ([one(["v"], [(0, 1)])], [TRUE, TRUE], {}, "1 predictions but 2 references"),
    "no query": ([], [], {}, "no query"),
    "a reversed prediction": ([one([], []), one(["v"], [(5, 1)])], [TRUE] * 2, {}, r"predictions\[1\].*\[5, 1\]"),
    "a reversed reference": ([one(["v"], [(0, 1)])], [{"video_id": "v", "spans": [[5, 1]]}], {}, r"references\[0\]"),
    "NaN": ([one(["v"], [(0, float("nan"))])], [TRUE], {}, r"predictions\[0\].*nan"),
    "an infinite span": ([one(["v"], [(0, float("inf"))])], [TRUE], {}, r"predictions\[0\].*inf"),
    "None for a second": ([one(["v"], [(0, None)])], [TRUE], {}, r"'end' of predictions\[0\] holds None"),
    "text for a second": ([one(["v"], [("0", 1)])], [TRUE], {}, r"'start' of predictions\[0\] holds '0'"),
    "ragged lists": ([{"video_id": ["v", "w"], "start": [0], "end": [1, 2]}], [TRUE], {}, r"predictions\[0\] has 2"),
    "arrays of different shape": (
        {"video_id": np.ones((1, 2), int), "start": np.ones((1, 3)), "end": np.ones((1, 2))},
        [{"video_id": 1, "spans": [[0, 1]]}],
        {},
        "shape",
    ),
    "a field that is absent": ([{"video_id": ["v"], "start": [0]}], [TRUE], {}, r"predictions\[0\].*'end'"),
    "a list for a record": ([["v", 0, 1]], [TRUE], {}, r"predictions\[0\]"),
    "a reference that is missing": ([one(["v"], [(0, 1)])], [None], {}, r"references\[0\]"),
    "no span": ([one(["v"], [(0, 1)])], [{"video_id": "v", "spans": []}], {}, r"references\[0\]"),
    "a span of three": ([one(["v"], [(0, 1)])], [{"video_id": "v", "spans": [[0, 1, 2]]}], {}, r"references\[0\]"),
    "mixed kinds of id": ([one([3], [(0, 1)])], [TRUE], {}, "predictions hold integers, references hold strings"),
    "k beyond the cut": ([one(["v"], [(0, 1)])], [TRUE], {"k": 200}, "raise max_predictions"),
    "an IoU of zero": ([one(["v"], [(0, 1)])], [TRUE], {"iou": 0.0}, "thresholds in"),
    "an unknown extra": ([one(["v"], [(0, 1)])], [TRUE], {"extra": ["map"]}, "extra must be"),
    "mIoU of videos": ([one(["v"], [(0, 1)])], [TRUE], {"task": "vr", "extra": ["miou"]}, "no IoU"),
    "too few types": ([one(["v"], [(0, 1)])], [TRUE], {"types": []}, "types must hold"),
    "an unknown way with missing": ([one(["v"], [(0, 1)])], [TRUE], {"missing": "drop"}, "missing must be"),
}


@pytest.mark.parametrize("case", BAD_INPUT.values(), ids=BAD_INPUT)
def test_malformed_input_is_refused_naming_the_row(case):
    predictions, references, options, message = case
    with pytest.raises(ValueError, match=message):
        moment_retrieval_recall(predictions, references, **options)


SUBMISSION = {"video2idx": {"v": 0}, "VCMR": [{"desc_id": 1, "predictions": [[0, 0, 4, 0.9]]}]}
ROW = {"desc_id": 1, "vid_name": "v", "ts": [0, 4]}


def test_a_query_that_a_submission_lacks_is_missing():
    predictions, references = read_tvr_submission(SUBMISSION, [ROW, {**ROW, "desc_id": 2}], "vcmr")
    assert predictions[1] is None
    assert references[1] == {"video_id": 0, "spans": [[0, 4]]}


@pytest.mark.parametrize(
    ("submission", "row", "message"),
    [
        ({**SUBMISSION, "VCMR": SUBMISSION["VCMR"] * 2}, ROW, "query 1 twice"),
        (SUBMISSION, {**ROW, "desc_id": 2}, "not in the ground truth, such as 1"),
        (SUBMISSION, {**ROW, "vid_name": "w"}, "'w' of query 1 is not in video2idx"),
        ({"video2idx": {}, "VR": []}, ROW, "'vcmr' is not in the submission"),
        ({**SUBMISSION, "VCMR": [{"desc_id": 1, "predictions": [[0, 4]]}]}, ROW, "query 1 holds"),
        ({**SUBMISSION, "VCMR": [{"desc_id": 1, "predictions": [[0.5, 0, 4, 1]]}]}, ROW, "not whole"),
    ],
)
def test_a_malformed_submission_is_refused(submission, row, message):
    with pytest.raises(ValueError, match=message):
        read_tvr_submission(submission, [row], "vcmr")


SCORED = [
    one(["v", "v"], [(0, 4), (0, 9)]) | {"score": [0.9, 0.5]},
    one(["w"], [(0, 10)]) | {"score": [0.2]},
    one(["w"], [(0, 10)]) | {"score": [0.6]},
    one([], []) | {"score": []},
]
NONE = {"video_id": None, "spans": []}


@pytest.mark.parametrize(
    ("threshold", "recall", "answered", "rejected"),
    [(None, 0.5, 1, 0.5), (0.5, 0.5, 0.5, 0.5), (0.51, 0, 0.5, 0.5), (0.7, 0, 0.5, 1), (0.95, 0, 0, 1)],
)
def test_shares_of_queries_with_and_without_a_moment_equal_those_counted_by_hand(threshold, recall, answered, rejected):
    # The first query's right answer has 0.5; the third and the fourth have no moment, and the fourth no answer.
    result = moment_retrieval_recall(SCORED, [TRUE, TRUE, NONE, NONE], k=[5], iou=0.5, threshold=threshold)
    assert result["vcmr_recall@5_iou@0.5"] == recall
    assert result["vcmr_answered"] == answered
    assert result["vcmr_true_rejection"] == rejected
    assert result["queries_without_moment"] == 2
    assert ("threshold" in result["signature"]) == (threshold is not None)


def test_a_query_without_a_moment_changes_no_recall_of_the_others():
    predictions, references = random_run(3)
    before = moment_retrieval_recall(predictions, references, extra=["miou", "mrr", "median_rank"])
    after = moment_retrieval_recall(
        [*predictions, predictions[0]], [*references, NONE], extra=["miou", "mrr", "median_rank"]
    )
    assert {name: after[name] for name in before} == before
    assert "vcmr_answered" not in before


def test_a_missing_prediction_does_not_say_that_there_is_no_moment():
    result = moment_retrieval_recall([SCORED[0], None], [TRUE, NONE], missing="miss", k=1)
    assert result["vcmr_true_rejection"] == 0
    types = moment_retrieval_recall(SCORED, [TRUE, TRUE, NONE, NONE], k=5, iou=0.5, types=["a", "b", "b", "c"])
    assert (types["vcmr_recall@5_iou@0.5/b"], types["vcmr_true_rejection/b"], types["vcmr_true_rejection/c"]) == (
        0,
        0,
        1,
    )
    assert "vcmr_recall@5_iou@0.5/c" not in types


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("task", ["vcmr", "svmr", "vr"])
def test_any_and_all_of_several_moments_equal_the_plain_implementation(seed, task):
    predictions, references = random_run(seed, num_queries=30)
    rng = np.random.default_rng(seed)
    for reference in references:
        reference["video_id"] = rng.integers(0, 4, len(reference["spans"])).tolist()
    for moments, choose in (("any", any), ("all", all)):
        result = moment_retrieval_recall(predictions, references, task=task, k=[1, 10], iou=0.5, moments=moments)
        for k in (1, 10):
            name = f"vr_recall@{k}" if task == "vr" else f"{task}_recall@{k}_iou@0.5"
            plain = [
                choose(
                    plain_recall(prediction, {"video_id": video, "spans": [span]}, task, k, 0.5)
                    for video, span in zip(reference["video_id"], reference["spans"], strict=True)
                )
                for prediction, reference in zip(predictions, references, strict=True)
            ]
            assert result[name] == pytest.approx(np.mean(plain), abs=1e-12)
        assert f"moments:{moments}" in result["signature"]


@pytest.mark.parametrize(
    ("predictions", "references", "options", "message"),
    [
        ([SCORED[0]], [NONE], {}, "no query has a moment"),
        ([SCORED[0]], [{"video_id": "v", "spans": []}], {}, r"both video_id is None and spans \[\]"),
        ([SCORED[0]], [{"video_id": None, "spans": [[0, 1]]}], {}, r"0 ids and 1 spans"),
        ([SCORED[0]], [{"video_id": ["v"], "spans": [[0, 1]]}], {}, "moments='any' or 'all'"),
        ([SCORED[0]], [{"video_id": ["v", "w"], "spans": [[0, 1]]}], {"moments": "any"}, "2 ids and 1 spans"),
        ([SCORED[0]], [TRUE], {"moments": "all", "extra": ["miou"]}, "moments='any'"),
        ([SCORED[0]], [TRUE], {"moments": "some"}, "moments must be one of"),
        ([SCORED[0]], [TRUE], {"threshold": math.nan}, "threshold must be a finite number"),
        ([one(["v"], [(0, 4)])], [TRUE], {"threshold": 0.5}, "needs the 'score' of every prediction"),
        ([SCORED[0] | {"score": [0.5, 0.9]}], [TRUE], {"threshold": 0.5}, r"predictions\[0\] are not best first"),
        ([SCORED[0] | {"score": [0.5]}], [TRUE], {}, "has 2 of 'video_id' but 1 of 'score'"),
        ([SCORED[0] | {"score": [0.5, math.nan]}], [TRUE], {}, "holds NaN"),
    ],
)
def test_thresholds_and_moments_that_cannot_be_used_are_refused_with_the_cure(
    predictions, references, options, message
):
    with pytest.raises(ValueError, match=message):
        moment_retrieval_recall(predictions, references, k=1, **options)


def test_scores_of_arrays_and_of_a_submission_are_read():
    arrays = {"video_id": np.array([[3, -1]]), "start": np.zeros((1, 2)), "end": np.array([[4.0, 0.0]])}
    scored = arrays | {"score": np.array([[0.5, -np.inf]])}
    for threshold, answered in ((0.5, 1), (0.6, 0)):
        result = moment_retrieval_recall(scored, [{"video_id": 3, "spans": [[0, 4]]}], threshold=threshold)
        assert result["vcmr_answered"] == answered
    submission = {"video2idx": {"v": 3}, "VCMR": [{"desc_id": n, "predictions": [[3, 0, 4, 0.5]]} for n in (1, 2)]}
    truth = [{"desc_id": 1, "vid_name": "v", "ts": [0, 4]}, {"desc_id": 2, "vid_name": None, "ts": []}]
    predictions, references = read_tvr_submission(submission, truth, "vcmr", scores=True)
    assert predictions[0]["score"] == [0.5]
    assert references[1] == NONE
    assert moment_retrieval_recall(predictions, references, threshold=0.6)["vcmr_true_rejection"] == 1


def test_results_of_every_query_average_to_the_metrics_and_leave_out_queries_without_a_moment():
    predictions, references = random_run(5)
    references[3] = {"video_id": None, "spans": []}
    result = moment_retrieval_recall(predictions, references, extra=["mrr", "median_rank"], per_query=True)
    per_query = result["per_query"]
    assert set(per_query) == {name for name in result if name.startswith("vcmr") and "median" not in name}
    for name, values in per_query.items():
        assert len(values) == len(references)
        assert result[name] == pytest.approx(np.nanmean(values))
    assert np.isnan(per_query["vcmr_recall@1_iou@0.5"]).nonzero()[0].tolist() == [3]
    plain = [plain_recall(*pair, "vcmr", 5, 0.5) for pair in zip(predictions, references, strict=True)]
    assert [value == 1 for place, value in enumerate(per_query["vcmr_recall@5_iou@0.5"]) if place != 3] == [
        found for place, found in enumerate(plain) if place != 3
    ]
