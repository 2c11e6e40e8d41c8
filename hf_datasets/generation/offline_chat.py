"""Chat clients without a server: the rule-based generator, and the one that answers from the cache only."""

from dataclasses import dataclass, field
from typing import Any

from hf_datasets.generation.chat import Answer, NoAnswerError, Request
from hf_datasets.generation.prices import Meter


class RuleBasedGenerator:
    """The default client: each task's own rule-based generator, which needs no network and no key and is free."""

    model = "offline-writer"  # part of cache keys and dataset cards
    window = 64
    keeps_answers = False

    def __init__(self) -> None:
        self.sampling: dict[str, Any] = {}
        self.meter = Meter()

    async def answer(self, request: Request) -> Answer:
        """The answer of the task's `write`.

        Raises:
            NoAnswerError: The rule-based generator has no answer for this row.
        """
        self.meter.requests += 1
        try:
            return Answer(request.task.write(request.row))
        except ValueError as error:
            raise NoAnswerError(f"the rule-based generator has no answer ({error})") from None


@dataclass(slots=True)
class Replay:
    """The cache only: rows whose answer is not in the cache are rejected."""

    model: str
    sampling: dict[str, Any]
    window: int = 64
    keeps_answers: bool = False
    meter: Meter = field(default_factory=Meter)

    async def answer(self, request: Request) -> Answer:
        """No answer: `generate` has already looked in the cache.

        Raises:
            NoAnswerError: Always.
        """
        reason = f"no cached answer of {self.model} to this request of {request.task.name}"
        raise NoAnswerError(reason, passing=True)
