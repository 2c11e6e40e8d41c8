"""Ask a multimodal language model which of two paragraphs fits a video (VideoComp, Table 7).

    python recipes/judge.py
    python recipes/judge.py --model gpt-4o --dry_run
    python recipes/judge.py --model Qwen/Qwen2.5-VL-7B-Instruct --base_url http://localhost:8000/v1
    python recipes/judge.py --model gpt-4o --dataset_config release --data_dir DIR --video_dir DIR --max_usd 20

Frames go as JPEG images with the paper's prompt; the candidates are shuffled by the seed; "1", "2", "(1)" and "(2)" are
answers, anything else is counted as unreadable, never as right or wrong. Answers are kept as they arrive, so a killed
run started again pays nothing twice. Without `--model` the rule-based judge answers, which does not see the frames and
takes the longer text: a check of the steps, and a baseline of how much the length of a text gives away.
"""

import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from harness.config import option, parse_config, run_recipe
from harness.shared_config import BuildConfig, ContrastConfig


@dataclass
class JudgeConfig(BuildConfig, ContrastConfig):
    """What to judge, with how many frames of which size."""

    split: str = option("test", "Split to judge.")
    num_frames: int = option(8, "Frames of each video.")
    max_side: int = option(448, "Longer side of a frame, in pixels; smaller frames stay as they are.")
    max_output_tokens: int = 8
    max_answers: int = option(1, "Answers per row until it counts as unreadable; the paper requests one.")
    output_dir: str = "outputs/judge"


if __name__ == "__main__":  # before the imports below, which take seconds
    CONFIG = parse_config(JudgeConfig, __doc__)

import evaluate
import pyarrow as pa
import pyarrow.parquet as pq
from evaluate_comp import table
from rich.console import Console

import metrics
from comp.data import load_rows
from harness.build import Build, run
from harness.results import write_results
from hf_datasets.comp.contrasts import span_of
from hf_datasets.comp.judge import JudgedPair, JudgeTask, Verdict
from hf_datasets.generation.dry_run import DryRun
from hf_datasets.generation.images import image_part
from hf_datasets.registration import write_rejections
from hf_datasets.video import read_frames


def frame_parts(config: JudgeConfig, rows: list[dict[str, Any]]) -> Callable[[JudgedPair], list[dict[str, Any]]]:
    """Reads the frames of a pair as images, of the interval that its texts describe, when the pair is judged."""
    spans = {row["key"]: span_of(row) for row in rows}

    def read(pair: JudgedPair) -> list[dict[str, Any]]:
        span = spans[pair.key]
        read = read_frames(span.path, config.num_frames, span.start_seconds, span.end_seconds)
        return [image_part(frame, max_side=config.max_side) for frame in read.frames]

    return read


def measure(verdicts: list[Verdict]) -> dict[str, float]:
    """Accuracy per disruption and comprehensive accuracy of the answers that can be read; empty without any."""
    if not verdicts:
        return {}
    evaluate.logging.set_verbosity_error()  # it warns that the installed metric is the one it uses
    references = [{"disruption_type": verdict.disruption_type, "answer": verdict.answer} for verdict in verdicts]
    measured = evaluate.load(metrics.space("comprehensive_accuracy")).compute(
        predictions=[verdict.given for verdict in verdicts], references=references
    )
    return {name: value for name, value in measured.items() if isinstance(value, float)}


def write_tables(folder: Path, build: Build, verdicts: list[Verdict]) -> None:
    """`verdicts.parquet`, and `rejections.parquet` with the judge's replies that are not an answer, and why."""
    schema = pa.schema([(field.name, pa.string()) for field in fields(Verdict)])
    table = pa.Table.from_pylist([asdict(verdict) for verdict in verdicts], schema=schema)
    pq.write_table(table, folder / "verdicts.parquet")
    write_rejections(folder, build.rejections)


def main(config: JudgeConfig) -> int:
    build = Build(config)
    rows, coverage = load_rows(config, config.split)
    rows = list(build.limited(rows))
    texts = ("key", "disruption_type", "positive_text", "negative_text")
    pairs = [JudgedPair(**{name: row[name] for name in texts}, seed=config.seed) for row in rows]
    answered = build.ask(JudgeTask(frame_parts(config, rows)), pairs, name="judge")
    build.show()
    if isinstance(build.chat, DryRun):
        return 0
    if build.keeps_earlier():
        return 1
    verdicts = [verdict for _, verdict in answered]
    measured = measure(verdicts)
    refused = len(build.rejections)
    coverage |= {
        "asked": len(verdicts) + refused,
        "answered": len(verdicts),
        "unreadable or failed": refused,
    }
    with build.draft() as draft:
        write_tables(draft, build, verdicts)
        write_results(
            draft,
            measured | build.counts(),
            config=config,
            seed=config.seed,
            coverage=coverage,
            complete=build.incomplete is None,
            judge=build.chat.model,
            prompts=build.chat.meter.prompts,
        )
    if not verdicts:
        sys.stderr.write(f"no answer can be read; {build.output_dir / 'rejections.parquet'} says why\n")
        return 1
    title = f"{config.dataset} ({config.dataset_config}), {config.split}: {len(verdicts)} of {len(rows)} judged"
    Console(width=120).print(table({build.chat.model: measured}, title))
    return int(build.incomplete is not None)


if __name__ == "__main__":
    sys.exit(run_recipe(partial(run, main), CONFIG))
