"""The requests about one row and the checks of the answers, without any input or output."""

from collections.abc import Generator
from typing import TypeVar

from hf_datasets.generation.answer_checks import rejection_reason
from hf_datasets.generation.chat import Answer, Request
from hf_datasets.generation.task import Message, Task
from hf_datasets.records import Rejection

Row = TypeVar("Row")
Record = TypeVar("Record")

QUOTED_CHARACTERS = 2_000
"""How much of a rejected answer is quoted to the model that wrote it."""


def dialogue(task: Task[Row, Record], row: Row, max_answers: int) -> Generator[Request, Answer, Record | Rejection]:
    """The requests about one row, as a generator that is sent the answers and returns the outcome.

    It does no input or output, so a live run, a batch and a dry run all use it.

    Yields:
        The next request; expects its answer.

    Returns:
        The record, or the rejection of the last answer.
    """
    messages = task.messages(row)
    outcome: Record | Rejection = Rejection("no answer was allowed", "")
    for _ in range(max_answers):
        answer = yield Request(task, row, messages)
        outcome = judge(task, row, messages, answer)
        if not isinstance(outcome, Rejection):
            break
        messages = [*messages, *_ask_again(answer.text, outcome.reason)]
    return outcome


def judge(task: Task[Row, Record], row: Row, messages: list[Message], answer: Answer) -> Record | Rejection:
    """The record in an answer, or the rejection with the reason and the raw answer."""
    reason = rejection_reason(messages, answer)
    if reason:
        return Rejection(reason, answer.text)
    try:
        return task.parse(row, answer.text)
    except Exception as error:
        return Rejection(f"the parser of {task.name} failed: {type(error).__name__}", answer.text)


def _ask_again(text: str, reason: str) -> list[Message]:
    return [
        {"role": "assistant", "content": text[:QUOTED_CHARACTERS] or "(nothing)"},
        {
            "role": "user",
            "content": f"That answer cannot be used: {reason}. Answer again, in the form asked for.",
        },
    ]
