"""FineDiving: dives of international competitions (Xu et al., CVPR 2022), one clip each.

The annotation is published as pickle files. A pickle is a program, so they are read by `pickle_reading`, which
accepts only built-in containers, numbers, text and arrays of numbers.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hf_datasets.records import Clip, Rejection
from hf_datasets.sources.values import identifier, shorten, text

from .pickle_reading import interpret_pickle

MAX_PICKLE_BYTES = 1 << 26
MAX_KEY_CHARACTERS = 200


def read_pickle(path: Path) -> Any:
    """Read a pickle of built-in containers and arrays of numbers without running any code of it.

    Args:
        path: A pickle file of at most 64 MiB.

    Returns:
        The pickled value; arrays as nested lists.

    Raises:
        ValueError: The file uses anything else, is too large, damaged or not a pickle.
    """
    with path.open("rb") as file:
        data = file.read(MAX_PICKLE_BYTES + 1)
    if not 0 < len(data) <= MAX_PICKLE_BYTES:
        raise ValueError(
            f"{path} has {path.stat().st_size:,} bytes; an annotation has 1 to {MAX_PICKLE_BYTES:,}. Fetch it again"
        )
    try:
        return interpret_pickle(data)
    except ValueError as error:
        raise ValueError(
            f"{path} is refused: {error}. Only built-in containers and arrays of numbers are read from a pickle; "
            "obtain the annotation from FineDiving's authors"
        ) from None


def read_finediving(annotation: Path, *, descriptions: Mapping[str, str]) -> Iterator[Clip | Rejection]:
    """Read the dives of FineDiving whose action type is among `descriptions`.

    A clip is its own file or folder of frames, named `<competition>_<instance>`, so it has no span; its
    `video_id` is the competition, the long video by which TF-CoVR splits.

    Args:
        annotation: `FineDiving_fine-grained_annotation.pkl`, or the coarse one.
        descriptions: Label id -> text, the classes to keep.

    Yields:
        A clip for each dive, and a rejection for each unusable entry, in the order of the file.

    Raises:
        ValueError: The file is refused (see `read_pickle`) or holds no mapping of dives.
    """
    dives = read_pickle(annotation)
    if not isinstance(dives, dict) or not dives:
        raise ValueError(f"{annotation} holds no dives; FineDiving_fine-grained_annotation.pkl does")
    seen = set()
    for key, dive in dives.items():
        raw = shorten(dive)
        try:
            competition, instance = key if isinstance(key, tuple) else ()
            name = _clip_name(competition, instance)
        except ValueError:
            yield Rejection(
                f"malformed key: {shorten(key)} of {annotation.name} is not (competition, instance), each of at most "
                f"{MAX_KEY_CHARACTERS} characters",
                raw,
                shorten(key),
            )
            continue
        label = dive.get("action_type") if isinstance(dive, dict) else None
        if not isinstance(label, str):
            yield Rejection(f"no action type: {name} of {annotation.name}", raw, name)
        elif label not in descriptions:
            yield Rejection(f"class outside the label set: {name} of {annotation.name} has {shorten(label)}", raw, name)
        elif name in seen:
            yield Rejection(f"duplicate clip id: {name} of {annotation.name}; the first is kept", raw, name)
        else:
            seen.add(name)
            yield Clip(name, competition, label)


def _clip_name(competition: Any, instance: Any) -> str:
    # A pickle can name one long text many times; the next checks would read all of it every time.
    if any(isinstance(part, str) and len(part) > MAX_KEY_CHARACTERS for part in (competition, instance)):
        raise ValueError("it names no file")
    return f"{text(competition)}_{identifier(instance)}"
