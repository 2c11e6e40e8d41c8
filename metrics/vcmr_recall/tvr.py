"""The submission form of the TVR benchmark."""

from collections.abc import Iterable, Mapping
from typing import Any

TASKS = ("vcmr", "svmr", "vr")


def read_tvr_submission(
    submission: Mapping[str, Any], ground_truth: Iterable[Mapping[str, Any]], task: str
) -> tuple[list[dict[str, list] | None], list[dict[str, Any]]]:
    """Read one task of a TVR submission into predictions and references for `compute`.

    Args:
        submission: `{"video2idx": {name: index}, "VCMR": [...], "SVMR": [...], "VR": [...]}`, where a list holds
            `{"desc_id", "predictions": [[video index, start, end, score], ...]}`, best first.
        ground_truth: Rows with `desc_id`, `vid_name` and `ts`, a [start, end] or a list of them, in seconds.
        task: `vcmr`, `svmr` or `vr`.

    Returns:
        Predictions and references in the order of the ground truth, with video indices for ids. A query that
        the submission lacks gives None, which `compute` refuses unless told `missing="miss"`.

    Raises:
        ValueError: For a task that is unknown or not in the submission, a query that is answered twice or not
            in the ground truth, a video without index, and a prediction of another form.

    Example:
        >>> predictions, references = read_tvr_submission(
        ...     {"video2idx": {"v": 3}, "VR": [{"desc_id": 8, "predictions": [[3, 0, 0, 0.9]]}]},
        ...     [{"desc_id": 8, "vid_name": "v", "ts": [1.0, 2.5]}], "vr")
        >>> predictions, references
        ([{'video_id': [3], 'start': [0], 'end': [0]}], [{'video_id': 3, 'spans': [[1.0, 2.5]]}])
    """
    if task not in TASKS or task.upper() not in submission or "video2idx" not in submission:
        raise ValueError(
            f"task {task!r} is not in the submission; it must be one of {TASKS}, beside 'video2idx'"
        )
    answers: dict[Any, Any] = {}
    for answer in submission[task.upper()]:
        if answer["desc_id"] in answers:
            raise ValueError(f"the submission answers query {answer['desc_id']} twice; keep one")
        answers[answer["desc_id"]] = answer["predictions"]
    predictions: list[dict[str, list] | None] = []
    references = []
    for row in ground_truth:
        query, video = row["desc_id"], row["vid_name"]
        if video not in submission["video2idx"]:
            raise ValueError(f"video {video!r} of query {query} is not in video2idx; index the whole corpus")
        spans = row["ts"] if hasattr(row["ts"][0], "__len__") else [row["ts"]]
        references.append({"video_id": submission["video2idx"][video], "spans": spans})
        predictions.append(_columns(answers.pop(query), query) if query in answers else None)
    if answers:
        raise ValueError(
            f"{len(answers)} answered queries are not in the ground truth, such as {next(iter(answers))!r}"
        )
    return predictions, references


def _columns(answer: list[list[float]], query: Any) -> dict[str, list]:
    if any(len(prediction) not in {3, 4} for prediction in answer):
        raise ValueError(f"query {query} holds a prediction that is not [video index, start, end, score]")
    videos, start, end = ([prediction[field] for prediction in answer] for field in range(3))
    if any(video != int(video) for video in videos):
        raise ValueError(f"query {query} holds a video index that is not whole")
    return {"video_id": [int(video) for video in videos], "start": start, "end": end}
