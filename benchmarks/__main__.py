"""Benchmark this project against other implementations, as ratios.

    python -m benchmarks [NAME ...]
    python -m benchmarks index --sizes 100000x256 1000000x768

Every line is a ratio, because the speed of machines differs and varies. With no name all benchmarks run. Exit status 1
means that a goal was missed.
"""

import argparse
import importlib
import sys
from dataclasses import asdict
from pathlib import Path

from rich.table import Table
from rich.text import Text

from benchmarks.timing import Ratio
from hf_datasets.drafts import write_json
from subtle.run.screen import Screen

NO_BENCHMARK = {"timing", "index_ways", "pretrain_miniature"}
FILES = Path(__file__).parent.glob("[!_]*.py")
NAMES = sorted(path.stem for path in FILES if path.stem not in NO_BENCHMARK)
MARKS = {True: Text("met", "green"), False: Text("missed", "red"), None: Text()}


def show(name: str, ratios: list[Ratio]) -> Table:
    table = Table(title=name, title_justify="left")
    for column in ("what", "against", "ratio", "goal", "", "detail"):
        table.add_column(column, justify="right" if column in {"ratio", "goal"} else "left")
    for ratio in ratios:
        goal = "" if ratio.goal is None else f"{'≤' if ratio.at_most else '≥'} {ratio.goal:g}"
        table.add_row(ratio.what, ratio.baseline, f"{ratio.value:.3g}", goal, MARKS[ratio.met], ratio.detail)
    return table


def size_of(word: str) -> tuple[int, int]:
    """`100000x256` as two numbers."""
    count, _, size = word.partition("x")
    if not (count.isdecimal() and size.isdecimal() and int(count) >= 1000 and int(size) >= 16):
        raise argparse.ArgumentTypeError(f"{word!r} is not like 100000x256, at least 1000x16")
    return int(count), int(size)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of {', '.join(NAMES)}; default: all")
    parser.add_argument("--json", type=Path, help="also write the ratios to this file")
    parser.add_argument("--sizes", nargs="+", type=size_of, metavar="NxD", help="of index: moments and their size")
    arguments = parser.parse_args()
    if arguments.sizes and arguments.names != ["index"]:
        parser.error("--sizes is of index: python -m benchmarks index --sizes 100000x256")
    unknown = set(arguments.names) - set(NAMES)
    if unknown:
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    results = {}
    console = Screen(width=None if sys.stdout.isatty() else 160)  # 80 columns break every cell of a log
    for name in arguments.names or NAMES:
        options = {"sizes": arguments.sizes} if arguments.sizes else {}
        results[name] = list(importlib.import_module(f"benchmarks.{name}").measure(**options))
        console.print(show(name, results[name]))
    if arguments.json:
        rows = {name: [asdict(ratio) for ratio in ratios] for name, ratios in results.items()}
        try:
            write_json(arguments.json, rows)
        except OSError as error:
            parser.exit(2, f"error: {error}\n")
    return int(any(ratio.met is False for ratios in results.values() for ratio in ratios))


if __name__ == "__main__":
    sys.exit(main())
