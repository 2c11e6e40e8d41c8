"""What `tune.py` says of its clips, texts and model: warnings, the table of results, the summary, the model's card."""

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
from transformers import AutoTokenizer
from transformers.utils import logging

from hf_datasets.drafts import write_json, write_text
from hf_datasets.records import Rejection
from hf_models.tfcovr.processing_tfcovr import MAX_TOKENS
from subtle.commands import as_typed
from subtle.run.printing import show
from subtle.run.results import read_json
from subtle.running import visible
from subtle.tuning.clips import Amounts
from subtle.tuning.plan import Plan, is_miniature
from subtle.tuning.verdict import CHANCE, compare_systems, share_of_deals, verdict

SHOWN_CUTOFFS = (5, 10, 50)
BASE = "zero-shot average"
MEANING = {
    "two-stage": "tuned: clip and text",
    "stage-2-only": "base's frames, tuned composition",
    "text-only": "tuned on the text alone",
    "video-only": "tuned on the clip alone",
    BASE: "untrained base, clip and text averaged",
    CHANCE: "chance",
}
DRAWN = (
    "the weights to start from have only seen athletes drawn by this project: on real footage this run shows the way "
    "and not what is possible. Give a CLIP, --base openai/clip-vit-base-patch16 (about 600 MB from the Hub, and better "
    "on a GPU; --dry_run estimates the time)"
)
CARD = """---
library_name: transformers
pipeline_tag: feature-extraction
tags: [composed-video-retrieval]
---

# Composed search of {labels} actions

A model that finds clips by a clip and a text that says how they differ, tuned on {clips} clips of {videos} videos.

```bash
subtle index VIDEOS --output archive --model THIS_FOLDER
subtle search archive --clip query.mp4 --text "{text}"
```

Labels: {names}.

## Results

mAP in %, on {queries} queries of {test_videos} videos that were held out{intervals}.

{table}

{verdict}

{limits}
"""


def show_amounts(amounts: Amounts, rejections: Sequence[Rejection], *, is_drawn_base: bool) -> None:
    """Print what there is, and on stderr what is little or missing."""
    clips, labels = counted(amounts.clips, "clip"), counted(amounts.labels, "label")
    print(f"{clips} of {labels} in {counted(amounts.videos, 'video')}")
    reasons = Counter(rejection.reason.partition(":")[0] for rejection in rejections)
    for reason, number in reasons.most_common():
        first = next(one.reason for one in rejections if one.reason.startswith(reason))
        sys.stderr.write(visible(f"left out: {number:,} x {' '.join(first.split())}") + "\n")
    for line in amounts.missing:
        sys.stderr.write(visible(f"too little: {line}") + "\n")
    for line in () if amounts.missing else amounts.little:
        sys.stderr.write(visible(f"little: {line}") + "\n")
    if is_drawn_base and not amounts.missing:
        sys.stderr.write(f"NOTE: {DRAWN}\n")


def splits_in_words(plan: Plan) -> str:
    """`train: 40 clips of 8 videos; validation: ...`: how the clips were divided."""
    words = []
    for split in ("train", "validation", "test"):
        clips = pl.read_parquet(plan.output / "dataset" / "own-clips" / f"{split}-*.parquet")
        videos = counted(clips["video_id"].n_unique(), "video")
        words.append(f"{split}: {counted(len(clips), 'clip')} of {videos}")
    return f"{'; '.join(words)}; no video is in two of them"


def texts_of(dataset: Path) -> list[str]:
    """All texts of a dataset that `build.py tfcovr` wrote."""
    found = pl.read_parquet(dataset / "own" / "*.parquet", columns=["modification_text"])
    return sorted(set(found["modification_text"]))


def cut_texts(base: str, texts: Sequence[str]) -> str | None:
    """How many texts are longer than the text encoder reads, and what to do; None where there is none."""
    tokenizer = AutoTokenizer.from_pretrained(base)
    most = min(MAX_TOKENS, tokenizer.model_max_length)
    logging.set_verbosity_error()  # it warns of the first long one
    lengths = [len(tokens) for tokens in tokenizer(list(texts))["input_ids"]]
    cut = sum(length > most for length in lengths)
    if not cut:
        return None
    read = tokenizer(list(texts), truncation=True, max_length=most)["input_ids"]
    same = len(texts) - len(set(map(tuple, read)))
    alike = f", and {same} of them then read like another" if same else ""
    return (
        f"{cut} of {len(texts)} texts are longer than the {most} tokens that {Path(base).name} reads (the longest has "
        f"{max(lengths)}): their end is cut{alike}; shorten the labels in a column description, or give a --base that "
        "knows their language"
    )


def summarize_tuning(plan: Plan, amounts: Amounts, systems: Sequence[str]) -> dict[str, Any]:
    """Measure what tuning was worth, print it, and write `summary.json` and the model's card."""
    output = plan.output
    clips = pl.concat(
        pl.read_parquet(path) for path in sorted((output / "dataset" / "own-clips").glob("test-*.parquet"))
    )
    predictions = pl.read_parquet(output / "comparison" / "predictions.parquet")
    videos = dict(clips.select("clip_id", "video_id").iter_rows())
    gallery = read_json(output / "comparison" / "results.json", gallery_size=int)["gallery_size"]
    found = compare_systems(
        output / "comparison", systems, videos, gallery_size=gallery, cutoffs=SHOWN_CUTOFFS, seed=plan.config.seed
    )
    cut = cut_texts(plan.config.base, texts_of(output / "dataset"))
    num_videos = len({videos[clip] for clip in predictions["query_clip_id"]})
    share = share_of_deals(predictions, SHOWN_CUTOFFS[0], plan.config.seed)
    summary = {
        "figures": found,
        "verdict": verdict(found, share, SHOWN_CUTOFFS[0], len(predictions), num_videos),
        "share_of_deals": share,
        "queries": len(predictions),
        "held_out_videos": num_videos,
        "gallery": gallery,
        "clips": amounts.clips,
        "labels": amounts.labels,
        "videos": amounts.videos,
        "little": [*amounts.little, *([cut] if cut else [])],
    }
    write_text(output / "model" / "README.md", tuned_model_card(plan, summary, predictions))
    write_json(output / "summary.json", summary)
    show_summary(plan, summary)
    return summary


def counted(number: int, thing: str) -> str:
    """`1 clip`, `2 clips`."""
    return f"{number:,} {thing}{'s' * (number != 1)}"


def score_cell(row: dict[str, Any], name: str) -> str:
    """A result in percent, with its interval."""
    interval = row[f"{name}_interval"]
    spread = f" [{100 * interval[0]:.1f}, {100 * interval[1]:.1f}]" if interval else ""
    return f"{100 * row[name]:.1f}{spread}"


def show_summary(plan: Plan, summary: dict[str, Any]) -> None:
    """Print the table and what to do next."""
    held_out, clips = counted(summary["held_out_videos"], "held-out video"), counted(summary["gallery"], "clip")
    title = f"{summary['queries']:,} queries of {held_out}, {clips}"
    head = ["system", "what it is", *(f"mAP@{k}" for k in SHOWN_CUTOFFS)]
    figures = summary["figures"].items()
    cells = [
        [name, MEANING.get(name, ""), *(score_cell(row, f"map@{k}") for k in SHOWN_CUTOFFS)] for name, row in figures
    ]
    show(head, cells, title, first=head[2:])
    output, videos = plan.output, plan.video_dir
    print("\n".join(summary["verdict"]))
    print(f"report: {(output / 'report' / 'index.html').resolve()}")
    index, search = (as_typed(f"python recipes/{verb}.py") for verb in ("index", "search"))
    print(f"next:   {index} {videos} --output {output / 'archive'} --model {output / 'model'}")
    print(f'        {search} {output / "archive"} --clip CLIP.mp4 --text "..."')


def tuned_model_card(plan: Plan, summary: dict[str, Any], predictions: pl.DataFrame) -> str:
    """The model's card; `publish.py` takes it over."""
    rows = [f"| system | {' | '.join(f'mAP@{k}' for k in SHOWN_CUTOFFS)} |", f"|---|{'---|' * len(SHOWN_CUTOFFS)}"]
    for name, row in summary["figures"].items():
        rows.append(f"| {MEANING.get(name, name)} | {' | '.join(score_cell(row, f'map@{k}') for k in SHOWN_CUTOFFS)} |")
    has_intervals = any(row[f"map@{SHOWN_CUTOFFS[0]}_interval"] for row in summary["figures"].values())
    labels = sorted(set(predictions["query_label"].drop_nulls()))
    limits = "Its base, the miniature's CLIP, has seen no real image: it is for trying out code."
    return CARD.format(
        **{name: summary[name] for name in ("clips", "labels", "videos", "queries")},
        verdict="\n".join(summary["verdict"]),
        intervals=", with the 95 % interval over these videos" if has_intervals else "; too few for intervals",
        test_videos=summary["held_out_videos"],
        text=without_markup(predictions["modification_text"][0]),
        names=", ".join(f"`{without_markup(label)}`" for label in labels),
        table="\n".join(rows),
        limits=limits if is_miniature(plan.config.base) else "",
    )


def without_markup(text: str) -> str:
    """A label or text without what Markdown or a shell would read."""
    return "".join(letter for letter in text if letter not in '`"|<>\\$')
