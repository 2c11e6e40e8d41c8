"""Make the bare names of the metrics load with evaluate on this machine: `python -m metrics install [NAME ...]`."""

import argparse
import sys

from .installation import METRICS, install, modules_folder


def main() -> int:
    """Run the command; the exit status is 1 where the names could not be installed."""
    parser = argparse.ArgumentParser(prog="python -m metrics", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("install", help="make evaluate.load(NAME) work in every process of this machine")
    command.add_argument("names", nargs="*", metavar="NAME", help=f"any of {', '.join(METRICS)}; default: all")
    names = parser.parse_args().names or METRICS
    unknown = sorted(set(names) - set(METRICS))
    if unknown:
        parser.error(f"there is no metric {', '.join(unknown)}; there are {', '.join(METRICS)}")
    try:
        for name in names:
            print(f"{name}: {install(name)}")  # noqa: T201  (a command)
    except OSError as error:
        print(f"cannot write to {modules_folder()}: {error}. Set HF_HOME to another folder", file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
