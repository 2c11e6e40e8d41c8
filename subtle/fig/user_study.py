"""VERIFIED's user study: forms that a browser opens from disk, and their answers (Table 3).

A participant sees a clip, its coarse caption and its fine one, and answers whether the fine one adds static detail,
whether it adds dynamic detail, and how accurate it is. The form does not show which kind of detail was added;
`items.json` has it.
"""

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError
from tqdm import tqdm

from hf_datasets.drafts import write_json, write_text
from subtle.run.inline_video import clip_data_url
from subtle.run.pages import render_page
from subtle.run.results import read_json

CAPTION_KINDS = ("static", "dynamic")
ITEMS_FILE = "items.json"
LEAST_ANSWERS = 3
"""Participants who answer each item, in the paper."""


class ParticipantAnswer(BaseModel, extra="forbid", strict=True):
    """One participant's answer about one item."""

    item_id: str
    static: Literal[0, 1]
    dynamic: Literal[0, 1]
    accuracy: int = Field(ge=1, le=5)


class AnswerFile(BaseModel, extra="forbid", strict=True):
    """The file that a form exports."""

    form: str = Field(min_length=1)
    participant: str = Field(min_length=1)
    answers: list[ParticipantAnswer]


@dataclass(frozen=True)
class StudyResults:
    """The results of one kind of captions, or of all where the kind is not known.

    Attributes:
        items: how many were answered.
        answers: how many answers they have.
        static_percent: R_s, how often "richer in static detail" was answered with yes.
        dynamic_percent: R_d, the same for dynamic detail.
        accuracy: S, the mean of 1 to 5.
    """

    items: int
    answers: int
    static_percent: float
    dynamic_percent: float
    accuracy: float


def draw_items(
    moments: Sequence[dict[str, Any]], *, per_kind: int, seed: int
) -> dict[str | None, list[dict[str, Any]]]:
    """Draw moments for the study, the same number of each kind; kind -> moments.

    Args:
        moments: rows with `desc_id`, `coarse_caption`, `fine_caption`, and `kind`, which may be None.
        per_kind: how many of each kind.
        seed: decides which.
    """
    of_kind: dict[str | None, list[dict[str, Any]]] = defaultdict(list)
    for moment in moments:
        of_kind[moment["kind"]].append(moment)
    generator = random.Random(seed)
    return {
        kind: generator.sample(of_kind[kind], min(per_kind, len(of_kind[kind])))
        for kind in (*CAPTION_KINDS, None)
        if kind in of_kind
    }


def write_forms(
    moments: Sequence[dict[str, Any]],
    folder: Path,
    *,
    title: str,
    per_kind: int = 50,
    per_form: int = 30,
    seed: int = 0,
) -> tuple[list[Path], list[int]]:
    """Write `form-1.html`, ... with at most `per_form` items each, and `items.json`.

    Args:
        moments: see `draw_items`, with `video`, `start_seconds` and `end_seconds`.
        folder: where to write.
        title: of the forms.
        per_kind: see `draw_items`.
        per_form: items of a form; the paper has 30.
        seed: decides which items, and their order.

    Returns:
        The forms, and the `desc_id`s of the drawn moments whose clip cannot be read; they are in no form.
    """
    drawn = [moment for kind in draw_items(moments, per_kind=per_kind, seed=seed).values() for moment in kind]
    random.Random(seed).shuffle(drawn)
    unreadable: list[int] = []
    clips = _with_clips(drawn, unreadable)
    items = list(tqdm(clips, total=len(drawn), desc="clips of the user study", unit="clip"))
    if not items:
        raise SystemExit(f"none of {len(drawn)} drawn moments can be read from its video; check the videos")
    forms = []
    for number, first in enumerate(range(0, len(items), per_form), start=1):
        shown = items[first : first + per_form]
        form = f"{title}, form {number}"
        forms.append(folder / f"form-{number}.html")
        write_text(forms[-1], render_page("user_study.html", form=form, number=number, items=shown))
    key = {item["item_id"]: {"desc_id": item["desc_id"], "kind": item["kind"]} for item in items}
    write_json(folder / ITEMS_FILE, key)
    return forms, unreadable


def _with_clips(moments: Sequence[dict[str, Any]], unreadable: list[int]) -> Iterator[dict[str, Any]]:
    for number, moment in enumerate(moments, start=1):
        clip = clip_data_url(moment)
        if clip is None:
            unreadable.append(moment["desc_id"])
        else:
            yield {**moment, "item_id": f"item-{number:03}", "clip": clip}


def read_answer_files(folder: Path) -> tuple[dict[str, str | None], list[AnswerFile]]:
    """The kinds of the items and the exported files in a folder; an error names what is wrong with a file.

    Returns:
        Item -> kind, and the files.
    """
    if not (folder / ITEMS_FILE).is_file():
        raise SystemExit(f"{folder} holds no {ITEMS_FILE}; give the folder that the forms were written to")
    kinds = {item_id: item["kind"] for item_id, item in read_json(folder / ITEMS_FILE).items()}
    files: list[AnswerFile] = []
    seen: dict[tuple[str, str], Path] = {}
    for path in sorted(folder.glob("answers*.json")):
        try:
            file = AnswerFile.model_validate_json(path.read_text(encoding="utf-8"))
        except (ValidationError, UnicodeDecodeError) as error:
            raise SystemExit(f"{path} is not an export of a form: {error}") from None
        for answer in file.answers:
            if answer.item_id not in kinds:
                raise SystemExit(f"{path} answers {answer.item_id!r}, which is not in {folder / ITEMS_FILE}")
            before = seen.setdefault((file.participant, answer.item_id), path)
            if before != path or sum(other.item_id == answer.item_id for other in file.answers) > 1:
                raise SystemExit(
                    f"{path}: {file.participant!r} answers {answer.item_id!r} twice (also in {before}); keep one file"
                )
        files.append(file)
    if not files:
        raise SystemExit(f"{folder} holds no answers*.json; put the files that the forms export there")
    return kinds, files


def aggregate(
    kinds: Mapping[str, str | None], files: Sequence[AnswerFile], *, least_answers: int = LEAST_ANSWERS
) -> tuple[dict[str, StudyResults], float]:
    """The results of each kind, and the total S: the unweighted mean of the kinds' S, as in Table 3.

    Args:
        kinds: item -> kind.
        files: the participants' answers.
        least_answers: items with fewer are left out.

    Raises:
        SystemExit: No item has as many.
    """
    answers: dict[str, list[ParticipantAnswer]] = defaultdict(list)
    for file in files:
        for answer in file.answers:
            answers[answer.item_id].append(answer)
    results = {}
    for kind in (*CAPTION_KINDS, None):
        of_kind = [given for item, given in answers.items() if kinds[item] == kind and len(given) >= least_answers]
        if of_kind:
            results[kind or "unknown"] = StudyResults(
                items=len(of_kind),
                answers=sum(map(len, of_kind)),
                static_percent=_percent([[answer.static for answer in given] for given in of_kind]),
                dynamic_percent=_percent([[answer.dynamic for answer in given] for given in of_kind]),
                accuracy=mean(answer.accuracy for given in of_kind for answer in given),
            )
    if not results:
        raise SystemExit(f"no item has {least_answers} answers; send each form to {least_answers} participants")
    return results, mean(result.accuracy for result in results.values())


def _percent(answers: list[list[int]]) -> float:
    return 100 * mean(answer for given in answers for answer in given)
