"""Inputs found by fuzzing, in their smallest form, that gave another exception or a wrong result: now refused."""

import math

import numpy as np
import pytest
from odd_values import Unprintable, nested

from metrics.comprehensive_accuracy.scoring import comprehensive_accuracy
from metrics.map_at_k.scoring import mean_average_precision
from metrics.map_at_k.significance import compare
from metrics.vcmr_recall.scoring import moment_retrieval_recall
from metrics.vcmr_recall.tvr import read_tvr_submission

RUN = {"signature": "s", "per_query": {"map@1": [1.0, 0.0], "map@5": [1.0, 0.5]}}
TWO_VIDEOS = {"v": 0, "w": 1}
ROW = {"desc_id": 1, "vid_name": "v", "ts": [0, 4]}
ONE = {"video_id": ["v"], "start": [0.0], "end": [4.0]}
TRUE = {"video_id": "v", "spans": [[0.0, 4.0]]}


def maps(predictions, references=((1,),), **options):
    return mean_average_precision, (predictions, list(map(list, references))), options


def accuracies(predictions, references=("multi",), **options):
    return comprehensive_accuracy, (predictions, list(references)), options


def recalls(prediction=ONE, reference=TRUE, **options):
    return moment_retrieval_recall, ([prediction], [reference]), options


def submits(change, **changes):
    submission = {"video2idx": TWO_VIDEOS, "VCMR": [{"desc_id": 1, "predictions": [[0, 0, 4, 0.9]]}], **change}
    base = {"ground_truth": [ROW], "task": "vcmr"} | changes
    return read_tvr_submission, (submission, base["ground_truth"], base["task"]), {}


def answers(*predictions):
    return submits({"VCMR": [{"desc_id": 1, "predictions": list(predictions)}]})


def compares(**changes):
    return compare, (RUN | changes, RUN), {}


MALFORMED = {
    "rows that are deep": (maps([[nested(5000)]]), r"predictions\[0\] holds"),
    "a row that cannot be written out": (maps([Unprintable()]), r"predictions\[0\]"),
    "a row of a million characters": (maps(["x" * 10**6]), r"predictions\[0\]"),
    "an array within a row": (maps([[np.array([1, 2])]]), r"predictions\[0\] holds"),
    "an array without dimension": (maps(np.array(3)), "predictions must be a list"),
    "rows in a set": (maps({(1, 2)}), "predictions must be a list"),
    "bytes among texts": (maps([["a", b"a"]], [["a"]]), r"predictions\[0\] holds b'a'"),
    "invalid text": (maps([["\ud800"]], [["a"]]), r"predictions\[0\] holds .*invalid text"),
    "a masked array": (maps(np.ma.array([[1, 2]], mask=[[0, 1]])), "predictions .*masked"),
    "k of bytes": (maps([[1]], k=b"a"), "k must be"),
    "k beyond all rankings": (maps([[1]], k=10**400), "k must be"),
    "a confidence in words": (maps([[1]], confidence="high"), "confidence must lie"),
    "a flag in words": (maps([[1]], recall="no"), "recall must be True or False"),
    "a protocol in a list": (maps([[1]], protocol=["standard"]), "protocol must be one of"),
    "a text of excluded ids": (maps([["a"]], [["a"]], exclude="b"), "exclude must be a list"),
    "excluded ids in a table": (maps([[1]], exclude=np.array([[2]])), "exclude must hold one id per query"),
    "a run without signature": (compares(signature=None), "different protocols"),
    "a run of ragged results": (compares(per_query={"a": [1.0], "b": [1.0, 2.0]}), "'b' of a holds 2 results"),
    "a run of words": (compares(per_query={"a": ["1"]}), "'a' of a holds '1' for query 0"),
    "fewer than one permutation": ((compare, (RUN, RUN), {"permutations": -5}), "permutations must be"),
    "a similarity that is true": (accuracies([{"positive": np.True_, "negative": 0}]), r"predictions\[0\]"),
    "a column with a truth value": (
        accuracies({"positive": [True, 0.6], "negative": [0.1, 0.7]}, ["multi"] * 2),
        r"predictions\[0\] has positive similarity True",
    ),
    "a similarity of 400 digits": (
        accuracies([{"positive": 10**400, "negative": 0.0}]),
        r"predictions\[0\] has positive",
    ),
    "an answer key in a list": (accuracies(["1"], [{"disruption_type": "multi", "answer": ["1"]}]), r"references\[0\]"),
    "types in one text": (accuracies([{"positive": 1, "negative": 0}], ["m"], types="multi"), "types must be a list"),
    "types of other kinds": (accuracies([{"positive": 1, "negative": 0}], types=[None]), "types must be"),
    "a second of 400 digits": (recalls({**ONE, "end": [10**400]}), r"'end' of predictions\[0\] holds"),
    "a second that is true": (recalls({**ONE, "end": [True]}), r"'end' of predictions\[0\] holds True"),
    "a second beyond float32": (recalls({**ONE, "end": [1e308]}), r"predictions\[0\].*within 1e\+09"),
    "a second for a list": (recalls({**ONE, "end": 4.0}), r"'end' of predictions\[0\] must be a list"),
    "a span of text": (recalls(ONE, {**TRUE, "spans": [["0", "4"]]}), r"spans of references\[0\]"),
    "spans by name": (recalls(ONE, {**TRUE, "spans": {"a": 1, "b": 2}}), r"spans of references\[0\]"),
    "spans without length": (recalls(ONE, {**TRUE, "spans": 4}), r"spans of references\[0\]"),
    "max_predictions in words": (recalls(max_predictions="all"), "max_predictions must be"),
    "no extra at all": (recalls(extra=None), "extra must be a list"),
    "an IoU that is true": (recalls(iou=True), "iou must be"),
    "two IoUs of one name": (recalls(iou=[0.5, 0.50000001]), "differ in their first six digits"),
    "types without length": (recalls(types=3), "types must be a list"),
    "a submission that is a list": ((read_tvr_submission, ([], [], "vr"), {}), "not in the submission"),
    "a task in a list": (submits({}, task=["vcmr"]), "task must be one of"),
    "video2idx in a list": (submits({"video2idx": ["v"]}), "video2idx of the submission must map"),
    "a video of index None": (submits({"video2idx": {"v": None, "w": 1}}), "'v' to None"),
    "one index for two videos": (submits({"video2idx": {"v": 0, "w": 0}}), "'w' the index 0 of 'v'"),
    "an answer that is no record": (submits({"VCMR": [7]}), r"submission\['VCMR'\]\[0\]"),
    "a query in a list": (submits({"VCMR": [{"desc_id": [1], "predictions": []}]}), r"\[0\] has the desc_id"),
    "predictions without length": (submits({"VCMR": [{"desc_id": 1, "predictions": 5}]}), "of query 1 must be"),
    "a prediction of text": (answers(["0", 0, 4, 1]), "query 1 holds '0' in the prediction at place 0"),
    "an infinite video index": (answers([math.inf, 0, 4, 1]), "query 1 holds the video index inf at place 0"),
    "a ground truth without name": (submits({}, ground_truth=[{"desc_id": 1}]), r"ground_truth\[0\]"),
    "a ground truth that repeats a query": (submits({}, ground_truth=[ROW, ROW]), r"ground_truth\[1\] repeats query 1"),
}


@pytest.mark.parametrize("case", MALFORMED.values(), ids=MALFORMED)
def test_malformed_input_is_refused_naming_the_row(case):
    (function, arguments, options), message = case
    with pytest.raises(ValueError, match=message) as refusal:
        function(*arguments, **options)
    assert len(str(refusal.value)) < 1000


def test_types_that_end_in_a_zero_character_are_kept_apart():
    result = moment_retrieval_recall([ONE, ONE], [TRUE, {**TRUE, "video_id": "w"}], types=["a", "a\0"], k=1)
    assert (result["vcmr_recall@1_iou@0.5/a"], result["vcmr_recall@1_iou@0.5/a\0"]) == (1, 0)
    rows = [{"positive": 1, "negative": 0}, {"positive": 0, "negative": 1}]
    result = comprehensive_accuracy(rows, ["a", "a\0"], types=["a", "a\0"])
    assert (result["accuracy/a"], result["accuracy/a\0"]) == (1, 0)
