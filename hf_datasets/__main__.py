"""`python -m hf_datasets prepare [NAME ...]`: fill the cache, so that `load_dataset(NAME)` needs no import of ours."""

# ruff: noqa: T201 - a command prints
import argparse
import sys

from hf_datasets.registration import BUILDERS, prepare


def main() -> int:
    """Run the command line; the exit status is 1 when a data set could not be prepared."""
    parser = argparse.ArgumentParser(prog="python -m hf_datasets", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser(
        "prepare", help="render or read a data set's default configuration into the cache"
    )
    command.add_argument(
        "names", nargs="*", metavar="NAME", help=f"any of {', '.join(BUILDERS)}; default: all"
    )
    names = parser.parse_args().names or list(BUILDERS)
    unknown = sorted(set(names) - set(BUILDERS))
    if unknown:
        parser.error(f"unknown data set {', '.join(unknown)}; there are {', '.join(BUILDERS)}")
    for name in names:
        try:
            prepared = prepare(name)
        except (OSError, ValueError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            return 1
        for config, splits in prepared.items():
            counts = ", ".join(f"{split} {len(rows):,}" for split, rows in splits.items())
            print(f"{name} {config}: {counts}")
        print(f'Open it in any process with `load_dataset("{name}")`.')
    return 0


if __name__ == "__main__":
    sys.exit(main())
