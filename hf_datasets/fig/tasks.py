"""VERIFIED's annotation pipeline as tasks, one per listing of the supplement (2 to 9).

The prompts are those that the listings print, or our own, worded after them with the same placeholders and examples.
The row of each task holds what it needs of the moment, so a stage takes the records of the one before.

The rule-based generators do not see the frames. They add to a caption what *other annotations* of the same video say:
things named there (static), and what happens beside the moment (dynamic). Where the video has no other caption
there is nothing to add, and the row is rejected.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import BaseModel

from hf_datasets.fig.lexicon import OTHER_ACTIONS, OTHER_THINGS, SAME, replaced
from hf_datasets.fig.parsing import after_list, clean, json_strings, labeled_sections, numbered_items
from hf_datasets.fig.prompts import PROMPTS
from hf_datasets.generation.answer_checks import is_foreign
from hf_datasets.generation.repair import as_data
from hf_datasets.generation.task import Message, PromptSet, text_part
from hf_datasets.records import Moment, Rejection

NUM_CANDIDATES: Final = 3
NUM_QUESTIONS: Final = 5
MAX_CAPTION_WORDS: Final = 80
"""Longer captions are rejected; the published fine captions have 4 to 53 words."""
EXPLICIT_TIME: Final = re.compile(r"\b(?:\d+(?:\.\d+)? ?(?:s|secs?|seconds?)|seconds|timestamps?)\b", re.IGNORECASE)
"""An explicit time reveals the span of the moment (listing 6)."""


@dataclass(frozen=True, slots=True)
class MomentRow:
    """What a task asks about a moment."""

    moment: Moment

    @property
    def key(self) -> str:
        """The name of the moment in rejections."""
        return self.moment.key


@dataclass(frozen=True, slots=True)
class Keyframe(MomentRow):
    """One keyframe of a moment, by the time at which it is shown."""

    seconds: float


@dataclass(frozen=True, slots=True)
class KeyframeAttributes:
    """What one keyframe shows (listing 2)."""

    background: str
    objects: str
    description: str


@dataclass(frozen=True, slots=True)
class StaticRow(MomentRow):
    """A moment with the attributes of its keyframes; `named` are things that other captions of the video name."""

    keyframes: tuple[KeyframeAttributes, ...] = ()
    named: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DynamicRow(MomentRow):
    """A moment with the questions, answers and description of the stages so far.

    `beside` are other annotations of the same video: (`while`, `before` or `after`, caption).
    """

    questions: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    description: str = ""
    beside: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Candidates:
    """Rewritten captions of a moment, in no particular order."""

    desc_id: int
    captions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MomentAnswers:
    """A video-language model's answers to the questions of a moment, and its description (listing 5)."""

    desc_id: int
    answers: tuple[str, ...]
    description: str


def body(caption: str) -> str:
    """A caption without its full stop."""
    return caption.strip().rstrip(".")


def numbered(items: list[str]) -> str:
    """Items as a numbered list."""
    return "\n".join(f"{number}. {item}" for number, item in enumerate(items, start=1))


def check_candidates(moment: Moment, captions: list[str], answer: str) -> Candidates | Rejection:
    """The captions that differ from the original and from one another, in English, without explicit time."""
    original = body(moment.coarse_caption).lower()
    distinct = {body(caption).lower(): caption for caption in reversed(captions)}
    kept = [caption for caption in reversed(distinct.values()) if body(caption).lower() != original]
    if not kept:
        return Rejection("holds no caption that differs from the original", answer, moment.key)
    if any(len(caption.split()) > MAX_CAPTION_WORDS for caption in kept):
        return Rejection(f"a caption has more than {MAX_CAPTION_WORDS} words", answer, moment.key)
    if is_foreign(" ".join(kept)):
        return Rejection("is not in English", answer, moment.key)
    words = set(original.split())
    if not any(words & set(body(caption).lower().split()) for caption in kept):
        return Rejection("shares no word with the original", answer, moment.key)
    timed = [caption for caption in kept if EXPLICIT_TIME.search(caption) and not EXPLICIT_TIME.search(original)]
    if timed:
        return Rejection(f"tells the time: {timed[0][:80]}", answer, moment.key)
    return Candidates(moment.desc_id, tuple(kept))


@dataclass(frozen=True, kw_only=True)
class PromptedTask:
    """What the tasks of the listings share: a name, and whose prompt asks.

    Attributes:
        name: Of the task, a key of each of `PROMPTS`.
        prompts: Whose prompts.
    """

    name: str
    prompts: PromptSet = "own"
    schema: type[BaseModel] | None = None

    @property
    def template(self) -> str:
        """The prompt."""
        return PROMPTS[self.prompts][self.name]

    def ask(
        self, images: Sequence[dict[str, Any]] = (), printed: Mapping[str, Any] | None = None, **values: Any
    ) -> list[Message]:
        """Our instructions with the values as data behind them; or the paper's prompt with the values in their places.

        Args:
            images: Content parts, which follow the text.
            printed: Values that the paper's prompt takes in another form, or under another name.
            values: What the prompt is about.
        """
        is_own = self.prompts == "own"
        text = as_data(**values) if is_own else self.template.format(**{**values, **(printed or {})})
        content = [text_part(text), *images] if images else text
        asked = [{"role": "user", "content": content}]
        return [{"role": "system", "content": self.template}, *asked] if is_own else asked


@dataclass(frozen=True)
class AttributesTask(PromptedTask):
    r"""Listing 2: background, objects and a new description of one keyframe, by a vision model.

    Attributes:
        frame_at: Moment, seconds -> the frame as a content part of a message (`generation.images.image_part`). It is
            called when a request is made, so few frames are in memory; if it raises, the row is rejected.

    Example:
        >>> moment = Moment(1, "v", 30.0, 2.0, 9.0, "a person closes a laptop.", "", None)
        >>> task = AttributesTask(lambda moment, seconds: {})
        >>> task.parse(Keyframe(moment, 5.5), "Background: a room\nObjects Attributes: gray\nDesc: A person.")
        KeyframeAttributes(background='a room', objects='gray', description='A person.')
    """

    frame_at: Callable[[Moment, float], dict[str, Any]] = field(repr=False)
    name: str = field(default="fig-attributes", kw_only=True)

    def messages(self, row: Keyframe) -> list[Message]:
        """The instructions, the query as data, and the frame."""
        return self.ask([self.frame_at(row.moment, row.seconds)], query=row.moment.coarse_caption)

    def parse(self, row: Keyframe, answer: str) -> KeyframeAttributes | Rejection:
        """The three labeled parts; only the description may be missing."""
        parts = labeled_sections(answer, ("Background", "Objects Attributes", "Object Attributes", "Desc"))
        objects = parts.get("Objects Attributes") or parts.get("Object Attributes")
        if not parts.get("Background") or not objects:
            return Rejection("lacks Background or Objects Attributes", answer, row.key)
        return KeyframeAttributes(parts["Background"].rstrip(","), objects, parts.get("Desc", ""))

    def write(self, row: Keyframe) -> str:
        """The caption alone, as the frame is not seen."""
        return f"Background: not known\nObjects Attributes: not known\nDesc: {clean(row.moment.coarse_caption)}"


@dataclass(frozen=True)
class StaticTask(PromptedTask):
    """Listing 3: captions enriched by static content of the keyframes.

    Example:
        >>> moment = Moment(1, "v", 30.0, 2.0, 9.0, "a person closes a laptop.", "", None)
        >>> task, row = StaticTask(), StaticRow(moment, named=("a brown desk",))
        >>> task.parse(row, task.write(row)).captions
        ('a person closes a laptop in a place with a brown desk.',)
    """

    name: str = field(default="fig-static", kw_only=True)

    def messages(self, row: StaticRow) -> list[Message]:
        """The instructions, the caption and the keyframes' attributes as data."""
        frames = [
            {"background": a.background, "objects": a.objects, "description": a.description} for a in row.keyframes
        ]
        told = [
            f"Background: {a.background}\nObjects Attributes: {a.objects}\nDesc: {a.description}" for a in row.keyframes
        ]
        return self.ask(
            printed={"attribute_content": numbered(told)},
            original_description=row.moment.coarse_caption,
            keyframe_number=len(frames),
            attribute_content=frames,
        )

    def parse(self, row: StaticRow, answer: str) -> Candidates | Rejection:
        """The candidates of the JSON object, or of a numbered list in its place."""
        found = json_strings(answer)
        captions = [value for key, value in found.items() if key != "original"] or numbered_items(answer)
        return check_candidates(row.moment, captions, answer)

    def write(self, row: StaticRow) -> str:
        """The caption with things that other captions of the video name, one to three at a time.

        Raises:
            ValueError: No other caption names a thing.
        """
        if not row.named:
            raise ValueError("no other caption of the video names a thing")
        lists = [row.named[:count] for count in range(1, min(NUM_CANDIDATES, len(row.named)) + 1)]
        original = body(row.moment.coarse_caption)
        candidates = {
            str(number): f"{original} in a place with {' and '.join(things)}."
            for number, things in enumerate(lists, start=1)
        }
        return as_data(original=row.moment.coarse_caption, **candidates)


@dataclass(frozen=True)
class QuestionsTask(PromptedTask):
    """Listing 4: at least five questions about what moves and changes."""

    name: str = field(default="fig-questions", kw_only=True)

    def messages(self, row: DynamicRow) -> list[Message]:
        """The instructions, and the caption as data."""
        return self.ask(original_description=row.moment.coarse_caption)

    def parse(self, row: DynamicRow, answer: str) -> tuple[str, ...] | Rejection:
        """The questions; fewer than five are rejected."""
        questions = numbered_items(answer)
        if len(questions) < NUM_QUESTIONS:
            return Rejection(f"holds too few questions: {len(questions)} of {NUM_QUESTIONS}", answer, row.key)
        return tuple(questions)

    def write(self, row: DynamicRow) -> str:  # noqa: ARG002 - the interface of a task
        """Questions that fit every action, the same for each row."""
        return numbered(
            [
                "In which direction does the movement go?",
                "How fast is the action, and does its speed change?",
                "What happens just before it?",
                "What happens just after it?",
                "What else happens at the same time?",
            ]
        )


@dataclass(frozen=True)
class AnswersTask(PromptedTask):
    """Listing 5: a video-language model answers the questions and describes the dynamics.

    Attributes:
        frames_of: Moment -> its frames in order, as content parts; called when a request is made.
    """

    frames_of: Callable[[Moment], tuple[dict[str, Any], ...]] = field(repr=False)
    name: str = field(default="fig-answers", kw_only=True)

    def messages(self, row: DynamicRow) -> list[Message]:
        """The instructions, the questions as data, and the frames in order.

        Raises:
            ValueError: There are no frames.
        """
        images = self.frames_of(row.moment)
        if not images:
            raise ValueError(f"moment {row.key} has no frames")
        return self.ask(
            images,
            printed={"questions": numbered(list(row.questions))},
            duration=round(row.moment.end_seconds - row.moment.start_seconds, 2),
            frame_number=len(images),
            description=row.moment.coarse_caption,
            questions=row.questions,
        )

    def parse(self, row: DynamicRow, answer: str) -> MomentAnswers | Rejection:
        """The answers, as many as there are questions, and the description behind them."""
        answers = numbered_items(answer)
        if len(answers) < len(row.questions):
            found = f"{len(answers)} of {len(row.questions)}"
            return Rejection(f"holds too few answers: {found}", answer, row.key)
        description = after_list(answer)
        answers[-1] = clean(answers[-1].removesuffix(description)) or answers[-1]  # where no empty line parts them
        return MomentAnswers(row.moment.desc_id, tuple(answers), description)

    def write(self, row: DynamicRow) -> str:
        """The other annotations of the video."""
        known = dict(row.beside)
        answers = ["It cannot be seen."] * 2 + [
            known.get(when, "Nothing is annotated.") for when in ("after", "before", "while")
        ]
        return numbered(answers[: len(row.questions)]) + f"\n\n{clean(row.moment.coarse_caption)}"


@dataclass(frozen=True)
class DynamicTask(PromptedTask):
    """Listing 6: captions enriched by what moves and changes.

    Example:
        >>> moment = Moment(1, "v", 30.0, 2.0, 9.0, "a person closes a laptop.", "", None)
        >>> task, row = DynamicTask(), DynamicRow(moment, beside=(("after", "a person drinks."),))
        >>> task.parse(row, task.write(row)).captions
        ('a person closes a laptop after a person drinks.',)
    """

    name: str = field(default="fig-dynamic", kw_only=True)

    def messages(self, row: DynamicRow) -> list[Message]:
        """The instructions, and the caption, questions, answers and description as data."""
        asked = list(zip(row.questions, row.answers, strict=False))
        places = [*asked, *[("", "")] * NUM_QUESTIONS][:NUM_QUESTIONS]  # the paper's prompt has as many
        return self.ask(
            printed={f"{part}{n}": text for n, qa in enumerate(places, 1) for part, text in zip("qa", qa, strict=True)},
            original=row.moment.coarse_caption,
            st=row.moment.start_seconds,
            ed=row.moment.end_seconds,
            questions_and_answers=[{"Q": question, "A": answer} for question, answer in asked],
            dynamic_description=row.description,
        )

    def parse(self, row: DynamicRow, answer: str) -> Candidates | Rejection:
        """The numbered candidates; an explicit time is rejected, because it reveals the span."""
        return check_candidates(row.moment, numbered_items(answer), answer)

    def write(self, row: DynamicRow) -> str:
        """The caption with the annotations beside it.

        Raises:
            ValueError: There is none.
        """
        if not row.beside:
            raise ValueError("nothing else is annotated in the video")
        original = body(row.moment.coarse_caption)
        return numbered([f"{original} {when} {body(other)}." for when, other in row.beside[:NUM_CANDIDATES]])


@dataclass(frozen=True)
class RewritingTask(PromptedTask):
    """Listings 7 to 9: three rewritten captions, for training the noise evaluator; see `rewriting_tasks`.

    Attributes:
        pairs: Words that the rule-based generator replaces by one another, of `lexicon`.
    """

    pairs: Sequence[tuple[str, str]] = field(repr=False)

    def messages(self, row: Moment) -> list[Message]:
        """The instructions with the listing's examples, and the caption."""
        return self.ask(original=row.coarse_caption)

    def parse(self, row: Moment, answer: str) -> Candidates | Rejection:
        """The numbered candidates that differ from the original."""
        return check_candidates(row, numbered_items(answer), answer)

    def write(self, row: Moment) -> str:
        """The rule-based generator's candidates.

        Raises:
            ValueError: No word of the caption is in the word lists.
        """
        candidates = replaced(body(row.coarse_caption), self.pairs)
        if not candidates:
            raise ValueError("the word lists know no word of the caption")
        return numbered([f"{candidate}." for candidate in candidates[:NUM_CANDIDATES]])


def rewriting_tasks(prompts: PromptSet = "own") -> dict[str, RewritingTask]:
    """The three rewritings: `positives` (listing 7), `static_negatives` (8) and `dynamic_negatives` (9).

    Example:
        >>> moment = Moment(1, "v", 30.0, 2.0, 9.0, "a person closes the big door.", "", None)
        >>> task = rewriting_tasks()["dynamic_negatives"]
        >>> task.parse(moment, task.write(moment)).captions
        ('a person opens the big door.',)
    """
    words = {"positives": SAME, "static_negatives": OTHER_THINGS, "dynamic_negatives": OTHER_ACTIONS}
    return {
        kind: RewritingTask(pairs, name=f"fig-{kind.replace('_', '-')}", prompts=prompts)
        for kind, pairs in words.items()
    }
