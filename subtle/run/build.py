"""What the build recipes share: steps with their counts, and the output folder."""

import dataclasses
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from itertools import islice
from pathlib import Path
from typing import Any

from rich.table import Table
from tqdm import tqdm

from hf_datasets.builders import REJECTIONS_FILE, write_rejections
from hf_datasets.drafts import draft_of, sweep, write_json
from hf_datasets.generation.cache import AnswerCache
from hf_datasets.generation.chat import Chat, GenerationStoppedError
from hf_datasets.generation.dry_run import DryRun
from hf_datasets.generation.generate import Record, Row, generate
from hf_datasets.generation.offline_chat import RuleBasedGenerator
from hf_datasets.generation.openai_chat import OpenAIChat
from hf_datasets.generation.prices import Meter
from hf_datasets.generation.task import Task
from hf_datasets.publish import Configurations, NoRowsError, write_folder
from hf_datasets.records import Rejection
from subtle.run.chat_client import open_chat
from subtle.run.printing import show_beside_paper
from subtle.run.results import read_json, write_results
from subtle.run.screen import Screen
from subtle.run.shared_config import BuildConfig
from subtle.running import visible

METERED = ("requests", "cached", "tokens in", "tokens out", "US dollars")


@dataclass
class BuildStep:
    """One step of the report: accepted records, rejections by reason, and cost."""

    name: str
    accepted: int = 0
    rejected: Counter[str] = dataclasses.field(default_factory=Counter)
    meter: Meter | None = None
    high: Meter | None = None


class Build:
    """A run of a build recipe: steps that count their rejections, and a folder at the end."""

    def __init__(self, config: BuildConfig) -> None:
        self.config = config
        self.output_dir = Path(config.output_dir)
        if not config.dry_run:
            sweep(self.output_dir)
        is_ours = all((self.output_dir / name).is_file() for name in ("results.json", REJECTIONS_FILE))
        if self.output_dir.is_dir() and any(self.output_dir.iterdir()) and not is_ours:
            raise ValueError(f"{self.output_dir} holds something else than a build; name another --output_dir")
        self.chat = open_chat(config)
        writes = self.chat.keeps_answers or config.batch
        self.cache = AnswerCache(config.cache) if writes or (config.model and Path(config.cache).is_file()) else None
        if self.cache is not None and isinstance(self.chat, OpenAIChat) and config.max_usd is not None:
            self.chat.share_budget(self.cache, str(self.output_dir.resolve()))
        self.steps: list[BuildStep] = []
        self.rejections: list[tuple[str, Rejection]] = []
        self.stopped: str | None = None

    def passed(self, name: str, records: Iterable[Record | Rejection]) -> Iterator[Record]:
        """Yield the accepted records of a step, and keep its rejections."""
        step = BuildStep(name)
        self.steps.append(step)
        for record in records:
            if isinstance(record, Rejection):
                step.rejected[record.reason.partition(":")[0]] += 1
                self.rejections.append((name, record))
            else:
                step.accepted += 1
                yield record

    def limited(self, rows: Iterable[Row]) -> Iterable[Row]:
        """The first rows, as many as the configuration allows."""
        return islice(rows, self.config.limit) if self.config.limit is not None else rows

    def ask(self, task: Task[Row, Record], rows: Iterable[Row], *, name: str | None = None) -> list[tuple[Row, Record]]:
        """Generate an answer for each row; returns the rows whose answer was accepted, in order, each with its record.

        When the run is stopped (budget, key, quota), finished answers are kept and no further request is made.
        """
        rows = [] if self.stopped else list(rows)
        before = dataclasses.replace(self.chat.meter)
        high_before = dataclasses.replace(self.chat.high) if isinstance(self.chat, DryRun) else None
        outcomes = generate(task, rows, self.chat, self.cache, max_answers=self.config.max_answers)
        bar = tqdm(outcomes, desc=name or task.name, total=len(rows), unit="row", disable=self.config.quiet or None)
        answered: list[Any] = []
        try:
            answered.extend(bar)
        except GenerationStoppedError as stop:
            self.stopped = str(stop)
        pairs = (
            outcome if isinstance(outcome, Rejection) else (row, outcome)
            for row, outcome in zip(rows, answered, strict=False)
        )
        accepted = list(self.passed(name or task.name, pairs))
        self.steps[-1].meter = spent_since(before, self.chat.meter)
        if high_before is not None and isinstance(self.chat, DryRun):
            self.steps[-1].high = spent_since(high_before, self.chat.high)
        return accepted

    def write(
        self,
        configurations: Configurations,
        *,
        card: Path,
        compare: Callable[[Path], dict[str, Any]] | None = None,
        **facts: object,
    ) -> int:
        """Write the folder in one move and print the report; gives the exit status.

        An earlier build in the same place is replaced. An incomplete one leaves what it has, marked as such, but never
        takes the place of a complete one. What `compare` finds in the folder (`paper_counts.beside_paper`) is written
        to `statistics.json` and printed.
        """
        self.show()
        if self.config.dry_run:
            return 0
        if self.keeps_earlier():
            return 1
        facts = {**self.provenance(), **facts}
        with self.draft() as draft:
            has_rows = self._write_rows(configurations, draft, card=card, facts=facts)
            write_rejections(draft, self.rejections)
            compared = compare(draft) if has_rows and compare else {}
            if compared:
                write_json(draft / "statistics.json", compared)
            write_results(
                draft,
                self.counts(),
                config=self.config,
                seed=self.config.seed,
                complete=self.incomplete is None,
                steps=[{"step": s.name, "accepted": s.accepted, "rejected": dict(s.rejected)} for s in self.steps],
                provenance=facts,
                prompts=self.chat.meter.prompts if self.config.model else {},
            )
        if not has_rows:
            sys.stderr.write(f"there is no row to write; {self.output_dir}/rejections.parquet says why\n")
            return 1
        show_beside_paper(compared)
        also = "statistics.json, " if compared else ""
        sys.stdout.write(f"\n{self.output_dir}: the dataset, rejections.parquet, {also}results.json\n")
        fruitless = [step.name for step in self.steps if step.meter and step.rejected and not step.accepted]
        if fruitless:
            sys.stderr.write(f"no answer was accepted in: {', '.join(fruitless)}; see rejections.parquet\n")
        return int(bool(self.incomplete or fruitless))

    def _write_rows(self, configurations: Configurations, draft: Path, *, card: Path, facts: dict[str, object]) -> bool:
        try:
            write_folder(configurations, draft, card=card, provenance=facts)
        except NoRowsError:
            if self.output_dir.exists():
                raise ValueError(
                    f"there is no row to write to {self.output_dir}, which stays as it was; "
                    "name another --output_dir to see what was rejected"
                ) from None
            return False
        return True

    @property
    def incomplete(self) -> str | None:
        """Why another run could add rows: it was stopped, or rows got no answer; None where it is complete."""
        missing = self.chat.meter.unanswered
        return self.stopped or (f"{missing:,} rows found no answer" if missing else None)

    def keeps_earlier(self) -> bool:
        """Whether this run is incomplete and the output folder holds a complete one, which stays; reports it."""
        results = self.output_dir / "results.json"
        kept = bool(self.incomplete) and results.is_file() and read_json(results, complete=bool)["complete"]
        if kept:
            sys.stderr.write(f"{self.output_dir} keeps the complete build from before\n")
        return kept

    @contextmanager
    def draft(self) -> Iterator[Path]:
        """A new folder, which takes the place of the output folder at the end."""
        try:
            with draft_of(self.output_dir) as draft:
                yield draft
        except OSError as error:
            raise OSError(
                f"{self.output_dir} could not be written ({error}); it is as it was before, and all answers are kept: "
                "free space or name another --output_dir, then run again"
            ) from error

    def provenance(self) -> dict[str, object]:
        """Where the texts come from, for the card."""
        meter = self.chat.meter
        reasons = Counter(f"{step}, {r.reason.partition(':')[0]}" for step, r in self.rejections)
        facts: dict[str, object] = {
            "written by": self.chat.model,
            "date": date.today().isoformat(),
            "seed": self.config.seed,
        }
        if meter.usd is not None and meter.price is not None:
            facts["cost of this run"] = f"${meter.usd:.4f} at the prices of {meter.price.as_of}"
        if self.config.model:
            facts["prompts"] = {"own": "this project's", "paper": "as the paper prints them, where it does"}[
                getattr(self.config, "prompts", "own")
            ]
            facts["requests"] = f"{meter.requests} made, {meter.cached} answered from the cache"
            facts["tokens"] = f"{meter.input_tokens} in, {meter.output_tokens} out"
            facts |= {f"prompts of {name} (SHA-256)": ", ".join(texts) for name, texts in meter.prompts.items()}
        if self.incomplete:
            facts["INCOMPLETE"] = self.incomplete
        for reason, count in reasons.most_common():
            facts[f"rejected ({reason})"] = count
        return facts

    def counts(self) -> dict[str, Any]:
        """The counts of the run."""
        meter = self.chat.meter
        return {
            "rejections": len(self.rejections),
            "requests": meter.requests,
            "cached": meter.cached,
            "input_tokens": meter.input_tokens,
            "output_tokens": meter.output_tokens,
            "usd": meter.usd,
        }

    def show(self) -> None:
        """Print the steps and the reasons."""
        console = Screen(width=None if sys.stdout.isatty() else 120)
        console.print(steps_table(self.steps, self.chat))
        if any(step.rejected for step in self.steps):
            console.print(reasons_table(self.steps))
        if isinstance(self.chat, DryRun):
            console.print(explain(self.chat))
        if self.incomplete and not self.config.dry_run:
            what = "stopped" if self.stopped else "incomplete"
            sys.stderr.write(f"{what}: {self.incomplete}\nRun the command again to go on; answers are kept.\n")


def spent_since(before: Meter, after: Meter) -> Meter:
    """The difference of two readings of a meter."""
    counted = ("requests", "cached", "input_tokens", "output_tokens", "lost_usd")
    return Meter(after.price, **{name: getattr(after, name) - getattr(before, name) for name in counted})


def steps_table(steps: list[BuildStep], chat: Chat) -> Table:
    """One line per step; of a chat model also requests, tokens and cost, as ranges in a dry run."""
    charged = not isinstance(chat, RuleBasedGenerator)
    table = Table(title=f"writer: {chat.model}", title_justify="left")
    table.add_column("step")
    for column in ("accepted", "rejected", *(METERED if charged else ())):
        table.add_column(column, justify="right")
    for step in steps:
        metered = meter_cells(step.meter, step.high) if charged and step.meter else []
        table.add_row(step.name, f"{step.accepted:,}", f"{step.rejected.total():,}", *metered)
    if charged:
        table.add_section()
        high = chat.high if isinstance(chat, DryRun) else None
        table.add_row("total", "", "", *meter_cells(chat.meter, high))
    return table


def meter_cells(low: Meter, high: Meter | None) -> list[str]:
    """Requests, cached, tokens in, tokens out, dollars; as ranges where there is a high reading."""

    def cell(name: str, form: str) -> str:
        values = [getattr(meter, name) for meter in (low, high) if meter]
        if None in values:
            return "unknown"
        return " to ".join(dict.fromkeys(format(value, form) for value in values))

    return [
        cell("requests", ","),
        f"{low.cached:,}",
        cell("input_tokens", ","),
        cell("output_tokens", ","),
        cell("usd", ",.2f"),
    ]


def reasons_table(steps: list[BuildStep]) -> Table:
    """The rejected rows of each step by reason."""
    table = Table(title="rejected, and why", title_justify="left")
    table.add_column("step")
    table.add_column("rows", justify="right")
    table.add_column("reason")
    for step in steps:
        for reason, count in step.rejected.most_common():
            table.add_row(step.name, f"{count:,}", reason)
    return table


def explain(chat: DryRun) -> str:
    """What the estimates of a dry run mean."""
    price = chat.meter.price
    dollars = (
        f"Prices of {price.as_of}: ${price.input_usd:g} per million tokens in, ${price.output_usd:g} out."
        if price
        else f"No price is listed for {chat.model}; give --input_usd and --output_usd."
    )
    return (
        f"Dry run: no network call was made, nothing was written. Tokens: {chat.tokenizer}. {dollars}\n"
        "Low: every row is answered once, as briefly as the rule-based generator. High: every row is sent again until "
        "it is rejected, every answer runs to its token limit."
    )


def run_build(build: Callable[[Any], int], config: BuildConfig) -> int:
    """Run a build; one that is stopped before anything could be kept gives one line on stderr and exit status 1."""
    try:
        return build(config)
    except GenerationStoppedError as stop:
        sys.stderr.write(f"stopped: {visible(str(stop))}\n")
        return 1
