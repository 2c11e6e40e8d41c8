"""Captions that a baseline takes: of a user's file, checked where they enter, or written from the labels.

    --captions FILE   `clip_id, caption`           descriptions of query clips, for ECDE
    --rewritten FILE  `query_id, target_caption`   captions of what to find, for TF-CVR

`caption.py write` and `caption.py rewrite` write them. Where there is no file, the rule-based generator turns labels
into captions. It knows the answer, so such a row is an upper bound; it is called "label captions" and is never a
video-language model's.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hf_datasets.tfcovr.captions import caption_of
from hf_datasets.tfcovr.labels import find_label
from subtle.tfcovr.captions import LABEL_CAPTIONS, SECOND_CAPTION, model_of, read_captions

LEAST_SHARE = 0.9
"""Of usable captions, with which a row is measured."""
NAMED = 5
"""How many unusable captions a message names."""


@dataclass(frozen=True)
class Captions:
    """Usable texts by id, where they are from, and why the others cannot be used.

    Attributes:
        texts: id of a clip or a query -> its text.
        source: the model that wrote them, a file's name, or `LABEL_CAPTIONS`.
        unusable: id -> "empty answer", "refused by the model", "not in the file", ...
    """

    texts: dict[str, str]
    source: str
    unusable: dict[str, str] = field(default_factory=dict)

    @property
    def coverage(self) -> dict[str, Any]:
        """How many were wanted and can be used, and how many cannot, by reason."""
        return {
            "wanted": len(self.texts) + len(self.unusable),
            "usable": len(self.texts),
            "unusable": dict(Counter(self.unusable.values())),
        }

    def by_query(self, rows: Iterable[Mapping[str, Any]]) -> "Captions":
        """Captions of clips as those of the queries that ask with these clips."""
        clips = {row["query_id"]: row["query_clip_id"] for row in rows}
        texts = {query: self.texts[clip] for query, clip in clips.items() if clip in self.texts}
        others = {query: self.unusable.get(clip, "no clip") for query, clip in clips.items() if query not in texts}
        return Captions(texts, self.source, others)

    def __str__(self) -> str:
        if not self.unusable:
            return f"{self.source}: {len(self.texts):,} captions"
        counts = ", ".join(f"{count:,} {reason}" for reason, count in Counter(self.unusable.values()).items())
        some = ", ".join(list(self.unusable)[:NAMED])
        return (
            f"{self.source}: {len(self.texts):,} of {len(self.texts) + len(self.unusable):,} captions are usable "
            f"({counts}; such as of {some})"
        )


def captions_in(path: str | Path, wanted: Collection[str], key: str, column: str) -> Captions:
    """The usable captions of a file: csv, tsv, JSON, JSON lines or Parquet.

    Args:
        path: of the file, or of the folder that the recipe wrote.
        wanted: ids that need one.
        key: the column of ids.
        column: the column of captions.

    Raises:
        ValueError: the file cannot be read, lacks a column, has no usable caption, or gives an id two captions.
    """
    table, rejections = read_captions(path, key, column)
    doubled = [rejection.key for rejection in rejections if rejection.reason == SECOND_CAPTION]
    if doubled:
        raise ValueError(f"{path} gives {key} {doubled[0]!r} two captions; leave one of them")
    found = {row_id: text.strip() for row_id, text in table.select(key, column).iter_rows()}
    reasons = {rejection.key: rejection.reason for rejection in rejections}
    usable = {row_id: found[row_id] for row_id in dict.fromkeys(wanted) if row_id in found}
    others = {row_id: reasons.get(row_id, "not in the file") for row_id in wanted if row_id not in found}
    return Captions(usable, model_of(table, Path(path).name), others)


def captions_for(
    needs: str,
    rows: Sequence[Mapping[str, Any]],
    clips: Sequence[Mapping[str, Any]],
    *,
    captions: str | None = None,
    rewritten: str | None = None,
) -> Captions:
    """The further texts that a way to make queries takes: descriptions by clip id, or rewritten captions by query id.

    Args:
        needs: "descriptions" of the queries' clips, or "rewritten" captions of their targets.
        rows: queries with `query_id`, `query_clip_id` and `target_label`.
        clips: of the queries and the gallery, with `clip_id`, `label` and `description`.
        captions: a file of `clip_id, caption`; None: from the labels.
        rewritten: a file of `query_id, target_caption`; None: from the labels.

    Raises:
        ValueError: a file cannot be read.
    """
    if needs == "rewritten":
        if rewritten is None:
            known = {clip["label"]: clip.get("description") for clip in clips}  # of labels beyond TF-CoVR's
            return from_labels({row["query_id"]: (row["target_label"], known.get(row["target_label"])) for row in rows})
        return captions_in(rewritten, [row["query_id"] for row in rows], "query_id", "target_caption")
    asked = {row["query_clip_id"] for row in rows}
    if captions is None:
        return describe_clips(clip for clip in clips if clip["clip_id"] in asked)
    return captions_in(captions, sorted(asked), "clip_id", "caption")


def texts_digest(texts: Mapping[str, str]) -> str:
    """What tells these texts, by id, from others."""
    return hashlib.sha256(json.dumps(texts, sort_keys=True).encode()).hexdigest()[:16]


def check_share(found: Captions, flag: str) -> None:
    """Refuse captions of which too few can be used, with the flag that names another file.

    Raises:
        ValueError: fewer can be used, or none; counts and names them.
    """
    wanted = len(found.texts) + len(found.unusable)
    if not found.texts or len(found.texts) < LEAST_SHARE * wanted:
        raise ValueError(f"{found}; this row needs {LEAST_SHARE:.0%} of them: give others with {flag}")


def describe_clips(clips: Iterable[Mapping[str, Any]]) -> Captions:
    """A caption of each clip from its `label` and `description`, in the form that the paper's prompts ask for."""
    return from_labels({clip["clip_id"]: (clip["label"], clip.get("description")) for clip in clips})


def from_labels(labels: Mapping[str, tuple[str | None, str | None]]) -> Captions:
    written = {one: caption_from(*named) for one, named in labels.items()}
    usable = {one: text for one, text in written.items() if text}
    return Captions(usable, LABEL_CAPTIONS, {one: "no label" for one in written if one not in usable})


def caption_from(label: str | None, description: str | None) -> str | None:
    """A caption from one of TF-CoVR's labels; from another vocabulary the description, or the label itself."""
    if label is None:
        return None
    try:
        return caption_of(find_label(label))
    except ValueError:
        return description or label
