"""Queries by whether the labels of their clip and of their targets were trained on."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, cast

import polars as pl

from hf_datasets.tfcovr.labels import folded_text, labels_by_id

SeenGroup = Literal["seen_to_seen", "seen_to_unseen", "unseen_to_seen", "unseen_to_unseen"]


def seen_groups(clips: Mapping[str, pl.DataFrame], queries: Iterable[Mapping[str, Any]]) -> Iterator[SeenGroup | None]:
    """Whether each query starts from a label that was trained on, and whether it leads to one.

    >>> clips = pl.DataFrame({"label": ["40", "41"], "description": ["switch leap", "split leap"]})
    >>> list(seen_groups({"train": clips[:1], "test": clips}, [{"query_label": "40", "target_label": "41"}]))
    ['seen_to_unseen']

    Args:
        clips: Split -> its clips, with `label` and `description`; those of "train" were trained on, and with them all
            labels that read the same.
        queries: Rows with `query_label` and `target_label`.

    Yields:
        The group of each query; None where a label is not known.
    """
    texts = {label_id: folded_text(label.description) for label_id, label in labels_by_id().items()}
    named = {split: part.select("label", "description").drop_nulls().unique() for split, part in clips.items()}
    texts |= {label: folded_text(text) for part in named.values() for label, text in part.iter_rows()}
    seen = {texts[label] for label in named["train"]["label"]}
    for query in queries:
        one, other = (texts.get(query[side]) for side in ("query_label", "target_label"))
        group = f"{'seen' if one in seen else 'unseen'}_to_{'seen' if other in seen else 'unseen'}"
        yield None if one is None or other is None else cast("SeenGroup", group)
