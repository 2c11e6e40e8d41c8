"""How well a clip fits a query, 0 to 10, by a chat model that sees frames of both: what a re-ranker asks.

`subtle table --kind describe_and_rerank` asks this, and so does `subtle search` with `--rerank`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hf_datasets.generation.answer_checks import is_foreign
from hf_datasets.generation.repair import without_fence
from hf_datasets.generation.task import Message, text_part
from hf_datasets.records import Rejection

ContentParts = Sequence[dict[str, Any]]
"""Content parts of a message, such as `images.image_part` makes of a frame."""

HIGHEST_RELEVANCE: Final = 10
INSTRUCTIONS: Final = (
    "You judge whether a moment of a video is what somebody looks for. Look at what is done, how often, in which order "
    "and direction, not only at the scene. Answer with JSON alone, "
    f'{{"score": N}}, where N is a whole number from 0 (something else) to {HIGHEST_RELEVANCE} (exactly that).'
)
USUAL: Final = HIGHEST_RELEVANCE // 2


class MomentScore(BaseModel):
    """The answer that is asked for."""

    model_config = ConfigDict(extra="forbid")

    score: int = Field(ge=0, le=HIGHEST_RELEVANCE)


@dataclass(frozen=True)
class PairToScore:
    """A query and a clip to judge.

    Attributes:
        key: How a rejection names the pair.
        text: What is looked for, or what is different from the query clip; None: the same as the query clip.
        query_frames: Gives the frames of the query clip as content parts, in order; empty where there is none.
        clip_frames: Gives those of the clip to judge. Both are called when a request is made, so that few frames are
            in memory.
        expected: The score by the labels, which the rule-based generator gives; None where none is known.
    """

    key: str
    text: str | None
    query_frames: Callable[[], ContentParts] = field(repr=False)
    clip_frames: Callable[[], ContentParts] = field(repr=False)
    expected: int | None = None


@dataclass(frozen=True)
class RelevanceTask:
    """Ask how well a clip fits a query.

    Example:
        >>> pair = PairToScore("q1: c1", "a vault", query_frames=list, clip_frames=list)
        >>> task = RelevanceTask()
        >>> task.parse(pair, '{"score": 7}'), task.parse(pair, '{"score": 70}').reason
        (7, 'the score is outside 0 to 10')
        >>> task.parse(pair, "It fits well.").reason
        'the answer is no JSON object with a score alone'
    """

    name: str = "relevance"
    schema: type[BaseModel] | None = MomentScore

    def messages(self, row: PairToScore) -> list[Message]:
        """The frames of the query clip, if there is one, those of the clip to judge, and the question."""
        shown = list(row.query_frames())
        query = [text_part("The query clip, in order:"), *shown] if shown else []
        moment = [text_part("The moment to judge, in order:"), *row.clip_frames()]
        content = [*query, *moment, text_part(question(row.text, has_clip=bool(shown)))]
        return [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": content}]

    def parse(self, row: PairToScore, answer: str) -> int | Rejection:
        """The score; anything but the JSON that was asked for, or that in a code fence, is rejected."""
        text = without_fence(answer)
        try:
            return MomentScore.model_validate_json(text, strict=True).score
        except ValidationError as error:
            return Rejection(reason_of(error, text), answer, row.key)

    def write(self, row: PairToScore) -> str:
        """The score by the labels; where there is none, an answer as long as a true one, which a dry run counts."""
        return f'{{"score": {USUAL if row.expected is None else row.expected}}}'


def reason_of(error: ValidationError, text: str) -> str:
    """Why an answer is no score."""
    if {one["type"] for one in error.errors()} <= {"greater_than_equal", "less_than_equal"}:
        return f"the score is outside 0 to {HIGHEST_RELEVANCE}"
    if "{" not in text and is_foreign(text):
        return "is in another language than English"
    return "the answer is no JSON object with a score alone"


def question(text: str | None, *, has_clip: bool) -> str:
    """What is asked about the last frames."""
    if not has_clip:
        return f"What is looked for: {text}\nHow well does the moment fit?"
    if text is None:
        return "How well does the moment show the same as the query clip?"
    return f"What is looked for: what the query clip shows, but: {text}\nHow well does the moment fit?"
