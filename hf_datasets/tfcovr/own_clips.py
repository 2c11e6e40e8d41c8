"""The user's own clips: a table and a folder of videos -> checked clips with splits and labels of any vocabulary."""

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import polars as pl

from hf_datasets.footage.moments import moment_name
from hf_datasets.long_videos import SPLITS, Split, read_header
from hf_datasets.records import Rejection
from hf_datasets.tables import SPAN, check_columns, check_rows, is_empty, read_text_table, time_checks, with_times
from hf_datasets.tfcovr.clips import CLIP_SCHEMA, DURATION_TOLERANCE_SECONDS, check_splits, descriptions
from hf_datasets.tfcovr.free_text import own_labels
from hf_datasets.tfcovr.labels import Label, folded_text
from hf_datasets.tfcovr.splitting import held_out_videos

logger = logging.getLogger(__name__)

OWN_COLUMNS = ("video_id", "label")
OWN_EXTRAS = ("clip_id", "start_seconds", "end_seconds", "description", "split")
OWN_ALIASES = {"video": "video_id", "path": "video_id", "moment_id": "clip_id"}
OWN_SUFFIXES = (".csv", ".tsv", ".jsonl", ".parquet")
TABLE_STEM = "clips"
SPLIT_NAMES: Mapping[str, Split] = {split: split for split in SPLITS} | {
    "val": "validation",
    "valid": "validation",
    "dev": "validation",
}
OWN_HELP = (
    f"the own configuration reads, from data_dir, one table of clips ({', '.join(OWN_SUFFIXES)}) with the columns "
    f"{' and '.join(OWN_COLUMNS)} and, optionally, {', '.join(OWN_EXTRAS)}; or a folder that `subtle build tfcovr` "
    "made of one"
)


@dataclass(frozen=True)
class OwnClips:
    """The contents of a user's table.

    Attributes:
        clips: The usable clips in the order of the table (`CLIP_SCHEMA`), each with its split.
        labels: Their labels in the order of the ids.
        rejections: The rows that were left out, with row number and fix.
        coverage: A sentence on how many clips have their video.
    """

    clips: pl.DataFrame
    labels: list[Label]
    rejections: list[Rejection]
    coverage: str


def read_own_clips(
    data_dir: Path,
    *,
    video_dir: str | os.PathLike[str] | None = None,
    validation_fraction: float = 0.2,
    test_fraction: float = 0.2,
    seed: int = 0,
) -> OwnClips:
    """Read, check and split a user's clips.

    Labels and splits depend on the table alone, so that they are the same with and without the videos.

    Args:
        data_dir: The folder of the table, see `find_table`; or the table itself, which may also be a JSON list.
        video_dir: The folder of videos, looked up by `video_id` with or without extension. None looks for none.
        validation_fraction: Share of the videos for validation, unless the table has a `split` column.
        test_fraction: The same for test.
        seed: Decides which videos.

    Raises:
        FileNotFoundError: There is no table, or no folder of videos.
        ValueError: There are several tables, it cannot be read, it has no usable row, a video is in two splits, or the
            videos are too few to split.
    """
    path = data_dir if data_dir.is_file() else find_table(data_dir)
    table, rejections = read_text_table(path)
    aliases = _aliases(table.columns)
    called = {name: name for name in (*OWN_COLUMNS, *OWN_EXTRAS)} | {new: old for old, new in aliases.items()}
    required, optional = ([called[name] for name in names] for names in (OWN_COLUMNS, OWN_EXTRAS))
    rejections += check_columns(table.columns, required, source=str(path), optional=optional, aliases=OWN_ALIASES)
    typed = _typed_clips(table.rename(aliases))
    rows, refused = check_rows(typed, _clip_checks(typed, called), source=str(path), key="clip_id")
    rejections += refused
    texts, conflicts = _label_texts(rows)
    rejections += conflicts
    clips = rows.with_columns(description=pl.col("label").replace_strict(texts, return_dtype=pl.String))
    if clips["split"].null_count():
        clips = split_clips(clips, validation_fraction=validation_fraction, test_fraction=test_fraction, seed=seed)
    else:
        check_splits(clips, source=str(path))
    clips, refused, coverage = _with_videos(clips, video_dir, source=str(path))
    return OwnClips(
        clips.select(CLIP_SCHEMA.names),
        own_labels(dict(sorted(texts.items()))),
        rejections + refused,
        coverage,
    )


def find_table(data_dir: Path) -> Path:
    """The one table in a folder, or the one named `clips` where there are several.

    Raises:
        FileNotFoundError: There is none.
        ValueError: There are several and not exactly one is named `clips`.
    """
    if not data_dir.is_dir():
        raise FileNotFoundError(f"there is no folder or table {data_dir}; give a table of clips: {OWN_HELP}")
    tables = sorted(
        path
        for path in data_dir.iterdir()
        if path.is_file() and path.suffix.lower() in OWN_SUFFIXES and not path.name.startswith(".")
    )
    chosen = tables if len(tables) == 1 else [path for path in tables if path.stem == TABLE_STEM]
    if not tables:
        raise FileNotFoundError(f"{data_dir} has no table of clips: {OWN_HELP}")
    if len(chosen) != 1:
        names = ", ".join(path.name for path in tables)
        raise ValueError(
            f"{data_dir} has several tables ({names}); keep one, or name the one to read {TABLE_STEM}{tables[0].suffix}"
        )
    return chosen[0]


def _aliases(columns: list[str]) -> dict[str, str]:
    """The columns that are called as in a table of moments to index; of two names for one, the first."""
    found: dict[str, str] = {}
    for old, new in OWN_ALIASES.items():
        if old in columns and new not in columns and new not in found.values():
            found[old] = new
    return found


def _typed_clips(table: pl.DataFrame) -> pl.DataFrame:
    split = pl.col("split").str.to_lowercase().replace(dict(SPLIT_NAMES))
    typed = with_times(table, OWN_COLUMNS, OWN_EXTRAS).with_columns(split=split)
    if "clip_id" in table.columns:
        return typed
    names = [moment_name(*row) for row in typed.select("video_id", *SPAN).iter_rows()]
    return typed.with_columns(clip_id=pl.Series(names, dtype=pl.String))


def _clip_checks(rows: pl.DataFrame, called: Mapping[str, str]) -> dict[str, pl.Expr]:
    wordless = pl.lit(not _knows_labels(rows)) & ~pl.coalesce("description", "label").str.contains(r"\p{L}")
    is_split = pl.col("split").is_in(SPLITS, nulls_equal=True)
    if rows["split"].null_count() == len(rows):
        is_split = pl.lit(value=True)
    return {
        f"empty {called['clip_id']}, {called['video_id']} or label; fill it in": pl.any_horizontal(
            is_empty(name) for name in ("clip_id", "video_id", "label")
        ),
        "label without words; describe it in a description column": wordless,
        **time_checks(SPAN),
        f"unknown split; it is {', '.join(SPLITS)}, in every row or in none": ~is_split,
        "duplicate clip id; the first is kept": ~pl.col("clip_id").is_first_distinct(),
    }


def _knows_labels(rows: pl.DataFrame) -> bool:
    """Whether the labels are ids of the 306, without descriptions of the user."""
    labels = rows["label"].drop_nulls()
    return not rows["description"].drop_nulls().len() and labels.is_in(list(descriptions())).all()


def _label_texts(rows: pl.DataFrame) -> tuple[dict[str, str], list[Rejection]]:
    """The description of each label, and a rejection for each clip with another one."""
    if _knows_labels(rows):
        known = descriptions()
        texts = {label: known[label] for label in rows["label"].unique().sort()}
        _warn_of_known_labels(*next(iter(texts.items())))
        return texts, []
    first = rows.drop_nulls("description").unique("label", keep="first", maintain_order=True)
    given_texts = dict(first.select("label", "description").iter_rows())
    texts = {label: given_texts.get(label, label.replace("_", " ")) for label in rows["label"].unique()}
    given = rows.drop_nulls("description").unique(["label", "description"], maintain_order=True)
    conflicts = [
        Rejection(
            f"conflicting description: label {label!r} has {texts[label]!r} and {text!r}; the first is kept, because a "
            "label has one text",
            text,
            clip_id,
        )
        for clip_id, label, text in given.select("clip_id", "label", "description").iter_rows()
        if folded_text(text) != folded_text(texts[label])
    ]
    return texts, conflicts


@cache
def _warn_of_known_labels(label: str, text: str) -> None:
    """Once in a process, which may read a table several times."""
    logger.warning(
        "All labels are ids of TF-CoVR, so its texts are taken (%r is %r); if they are labels of your own, add a "
        "description column",
        label,
        text,
    )


def split_clips(
    clips: pl.DataFrame, *, validation_fraction: float = 0.2, test_fraction: float = 0.2, seed: int = 0
) -> pl.DataFrame:
    """Give every video to one split, with clips of every label to train on and of as many as possible to test on.

    Args:
        clips: Clips with `video_id` and `label`.
        validation_fraction: Share of the videos for validation, in [0, 1); one at least if it is not 0.
        test_fraction: The same for test.
        seed: Decides which videos.

    Returns:
        The clips in their order with `split`.

    Raises:
        ValueError: The fractions leave nothing to train on, or the videos are too few.
    """
    fractions: dict[Split, float] = {"test": test_fraction, "validation": validation_fraction}
    if min(fractions.values()) < 0 or sum(fractions.values()) >= 1:
        raise ValueError(
            f"validation_fraction {validation_fraction} and test_fraction {test_fraction} must be at least 0 and sum "
            "below 1"
        )
    total = clips["video_id"].n_unique()
    needed = 1 + sum(fraction > 0 for fraction in fractions.values())
    if total < needed:
        raise ValueError(
            f"the clips are of {total} video{'s' * (total > 1)}, and a split by video needs {needed} at least: one "
            "each to train, validate and test on; add videos, or name the split of each clip in a split column"
        )
    split_of: dict[str, Split] = {}
    for split, fraction in fractions.items():
        if not fraction:
            continue
        rest = clips.filter(~pl.col("video_id").is_in(list(split_of)))
        chosen = held_out_videos(rest, max(1, round(fraction * total)), seed=seed)
        if not chosen:
            raise ValueError(
                f"no video can be held out for {split}, because each of the {rest['video_id'].n_unique()} that are "
                "left is the last one of some label to train on; add videos that show the same labels, or name the "
                "split of each clip in a split column"
            )
        split_of |= dict.fromkeys(chosen, split)
    return clips.with_columns(
        split=pl.col("video_id").replace_strict(split_of, default="train", return_dtype=pl.String)
    )


def _with_videos(
    clips: pl.DataFrame, video_dir: str | os.PathLike[str] | None, *, source: str
) -> tuple[pl.DataFrame, list[Rejection], str]:
    if video_dir is None:
        coverage = "Videos: no folder was given, so `video` is null."
        return clips.with_columns(video=pl.lit(None, pl.String)), [], coverage
    from hf_datasets.video import VideoError, VideoStore  # imports torch

    folder = Path(video_dir).expanduser()
    if not folder.is_dir():
        raise FileNotFoundError(f"video_dir {folder} is not a folder; give the one that has the videos")
    store = VideoStore(folder)

    def look_up(video_id: str) -> tuple[str, str | None, float | None, str | None]:
        try:
            path = str(store.path(video_id))
        except VideoError as error:
            return video_id, None, None, str(error)
        return video_id, path, read_header(path)[0], None

    facts = pl.DataFrame(
        [look_up(video_id) for video_id in clips["video_id"].unique()],
        {"video_id": pl.String, "video": pl.String, "duration": pl.Float64, "missing": pl.String},
        orient="row",
    )
    joined = clips.join(facts, on="video_id", how="left", maintain_order="left")
    unusable = joined.filter(pl.col("missing").is_not_null())
    rejections = [
        Rejection(
            f"missing video: clip {row['clip_id']!r} of {source}; {row['missing']}",
            json.dumps(row),
            row["clip_id"],
        )
        for row in unusable.select("clip_id", "video_id", *SPAN, "label", "split", "missing").iter_rows(named=True)
    ]
    present = joined.filter(pl.col("missing").is_null()).drop("missing")
    if present.is_empty():
        raise ValueError(f"none of {len(joined)} clips has its video; the first: {rejections[0].reason}")
    late = pl.col("end_seconds") > pl.col("duration") + DURATION_TOLERANCE_SECONDS
    check = {"span outside the video; correct it, or give the whole video": late.fill_null(False)}
    accepted, refused = check_rows(present, check, source=source, key="clip_id")
    coverage = f"Videos: {len(present):,} of {len(joined):,} clips ({len(present) / len(joined):.3f}) have their video."
    return accepted, rejections + refused, coverage
