"""A multimodal language model as judge of which paragraph fits a video (VideoComp, section 4.4)."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import BaseModel

from hf_datasets.comp.pairs import question_about
from hf_datasets.generation.task import Message, text_part
from hf_datasets.records import Rejection

VIDEO_PROMPT: Final = (
    "Given two videos and a text, your task is to determine which video the text describes better.\n"
    "Text: {text}\n"
    'Which video does the text describe better? Answer with "1" or "2" only.'
)
"""The same question of two videos, for the video score."""
ACCEPTED_ANSWERS: Final = {"1": "1", "(1)": "1", "2": "2", "(2)": "2"}
"""The accepted answers; the released script accepts the brackets, too."""
UNREADABLE_VERDICT: Final = "the answer is not 1 or 2"
"""The reason for which any other answer is rejected."""


@dataclass(frozen=True, slots=True)
class JudgedPair:
    """A pair to judge: the two texts with the seed that shuffles them, or a question about them and its answer."""

    key: str
    disruption_type: str
    positive_text: str
    negative_text: str
    seed: int = 0
    asked: tuple[str, str] | None = None

    @property
    def answer(self) -> str:
        """The number of the candidate that fits, "1" or "2", decided by key and seed where no question is given."""
        return self.asked[1] if self.asked else random.Random(f"{self.seed}:{self.key}").choice(("1", "2"))

    @property
    def prompt(self) -> str:
        """The question with both candidates."""
        return self.asked[0] if self.asked else question_about((self.positive_text, self.negative_text), self.answer)


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
        return [{"role": "user", "content": [*frames, text_part(row.prompt)]}]

    def parse(self, row: JudgedPair, answer: str) -> Verdict | Rejection:
        """The verdict; an answer in prose is rejected."""
        return _verdict(row, row.disruption_type, answer)

    def write(self, row: JudgedPair) -> str:
        """The number of the longer text; "1" where both have the same length."""
        longer = len(row.positive_text) > len(row.negative_text)
        equal = len(row.positive_text) == len(row.negative_text)
        other = "2" if row.answer == "1" else "1"
        return "1" if equal else row.answer if longer else other


@dataclass(frozen=True, slots=True)
class JudgedVideos:
    """A text and two videos to judge, and the seed that shuffles them."""

    key: str
    text: str
    seed: int = 0

    @property
    def answer(self) -> str:
        """The number of the video that fits, "1" or "2", decided by key and seed."""
        return random.Random(f"{self.seed}:{self.key}").choice(("1", "2"))


@dataclass(frozen=True)
class VideoJudgeTask:
    """Ask which of two videos a text fits.

    Attributes:
        frames_of: A text -> the frames of the video that fits and those of the other one, as content parts.

    The rule-based judge does not see the frames: it takes the first video.

    Example:
        >>> task, judged = VideoJudgeTask(lambda judged: ([], [])), JudgedVideos("k", "A man runs.")
        >>> task.parse(judged, judged.answer).given == judged.answer
        True
    """

    frames_of: Callable[[JudgedVideos], tuple[Sequence[dict[str, Any]], Sequence[dict[str, Any]]]] = field(repr=False)
    name: str = "comp-judge-videos"
    schema: type[BaseModel] | None = None

    def messages(self, row: JudgedVideos) -> list[Message]:
        """The frames of both videos, each after its number, then the question.

        Raises:
            ValueError: A video has no frames.
        """
        videos = self.frames_of(row)
        if not all(videos):
            raise ValueError(f"a video of {row.key!r} has no frames; read at least one with hf_datasets.video")
        first, second = videos if row.answer == "1" else videos[::-1]
        question = text_part(VIDEO_PROMPT.format(text=row.text))
        content = [text_part("Video 1:"), *first, text_part("Video 2:"), *second, question]
        return [{"role": "user", "content": content}]

    def parse(self, row: JudgedVideos, answer: str) -> Verdict | Rejection:
        """The verdict; an answer in prose is rejected."""
        return _verdict(row, "segment_mismatch", answer)

    def write(self, row: JudgedVideos) -> str:  # noqa: ARG002
        """The first video."""
        return "1"


def _verdict(row: JudgedPair | JudgedVideos, disruption_type: str, answer: str) -> Verdict | Rejection:
    given = ACCEPTED_ANSWERS.get(answer.strip())
    if given is None:
        return Rejection(UNREADABLE_VERDICT, answer, row.key)
    return Verdict(row.key, disruption_type, given, row.answer)
