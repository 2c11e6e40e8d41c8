"""Captions of clips: the clips with their labels, tables of captions written and read, and what was left out."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import polars as pl
import polars.selectors as cs
import pyarrow as pa
import pyarrow.parquet as pq

from hf_datasets.generation.answer_checks import is_foreign, rejection_reason
from hf_datasets.generation.chat import Answer
from hf_datasets.records import ClipRow, Rejection
from hf_datasets.sources.finegym import CLIP_ID
from hf_datasets.tables import check_columns, read_text_table
from hf_datasets.tfcovr.caption_scores import score_caption
from hf_datasets.tfcovr.free_text import own_labels
from hf_datasets.tfcovr.labels import Label, Sport, labels_by_id, sport_of
from subtle.run.build import Build
from subtle.run.data import load_split
from subtle.run.shared_config import DataConfig

LABEL_CAPTIONS = "label captions"
"""What captions of the rule-based generator are called: it knows the labels, so they are an upper bound, no model's."""
TEXT, FLAG, NAMES = pa.string(), pa.bool_(), pa.list_(pa.string())
SCORE_COLUMNS = {"right": NAMES, "wrong": NAMES, "not_said": NAMES, "all_right": FLAG}
SECOND_CAPTION = "second caption of the same id; the first is kept"
CAPTION_FILES = {"caption": "captions.parquet", "target_caption": "rewritten.parquet"}
Scored = dict[str, Any]
"""A row of a table of captions: texts, `label` as a `Label` or None, and the columns of `SCORE_COLUMNS`."""


def clips_of(config: DataConfig, split: str) -> dict[str, ClipRow]:
    """The clips of a split by id, each with its `label` of TF-CoVR, or None."""
    rows = [dict(row) for row in load_split(config, split, clips=True)]
    known = {pair: label_of(*pair) for pair in {(row["label"], row["description"]) for row in rows}}
    return {row["clip_id"]: row | {"label": known[row["label"], row["description"]]} for row in rows}


def sport_of_clip(clip_id: str, label: Label | None, config: Any) -> Sport | None:
    """The sport that a clip's label says; without one that of its id, or what `--sport` says.

    TF-CoVR's release labels neither validation nor test: a clip is of FineGym, whose ids have a form, or of FineDiving.
    """
    if label or config.sport:
        return sport_of(label) if label else cast(Sport, config.sport)
    if CLIP_ID.fullmatch(clip_id):
        return "gymnastics"
    return "diving" if config.dataset_config == "release" else None


def label_of(label_id: str | None, description: str | None) -> Label | None:
    """A label of TF-CoVR, or one of a user whose description is one of TF-CoVR's grammar; None for any other."""
    known = labels_by_id().get(label_id or "")
    if known and description in (None, known.description):
        return known
    found = own_labels({label_id or "": description})[0] if description else None
    return found if found and found.attributes else None


def scored(text: str, label: Label | None) -> Scored:
    """What a caption says right, wrong and not; without a label of TF-CoVR nothing can be told, and all are None."""
    if label is None:
        return dict.fromkeys(SCORE_COLUMNS)
    score = score_caption(text, label)
    verdicts = {name: list(getattr(score, name)) for name in ("right", "wrong", "not_said")}
    return verdicts | {"all_right": score.all_right}


def write_table(path: Path, rows: Iterable[Mapping[str, Any]], texts: Sequence[str]) -> None:
    """Write scored rows as Parquet: the named columns of text, where a `Label` is its id, and those of the score."""
    schema = pa.schema([*((name, TEXT) for name in texts), *SCORE_COLUMNS.items()])
    plain = [{**row, "label": row["label"] and row["label"].label_id} for row in rows]
    pq.write_table(pa.Table.from_pylist(plain, schema=schema), path)


def read_captions(
    path: str | Path, key: str = "clip_id", text: str = "caption"
) -> tuple[pl.DataFrame, list[Rejection]]:
    """A table of captions, of this project or of anybody's: csv, tsv, JSON, JSON lines or Parquet.

    Args:
        path: The file, or a folder with `captions.parquet` or `rewritten.parquet`.
        key: The column of ids: `clip_id`, for rewritten captions `query_id`.
        text: The column of captions: `caption`, for rewritten ones `target_caption`.

    Returns:
        The rows with a usable caption as text (`key`, `text`, and `sport` and `model` where the table has them), and a
        rejection for each other one: no id, an id for the second time, no caption, a refusal, another language.

    Raises:
        ValueError: It cannot be read, lacks a column, or no row is left.
    """
    path = Path(path).expanduser()
    path = path / CAPTION_FILES[text] if path.is_dir() else path
    if not path.is_file():
        raise ValueError(f"there is no file {path}; `caption.py write` or `caption.py rewrite` makes one")
    table, rejections = read_columns(path)
    list(check_columns(table.columns, (key, text), source=str(path)))
    seen: set[str] = set()
    reasons = [refusal(row_id, caption, seen) for row_id, caption in table.select(key, text).iter_rows()]
    for (row_id, caption), reason in zip(table.select(key, text).iter_rows(), reasons, strict=True):
        if reason:
            rejections.append(Rejection(reason, caption or "", row_id))
    usable = table.filter(pl.Series([reason is None for reason in reasons], dtype=pl.Boolean))
    if usable.is_empty():
        why = f"; the first: {reasons[0]}" if reasons else ""
        raise ValueError(f"none of the {len(reasons)} rows of {path} has a usable caption{why}")
    return usable.select(name for name in (key, text, "sport", "model") if name in usable.columns), rejections


def read_columns(path: Path) -> tuple[pl.DataFrame, list[Rejection]]:
    """The columns of a table as text, without those of lists."""
    if path.suffix.lower() != ".parquet":
        return read_text_table(path)
    try:
        table = pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise ValueError(f"{path} cannot be read ({error}); write it again") from None
    return table.select((~cs.nested()).cast(pl.String)), []


def refusal(row_id: str | None, caption: str | None, seen: set[str]) -> str | None:
    """Why a row is no caption of its clip; remembers the ids."""
    if not row_id:
        return "has no id"
    if row_id in seen:
        return SECOND_CAPTION
    seen.add(row_id)
    reason = rejection_reason([], Answer(caption or ""))
    return reason or ("is in another language than English" if is_foreign(str(caption)) else None)


def model_of(table: pl.DataFrame, otherwise: str) -> str:
    """Who wrote a table of captions, where it says so."""
    models = table["model"].unique().to_list() if "model" in table.columns else []
    return str(models[0]) if len(models) == 1 else otherwise


def coverage_of(build: Build, number: int, found: Sequence[Scored], steps: Sequence[str]) -> dict[str, int]:
    """How many rows there are, have a caption, could be scored, or are left out for which reason.

    Args:
        build: The run.
        number: Of clips or queries.
        found: The accepted rows.
        steps: Names of those whose rejections are of these clips or queries.
    """
    reasons: dict[str, int] = {}
    for step in build.steps:
        if step.name not in steps:
            continue
        for reason, count in step.rejected.items():
            reasons[reason] = reasons.get(reason, 0) + count
    rest = number - len(found) - sum(reasons.values())
    left_out = {"not asked (--limit, or the run was stopped)": rest} if rest else {}
    counts = {"rows": number, "captions": len(found), "scored": sum(row["label"] is not None for row in found)}
    return counts | left_out | dict(sorted(reasons.items()))
