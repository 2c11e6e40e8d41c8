"""Say before hours of GPU which data are there, what is missing or damaged, and what it is enough for."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hf_datasets.comp.statistics import PAPER_COUNTS as COMP_COUNTS
from hf_datasets.drafts import replacing_files, write_text
from hf_datasets.fig.statistics import PAPER_COUNTS as FIG_COUNTS
from hf_datasets.paper_counts import beside_paper
from hf_datasets.tfcovr.statistics import PAPER_COUNTS as TFCOVR_COUNTS
from subtle.checking import annotations
from subtle.checking.annotations import Part
from subtle.checking.options import CheckConfig
from subtle.checking.steps import CHAT_MODEL, HOURS, STEPS, Paper, Parts, Step, price_of_texts
from subtle.checking.videos import Folder, Videos
from subtle.run.printing import show, show_beside_paper
from subtle.run.results import write_results

READ = {"tfcovr": annotations.tfcovr, "comp": annotations.comp, "fig": annotations.fig}
COUNTS_OF_PAPERS = {"tfcovr": TFCOVR_COUNTS, "comp": COMP_COUNTS, "fig": FIG_COUNTS}
SHOWN = 3
"""Examples of what is wrong, beside their number."""


def count_with_examples(found: Sequence[Any]) -> str:
    """How many there are, and the first ones."""
    return f"{len(found):,}" + (
        f": {', '.join(map(str, found[:SHOWN]))}{', ...' * (len(found) > SHOWN)}" if found else ""
    )


def show_parts(parts: Iterable[Part]) -> None:
    """Print which files are there, which are not, and what cannot be used of them."""
    for part in parts:
        print(f"\n{part.name}: files {count_with_examples([path.name for path in part.files])}")
        for name in part.missing:
            print(f"  missing: {name}")
        for problem in part.problems:
            print(f"  cannot be used: {problem}")
        for note in part.notes:
            print(f"  {note}")
        for reason, count in part.refused.most_common():
            print(f"  rows left out: {count:,} x {reason}")


def show_videos(found: Mapping[str, Videos], parts: Parts, odd: Mapping[str, list[str]]) -> None:
    """Print how many videos there are, and what is wrong with others."""
    head = [
        "annotations",
        "videos",
        "found",
        "missing",
        "several files",
        "damaged",
        "of items",
        "usable",
        "GB here",
        "GB of all, about",
    ]
    cells = []
    for name, videos in found.items():
        counts = (videos.of_all, *map(len, (videos.found, videos.missing, videos.ambiguous, videos.damaged)))
        items = (len(parts[name].items), videos.items)
        sizes = (videos.gigabytes, videos.gigabytes_of_all)
        cells.append([name, *(f"{n:,}" for n in (*counts, *items)), *(f"{size:,.1f}" for size in sizes)])
    show(head, cells, "\nvideos")
    ambiguous = dict.fromkeys(video_id for videos in found.values() for video_id in videos.ambiguous)
    damaged = dict.fromkeys(why for videos in found.values() for why in videos.damaged.values())
    for video_id in list(ambiguous)[:SHOWN]:
        print(f"several files: {video_id}; keep one of them, for none is read")
    for why in list(damaged)[:SHOWN]:
        print(f"damaged: {why}")
    for what, paths in odd.items():
        if paths:
            print(f"{what}: {count_with_examples(paths)}")


def can_be_filled(step: Step, part: Part | None, videos: Videos | None) -> str:
    """Whether a table can be filled."""
    if part is None or not part.items:
        return "no: its annotations are missing"
    if not step.needs_videos:
        return "yes"
    if videos is None:
        return "with --video_dir"
    return f"{videos.items / len(part.items):.1%} of {len(part.items):,} items" if videos.items else "no: no video"


def tables(paper: Paper, config: CheckConfig, parts: Parts, found: Mapping[str, Videos]) -> list[dict[str, Any]]:
    """The tables of a paper in order: whether each can be filled, in how many hours, and by which command."""
    given = {f"--{name}": getattr(config, name) for name in ("data_dir", "video_dir")}
    data = " ".join(f"{flag} {shlex.quote(folder)}" for flag, folder in given.items() if folder)
    rows = []
    for step in STEPS[paper](parts):
        part = next((one for name, one in parts.items() if name.startswith(step.part)), None)
        folder = shlex.quote(str(part.folder if part and part.folder else config.data_dir))
        command = step.command.format(data=data, annotations=folder)
        can = can_be_filled(step, part, found.get(part.name) if part else None)
        rows.append({"rows": step.rows, "can be filled": can, "GPU hours": step.hours, "command": command})
        hours = f", about {step.hours:.1f} GPU hours" if step.hours else ""
        print(f"{step.rows}: {can}{hours}\n    {command}")
    return rows


def prices(paper: Paper, parts: Parts) -> dict[str, tuple[float, float]]:
    """The least and the most dollars for the texts of each part that texts are written for."""
    found = {}
    for name, part in parts.items():
        if part.items and part.folder:
            found[name] = low, high = price_of_texts(paper, part, part.folder)
            more = f"`subtle build {paper} --source {part.folder} --model {CHAT_MODEL} --dry_run` says more"
            print(f"texts for {name} by {CHAT_MODEL}: about {low:,.2f} to {high:,.2f} US dollars; {more}")
    return found


def main(paper: Paper, config: CheckConfig) -> int:
    """Exit status 1 where no table can be filled."""
    data_dir, output_dir = Path(config.data_dir or ""), Path(config.output_dir) / paper
    if not config.data_dir or not data_dir.is_dir():
        raise ValueError(f"{config.data_dir}: no such folder of annotations; give it with --data_dir")
    parts = {part.name: part for part in READ[paper](data_dir)}
    show_parts(parts.values())
    here = {of: counts for part in parts.values() for of, counts in part.counts.items()}
    compared = beside_paper(COUNTS_OF_PAPERS[paper], here)
    show_beside_paper(compared)
    folder = Folder(config.video_dir) if config.video_dir else None
    found = {name: folder.look(part.items) for name, part in parts.items() if part.items} if folder else {}
    odd = folder.odd_files() if folder else {}
    if found:
        show_videos(found, parts, odd)
    print()
    rows = tables(paper, config, parts, found)
    print(HOURS)
    dollars = prices(paper, parts)
    with replacing_files(output_dir) as draft:
        missing = dict.fromkeys(one.removeprefix("v_") for videos in found.values() for one in videos.missing)
        if found:
            write_text(draft / "missing_videos.txt", "".join(f"{video_id}\n" for video_id in missing))
            print(f"\n{output_dir / 'missing_videos.txt'}: {len(missing):,} ids without a file, one per line")
        details: dict[str, Any] = {"annotations": {name: part.record for name, part in parts.items()}, "tables": rows}
        details |= {"videos": {name: videos.record for name, videos in found.items()}, "odd_files": odd}
        usable = {name: found[name].items if name in found else None for name in parts}
        figures = {name: {"items": len(part.items), "usable": usable[name]} for name, part in parts.items()}
        write_results(draft, figures, config=config, seed=0, statistics=compared, usd=dollars, **details)
    return int(all(row["can be filled"].startswith("no") for row in rows))
