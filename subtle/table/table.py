"""A table: rows that are made and measured one by one, kept, resumed, merged over machines, and printed."""

import csv
import importlib
import io
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, Protocol, TypeVar

import torch

from hf_datasets.drafts import replacing_files
from subtle.run.accelerator import Stopped, processes
from subtle.run.gpus import UTILIZATION
from subtle.run.over_seeds import in_percent
from subtle.run.printing import as_markdown, show
from subtle.run.results import write_results
from subtle.running import message_of, users_mistake
from subtle.table.costs import Cost, Machine, costs_as_cells
from subtle.table.rows import TableRow, is_done, read_rows, write_failure, write_row
from subtle.tfcovr.measure import CUTOFFS

METRICS = [f"map@{k}" for k in CUTOFFS]
NOT_MEASURED = "not measured"


class Named(Protocol):
    """What a row must have to be asked for, kept and found again."""

    @property
    def name(self) -> str:
        """In the table."""
        ...


@dataclass
class Measured:
    """What measuring a row gave.

    Attributes:
        metrics: metric -> value in [0, 1].
        data: what it was measured on, see `rows.data_of`.
        columns: what the table says of it that was not known before, by heading.
        details: whatever else is worth keeping, such as the coverage.
    """

    metrics: dict[str, float]
    data: dict[str, str]
    columns: dict[str, Any] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)


R = TypeVar("R", bound=Named)


class Table(ABC, Generic[R]):
    """A table of one kind of rows: a name, a way to make and measure it, and what decides its figures.

    Args:
        config: with `output_dir`, `merge`, `rows` and `dry_run`.

    Attributes:
        title: of the table.
        rows: those that there are, in the order of the table.
        only_in_files: headings that the printed table leaves out.
        folders: the output folder, and those of other machines.
    """

    title: str
    rows: Sequence[R]
    only_in_files: tuple[str, ...] = ()

    def __init__(self, config: Any) -> None:
        self.config = config
        self.seed: int = config.seeds[0] if hasattr(config, "seeds") else config.seed
        self.output_dir = Path(config.output_dir)
        self.folders = [self.output_dir, *map(Path, config.merge)]

    @abstractmethod
    def settings(self, row: R) -> dict[str, Any]:
        """All that decides the figures of a row.

        Raises:
            ValueError, OSError: the row cannot be measured.
        """

    @abstractmethod
    def columns(self, row: R) -> dict[str, Any]:
        """What the table says of a row before it is measured, by heading."""

    @abstractmethod
    def measure(self, row: R) -> Measured:
        """Make what a row measures, and measure it; on every process."""

    @abstractmethod
    def costs(self, machine: Machine) -> list[Cost]:
        """What the rows will cost; no weight is read."""

    def hint(self, row: R) -> str:  # noqa: ARG002 a kind of rows that can be short of something says what
        """How to measure a row that cannot be measured as it is configured; empty for the others."""
        return ""

    def seed_of(self, row: R) -> int:  # noqa: ARG002
        """The seed to record with a row."""
        return self.seed

    def asked(self) -> list[R]:
        """The rows that `--rows` names, or all."""
        return [row for row in self.rows if self.config.rows is None or row.name in self.config.rows]

    def left(self) -> Iterator[tuple[R, dict[str, Any]]]:
        """The rows that no folder holds yet, with what decides their figures.

        Raises:
            ValueError: a folder holds one that was measured with other settings.
        """
        for row in self.asked():
            if self.hint(row):
                continue
            try:
                settings = self.settings(row)
            except (OSError, ValueError) as error:
                self.fail(row, error)
                continue
            if not any(is_done(folder, row.name, settings) for folder in self.folders):
                yield row, settings

    def run(self) -> int:
        """Measure what is left, whatever happens to each row, and write the table; the exit status."""
        read_rows(self.folders)  # what cannot be merged is said before anything is measured
        todo = list(self.left())
        self.prepare([row for row, _ in todo])
        for number, (row, settings) in enumerate(todo, start=1):
            say(f"{row.name} ({number} of {len(todo)} to measure)")
            try:
                measured = self.measure(row)
            except (Exception, SystemExit) as error:
                if isinstance(error, Stopped):
                    raise
                self.fail(row, error)
                if processes().num_processes > 1:  # the others may wait for what this one will not send
                    raise SystemExit(f"{row.name} failed on one of several processes: {cause_of(error)}") from None
                continue
            if processes().is_main_process:
                write_row(
                    self.output_dir,
                    row.name,
                    measured.metrics,
                    config=settings,
                    seed=self.seed_of(row),
                    columns=self.columns(row) | measured.columns,
                    data=measured.data,
                    **measured.details,
                )
        return self.finish(read_rows(self.folders)) if processes().is_main_process else 0

    def prepare(self, rows: Sequence[R]) -> None:
        """Whatever all these rows need, before the first of them; what is missing for all ends the run."""

    def fail(self, row: R, error: BaseException) -> None:
        """Keep why a row could not be measured.

        Raises:
            BaseException: it is a bug.
        """
        reason = cause_of(error)
        say(f"{row.name} failed: {reason}")
        if processes().is_main_process:
            write_failure(self.output_dir, row.name, reason, self.columns(row))

    def finish(self, found: Mapping[str, TableRow]) -> int:
        """Write and print the table; the exit status."""
        return finish_table(
            self.output_dir,
            found,
            [row.name for row in self.rows],
            self.title,
            config=self.config,
            seed=self.seed,
            asked=[row.name for row in self.asked()],
            hints={row.name: hint for row in self.rows if (hint := self.hint(row))},
            only_in_files=self.only_in_files,
        )


def run_table(table: Table[Any]) -> int:
    """Measure a table, or say what it will cost; the exit status."""
    config = table.config
    if not config.dry_run:
        return table.run()
    if processes().is_main_process:
        machine = Machine.of(config.device, config.num_workers)
        show(*costs_as_cells(table.costs(machine)), "Before anything is loaded")
        print(f"hours at {machine.speed / UTILIZATION / 1e12:.2g} TFLOPS; a rule of thumb")
    return 0


def say(line: str) -> None:
    if processes().is_main_process:
        print(line, file=sys.stderr, flush=True)


def cause_of(error: BaseException) -> str:
    """What a row's failure is put down to, in one line.

    Raises:
        BaseException: it is a bug.
    """
    if isinstance(error, torch.OutOfMemoryError):
        return "the GPU ran out of memory; lower --batch_size"
    if isinstance(error, SystemExit) and isinstance(error.code, str):
        return " ".join(error.code.split())
    mistake = users_mistake(error)
    if mistake is None:
        raise error
    return " ".join(message_of(mistake).split())


def finish_table(
    output_dir: str | Path,
    rows: Mapping[str, TableRow],
    expected_names: Sequence[str],
    title: str,
    *,
    config: Any = None,
    seed: int = 0,
    asked: Sequence[str] | None = None,
    hints: Mapping[str, str] = MappingProxyType({}),
    only_in_files: Sequence[str] = (),
    **details: Any,
) -> int:
    """Print the table and write it as `results.json`, `table.md` and `table.csv` in the output folder.

    Args:
        output_dir: of the table.
        rows: what `read_rows` gave.
        expected_names: the table's rows in their order; rows beyond these follow.
        title: of the table, whose figures are in percent; `table.csv` and `results.json` have fractions.
        config: of the recipe.
        seed: of the recipe.
        asked: rows that are printed even where nothing measured them; None: all.
        hints: row -> how to measure it, where it was not.
        only_in_files: headings that the printed table leaves out.
        details: whatever else `results.json` should hold.

    Returns:
        The exit status: 1 where a row failed, else 0.
    """
    names = [*expected_names, *(name for name in rows if name not in expected_names)]
    headings = list(dict.fromkeys(heading for name in names if name in rows for heading in rows[name].columns))
    measured = {name: values for name in names if name in rows and (values := rows[name].metrics) is not None}
    failed = {name: rows[name].reason for name in names if name in rows and rows[name].reason is not None}
    metrics = [one for one in METRICS if any(one in values for values in measured.values())] or METRICS
    head, cells = ["row", *headings, *metrics], []
    notes = {name: failed.get(name) or hints.get(name, NOT_MEASURED) for name in names if name not in measured}
    for name in names:
        values, columns = measured.get(name), rows[name].columns if name in rows else {}
        shown = [text_of(columns.get(heading)) for heading in headings]
        if values is None:
            figures = [notes[name], *[""] * (len(metrics) - 1)]
        else:
            figures = [in_percent(values, metric, digits=2) if metric in values else "" for metric in metrics]
        cells.append([name, *shown, *figures])
    data = next((rows[name].data for name in measured), {})
    with replacing_files(Path(output_dir)) as draft:
        (draft / "table.md").write_text(as_markdown(f"{title}, %", [head, *cells]), encoding="utf-8")
        (draft / "table.csv").write_text(rows_as_csv(names, headings, rows), encoding="utf-8", newline="")
        write_results(
            draft,
            measured,
            config=config,
            seed=seed,
            data=data,
            rows={name: {"columns": rows[name].columns, "config": rows[name].config} for name in names if name in rows},
            failed=failed,
            not_measured=[name for name in names if name not in rows],
            **details,
        )
    printed = {name for name in names if name in rows or asked is None or name in asked}
    places = [place for place, heading in enumerate(head) if heading not in only_in_files]
    show(
        [head[place] for place in places],
        [["-" if row[p] == notes.get(row[0]) else row[p] for p in places] for row in cells if row[0] in printed],
        f"{title}, %",
        first=metrics,
    )
    for name, note in notes.items():
        if name in printed:
            print(f"{name}: {note}")
    return 1 if failed else 0


def text_of(value: Any) -> str:
    return "" if value is None else str(value)


def rows_as_csv(names: Sequence[str], headings: Sequence[str], rows: Mapping[str, TableRow]) -> str:
    """All rows with all their metrics as fractions."""
    metrics = list(dict.fromkeys(metric for row in rows.values() for metric in row.metrics or ()))
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["row", *headings, *metrics, "reason"])
    for name in names:
        row = rows.get(name)
        columns, values = (row.columns, row.metrics or {}) if row else ({}, {})
        reason = (row.reason or "") if row else NOT_MEASURED
        writer.writerow(
            [name, *(text_of(columns.get(one)) for one in headings), *(values.get(one, "") for one in metrics), reason]
        )
    return text.getvalue()


def main(config: Any) -> int:
    """Measure a table of any kind; the exit status."""
    status: int = importlib.import_module(f"subtle.table.{config.kind}").main(config)
    return status
