"""Captions that a baseline takes: of a user's file, checked where they enter, or written from the labels.

    --captions FILE   `clip_id, caption`           descriptions of query clips, for ECDE
    --rewritten FILE  `query_id, target_caption`   captions of what to find, for TF-CVR

`caption_clips.py` and `rewrite_captions.py` write them. Where there is no file, the rule-based generator turns labels
into captions. It knows the answer, so such a row is an upper bound; it is called "label captions" and is never a
video-language model's.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from hf_datasets.generation.answer_checks import is_foreign, rejection_reason
from hf_datasets.generation.requests_and_answers import Answer
from hf_datasets.tables import check_columns, read_text_table
from hf_datasets.tfcovr.captions import caption_of
from hf_datasets.tfcovr.labels import find_label

LABEL_CAPTIONS = "label captions"
FILES = {"caption": "captions.parquet", "target_caption": "rewritten.parquet"}
NAMED = 5
"""How many unusable captions a message names."""


@dataclass(frozen=True)
class Captions:
    """Usable texts by id, where they are from, and why the others cannot be used.

    Attributes:
        texts: id of a clip or a query -> its text.
        source: the model that wrote them, a file's name, or `LABEL_CAPTIONS`.
        unusable: id -> "empty answer", "refused by the model", "not in English", "not in the file", ...
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


def read_captions(path: str | Path, wanted: Collection[str], key: str, column: str) -> Captions:
    """The usable captions of a file: csv, tsv, JSON, JSON lines or Parquet.

    Args:
        path: of the file, or of the folder that the recipe wrote.
        wanted: ids that need one.
        key: the column of ids.
        column: the column of captions.

    Raises:
        ValueError: the file cannot be read, lacks a column, or gives an id two captions.
    """
    path = Path(path)
    if path.is_dir():
        path = path / FILES[column]
    if not path.is_file():
        how = "rewrite_captions" if column == "target_caption" else "caption_clips"
        raise ValueError(f"there is no file {path}; `python recipes/{how}.py` writes one")
    table = read_columns(path, [key, column])
    found: dict[str, str] = {}
    for one, text in zip(table[key], table[column], strict=True):
        if found.setdefault(one, text or "") != (text or ""):
            raise ValueError(f"{path} gives {key} {one!r} two different captions; leave one of them")
    reasons = {one: fault_of(found.get(one)) for one in dict.fromkeys(wanted)}
    usable = {one: found[one].strip() for one, reason in reasons.items() if reason is None}
    writers = table["model"].unique().to_list() if "model" in table.columns else []
    source = writers[0] if len(writers) == 1 and writers[0] else path.name
    return Captions(usable, source, {one: reason for one, reason in reasons.items() if reason is not None})


def read_columns(path: Path, names: list[str]) -> pl.DataFrame:
    """The named columns of a table as text, and `model`, where it says who wrote it.

    Raises:
        ValueError: the table cannot be read, or lacks one of them.
    """
    if path.suffix.lower() == ".parquet":  # whose other columns may be lists
        try:
            table = pl.read_parquet(path)
        except (OSError, pl.exceptions.PolarsError) as error:
            raise ValueError(f"{path} cannot be read ({error}); write it again") from None
    else:
        table, _ = read_text_table(path)
    list(check_columns(table.columns, names, source=str(path)))
    return table.select(pl.col(name).cast(pl.String) for name in [*names, "model"] if name in table.columns)


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
            return describe_targets(rows, clips)
        return read_captions(rewritten, [row["query_id"] for row in rows], "query_id", "target_caption")
    asked = {row["query_clip_id"] for row in rows}
    if captions is None:
        return describe_clips(clip for clip in clips if clip["clip_id"] in asked)
    return read_captions(captions, sorted(asked), "clip_id", "caption")


def check_share(found: Captions, least: float, flag: str) -> None:
    """Refuse captions of which too few can be used.

    Args:
        found: the captions.
        least: the smallest share that will do.
        flag: that names another file.

    Raises:
        ValueError: fewer can be used, or none; counts and names them.
    """
    wanted = len(found.texts) + len(found.unusable)
    if not found.texts or len(found.texts) < least * wanted:
        raise ValueError(f"{found}; this row needs {least:.0%} of them (--min_caption_share): give others with {flag}")


def fault_of(text: str | None) -> str | None:
    """Why a caption cannot be used, or None.

    Example:
        >>> fault_of("Backward takeoff, 2.5 somersaults, pike"), fault_of("I'm sorry, I can't help with that.")
        (None, 'refused by the model')
        >>> fault_of(""), fault_of("Le plongeur saute du tremplin de trois mètres"), fault_of(None)
        ('empty answer', 'not in English', 'not in the file')
    """
    if text is None:
        return "not in the file"
    return rejection_reason([], Answer(text)) or ("not in English" if is_foreign(text) else None)


def describe_clips(clips: Iterable[Mapping[str, Any]]) -> Captions:
    """A caption of each clip from its label, in the form that the paper's prompts ask for.

    Args:
        clips: rows with `clip_id`, `label` and `description`.
    """
    return from_labels({clip["clip_id"]: (clip["label"], clip.get("description")) for clip in clips})


def describe_targets(rows: Iterable[Mapping[str, Any]], clips: Iterable[Mapping[str, Any]]) -> Captions:
    """A caption of what each query looks for, from its target's label.

    Args:
        rows: queries with `query_id` and `target_label`.
        clips: with `label` and `description`, which say what labels beyond TF-CoVR's mean.
    """
    described = {clip["label"]: clip.get("description") for clip in clips}
    return from_labels({row["query_id"]: (row["target_label"], described.get(row["target_label"])) for row in rows})


def from_labels(labels: Mapping[str, tuple[str | None, str | None]]) -> Captions:
    """Captions by id from labels and their descriptions."""
    written = {one: caption_from(*named) for one, named in labels.items()}
    usable = {one: text for one, text in written.items() if text}
    return Captions(usable, LABEL_CAPTIONS, dict.fromkeys(written.keys() - usable.keys(), "no label"))


def caption_from(label: str | None, description: str | None) -> str | None:
    """A caption from one of TF-CoVR's labels; from another vocabulary the description, or the label itself."""
    if label is None:
        return None
    try:
        return caption_of(find_label(label))
    except ValueError:
        return description or label
