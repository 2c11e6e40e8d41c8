"""Metrics on mutated inputs: each gives a ValueError of their own, or the results of a plain second implementation."""

import gzip
import inspect
import json
import math
import random
import traceback
from numbers import Integral, Real
from pathlib import Path

import evaluate
import numpy as np
import pytest
from odd_values import LONG_RUN, Unprintable, mutated, nested
from plain_metrics import plain_average_precision, plain_recall

from metrics.comprehensive_accuracy.scoring import DISRUPTION_TYPES, comprehensive_accuracy
from metrics.counterfactual_accuracy.scoring import counterfactual_accuracy
from metrics.map_at_k.scoring import mean_average_precision
from metrics.map_at_k.significance import compare
from metrics.vcmr_recall.scoring import moment_retrieval_recall
from metrics.vcmr_recall.tests import test_cases as examples
from metrics.vcmr_recall.tvr import read_tvr_submission

METRICS = Path(inspect.getfile(mean_average_precision)).parents[1]
SHORT_RUN = 400
DIGITS = {"abs": 1e-6}


def plain_number(value):
    value = value.item() if isinstance(value, np.ndarray) else value
    assert isinstance(value, Real)
    assert not isinstance(value, bool)
    assert math.isfinite(value)
    return float(value)


def plain_id(value):
    value = value.item() if isinstance(value, np.ndarray) else value
    assert isinstance(value, str) or (isinstance(value, Integral) and not isinstance(value, bool))
    return str(value) if isinstance(value, str) else int(value)


def plain_list(value):
    value = value.tolist() if isinstance(value, np.ndarray) else value
    assert isinstance(value, (list, tuple, range))
    return list(value)


def cuts_of(k):
    return [int(cut) for cut in (plain_list(k) if not isinstance(k, Integral) else [k])]


def check_map(predictions, references, options):
    result = mean_average_precision(predictions, references, **options)
    rankings = [[plain_id(item) for item in plain_list(row)] for row in plain_list(predictions)]
    relevant = [
        {plain_id(item) for item in (row if isinstance(row, (set, frozenset)) else plain_list(row))}
        for row in plain_list(references)
    ]
    if options.get("protocol") == "tfcovr-official":
        return
    if options.get("exclude") is not None:
        own = [plain_id(item) for item in plain_list(options["exclude"])]
        rankings = [[item for item in row if item != mine] for row, mine in zip(rankings, own, strict=True)]
    queries = [query for query in zip(rankings, relevant, strict=True) if query[1]]
    for k in cuts_of(options.get("k", (5, 10, 25, 50))):
        plain = [plain_average_precision(*query, k) for query in queries]
        assert result[f"map@{k}"] == pytest.approx(sum(plain) / len(plain), **DIGITS)


def check_accuracy(predictions, references, options):
    result = comprehensive_accuracy(predictions, references, **options)
    if isinstance(predictions, dict):
        columns = [plain_list(predictions[name]) for name in ("positive", "negative")]
        predictions = [{"positive": p, "negative": n} for p, n in zip(*columns, strict=True)]
    rows = {}
    for row, reference in zip(plain_list(predictions), plain_list(references), strict=True):
        if isinstance(row, str):
            kind, right = reference["disruption_type"], row.strip().strip("()") == reference["answer"]
        else:
            kind, right = reference, plain_number(row["positive"]) > plain_number(row["negative"])
        assert isinstance(kind, str)
        assert kind in plain_list(options.get("types", list(DISRUPTION_TYPES)))
        rows.setdefault(kind, []).append(right)
    product = math.prod(sum(right) / len(right) for right in rows.values())
    assert result["comprehensive_accuracy"] == pytest.approx(product, **DIGITS)


def check_counterfactual(predictions, references, options):
    result = counterfactual_accuracy(predictions, references, **options)
    matrices = [[plain_list(row) for row in plain_list(rows)] for rows in plain_list(predictions)]
    numbers = [[[plain_number(one) for one in row] for row in rows] for rows in matrices]
    assert references is None or len(plain_list(references)) == len(numbers)
    pairs = [(row[place], row[1 - place]) for group in numbers for place, row in enumerate(group)]
    right = {"classic_vle": [own > other for own, other in pairs]}
    if options.get("threshold") is not None:
        right["strict_vle"] = [own > plain_number(options["threshold"]) > other for own, other in pairs]
    if "group_score" in result:
        right["group_score"] = [min(group[0][0], group[1][1]) > max(group[0][1], group[1][0]) for group in numbers]
    for name, verdicts in right.items():
        assert result[name] == pytest.approx(sum(verdicts) / len(verdicts), **DIGITS)


def plain_spans(spans):
    spans = plain_list(spans)
    alone = not isinstance(spans[0], (list, tuple)) and np.ndim(spans[0]) == 0
    return [[plain_number(second) for second in plain_list(span)] for span in ([spans] if alone else spans)]


def plain_rows(columns, names):
    lists = [plain_list(columns[name]) for name in names]
    return [dict(zip(names, row, strict=True)) for row in zip(*lists, strict=True)]


def check_recall(predictions, references, options):
    result = moment_retrieval_recall(predictions, references, **options)
    if isinstance(predictions, dict):
        predictions = plain_rows(predictions, ("video_id", "start", "end"))
    if isinstance(references, dict):
        references = plain_rows(references, ("video_id", "spans"))
    task, cut, found = options.get("task", "vcmr"), options.get("max_predictions", 100), {}
    for prediction, reference in zip(plain_list(predictions), plain_list(references), strict=True):
        kinds = {"video_id": plain_id, "start": plain_number, "end": plain_number}
        ranked = {
            name: list(map(kind, plain_list(prediction[name] if prediction else []))) for name, kind in kinds.items()
        }
        true = {"video_id": plain_id(reference["video_id"]), "spans": plain_spans(reference["spans"])}
        assert all(start <= end for start, end in (*zip(ranked["start"], ranked["end"], strict=True), *true["spans"]))
        for k in cuts_of(options.get("k", (1, 5, 10, 100))):
            for name, threshold in names_of(task, k, options.get("iou", (0.5, 0.7))):
                found.setdefault(name, []).append(plain_recall(ranked, true, task, k, threshold, cut))
    for name, right in found.items():
        assert result[name] == pytest.approx(sum(right) / len(right), **DIGITS)


def names_of(task, k, iou):
    thresholds = [float(threshold) for threshold in ([iou] if isinstance(iou, Real) else plain_list(iou))]
    if task == "vr":
        return [(f"vr_recall@{k}", 0)]
    return [(f"{task}_recall@{k}_iou@{threshold:g}", threshold) for threshold in thresholds]


FUNCTIONS = {
    "map_at_k": mean_average_precision,
    "comprehensive_accuracy": comprehensive_accuracy,
    "counterfactual_accuracy": counterfactual_accuracy,
    "vcmr_recall": moment_retrieval_recall,
}


def check_shares(predictions, references, options):
    result = moment_retrieval_recall(predictions, references, **options)
    names = result.keys() - {"signature", "queries_without_moment"}
    assert all(0 <= result[name] <= 1 for name in names)


def check_submission(submission, ground_truth, task):
    predictions, references = read_tvr_submission(submission, ground_truth, task)
    assert len(predictions) == len(references) == len(ground_truth)
    assert sum(prediction is not None for prediction in predictions) == len(submission[task.upper()])
    check_recall(predictions, references, {"task": task, "missing": "miss"})


MAP = [
    {
        "predictions": [[1, 2, 3], [4, 5]],
        "references": [[1], [5, 4]],
        "options": {"k": [1, 5], "exclude": [7, 8], "recall": True, "per_query": True, "empty": "skip"},
    },
    {"predictions": [["a", "b"], ["c"]], "references": [["b"], ["c"]], "options": {"k": 1}},
    {"predictions": [[1], [2]], "references": [[1], [1]], "options": {"protocol": "standard", "confidence": None}},
]
ACCURACY = [
    {
        "predictions": [{"positive": 0.5, "negative": 0.1}, {"positive": 0.5, "negative": 0.6}],
        "references": ["multi", "action_replace"],
        "options": {},
    },
    {
        "predictions": ["1", "(2)"],
        "references": [{"disruption_type": "multi", "answer": "1"}] * 2,
        "options": {"types": ["multi"]},
    },
    {
        "predictions": {"positive": [0.5, 0.6], "negative": [0.1, 0.7]},
        "references": ["multi", "x"],
        "options": {"types": ["multi", "x"]},
    },
]
COUNTERFACTUAL = [
    {
        "predictions": [[[0.9, 0.4], [0.7, 0.8]], [[0.6, 0.5], [0.7, 0.6]]],
        "references": ["object", "action"],
        "options": {"threshold": 0.5, "per_query": True, "confidence": 0.9},
    },
    {"predictions": [[[0.9, 0.4]], [[0.6, 0.5]]], "references": None, "options": {"threshold": None}},
    {"predictions": np.array([[[1, 0], [0, 1]]]), "references": [None], "options": {}},
]
RECALL = [
    {
        "predictions": [
            {"video_id": ["a", "b"], "start": [0.0, 2.0], "end": [4.0, 6.0]},
            {"video_id": ["c"], "start": [0.0], "end": [5.0]},
        ],
        "references": [{"video_id": "b", "spans": [[2.0, 7.0]]}, {"video_id": "c", "spans": [[0.0, 5.0], [1, 2]]}],
        "options": {
            "task": "vcmr",
            "k": [1, 5],
            "iou": [0.5],
            "extra": ["miou", "mrr", "median_rank"],
            "types": ["v", "t"],
            "missing": "miss",
            "max_predictions": 50,
        },
    },
    {
        "predictions": {"video_id": [[1, 2], [3, 4]], "start": [[0, 1], [0, 1]], "end": [[1, 2], [3, 4]]},
        "references": {"video_id": [1, 3], "spans": [[0, 1], [0, 2]]},
        "options": {"task": "svmr", "iou": 0.5, "k": 1},
    },
]
SEVERAL_OR_NONE = [{name: case[name] for name in ("predictions", "references", "options")} for case in examples[3:]]
SUBMISSION = [
    {
        "submission": {
            "video2idx": {"v": 0, "w": 1},
            "VCMR": [
                {"desc_id": 1, "predictions": [[0, 0, 4, 0.9], [1, 0, 2, 0.1]]},
                {"desc_id": 2, "predictions": [[1, 0, 4, 0.9]]},
            ],
        },
        "ground_truth": [
            {"desc_id": 1, "vid_name": "v", "ts": [0, 4]},
            {"desc_id": 2, "vid_name": "w", "ts": [[0, 4], [1, 2]]},
        ],
        "task": "vcmr",
    }
]
RUN = {"signature": "s", "per_query": {"map@1": [1.0, 0.0], "map@5": [1.0, 0.5]}}
COMPARISON = [{"a": RUN, "b": RUN, "options": {"permutations": 50, "seed": 1}}]


def check_comparison(a, b, options):
    for test in compare(a, b, **options).values():
        assert -1e12 < test["difference"] < 1e12
        assert 0 < test["p_value"] <= 1


CHECKS = {
    "compare": (check_comparison, COMPARISON),
    "map_at_k": (check_map, MAP),
    "comprehensive_accuracy": (check_accuracy, ACCURACY),
    "counterfactual_accuracy": (check_counterfactual, COUNTERFACTUAL),
    "vcmr_recall": (check_recall, RECALL),
    "several moments or none": (check_shares, SEVERAL_OR_NONE),
    "read_tvr_submission": (check_submission, SUBMISSION),
}


def refusal_of(check, case):
    """The error of a case, None where its results pass the check."""
    try:
        check(**case)
    except ValueError as error:
        return error
    return None


def fuzz(check, bases, seed, times):
    rng = random.Random(seed)
    for number in range(times):
        base = rng.choice(bases)
        case = mutated(rng, base)
        if case.keys() != base.keys() or not isinstance(case.get("options", {}), dict):
            continue
        if not case.get("options", {}).keys() <= base.get("options", {}).keys():
            continue  # Python itself refuses options of other names
        try:
            error = refusal_of(check, case)
        except Exception as other:
            pytest.fail(f"seed {seed!r}, input {number} gave {type(other).__name__} {other}: {shown(case)}")
        if error is not None:
            where = traceback.extract_tb(error.__traceback__)[-1].filename
            assert Path(where).is_relative_to(METRICS), f"{where} refused input {number}: {shown(case)}"
            assert len(str(error)) < 1000, f"input {number}: {shown(case)}"


def shown(case):
    try:
        return f"{case!r:.2000}"
    except Exception:
        return "a case that cannot be written out"


@pytest.mark.parametrize("name", CHECKS)
def test_mutated_inputs_are_refused_or_give_the_plain_results(name):
    fuzz(*CHECKS[name], seed=name, times=SHORT_RUN)


@pytest.mark.hostile
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", CHECKS)
def test_many_mutated_inputs_are_refused_or_give_the_plain_results(name, record_property):
    record_property("inputs", LONG_RUN)
    fuzz(*CHECKS[name], seed=f"{name} long", times=LONG_RUN)


def outcome(function, **arguments):
    try:
        return str(function(**arguments))  # as text, because NaN differs from itself
    except ValueError:
        return "refused"


@pytest.mark.parametrize(("name", "function"), FUNCTIONS.items())
def test_a_loaded_metric_refuses_what_its_function_refuses(name, function, tmp_path):
    kind = type(evaluate.load(str(METRICS / name), cache_dir=str(tmp_path)))
    rng, outcomes = random.Random(name), []
    for _ in range(80):
        base = rng.choice(CHECKS[name][1])
        case = mutated(rng, {key: base[key] for key in ("predictions", "references")})
        rows = {key: case.get(key) for key in ("predictions", "references")}
        metric = kind(cache_dir=str(tmp_path))
        outcomes.append(outcome(function, **rows, **base["options"]))
        assert outcome(metric.compute, **rows, **base["options"]) == outcomes[-1]
        if outcome(metric.add_batch, **rows) == "refused":
            assert (outcomes[-1], len(metric)) == ("refused", 0)
        else:
            assert outcome(metric.compute, **base["options"]) == outcomes[-1]
    assert 10 < outcomes.count("refused") < 80


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(
    "junk", [b"a", math.nan, nested(5000), Unprintable(), {"a": 1}], ids=lambda junk: type(junk).__name__
)
def test_one_row_of_junk_is_refused_when_it_is_added(name, junk, tmp_path):
    metric = evaluate.load(str(METRICS / name), cache_dir=str(tmp_path))
    with pytest.raises(ValueError, match=r"(predictions|references)\[0\]"):
        metric.add(prediction=junk, reference=junk)
    assert len(metric) == 0


@pytest.fixture
def real_submission(shared):
    """Eight queries of the reference evaluator's submission, and where they come from."""
    stem = shared / "parity" / "charades_fig_test_300"
    submission = json.loads(gzip.decompress(stem.with_name(f"{stem.name}_predictions.json.gz").read_bytes()))
    rows = [json.loads(line) for line in stem.with_name(f"{stem.name}_gt.jsonl").read_text().splitlines()[:8]]
    answers = {answer["desc_id"]: answer for answer in submission["VCMR"]}
    videos = {row["vid_name"]: submission["video2idx"][row["vid_name"]] for row in rows}
    few = [answers[row["desc_id"]] for row in rows]
    few = [{**answer, "predictions": answer["predictions"][:6]} for answer in few]
    return [{"submission": {"video2idx": videos, "VCMR": few}, "ground_truth": rows, "task": "vcmr"}]


def test_a_mutated_real_submission_is_refused_or_gives_the_plain_results(real_submission):
    check_submission(**real_submission[0])
    fuzz(check_submission, real_submission, seed="real", times=SHORT_RUN)


@pytest.mark.parametrize("file", ["charades_fig/charades_fig_test.jsonl", "didemo_fig/didemo_fig_val.jsonl"])
def test_mutated_real_moments_are_refused_or_give_the_plain_results(shared, file):
    lines = (shared / "data" / file).read_text().splitlines()[:6]
    rows = [json.loads(line) for line in lines]
    spans = [row["time"] if isinstance(row["time"][0], list) else [row["time"]] for row in rows]
    predictions = [
        {"video_id": [row["video"]], "start": [true[0][0]], "end": [true[0][1]]}
        for row, true in zip(rows, spans, strict=True)
    ]
    references = [{"video_id": row["video"], "spans": true} for row, true in zip(rows, spans, strict=True)]
    base = {"predictions": predictions, "references": references, "options": {"k": [1], "iou": 0.5}}
    check_recall(**base)
    fuzz(check_recall, [base], seed=file, times=SHORT_RUN)
