"""Results of a table, row by row: measured one by one, on one machine or several, and put together at the end."""

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass
from pathlib import Path
from typing import Any

from hf_datasets.drafts import write_json
from subtle.run.results import write_results
from subtle.run.training import INCIDENTAL

# What may differ between two measurements of a row without making it another one.
IGNORED = {*INCIDENTAL, "embeddings", "runs_dir", "merge", "rows", "dry_run", "quiet"}
SAME_FIGURE = 1e-9


@dataclass(frozen=True)
class TableRow:
    """One row of a table.

    Attributes:
        name: in the table.
        folder: where it was read.
        columns: what the table says of it, by heading, such as the model and the number of frames.
        metrics: metric -> value in [0, 1], with `METRIC_std` where there are several seeds; None for a failure.
        reason: why it could not be measured; None for a measured row.
        data: what it was measured on, see `data_of`.
        config: what was run.
        seed: of the run.
        details: whatever else was written, such as the coverage.
    """

    name: str
    folder: Path
    columns: dict[str, Any]
    metrics: dict[str, float] | None = None
    reason: str | None = None
    data: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    details: dict[str, Any] = field(default_factory=dict)


def data_of(
    config: Any, split: str, queries: Iterable[Mapping[str, Any]], gallery: Iterable[str], signature: str
) -> dict[str, str]:
    """What a row is measured on, equal on every machine: no paths, but a hash of all queries and of the gallery.

    Args:
        config: with `dataset` and `dataset_config`.
        split: of the dataset.
        queries: its rows; of each, what can be written as JSON counts, whatever the order of its fields.
        gallery: ids of all that is ranked, in any order, repeated as often as they occur.
        signature: the metric's line about its protocol.
    """
    digest = hashlib.sha256()
    for part in ([dict(query) for query in queries], sorted(gallery)):
        digest.update(json.dumps(part, sort_keys=True, default=str).encode() + b"\n")
    return {
        "dataset": Path(config.dataset).name,
        "dataset_config": config.dataset_config,
        "split": split,
        "fingerprint": digest.hexdigest()[:16],
        "signature": signature,
    }


def slug(name: str) -> str:
    """A folder's name for a row: its words, and a hash where they are not the whole name.

    Example:
        >>> slug("beta-0.5"), slug("../BLIP2 (text)")
        ('beta-0.5', 'blip2-text-a7eeb121')
    """
    words = re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-.")[:60]
    return words if words and words == name else f"{words}-{hashlib.sha256(name.encode()).hexdigest()[:8]}".lstrip("-")


def row_folder(output_dir: str | Path, name: str) -> Path:
    """`OUTPUT_DIR/rows/<slug>`."""
    return Path(output_dir) / "rows" / slug(name)


def write_row(
    output_dir: str | Path,
    name: str,
    metrics: Mapping[str, float],
    *,
    config: Any,
    seed: int,
    columns: Mapping[str, Any],
    data: Mapping[str, Any],
    **details: Any,
) -> Path:
    """Write a measured row to `OUTPUT_DIR/rows/<slug>/results.json`; it replaces a failure of the same name.

    Args:
        output_dir: of the table.
        name: see `TableRow`, as for the others.
        metrics: in [0, 1].
        config: a dataclass or a dictionary.
        seed: of the run.
        columns: by heading.
        data: see `data_of`.
        details: such as the coverage.
    """
    folder = row_folder(output_dir, name)
    about = {"name": name, "columns": dict(columns), "data": dict(data)}
    path = write_results(folder, dict(metrics), config=config, seed=seed, **about, **details)
    (folder / "failure.json").unlink(missing_ok=True)
    return path


def write_failure(output_dir: str | Path, name: str, reason: str, columns: Mapping[str, Any]) -> Path:
    """Write why a row could not be measured; a measured row of this name stays and counts."""
    path = row_folder(output_dir, name) / "failure.json"
    write_json(path, {"name": name, "reason": reason, "columns": dict(columns)})
    return path


def is_done(output_dir: str | Path, name: str, config: Any) -> bool:
    """Whether the output folder holds this row, measured with this configuration; see `IGNORED`.

    Raises:
        ValueError: It holds the row of another configuration.
    """
    path = row_folder(output_dir, name) / "results.json"
    if not path.is_file():
        return False
    if changed := changes(read_row(path).config, config):
        raise ValueError(
            f"{path.parent} holds the row {name!r} measured with other {', '.join(changed)}; name another "
            "--output_dir, or delete this folder"
        )
    return True


def changes(one: Any, other: Any) -> list[str]:
    """Names of the options that differ between two configurations and decide the figures."""
    # As JSON gives them back: a tuple is a list there.
    first, second = (
        json.loads(json.dumps(asdict(part) if is_dataclass(part) and not isinstance(part, type) else part))
        for part in (one, other)
    )
    return sorted(name for name in (first | second).keys() - IGNORED if first.get(name) != second.get(name))


def read_row(path: Path) -> TableRow:
    """The row of a `results.json` or a `failure.json`.

    Raises:
        ValueError: It is neither.
    """
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        name, columns = record.pop("name"), record.pop("columns")
        if path.name == "failure.json":
            return TableRow(name, path.parent, columns, reason=record["reason"])
        known = {key: record.pop(key) for key in ("data", "config", "seed")}
        metrics = {metric: float(value) for metric, value in record.pop("figures").items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{path} is not a row of a table ({type(error).__name__}: {error}); delete it") from error
    return TableRow(name, path.parent, columns, metrics, details=record, **known)


def read_rows(folders: Sequence[str | Path]) -> dict[str, TableRow]:
    """The rows of several output folders by name; a measured row counts, not a failure elsewhere.

    Args:
        folders: The recipe's own output folder, which may hold nothing yet, and those of other machines.

    Raises:
        ValueError: A folder holds no row, two folders disagree about a row, or rows were measured on different data.
    """
    found: dict[str, TableRow] = {}
    for place, folder in enumerate(folders):
        paths = sorted(Path(folder, "rows").glob("*/*.json"))
        if place and not paths:
            raise ValueError(f"{folder} holds no row of a table; give the --output_dir of a run that measured some")
        for path in paths:
            row = read_row(path)
            known = found.get(row.name)
            if known and known.metrics is not None and row.metrics is not None:
                check_rows_agree(known, row)
            if known is None or (known.metrics is None and row.metrics is not None):
                found[row.name] = row
    check_data([row for row in found.values() if row.metrics is not None])
    return found


def check_rows_agree(one: TableRow, other: TableRow) -> None:
    """Raise where two measurements of a row disagree."""
    cure = "delete one of them, or leave its folder out"
    if changed := changes(one.config, other.config):
        raise ValueError(
            f"{one.folder} and {other.folder} hold the row {one.name!r} with different {', '.join(changed)}; {cure}"
        )
    first, second = one.metrics or {}, other.metrics or {}
    differ = sorted(
        metric
        for metric in first | second
        if not math.isclose(first.get(metric, math.inf), second.get(metric, -math.inf), abs_tol=SAME_FIGURE, rel_tol=0)
    )
    if differ:
        metric = differ[0]
        raise ValueError(
            f"{one.folder} and {other.folder} hold the row {one.name!r} of one configuration with different figures "
            f"({metric}: {first.get(metric)} and {second.get(metric)}); {cure}"
        )


def check_data(rows: Sequence[TableRow]) -> None:
    for row in rows[1:]:
        first = rows[0]
        for name in sorted(first.data | row.data):
            one, other = first.data.get(name), row.data.get(name)
            if one != other:
                raise ValueError(
                    f"{first.folder} and {row.folder} were measured on different data ({name}: {one!r} and {other!r}); "
                    "only rows on the same data make a table"
                )
