"""A multimodal language model as judge of which paragraph fits a video (VideoComp, section 4.4)."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import BaseModel

from hf_datasets.generation.task import Message
from hf_datasets.records import Rejection

JUDGE_PROMPT: Final = (
    "Given the video and two text candidates, your task is to determine which paragraph better aligns or matches with "
    "the video content.\n"
    "Candidate 1: {first}\nCandidate 2: {second}\n"
    'Which text candidate better matches the video content? Answer with "1" or "2" only.'
)
"""The paper's prompt, section 4.4."""
ANSWERS: Final = {"1": "1", "(1)": "1", "2": "2", "(2)": "2"}
"""The accepted answers; the released script accepts the brackets, too."""


@dataclass(frozen=True, slots=True)
class JudgedPair:
    """A pair to judge: the two texts, and the seed that shuffles them."""

    key: str
    disruption_type: str
    positive_text: str
    negative_text: str
    seed: int = 0

    @property
    def answer(self) -> str:
        """The number of the candidate that fits, "1" or "2", decided by key and seed."""
        return random.Random(f"{self.seed}:{self.key}").choice(("1", "2"))

    @property
    def prompt(self) -> str:
        """The question with both candidates."""
        texts = (self.positive_text, self.negative_text)
        first, second = texts if self.answer == "1" else texts[::-1]
        return JUDGE_PROMPT.format(first=first, second=second)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judge's answer, "1" or "2", and the true one."""

    key: str
    disruption_type: str
    given: str
    answer: str


@dataclass(frozen=True)
class JudgeTask:
    """Ask which of two texts fits the frames.

    Attributes:
        frames_of: A pair -> its frames in order, as content parts of a message (`generation.images.image_part`). It is
            called when a request is made, so that few frames are in memory.

    The rule-based judge does not see the frames: it takes the longer text, so that the steps around it can run
    without a model.

    Example:
        >>> task, pair = JudgeTask(lambda pair: []), JudgedPair("k", "multi", "A man runs.", "A man sits.")
        >>> task.parse(pair, f"({pair.answer})").given == pair.answer
        True
        >>> task.parse(pair, "I think the first.").reason
        'the answer is not 1 or 2'
    """

    frames_of: Callable[[JudgedPair], Sequence[dict[str, Any]]] = field(repr=False)
    name: str = "comp-judge"
    schema: type[BaseModel] | None = None

    def messages(self, row: JudgedPair) -> list[Message]:
        """The frames, then the paper's prompt.

        Raises:
            ValueError: The pair has no frames.
        """
        frames = self.frames_of(row)
        if not frames:
            raise ValueError(f"pair {row.key!r} has no frames; read at least one with hf_datasets.video")
        return [{"role": "user", "content": [*frames, {"type": "text", "text": row.prompt}]}]

    def parse(self, row: JudgedPair, answer: str) -> Verdict | Rejection:
        """The verdict; an answer in prose is rejected."""
        given = ANSWERS.get(answer.strip())
        if given is None:
            return Rejection("the answer is not 1 or 2", answer, row.key)
        return Verdict(row.key, row.disruption_type, given, row.answer)

    def write(self, row: JudgedPair) -> str:
        """The number of the longer text; "1" where both have the same length."""
        longer = len(row.positive_text) > len(row.negative_text)
        equal = len(row.positive_text) == len(row.negative_text)
        other = "2" if row.answer == "1" else "1"
        return "1" if equal else row.answer if longer else other
