"""Fill the cache with datasets, or draw another miniature than the default ones.

`prepare [NAME ...]` fills the cache, so that `load_dataset(NAME)` needs no import of ours. `render` draws a miniature
with more competitions to train or to test on, of another seed or of the harder tier, and prints its folder for
`load_dataset(NAME, data_dir=FOLDER)`. `blind_test` draws pairs of test clips on contact sheets, half of them of one
label, for a person to say `same` or `different`; with `--answers`, a file of lines such as `1 same`, it counts the
right ones. `annotations` makes a table of clips, for `subtle tune` and `subtle index`, of what was annotated in Label
Studio or CVAT.
"""

# ruff: noqa: T201 - a command prints
import argparse
import itertools
import sys
from pathlib import Path

import datasets
import polars as pl
from datasets.exceptions import DatasetGenerationError

from hf_datasets.builders import RENDERED, find_unopened, prepare
from hf_datasets.registry import BUILDERS


def main() -> int:
    """Run the command line; the exit status is 1 when a dataset could not be prepared."""
    parser = argparse.ArgumentParser(prog="python -m hf_datasets", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("prepare", help="render or read a dataset's default configuration into the cache")
    command.add_argument("names", nargs="*", metavar="NAME", help=f"any of {', '.join(BUILDERS)}; default: all")
    command = commands.add_parser("render", help="draw another miniature than the default ones")
    command.add_argument("--tier", choices=("mini", "hard"), default="mini", help="hard: the harder tier of tfcovr")
    command.add_argument("--train_times", type=int, default=1, help="times the tier's training competitions")
    command.add_argument("--test_times", type=int, default=1, help="times the tier's test competitions")
    command.add_argument("--seed", type=int, default=0, help="of athletes, cameras and halls")
    command.add_argument("--root", help="the folder that gets its folder; default: in the datasets cache")
    command = commands.add_parser("blind_test", help="draw pairs of clips for a person to tell apart, or count answers")
    command.add_argument("output_dir", metavar="DIR", help="the folder of the sheets and of their solutions")
    command.add_argument(
        "--tier", choices=RENDERED, default="hard", help="whose test clips; of unseen one of a pair has an unseen label"
    )
    command.add_argument("--pairs", type=int, default=40, help="how many pairs; default: 40")
    command.add_argument("--seed", type=int, default=0, help="decides which pairs; default: 0")
    command.add_argument(
        "--answers", metavar="FILE", help="lines of number and same or different, for the sheets in DIR"
    )
    command = commands.add_parser("annotations", help="exports of Label Studio and CVAT -> a table of clips")
    command.add_argument("exports", nargs="+", metavar="FILE", help="Label Studio's JSON, or CVAT for video 1.1 (XML)")
    command.add_argument("--video_dir", required=True, help="the folder of the videos")
    command.add_argument("--output", required=True, help="the CSV file, which must not exist")
    arguments = parser.parse_args()
    unknown = sorted(set(getattr(arguments, "names", ())) - set(BUILDERS))
    if unknown:
        parser.error(f"unknown dataset {', '.join(unknown)}; there are {', '.join(BUILDERS)}")
    try:
        match arguments.command:
            case "prepare":
                return fill_cache(arguments.names or list(BUILDERS))
            case "render":
                times = (arguments.train_times, arguments.test_times)
                draw_miniature(arguments.root, *times, arguments.seed, tier=arguments.tier)
            case "blind_test":
                folder, answers = Path(arguments.output_dir), arguments.answers
                blind_test(folder, arguments.tier, arguments.pairs, arguments.seed, answers)
            case "annotations":
                annotations([*map(Path, arguments.exports)], Path(arguments.video_dir), Path(arguments.output))
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def draw_miniature(root: str | None, train_times: int, test_times: int, seed: int, *, tier: str = "mini") -> None:
    """Draw a miniature and print its folder."""
    from hf_datasets.miniature import prepare_miniature
    from hf_datasets.miniature.competitions import with_more_competitions

    config = with_more_competitions(train_times, test_times, tier=tier)
    print(prepare_miniature(root, seed=seed, config=config))


def blind_test(output_dir: Path, tier: str, num_pairs: int, seed: int, answers: str | None) -> None:
    """Write the sheets of a blind test and print their folder, or print how many answers are right."""
    from hf_datasets.miniature import TIERS
    from hf_datasets.miniature.blind_test import read_answers, score, write_blind_test

    if answers is not None:
        for kind, (right, total) in score(output_dir, read_answers(Path(answers))).items():
            print(f"{kind}: {right} of {total}")
        return
    unseen = None
    if tier == "unseen":
        clips = datasets.load_dataset("tfcovr", "unseen-clips")
        unseen = {*clips["test"]["label"]} - {*clips["train"]["label"]}
    sheets = write_blind_test(output_dir, TIERS[tier], num_pairs=num_pairs, seed=seed, of_labels=unseen)
    print(f"{output_dir}: {len(sheets)} sheets; do not open the solutions beside them before you have answered")


def annotations(exports: list[Path], video_dir: Path, output: Path) -> None:
    """Write the table, and name what is left out of it.

    Raises:
        ValueError: The table is there already, or nothing would be in it.
    """
    from hf_datasets.drafts import write_text
    from hf_datasets.footage.annotations import read_annotations

    if output.exists():
        raise ValueError(f"{output} is there; remove it, or name another --output")
    tables, rejections = zip(*[read_annotations(path, video_dir) for path in exports], strict=True)
    rows = pl.concat(tables)
    for rejection in itertools.chain(*rejections):
        print(rejection.reason, file=sys.stderr)
    if rows.is_empty():
        raise ValueError("no annotation has a label, a span and a video; nothing is written")
    write_text(output, rows.write_csv())
    print(f"{output}: {len(rows)} clips of {rows['video'].n_unique()} videos, {rows['label'].n_unique()} labels")


def fill_cache(names: list[str]) -> int:
    """Prepare datasets and print their sizes; returns the exit status."""
    for name in names:
        try:
            prepared = prepare(name)
        except (OSError, ValueError, DatasetGenerationError) as error:
            cause = error.__cause__ if isinstance(error, DatasetGenerationError) else None
            print(f"{name}: {cause or error}", file=sys.stderr)
            return 1
        for config, splits in prepared.items():
            counts = ", ".join(f"{split} {len(rows):,}" for split, rows in splits.items())
            print(f"{name} {config}: {counts}")
    unopened = find_unopened(names)
    for name in names:
        if name in unopened:
            folder = Path(datasets.config.HF_DATASETS_CACHE, name)
            print(
                f"{name}: it is prepared, but a process that imports only `datasets` cannot open it "
                f"({unopened[name]}); remove {folder} and prepare it again",
                file=sys.stderr,
            )
        else:
            print(f'Open it in any process with `load_dataset("{name}")`.')
    return int(bool(unopened))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.stderr.write("\ninterrupted; what is done is kept, run again to go on\n")
        sys.exit(130)
