"""Results of variations over seeds, and what one is better by than another, with intervals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from subtle.run.intervals import Interval, interval_of_mean, interval_of_ratio
from subtle.run.over_seeds import summarize
from subtle.table.rows import TableRow, changes
from subtle.table.table import METRICS
from subtle.table.variations import SHUFFLED, Variation, row_name

MAIN_METRIC = METRICS[-1]
QUERIES_FILE = "queries.parquet"
FRAMES_SHUFFLED = "frames shuffled"


def variation_of(row: TableRow) -> str:
    """The variation that a measured row is of.

    Raises:
        ValueError: It is a row of another recipe's table.
    """
    if "variation" not in row.details:
        raise ValueError(f"{row.folder} holds a row of another table; give folders of a table of the kind ablate")
    return str(row.details["variation"])


@dataclass(frozen=True)
class PairedDifference:
    """What a variation is better by, query by query and seed by seed.

    Attributes:
        variation: the better one, where a mean is positive.
        against: the other one.
        label: the row of the table that it belongs to.
        heading: its column there.
        seeds: those that both have.
        intervals: metric -> mean and bounds of its 95 % interval over long videos and seeds.
        ratios: the same of how many times as high its mean is; None where the other's is 0.
    """

    variation: str
    against: str
    label: str
    heading: str
    seeds: list[int]
    intervals: dict[str, Interval]
    ratios: dict[str, Interval | None]


@dataclass(frozen=True)
class VariationResult:
    """One variation, its frames in order or shuffled, over seeds.

    Attributes:
        variation: what was varied.
        shuffled: whether it was measured on shuffled frames.
        rows: its measured rows by seed.
        failures: why it could not be measured, by seed.
        wanted: how many seeds there should be.
    """

    variation: Variation
    shuffled: bool
    rows: dict[int, TableRow] = field(default_factory=dict)
    failures: dict[int, str] = field(default_factory=dict)
    wanted: int = 0

    @property
    def label(self) -> str:
        """In the table."""
        return f"{self.variation.name}{SHUFFLED * self.shuffled}"

    @property
    def by_seed(self) -> dict[int, dict[str, float]]:
        """The metrics of each seed."""
        return {seed: row.metrics or {} for seed, row in self.rows.items()}

    def as_row(self, found: Sequence[PairedDifference]) -> TableRow | None:
        """Mean, deviation over the seeds and interval, with what it is better by; None where nothing was tried."""
        failed = "; ".join(f"seed {seed}: {reason}" for seed, reason in self.failures.items())
        columns = {"changes": self.variation.changes}
        if not self.rows:
            return TableRow(self.label, Path(), columns, reason=failed) if failed else None
        first = next(iter(self.rows.values()))
        complete = f"{len(self.rows)}" if len(self.rows) >= self.wanted else f"{len(self.rows)} of {self.wanted}"
        columns["seeds"] = complete + (f" ({failed})" if failed else "")
        columns[f"interval of {MAIN_METRIC}".replace("map", "mAP")] = own_interval(self).bounds_in_percent()
        for one in found:
            if one.label == self.label:
                columns[one.heading] = f"{one.intervals[MAIN_METRIC].in_percent()} ({one.against})"
                ratio = one.ratios[MAIN_METRIC]
                if ratio and one.label == one.variation and one.against != FRAMES_SHUFFLED:
                    columns["ratio of mAP@50"] = ratio.as_ratio()
        metrics = summarize(list(self.by_seed.values()))
        return TableRow(self.label, first.folder, columns, metrics, data=first.data, config=first.config)


def over_seeds(
    rows: Mapping[str, TableRow], variations: Mapping[str, Variation], seeds: Sequence[int], *, shuffled: bool
) -> dict[tuple[str, bool], VariationResult]:
    """The rows of each variation, in order and, where they were measured or are wanted, shuffled.

    Raises:
        ValueError: Rows of one variation differ in more than the seed.
    """
    results = {}
    for name, variation in variations.items():
        for is_shuffled in (False, True):
            own = {
                row.seed: row
                for row in rows.values()
                if row.details.get("variation") == name and row.details.get("shuffled") == is_shuffled
            }
            own = dict(sorted(own.items()))
            check_alike(list(own.values()))
            wanted = {seed: row_name(name, seed, is_shuffled) for seed in {*seeds, *own}}
            failures = {seed: rows[row].reason or "" for seed, row in sorted(wanted.items()) if row in rows}
            failures = {seed: reason for seed, reason in failures.items() if seed not in own}
            if own or failures or not is_shuffled or (shuffled and not variation.stage2.get("shuffle_frames")):
                results[name, is_shuffled] = VariationResult(variation, is_shuffled, own, failures, len(wanted))
    return results


def check_alike(rows: Sequence[TableRow]) -> None:
    """Raise where rows of one variation were measured with other options or other encoders."""
    for row in rows[1:]:
        first = rows[0]
        changed = [name for name in changes(without_seed(first.config), without_seed(row.config)) if name != "seed"]
        if not changed and not row.config.get("stage1") and first.details["encoders"] != row.details["encoders"]:
            changed = ["weights of the encoders"]
        if changed:
            raise ValueError(
                f"{first.folder} and {row.folder} are of one variation but were measured with other "
                f"{', '.join(changed)}; delete one of them, or leave its folder out"
            )


def without_seed(config: Mapping[str, Any]) -> dict[str, Any]:
    """A row's configuration without the seed of stage 1, which may be trained with each seed."""
    stage1 = dict(config.get("stage1") or {})
    stage1.pop("seed", None)
    return {**config, "stage1": stage1}


def find_differences(
    results: Mapping[tuple[str, bool], VariationResult], variations: Mapping[str, Variation]
) -> list[PairedDifference]:
    """Each variation against that which it names, and in order against shuffled, of what `over_seeds` gave."""
    found = []
    for (name, shuffled), result in results.items():
        against = variations[name].against
        others: list[tuple[str, Any, tuple[Any, bool]]] = [("difference of mAP@50", against, (against, shuffled))]
        if not shuffled:
            others.append(("mAP@50 lost by shuffling", FRAMES_SHUFFLED, (name, True)))
        for heading, label, key in others:
            other = results.get(key)
            seeds = sorted(result.rows.keys() & other.rows.keys()) if other else []
            if other and seeds:
                pairs = [(result.rows[number], other.rows[number]) for number in seeds]
                intervals, ratios = paired_intervals(pairs)
                found.append(PairedDifference(name, str(label), result.label, heading, seeds, intervals, ratios))
    return found


def paired_intervals(
    pairs: Sequence[tuple[TableRow, TableRow]],
) -> tuple[dict[str, Interval], dict[str, Interval | None]]:
    """What the first of each pair is better by at every cut-off, and how many times as good; a pair is of one seed."""
    tables = read_all([row for pair in pairs for row in pair])
    videos = tables[0]["video_id"].to_list()
    intervals, ratios = {}, {}
    for metric in METRICS:
        ones, others = (np.stack([table[metric].to_numpy() for table in tables[side::2]]) for side in (0, 1))
        intervals[metric] = interval_of_mean(ones - others, videos)
        ratios[metric] = interval_of_ratio(ones, others, videos) if others.any() else None
    return intervals, ratios


def own_interval(result: VariationResult) -> Interval:
    """The interval of a variation's `MAIN_METRIC` itself, over long videos and seeds."""
    tables = read_all(list(result.rows.values()))
    values = np.stack([table[MAIN_METRIC].to_numpy() for table in tables])
    return interval_of_mean(values, tables[0]["video_id"].to_list(), share=True)


def read_all(rows: Sequence[TableRow]) -> list[pl.DataFrame]:
    """Each query's results in several rows, which must be of the same queries."""
    tables = [read_queries(row) for row in rows]
    for row, table in zip(rows, tables, strict=True):
        if table["query_id"].to_list() != tables[0]["query_id"].to_list():
            raise ValueError(
                f"{rows[0].folder} and {row.folder} hold results of different queries, because some clips could not be "
                "read in one of them; see the coverage in their results.json"
            )
    return tables


def read_queries(row: TableRow) -> pl.DataFrame:
    """Each query's results; where they are missing, an error says so."""
    path = row.folder / QUERIES_FILE
    if not path.is_file():
        raise ValueError(f"{path} is missing, with the results of each query; copy the whole folder of rows")
    return pl.read_parquet(path).sort("query_id")
