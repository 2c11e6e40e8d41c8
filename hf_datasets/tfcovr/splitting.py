"""The choice of held-out videos, so that no video is in two splits; and of labels that are held out from training."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import polars as pl

from hf_datasets.tfcovr.free_text import WORD
from hf_datasets.tfcovr.labels import Label, folded_text
from hf_datasets.tfcovr.pairs import kind

VALIDATION_PER_TEST = 1 / 3
"""Of the held-out labels, how many are validated on for one that is tested on."""


def held_out_videos(clips: pl.DataFrame, count: int, *, seed: int = 0) -> list[str]:
    """Choose videos to hold out: first to cover many labels, then at random.

    >>> clips = pl.DataFrame({"video_id": ["a", "b", "c", "d"], "label": ["x", "x", "x", "y"]})
    >>> len(held_out_videos(clips, 3)), "d" in held_out_videos(clips, 3)
    (2, False)

    Args:
        clips: At least `video_id` and `label`, without nulls.
        count: How many videos, at least 0.
        seed: Decides which.

    Returns:
        Video ids in the order in which they were chosen. Fewer than `count` where one more would leave a label without
        a clip to train on; a label of one video alone is never held out.
    """
    labels_of = _grouped(clips.select("video_id", "label").iter_rows())
    videos = np.random.default_rng(seed).permutation(sorted(labels_of)).tolist()
    videos_of = _grouped((label, video_id) for video_id in videos for label in labels_of[video_id])
    left = Counter({label: len(several) for label, several in videos_of.items()})
    chosen: dict[str, None] = {}

    def choose_one(candidates: list[str]) -> None:
        for video_id in candidates:
            if video_id not in chosen and all(left[label] > 1 for label in labels_of[video_id]):
                chosen[video_id] = None
                left.subtract(labels_of[video_id])
                return

    # The rarest label first: it has the fewest videos to choose from.
    for label in sorted(videos_of, key=lambda label: (len(videos_of[label]), label)):
        is_covered = left[label] < len(videos_of[label])
        if len(chosen) < count and not is_covered:
            choose_one(videos_of[label])
    for video_id in videos:
        if len(chosen) < count:
            choose_one([video_id])
    return list(chosen)


def hold_out_labels(
    clips: pl.DataFrame,
    labels: Sequence[Label],
    share: float,
    *,
    trained: Iterable[str] = (),
    seed: int = 0,
) -> tuple[pl.DataFrame, str]:
    """Leave out clips so that some labels are tested on and never trained on, and others validated on alone.

    Each word of a held-out label, and each of its attributes in its family, is one of a label that is trained on.
    Labels that read the same are held out together.

    Args:
        clips: Clips with `label` and `split`.
        labels: Their labels.
        share: Of the labels, in (0, 1), to test on; a third as many are validated on.
        trained: Labels that are not held out.
        seed: Decides which.

    Returns:
        The other clips in their order, and a sentence on the labels.

    Raises:
        ValueError: The share is out of range, or no label can be held out.
    """
    if not 0 < share < 1:
        raise ValueError(f"unseen_labels is {share}; it is a share of the labels, above 0 and below 1")
    texts: dict[str, list[Label]] = {}
    for label in labels:
        texts.setdefault(folded_text(label.description), []).append(label)
    parts = {text: _parts_of(several[0]) for text, several in texts.items()}
    left = Counter(part for several in parts.values() for part in several)
    has_clips = set(clips.select("label", "split").iter_rows())
    always = set(trained)
    waiting = [text for text, several in texts.items() if always.isdisjoint(label.label_id for label in several)]
    waiting = np.random.default_rng(seed).permutation(sorted(waiting)).tolist()
    wanted = {"test": round(share * len(texts))}
    wanted["validation"] = round(wanted["test"] * VALIDATION_PER_TEST)
    only: dict[str, str] = {}
    found = {}
    for split, number in wanted.items():
        chosen: list[str] = []
        for text in waiting:
            is_shown = any((label.label_id, split) in has_clips for label in texts[text])
            if len(chosen) < number and is_shown and all(left[part] > 1 for part in parts[text]):
                chosen.append(text)
                left.subtract(parts[text])
        waiting = [text for text in waiting if text not in chosen]
        only |= {label.label_id: split for text in chosen for label in texts[text]}
        found[split] = len(chosen)
    if not found["test"]:
        raise ValueError(
            f"unseen_labels is {share}, but of the {len(texts)} labels none can be held out: each has a word or an "
            "attribute of its own, or no test clip; give more labels of the same words, or leave unseen_labels out"
        )
    held = pl.col("label").replace_strict(only, default=pl.col("split"), return_dtype=pl.String)
    kept = clips.filter(held == pl.col("split"))
    return kept, (
        f"Held out: of {len(texts)} labels {found['test']} have clips in test alone and {found['validation']} in "
        f"validation alone ({wanted['test']} and {wanted['validation']} were wanted); their other clips, "
        f"{len(clips) - len(kept):,}, are left out."
    )


def _parts_of(label: Label) -> set[Any]:
    """The words of a label, and its attributes with the family that they are of."""
    found: set[Any] = set(WORD.findall(folded_text(label.description)))
    values = label.attributes
    if values is not None:
        found |= {(kind(values), slot.name, getattr(values, slot.name)) for slot in fields(values) if slot.compare}
    return found


def _grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    groups: dict[str, dict[str, None]] = {}
    for key, value in pairs:
        groups.setdefault(key, {})[value] = None
    return {key: list(values) for key, values in groups.items()}
