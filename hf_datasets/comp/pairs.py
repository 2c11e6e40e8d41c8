"""The rows of VideoComp: a stretch of video, a text that fits it, one that does not, and the question for a judge."""

from typing import Final, get_args

import pyarrow as pa

from hf_datasets.class_labels import labeled_features
from hf_datasets.records import ContrastPair, DisruptionType, Rejection
from hf_datasets.seeds import generator_for

PAIR_SCHEMA = pa.schema(
    {
        "key": pa.string(),
        "video_id": pa.string(),
        "disruption_type": pa.string(),
        "original_start_seconds": pa.float64(),
        "original_end_seconds": pa.float64(),
        "query_start_seconds": pa.float64(),
        "query_end_seconds": pa.float64(),
        "positive_text": pa.string(),
        "negative_text": pa.string(),
        "question": pa.string(),
        "answer": pa.string(),
        "decision": pa.string(),
    }
)
"""`decision` is JSON: the order, the replaced words or the intervals of events that were chosen, of a segment
mismatch also `told_seconds`, the start and the end of what the negative text describes."""
PAIR_FEATURES = labeled_features(PAIR_SCHEMA, {"disruption_type": get_args(DisruptionType)})
"""How rows are stored; the rows of this package have `PAIR_SCHEMA`, with names."""
QUESTION: Final = (
    "Given the video and two text candidates, your task is to determine which paragraph better aligns or matches with "
    "the video content.\n"
    "Candidate 1: {first}\nCandidate 2: {second}\n"
    'Which text candidate better matches the video content? Answer with "1" or "2" only.'
)
"""The paper's prompt, section 4.4."""


def question_about(texts: tuple[str, str], answer: str) -> str:
    """The question which of two texts fits: the first of them, which stands where the answer, "1" or "2", says."""
    first, second = texts if answer == "1" else texts[::-1]
    return QUESTION.format(first=first, second=second)


def make_pair(
    video_id: str,
    disruption_type: DisruptionType,
    texts: tuple[str, str],
    *,
    original: tuple[float, float],
    query: tuple[float, float],
    seed: int = 0,
    name: str | None = None,
) -> ContrastPair | Rejection:
    """A row, with the two texts in a seeded order in its question.

    Args:
        video_id: The video.
        disruption_type: The disruption of the negative text.
        texts: The one that fits, and the one that does not.
        original: Start and end of all events, in seconds.
        query: Start and end of the stretch that the texts are judged on, in seconds.
        seed: Decides which text comes first in the question.
        name: Of the disruption in the key, where a video has several of one type.

    Returns:
        The row, or a rejection where the two texts are the same.

    Example:
        >>> pair = make_pair("v", "action_replace", ("He runs.", "He sits."), original=(0, 9), query=(0, 9))
        >>> pair.question.splitlines()[int(pair.answer)].partition(": ")[2]
        'He runs.'
    """
    key = f"{video_id}/{name or disruption_type}"
    positive, negative = texts
    if positive == negative:
        return Rejection("the negative reads as the positive", positive, key)
    answer = generator_for(key, seed).choice(("1", "2"))
    return ContrastPair(
        key=key,
        video_id=video_id,
        disruption_type=disruption_type,
        original_start_seconds=original[0],
        original_end_seconds=original[1],
        query_start_seconds=query[0],
        query_end_seconds=query[1],
        positive_text=positive,
        negative_text=negative,
        question=question_about(texts, answer),
        answer=answer,
    )
