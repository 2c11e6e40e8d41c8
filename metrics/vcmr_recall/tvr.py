"""The submission form of the TVR benchmark."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from numbers import Integral
from typing import Any, cast

from .inputs import check_choice, quoted, read_number, read_rows

TASKS = ("vcmr", "svmr", "vr")


def read_tvr_submission(
    submission: Mapping[str, Any], ground_truth: Iterable[Mapping[str, Any]], task: str, *, scores: bool = False
) -> tuple[list[dict[str, list[Any]] | None], list[dict[str, Any]]]:
    """Read one task of a TVR submission into predictions and references for `compute`.

    Args:
        submission: `{"video2idx": {name: index}, "VCMR": [...], "SVMR": [...], "VR": [...]}`, where a list holds
            `{"desc_id", "predictions": [[video index, start, end, score], ...]}`, best first.
        ground_truth: Rows with `desc_id`, `vid_name` and `ts`, a [start, end] or a list of them, in seconds; None and
            [] for a query without a moment.
        task: `vcmr`, `svmr` or `vr`.
        scores: Read the scores of the predictions, too, which a threshold needs.

    Returns:
        Predictions and references in the order of the ground truth, with video indices for ids. A query that
        the submission lacks gives None, which `compute` refuses unless `missing="miss"`.

    Raises:
        ValueError: Naming the row, for a task that is unknown or not in the submission, a query that is answered
            twice, repeated in the ground truth or not in it, a video without an index of its own, and a row or a
            prediction of another form, or with `scores` one without a score.

    Example:
        >>> predictions, references = read_tvr_submission(
        ...     {"video2idx": {"v": 3}, "VR": [{"desc_id": 8, "predictions": [[3, 0, 0, 0.9]]}]},
        ...     [{"desc_id": 8, "vid_name": "v", "ts": [1.0, 2.5]}], "vr")
        >>> predictions, references
        ([{'video_id': [3], 'start': [0], 'end': [0]}], [{'video_id': 3, 'spans': [[1.0, 2.5]]}])
    """
    check_choice(task, TASKS, "task")
    if not isinstance(submission, Mapping) or not {task.upper(), "video2idx"} <= submission.keys():
        raise ValueError(f"task {task!r} is not in the submission; it must be one of {TASKS}, beside 'video2idx'")
    video_indices = _read_video_indices(submission["video2idx"])
    answers = _read_answers(submission[task.upper()], f"submission[{task.upper()!r}]")
    predictions: list[dict[str, list[Any]] | None] = []
    references = []
    queries: set[str | Integral] = set()
    rows = list(ground_truth) if isinstance(ground_truth, Iterator) else ground_truth
    for number, row in enumerate(read_rows(rows, "ground_truth", "one row of desc_id, vid_name and ts per query")):
        name = f"ground_truth[{number}]"
        query = _read_query(row, ("desc_id", "vid_name", "ts"), name)
        if query in queries:
            raise ValueError(f"{name} repeats query {quoted(query)}; keep one row of each desc_id")
        queries.add(query)
        references.append(_read_reference(row, query, video_indices))
        predictions.append(_columns(answers.pop(query), query, scores) if query in answers else None)
    if answers:
        raise ValueError(
            f"{len(answers)} answered queries are not in the ground truth, such as {quoted(next(iter(answers)))}"
        )
    return predictions, references


def _read_video_indices(video2idx: Any) -> dict[str, Integral]:
    if not isinstance(video2idx, Mapping):
        raise ValueError(f"video2idx of the submission must map names to indices, not {quoted(video2idx)}")
    names: dict[Integral, str] = {}
    for video, index in video2idx.items():
        if not isinstance(video, str) or isinstance(index, bool) or not isinstance(index, Integral):
            raise ValueError(f"video2idx maps {quoted(video)} to {quoted(index)}; give a name and a whole number")
        if index in names:
            raise ValueError(
                f"video2idx gives {quoted(video)} the index {quoted(index)} of {quoted(names[index])}; "
                "number each video"
            )
        names[index] = video
    return {video: index for index, video in names.items()}


def _read_answers(rows: Any, name: str) -> dict[str | Integral, Any]:
    answers = {}
    for number, answer in enumerate(read_rows(rows, name, "one answer per query")):
        query = _read_query(answer, ("desc_id", "predictions"), f"{name}[{number}]")
        if query in answers:
            raise ValueError(f"the submission answers query {quoted(query)} twice; keep one")
        answers[query] = answer["predictions"]
    return answers


def _read_query(row: Any, fields: tuple[str, ...], name: str) -> str | Integral:
    if not isinstance(row, Mapping) or not row.keys() >= set(fields):
        raise ValueError(f"{name} must be a record with {', '.join(fields)}, not {quoted(row)}")
    query = row["desc_id"]
    if isinstance(query, bool) or not isinstance(query, (str, Integral)):
        raise ValueError(f"{name} has the desc_id {quoted(query)}; give a whole number or text")
    return query


def _read_reference(
    row: Mapping[str, Any], query: str | Integral, video_indices: dict[str, Integral]
) -> dict[str, Any]:
    video = row["vid_name"]
    if video is None and row["ts"] == []:
        return {"video_id": None, "spans": []}
    if not isinstance(video, str) or video not in video_indices:
        raise ValueError(f"video {quoted(video)} of query {quoted(query)} is not in video2idx; index the whole corpus")
    spans = read_rows(row["ts"], f"'ts' of query {quoted(query)}", "start and end, or several such lists")
    is_single = len(spans) == 2 and all(read_number(second) is not None for second in spans)
    return {"video_id": video_indices[video], "spans": [spans] if is_single else spans}


def _columns(answer: Any, query: str | Integral, scores: bool) -> dict[str, list[Any]]:
    rows = read_rows(answer, f"'predictions' of query {quoted(query)}", "[video index, start, end, score] rows")
    if not all(isinstance(row, (list, tuple)) and len(row) in {3, 4} for row in rows):
        raise ValueError(f"query {quoted(query)} holds a prediction that is not [video index, start, end, score]")
    if scores and not all(len(row) == 4 for row in rows):
        raise ValueError(
            f"query {quoted(query)} holds a prediction without a score; give [video index, start, end, score]"
        )
    if not set(map(type, chain.from_iterable(rows))) <= {int, float}:
        rows = [_numbers(row, place, query) for place, row in enumerate(rows)]
    videos, start, end = ([row[field] for row in rows] for field in range(3))
    wrong = next((place for place, video in enumerate(videos) if video % 1 != 0), None)  # so are inf and NaN
    if wrong is not None:
        raise ValueError(
            f"query {quoted(query)} holds the video index {quoted(videos[wrong])} at place {wrong}, which is not whole"
        )
    columns: dict[str, list[Any]] = {"video_id": [int(video) for video in videos], "start": start, "end": end}
    return columns | ({"score": [row[3] for row in rows]} if scores else {})


def _numbers(row: list[Any], place: int, query: str | Integral) -> list[float]:
    numbers = [read_number(value) for value in row]
    if None in numbers:
        raise ValueError(
            f"query {quoted(query)} holds {quoted(row[numbers.index(None)])} in the prediction at place {place}; "
            "give numbers"
        )
    return cast("list[float]", numbers)
