"""Make the rows of a published dataset again with the code beside them.

The miniature is rendered by the parameters in `generation`, other rows are made of what `--data_dir` holds. `--check`
compares with the published Parquet files, row for row; the exit status is 1 where they differ.
"""

# ruff: noqa: T201 - a command prints
import argparse
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> int:
    """Run the command line; the exit status is 1 where rows differ or cannot be made."""
    parser = argparse.ArgumentParser(description=__doc__)
    is_copy = HERE.name == "generation"
    sys.dont_write_bytecode |= is_copy  # a clone stays as it was published
    parser.add_argument("--folder", type=Path, required=not is_copy, default=HERE.parent if is_copy else None,
                        help="the published folder")  # fmt: skip
    parser.add_argument("--output_dir", required=True, help="a new folder for the Parquet files")
    parser.add_argument("--configs", nargs="+", default=[], metavar="NAME", help="default: the default configuration")
    parser.add_argument("--data_dir", help="the folder from which rows of real data are made")
    parser.add_argument("--video_dir", help="the folder of videos, for rows that have them")
    parser.add_argument("--check", action="store_true", help="compare with the published rows")
    arguments = parser.parse_args()
    from datasets.exceptions import DatasetGenerationError

    from hf_datasets.publishing.rebuilding import rebuild, row_differences

    output_dir = Path(arguments.output_dir)
    try:
        names = rebuild(
            arguments.folder / "generation",
            output_dir,
            configs=arguments.configs,
            data_dir=arguments.data_dir,
            video_dir=arguments.video_dir,
        )
    except (OSError, ValueError, DatasetGenerationError) as error:
        cause = error.__cause__ if isinstance(error, DatasetGenerationError) else None
        print(cause or error, file=sys.stderr)
        return 1
    print(f"{output_dir}: {', '.join(names)}")
    found = []
    for name in names if arguments.check else ():
        unequal, num_media = row_differences(output_dir, arguments.folder, name)
        found += unequal
        if not unequal:
            media = f", but {num_media} videos have other bytes: another encoder wrote them" if num_media else ""
            print(f"{name}: equal to the published rows{media}")
    for sentence in found:
        print(sentence, file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
