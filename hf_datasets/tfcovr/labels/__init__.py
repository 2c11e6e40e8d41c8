"""Labels: the 306 of TF-CoVR and a user's own, their attributes, which read the same, and how two differ.

A user's own labels are the same record, made by `free_text.own_labels`.
"""

import csv
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast

from hf_datasets.tfcovr.labels.diving import DivingAttributes, describe_diving, parse_diving
from hf_datasets.tfcovr.labels.gymnastics import GymnasticsAttributes, describe_gymnastics, parse_gymnastics

LABELS_FILE = Path(__file__).with_name("labels.tsv")
PUNCTUATION = ".,;:!?¡¿、。\uff0c\uff1b\uff1a\uff01\uff1f"
"""Marks that say nothing where they stand before or after a word."""

Attributes = GymnasticsAttributes | DivingAttributes
LabelSource = Literal["finegym", "finediving", "own"]
Sport = Literal["gymnastics", "diving"]


@dataclass(frozen=True, slots=True)
class Label:
    """One class: its index in the class order, its upstream id, its text and attributes.

    Attributes:
        index: Position in the class order, 0 to 305; of a user's labels in theirs.
        label_id: The class of FineGym's gym288 or the dive number, as text: `40`, `407c`; or the user's own id.
        source: The dataset that defines it.
        description: Its text.
        attributes: The parsed text; None where the grammar of TF-CoVR does not generate it.
    """

    index: int
    label_id: str
    source: LabelSource
    description: str
    attributes: Attributes | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class Change:
    """One attribute that differs between two labels, with its value in each."""

    attribute: str
    source: Any
    target: Any


def parse_description(description: str) -> Attributes:
    """The attributes of a description: gymnastics descriptions begin with the apparatus in parentheses, dives do not.

    >>> parse_description("Inward, 3.5 Soms.Tuck, Entry").somersaults
    3.5
    """
    return parse_gymnastics(description) if description.startswith("(") else parse_diving(description)


def describe(attributes: Attributes) -> str:
    """The description with these attributes: the inverse of `parse_description`.

    >>> describe(parse_description("(Vault) tsukahara stretched with 2 turn"))
    '(Vault) tsukahara stretched with 2 turn'
    """
    if isinstance(attributes, GymnasticsAttributes):
        return describe_gymnastics(attributes)
    return describe_diving(attributes)


def sport_of(label: Label) -> Sport:
    """The sport of a label.

    Raises:
        ValueError: It is a label of another vocabulary.
    """
    if label.attributes is None:
        raise ValueError(f"{label.description!r} is no label of TF-CoVR, so it has no attributes to compare with")
    return "diving" if isinstance(label.attributes, DivingAttributes) else "gymnastics"


@cache
def load_labels() -> tuple[Label, ...]:
    """The 306 labels in class order: 259 of FineGym, then 47 of FineDiving.

    >>> labels = load_labels()
    >>> len(labels), labels[0].label_id, labels[259].description
    (306, '0', 'Inward, 3.5 Soms.Tuck, Entry')
    """
    with LABELS_FILE.open(encoding="utf-8", newline="") as file:
        table = csv.DictReader((line for line in file if not line.startswith("#")), delimiter="\t")
        return tuple(
            Label(
                index=int(row["index"]),
                label_id=row["label"],
                source=cast(LabelSource, row["source"]),
                description=row["description"],
                attributes=parse_description(row["description"]),
            )
            for row in table
        )


@cache
def labels_by_id() -> dict[str, Label]:
    """The labels under their ids."""
    return {label.label_id: label for label in load_labels()}


def find_label(label_id: str) -> Label:
    """The label with this id.

    >>> find_label("45").description
    '(Floor Exercise) switch leap'

    Raises:
        ValueError: No label has this id.
    """
    label = labels_by_id().get(str(label_id))
    if label is None:
        raise ValueError(
            f"{label_id!r} is not a TF-CoVR label: expected one of 306 ids, a gym288 class from '0' to '287' (29 are "
            "not used) or a dive number such as '407c'; hf_datasets/tfcovr/labels/labels.tsv lists them"
        )
    return label


def folded_text(description: str) -> str:
    """A description normalized for comparison: case-folded, with single spaces and no marks around the words.

    >>> folded_text("Serve wide, with  Slice!")
    'serve wide with slice'
    """
    words = (word.strip(PUNCTUATION) for word in unicodedata.normalize("NFC", description).split())
    return " ".join(word for word in words if word).casefold()


def answers_of(labels: Iterable[Label] | None = None) -> dict[str, str]:
    """The representative of each label: the first label with the same text.

    >>> answers_of()["216"], answers_of()["45"]
    ('180', '45')

    Args:
        labels: All 306 by default.
    """
    first: dict[str, str] = {}
    return {
        label.label_id: first.setdefault(folded_text(label.description), label.label_id)
        for label in (load_labels() if labels is None else labels)
    }


def differences(source: Attributes, target: Attributes) -> tuple[Change, ...]:
    """The attributes in which two labels of one sport differ.

    >>> differences(find_label("40").attributes, find_label("46").attributes)  # a switch and a split leap
    (Change(attribute='turns', source=0.5, target=0.0), Change(attribute='legs', source='switch', target='split'))

    Raises:
        ValueError: The labels are of different sports.
    """
    if type(source) is not type(target):
        raise ValueError(
            f"{describe(source)!r} and {describe(target)!r} are of different sports and have no attributes in "
            "common; compare labels of one sport"
        )
    return tuple(
        Change(slot.name, getattr(source, slot.name), getattr(target, slot.name))
        for slot in fields(source)
        if slot.compare and getattr(source, slot.name) != getattr(target, slot.name)
    )
