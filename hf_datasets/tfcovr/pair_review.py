"""Pairs of labels as a sheet that people fill in, as TF-CoVR's authors verified theirs by hand (section 3)."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import polars as pl

from hf_datasets.drafts import replacing
from hf_datasets.records import LabelPair, Rejection
from hf_datasets.spreadsheets import as_csv
from hf_datasets.tables import check_columns, read_text_table
from hf_datasets.tfcovr.labels import Label
from hf_datasets.tfcovr.pairs import judge_pair

HEADER = ("source", "target", "similarity", "keep")
DECISIONS = {"yes": True, "y": True, "true": True, "1": True, "no": False, "n": False, "false": False, "0": False}
DROPPED = "dropped in the review of pairs"


def write_review(path: Path, pairs: Iterable[LabelPair], labels: Sequence[Label]) -> int:
    """Write a sheet with a row for each pair and an empty column `keep`; returns how many there are.

    Args:
        path: A csv file, which appears whole.
        pairs: In the order in which they are shown.
        labels: Theirs, whose descriptions are shown.
    """
    texts = {label.label_id: label.description for label in labels}
    rows = [
        (pair.source, pair.target, texts[pair.source], texts[pair.target], pair.change_type, pair.similarity, "")
        for pair in pairs
    ]
    names = ["source", "target", "source_description", "target_description", "change_type", "similarity", "keep"]
    with replacing(path) as draft:
        draft.write_text(as_csv(pl.DataFrame(rows, schema=names, orient="row")), encoding="utf-8")
    return len(rows)


def read_review(path: Path, labels: Sequence[Label]) -> Iterator[LabelPair | Rejection]:
    """Read a sheet that was filled in.

    Args:
        path: With the columns `HEADER`; `keep` is yes or no (also y, true, 1; n, false, 0).
        labels: Those of the clips.

    Yields:
        Each pair that is kept, and a rejection for each that is dropped, whose label no clip has, or that no text can
        describe.

    Raises:
        ValueError: A row is undecided, says neither yes nor no, or has no similarity; a pair is there twice.
    """
    table, refused = read_text_table(path)
    table = table.select(pl.all().fill_null("").str.strip_chars())
    refused += check_columns(table.columns, HEADER, source=str(path), optional=frozenset(table.columns) - {*HEADER})
    yield from refused
    undecided = table.filter(pl.col("keep") == "")
    if len(undecided):
        first = undecided.row(0, named=True)
        raise ValueError(
            f"{path}: {len(undecided):,} of {len(table):,} pairs are undecided, the first {first['source']!r} -> "
            f"{first['target']!r}; write yes or no into the column keep of each, and run again"
        )
    if len(twice := table.filter(table.select("source", "target").is_duplicated())):
        raise ValueError(f"{path} has {twice.row(0)[:2]} twice; leave one of the rows out")
    # A spreadsheet's guard against formulas puts an apostrophe before some ids.
    by_id = {guard + label.label_id: label for guard in ("'", "") for label in labels}
    for row in table.select(HEADER).iter_rows(named=True):
        key, raw = f"{row['source']}->{row['target']}", f"{row['similarity']},{row['keep']}"
        keep = DECISIONS.get(row["keep"].lower())
        try:
            similarity = float(row["similarity"].replace(",", "."))
        except ValueError:
            raise ValueError(f"{path}: {key} has the similarity {row['similarity']!r}; it is a number") from None
        if keep is None:
            raise ValueError(f"{path}: {key} has keep {row['keep']!r}; write yes or no")
        if unknown := [one for one in (row["source"], row["target"]) if one not in by_id]:
            yield Rejection(f"no clip has the label {unknown[0]!r} of {path.name}", raw, key)
        elif not keep:
            yield Rejection(DROPPED, raw, key)
        else:
            yield judge_pair(by_id[row["source"]], by_id[row["target"]], similarity)
