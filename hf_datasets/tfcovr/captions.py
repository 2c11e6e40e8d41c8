"""Technical captions of clips by a video-language model, in the style of a judge (appendix C of the paper).

They serve the caption-based baseline (TF-CVR) and the comparison of captions with labels (Tables C1 and C2).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import BaseModel

from hf_datasets.generation.answer_checks import is_foreign
from hf_datasets.generation.task import Message, PromptSet
from hf_datasets.records import Rejection
from hf_datasets.sources.finegym import APPARATUS
from hf_datasets.tfcovr import paper_prompts
from hf_datasets.tfcovr.labels import Attributes, Label, Sport, describe
from hf_datasets.tfcovr.labels.diving import DivingAttributes, number_and_noun
from hf_datasets.tfcovr.labels.template import number_text

GYMNASTICS_CAPTION_PROMPT: Final = """\
You are an expert gymnastics judge. The images are the frames of one short clip, in order.

Write one technical caption of the routine in official gymnastics vocabulary only (round-off, flic-flac, salto, tuck, \
pike, layout, ...). Say the entry move, the main move, the body position, the number of turns, twists or saltos, and \
the apparatus if it can be seen.

Do not describe emotion, strength, balance or control; do not say what the clip shows or demonstrates; do not use \
generic verbs such as move, flip, spin or pose.

Answer with a single line, no list and no further sentence, in this form:
[technical move sequence with turns and position]. (Apparatus: [FX / VT / BB / UB / Unknown])

Examples:
Round-off, flic-flac, double tuck salto with 1.5 twist. (Apparatus: FX)
Back handspring to layout salto with full twist. (Apparatus: BB)
Stretched salto backward with 2.5 twists. (Apparatus: VT)"""
"""After "VideoXL Caption Generation Prompt for FineGym", appendix C; the form and examples are the paper's."""

DIVING_CAPTION_PROMPT: Final = """\
You are an expert diving judge. The images are the frames of one short clip, in order.

Write one technical caption of the dive in the terms of the international federation and standard competition \
vocabulary. Say the take-off (forward, backward, reverse, inward, armstand), the number of somersaults, the number of \
twists if any, the body position (tuck, pike, layout, free), the entry if it is clear, and the platform or springboard \
if it can be inferred.

Do not describe emotion, grace, beauty or control; do not say what the clip shows or demonstrates; do not use vague \
verbs such as moves, flips or spins.

Answer with a single line, no list and no explanation, in this form:
[take-off type], [number] somersaults, [number, if any] twists, [body position]. (Platform: [10m / 3m / Unknown])

Examples:
Backward takeoff, 2.5 somersaults, tuck. (Platform: 10m)
Reverse takeoff, 1.5 somersaults, 1 twist, pike. (Platform: 3m)
Armstand, 2.5 somersaults, layout. (Platform: Unknown)"""
"""After "VideoXL Caption Generation Prompt for FineDiving", appendix C; the form and examples are the paper's."""

CAPTION_PROMPTS: Final[dict[PromptSet, dict[Sport, str]]] = {
    "own": {"gymnastics": GYMNASTICS_CAPTION_PROMPT, "diving": DIVING_CAPTION_PROMPT},
    "paper": paper_prompts.PAPER_CAPTION_PROMPTS,
}
CAPTION_FORMS: Final[dict[Sport, re.Pattern[str]]] = {
    "gymnastics": re.compile(r"(?P<moves>[^\n()]+?)\.? ?\(Apparatus: ?\[?(?P<place>FX|VT|BB|UB|Unknown)\]?\)\.?"),
    "diving": re.compile(r"(?P<moves>[^\n()]+?)\.? ?\(Platform: ?\[?(?P<place>10 ?m|3 ?m|Unknown)\]?\)\.?"),
}
CAPTION_ENDINGS: Final[dict[Sport, str]] = {"gymnastics": "(Apparatus: ...)", "diving": "(Platform: ...)"}
GENERIC_WORDS = re.compile(
    r"\b(?:shows?|demonstrates?|moves?|flips?|spins?|poses?|graceful\w*|beaut\w+|emotion\w*|strength|"
    r"balance(?! beam))\b",
    re.IGNORECASE,
)
"""Words that both prompts forbid."""
MAX_CAPTION_CHARACTERS: Final = 300
TAKEOFF_PHRASES: Final = {"forward": "Forward", "back": "Backward", "reverse": "Reverse", "inward": "Inward"}


@dataclass(frozen=True, slots=True)
class ClipToCaption:
    """A clip to caption: its sport decides the prompt, its label is for the rule-based generator alone."""

    clip_id: str
    sport: Sport
    label: Label | None = None

    @property
    def key(self) -> str:
        """The name of the clip in rejections."""
        return self.clip_id


@dataclass(frozen=True, slots=True)
class ClipCaption:
    """The caption of a clip: one line as it was written, and the apparatus or platform in it (`Unknown` if none)."""

    clip_id: str
    caption: str
    place: str


@dataclass(frozen=True)
class CaptionTask:
    """Ask a video-language model for the technical caption of each clip.

    The rule-based generator does not see the frames: it turns the clip's label into a caption, so that the
    steps after it can run without a model. Its captions are called label captions, and are an upper bound.

    >>> from hf_datasets.tfcovr.labels import find_label
    >>> task = CaptionTask(lambda clip: [])
    >>> clip = ClipToCaption("dive_1", "diving", find_label("5253b"))
    >>> task.parse(clip, task.write(clip)).caption
    'Backward takeoff, 2.5 somersaults, 1.5 twists, pike. (Platform: Unknown)'

    Attributes:
        frames: Gives the frames of a clip, in order, as image parts of a message.
        any_form: Accept every English line of at most 300 characters, for models that do not keep to the form that
            the prompts require; Video-XL's captions in the paper's Tables C1 and C2 do not.
        prompts: Whose prompts.
    """

    frames: Callable[[ClipToCaption], list[dict[str, Any]]] = field(repr=False)
    any_form: bool = False
    prompts: PromptSet = "own"
    name: str = "tfcovr-caption"
    schema: type[BaseModel] | None = None

    def messages(self, row: ClipToCaption) -> list[Message]:
        """The sport's prompt, then the frames.

        Raises:
            ValueError: The clip has no frames.
        """
        frames = self.frames(row)
        if not frames:
            raise ValueError(f"clip {row.clip_id!r} has no frames; read at least one with hf_datasets.video")
        return [
            {"role": "system", "content": CAPTION_PROMPTS[self.prompts][row.sport]},
            {"role": "user", "content": frames},
        ]

    def parse(self, row: ClipToCaption, answer: str) -> ClipCaption | Rejection:
        """The caption in `answer`, or the rejection with the raw answer."""
        text = answer.strip()
        if self.any_form or self.prompts == "paper":  # whose form has two lines, and whose examples begin with a hyphen
            text = " ".join(text.removeprefix("- ").split())
        reason = caption_rejection_reason(text, row.sport, any_form=self.any_form)
        if reason:
            return Rejection(reason, answer, row.clip_id)
        match = CAPTION_FORMS[row.sport].fullmatch(text)
        return ClipCaption(row.clip_id, text, match["place"].replace(" ", "") if match else "Unknown")

    def write(self, row: ClipToCaption) -> str:
        """The label of the clip as a caption.

        Raises:
            ValueError: The clip has no label of TF-CoVR.
        """
        if row.label is None:
            raise ValueError(
                f"clip {row.clip_id!r} has no label of TF-CoVR, which the rule-based generator needs; use a model"
            )
        return caption_of(row.label)


def caption_rejection_reason(text: str, sport: Sport, *, any_form: bool = False) -> str | None:
    """Why a line is not a caption of this sport, or None where it is one.

    >>> caption_rejection_reason("Backward takeoff, 2.5 somersaults, tuck. (Platform: 10m)", "diving")
    >>> caption_rejection_reason("Action: Flip, Turns: 2", "diving")
    'is not one line that ends in (Platform: ...)'
    >>> caption_rejection_reason("Action: Flip, Turns: 2", "diving", any_form=True)

    Args:
        text: The line, without white space around it.
        sport: Decides the form.
        any_form: Require no form, and allow the words that the prompts forbid.
    """
    if not text:
        return "is empty"
    if len(text) > MAX_CAPTION_CHARACTERS:
        return f"has {len(text)} characters, {MAX_CAPTION_CHARACTERS} at most"
    match = CAPTION_FORMS[sport].fullmatch(text)
    if match is None and not any_form:
        return f"is not one line that ends in {CAPTION_ENDINGS[sport]}"
    moves = match["moves"] if match else text
    if is_foreign(moves):
        return "is in another language than English"
    generic = None if any_form else GENERIC_WORDS.search(moves)
    return f"says {generic[0]!r}, which is no technical term" if generic else None


def caption_of(label: Label) -> str:
    """The technical caption of a clip with this label, in the form that the prompts require.

    >>> from hf_datasets.tfcovr.labels import find_label
    >>> caption_of(find_label("40"))
    'Switch leap with 0.5 turn. (Apparatus: FX)'

    Raises:
        ValueError: It is a label of another vocabulary.
    """
    if label.attributes is None:
        raise ValueError(f"{label.description!r} is no label of TF-CoVR, so no rule writes its caption; use a model")
    return caption_with(label.attributes)


def caption_with(attributes: Attributes) -> str:
    """The technical caption that states these attributes.

    >>> from hf_datasets.tfcovr.labels import find_label
    >>> caption_with(find_label("6243d").attributes)
    'Armstand backward takeoff, 2 somersaults, 1.5 twists, pike. (Platform: Unknown)'
    """
    if isinstance(attributes, DivingAttributes):
        takeoff = f"{TAKEOFF_PHRASES[attributes.takeoff]} takeoff"
        takeoff = f"Armstand {takeoff.lower()}" if attributes.armstand else takeoff
        somersaults = f"{number_text(attributes.somersaults)} somersaults"
        twists = [number_and_noun(attributes.twists, "twist")] if attributes.twists else []
        return f"{', '.join([takeoff, somersaults, *twists, attributes.shape])}. (Platform: Unknown)"
    phrase = describe(attributes).partition(") ")[2].replace("(", "").replace(")", "")
    abbreviation = next(short for short, name in APPARATUS.items() if name == attributes.apparatus)
    return f"{phrase[0].upper()}{phrase[1:]}. (Apparatus: {abbreviation})"
