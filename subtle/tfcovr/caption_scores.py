"""Scores of captions by the label grammar: of models beside the baselines, as figures and as tables like C1 and C2."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from rich.table import Table

from hf_datasets.builders import write_rejections
from hf_datasets.drafts import write_text
from hf_datasets.tfcovr.caption_scores import ATTRIBUTES, CaptionTally, chance, majority, score_caption
from hf_datasets.tfcovr.labels import Label, Sport, sport_of
from subtle.run.build import Build
from subtle.run.printing import as_markdown
from subtle.run.results import write_results
from subtle.run.screen import Screen
from subtle.tfcovr.captions import LABEL_CAPTIONS, Scored, write_table

BASELINES = {"majority": majority, "chance": chance}


def tallies(rows: Iterable[Scored]) -> dict[Sport, CaptionTally]:
    """The scores of captions by sport, of rows that have one."""
    found = {sport: CaptionTally(sport) for sport in ATTRIBUTES}
    for row in rows:
        if row["label"]:
            found[sport_of(row["label"])].add(score_caption(row["caption"], row["label"]))
    return {sport: tally for sport, tally in found.items() if tally.captions}


def baselines(labels: Iterable[Label]) -> dict[str, dict[Sport, CaptionTally]]:
    """What saying the most frequent value of each attribute, and a random scored clip's label caption, would score."""
    of_sport: dict[Sport, list[Label]] = {}
    for label in labels:
        of_sport.setdefault(sport_of(label), []).append(label)
    return {name: {sport: make(of_sport[sport], sport) for sport in of_sport} for name, make in BASELINES.items()}


def figures_of(found: Mapping[Sport, CaptionTally]) -> dict[str, float]:
    """`gymnastics/turns/right` and so on, and `gymnastics/captions`."""
    return {
        f"{sport}/{name}": value
        for sport, tally in found.items()
        for name, value in ({"captions": tally.captions} | tally.figures()).items()
    }


def score_table(sport: Sport, systems: Mapping[str, Mapping[Sport, CaptionTally]]) -> list[list[str]]:
    """The head and one line for each system: captions, all right, and for each attribute `right / wrong` in percent."""
    lines = [["", "captions", "all right", "all attributes", *ATTRIBUTES[sport]]]
    for name, by_sport in systems.items():
        if sport not in by_sport:
            continue
        figures = by_sport[sport].figures()
        cells = [
            f"{100 * figures[f'{one}/right']:.1f} / {100 * figures[f'{one}/wrong']:.1f}"
            if f"{one}/right" in figures
            else ""
            for one in ("attributes", *ATTRIBUTES[sport])
        ]
        lines.append([name, f"{by_sport[sport].captions:,.0f}", f"{100 * figures['all_right']:.1f}", *cells])
    return lines


def example_table(sport: Sport, captions: Mapping[str, Sequence[Scored]], number: int) -> list[list[str]]:
    """As Tables C1 and C2: labels beside the captions of each system, and what these say right and wrong.

    Args:
        sport: Of the labels.
        captions: By system; those of the same clip or query are shown together.
        number: Of labels, each with its first clip.
    """
    lines = [["label", *(["by"] if len(captions) > 1 else []), "caption", "right", "wrong", "not said"]]
    by_key = {name: {row["key"]: row for row in rows} for name, rows in captions.items()}
    shown: dict[str, str] = {}
    for key, row in next(iter(by_key.values())).items():
        label = row["label"]
        if label and sport_of(label) == sport and len(shown) < number:
            shown.setdefault(label.label_id, key)
    for key in shown.values():
        for name, rows in by_key.items():
            if found := rows.get(key):
                verdicts = [", ".join(found[verdict]) for verdict in ("right", "wrong", "not_said")]
                by = [name] if len(captions) > 1 else []
                lines.append([found["label"].description, *by, found["caption"], *verdicts])
    return lines


def report_scores(
    systems: Mapping[str, Mapping[Sport, CaptionTally]],
    captions: Mapping[str, Sequence[Scored]],
    *,
    number: int,
    title: str,
) -> str:
    """Print the scores and examples of each sport; returns both as Markdown.

    Args:
        systems: By name.
        captions: The captions of those that are shown as examples, each with the `key` of its clip or query.
        number: Of labels that are shown for each sport.
        title: What was captioned.
    """
    console = Screen(width=None if sys.stdout.isatty() else 160)
    parts = []
    for sport in ATTRIBUTES:
        if not any(sport in by_sport for by_sport in systems.values()):
            continue
        shown = {f"{title}, {sport}; right / wrong, %": score_table(sport, systems)}
        if number:
            shown[f"Label and caption, {sport}"] = example_table(sport, captions, number)
        for heading, (head, *lines) in shown.items():
            table = Table(*head, title=heading, title_justify="left", show_lines=head[0] == "label")
            for line in lines:
                table.add_row(*line)
            console.print(table)
            parts.append(as_markdown(heading, [head, *lines]))
    return "\n".join(parts)


def write_scored(
    build: Build,
    found: Sequence[Scored],
    rows: Sequence[Scored],
    title: str,
    *,
    file: str,
    columns: Sequence[str],
    beside: Mapping[str, Mapping[Sport, CaptionTally]] = MappingProxyType({}),
    **details: Any,
) -> int:
    """Print what a build of captions cost and how they score, and write its folder; the exit status.

    Args:
        build: The run, all of whose questions are asked.
        found: The accepted rows, as they are written.
        rows: The same as they are scored and shown.
        title: What was captioned.
        file: Of the rows.
        columns: Of the rows, those of text.
        beside: Tallies of other captions, before those of the baselines.
        details: Whatever else `results.json` should hold.
    """
    config: Any = build.config
    build.show()
    if config.dry_run:
        return 0
    if build.keeps_earlier():
        return 1
    name = config.model or LABEL_CAPTIONS
    systems = {name: tallies(rows), **beside} | baselines(row["label"] for row in rows if row["label"])
    text = report_scores(systems, {name: rows}, number=config.examples, title=title)
    with build.draft() as draft:
        write_table(draft / file, found, columns)
        write_rejections(draft, build.rejections)
        write_text(draft / "table.md", text)
        write_results(
            draft,
            figures_of(systems[name]) | build.counts(),
            config=config,
            seed=config.seed,
            model=name,
            **details,
            baselines={other: figures_of(by_sport) for other, by_sport in systems.items() if other != name},
            complete=build.incomplete is None,
            prompts=build.chat.meter.prompts if config.model else {},
        )
    if not found:
        sys.stderr.write(f"no answer is a caption; {build.output_dir / 'rejections.parquet'} says why\n")
        return 1
    sys.stdout.write(f"\n{build.output_dir}: {file}, rejections.parquet, table.md, results.json\n")
    return int(build.incomplete is not None)
