"""Technical captions of clips by a video-language model, in the style of a judge (appendix C of the paper).

They serve the caption-based baseline (TF-CVR) and the comparison of captions with labels (Tables C1 and C2).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, cast

import numpy as np
from pydantic import BaseModel

from hf_datasets.generation.images import image_part
from hf_datasets.generation.task import Message
from hf_datasets.records import Rejection
from hf_datasets.tfcovr.labels import Label, find_label
from hf_datasets.tfcovr.labels.diving import DivingAttributes, counted
from hf_datasets.tfcovr.labels.gymnastics import APPARATUS, GymnasticsAttributes
from hf_datasets.tfcovr.labels.template import number_text

Sport = Literal["gymnastics", "diving"]

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

CAPTION_PROMPTS: Final[dict[Sport, str]] = {
    "gymnastics": GYMNASTICS_CAPTION_PROMPT,
    "diving": DIVING_CAPTION_PROMPT,
}
CAPTION_FORMS: Final[dict[Sport, re.Pattern[str]]] = {
    "gymnastics": re.compile(r"(?P<moves>[^\n()]+?)\.? ?\(Apparatus: ?\[?(?P<place>FX|VT|BB|UB|Unknown)\]?\)\.?"),
    "diving": re.compile(r"(?P<moves>[^\n()]+?)\.? ?\(Platform: ?\[?(?P<place>10 ?m|3 ?m|Unknown)\]?\)\.?"),
}
GENERIC_WORDS = re.compile(
    r"\b(?:shows?|demonstrates?|moves?|flips?|spins?|poses?|graceful\w*|beaut\w+|emotion\w*|strength|balance)\b",
    re.IGNORECASE,
)
"""Words that both prompts forbid."""
MAX_CAPTION_CHARACTERS: Final = 300
TAKEOFFS: Final = {"forward": "Forward", "back": "Backward", "reverse": "Reverse", "inward": "Inward"}


@dataclass(frozen=True, slots=True)
class ClipFrames:
    """A clip to caption: its frames in order, each `(C, H, W)` uint8, and its label for the rule-based generator."""

    clip_id: str
    sport: Sport
    frames: Sequence[np.ndarray] = field(repr=False, compare=False)
    label: str | None = None

    @property
    def key(self) -> str:
        """The name of the clip in rejections."""
        return self.clip_id


@dataclass(frozen=True, slots=True)
class ClipCaption:
    """A technical caption: the moves, and the apparatus or platform that the caption names (`Unknown` if none)."""

    clip_id: str
    caption: str
    place: str


@dataclass(frozen=True)
class CaptionTask:
    """Ask a video-language model for the technical caption of each clip.

    The rule-based generator does not see the frames: it turns the clip's label into a caption, so that the
    steps after it can run without a model.

    >>> task = CaptionTask()
    >>> clip = ClipFrames("dive_1", "diving", np.zeros((1, 3, 8, 8), np.uint8), label="5253b")
    >>> task.parse(clip, task.write(clip))
    ClipCaption(clip_id='dive_1', caption='Backward takeoff, 2.5 somersaults, 1.5 twists, pike', place='Unknown')
    """

    name: str = "tfcovr-caption"
    schema: type[BaseModel] | None = None

    def messages(self, row: ClipFrames) -> list[Message]:
        """The sport's prompt, then the frames.

        Raises:
            ValueError: The clip has no frames.
        """
        if not len(row.frames):
            raise ValueError(f"clip {row.clip_id!r} has no frames; read at least one with hf_datasets.video")
        return [
            {"role": "system", "content": CAPTION_PROMPTS[row.sport]},
            {"role": "user", "content": [image_part(frame) for frame in row.frames]},
        ]

    def parse(self, row: ClipFrames, answer: str) -> ClipCaption | Rejection:
        """The caption in `answer`, or the rejection with the raw answer."""
        text = answer.strip()
        if len(text) > MAX_CAPTION_CHARACTERS:
            return Rejection(f"has {len(text)} characters, {MAX_CAPTION_CHARACTERS} at most", answer, row.clip_id)
        match = CAPTION_FORMS[row.sport].fullmatch(text)
        if match is None:
            ending = "(Apparatus: ...)" if row.sport == "gymnastics" else "(Platform: ...)"
            return Rejection(f"is not one line that ends in {ending}", answer, row.clip_id)
        generic = GENERIC_WORDS.search(match["moves"])
        if generic:
            return Rejection(f"says {generic[0]!r}, which is no technical term", answer, row.clip_id)
        return ClipCaption(row.clip_id, match["moves"].strip(), match["place"].replace(" ", ""))

    def write(self, row: ClipFrames) -> str:
        """The label of the clip as a caption.

        Raises:
            ValueError: The clip has no label, or an unknown one.
        """
        if row.label is None:
            raise ValueError(
                f"clip {row.clip_id!r} has no label, which the rule-based generator needs; give one or use a model"
            )
        return caption_of(find_label(row.label))


def caption_of(label: Label) -> str:
    """The technical caption of a clip with this label, in the form that the prompts require.

    >>> caption_of(find_label("40"))
    'Switch leap with 0.5 turn. (Apparatus: FX)'
    """
    attributes = label.attributes
    if isinstance(attributes, DivingAttributes):
        takeoff = "Armstand" if attributes.armstand else f"{TAKEOFFS[attributes.takeoff]} takeoff"
        somersaults = f"{number_text(attributes.somersaults)} somersaults"
        twists = [counted(attributes.twists, "twist")] if attributes.twists else []
        return f"{', '.join([takeoff, somersaults, *twists, attributes.shape])}. (Platform: Unknown)"
    phrase = label.description.partition(") ")[2].replace("(", "").replace(")", "")
    apparatus = cast(GymnasticsAttributes, attributes).apparatus
    abbreviation = next(short for short, name in APPARATUS.items() if name == apparatus)
    return f"{phrase[0].upper()}{phrase[1:]}. (Apparatus: {abbreviation})"
