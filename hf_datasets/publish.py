"""Rows -> Parquet and a card in a folder that `load_dataset` opens, and its upload to the Hub."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from datasets import Features
from datasets.features.features import require_storage_embed
from datasets.table import embed_table_storage
from huggingface_hub import DatasetCard, HfApi

from hf_datasets.drafts import draft_of
from hf_datasets.records import Rejection
from hf_datasets.registration import REJECTIONS_FILE, summarise, write_rejections

COUNTS_START = "<!-- counts: filled in by hf_datasets.publish -->"
COUNTS_END = "<!-- end of counts -->"
MACHINE_COLUMNS = ("video",)
"""Columns of paths, which mean nothing on another machine; they are published empty."""
PUBLISHED_FILES = ("README.md", REJECTIONS_FILE, "*/*.parquet")
"""Files that go to the Hub; the `results.json` of a recipe names folders of the machine that it ran on."""
CONFIGURATION_NAME = re.compile(r"\w[\w.-]*")
SPLIT_NAME = re.compile(r"\w+(\.\w+)*")
"""What `datasets` takes for a split; both become a folder or file name and a cell of the card's table."""
MEDIA_ROWS = 10
"""Rows whose media are held in memory, and that make a row group: what `datasets` takes for videos."""
TEXT_FIELDS = frozenset(
    {
        "annotations_creators", "language", "language_creators", "license", "license_link", "license_name",
        "multilinguality", "pretty_name", "size_categories", "source_datasets", "tags", "task_categories", "task_ids",
    }
)  # fmt: skip
"""Fields of a card's YAML header that hold a text or a list of texts."""
MARKUP = re.compile(r"[\\`*\[\]|~]|(?<!\w)_|_(?!\w)")

Configurations = Mapping[str, Mapping[str, Iterable[pa.Table]]]
"""Configuration -> split -> its rows, in tables of one schema."""


class NoRowsError(ValueError):
    """Nothing was accepted, so there is no dataset to write."""


def write_folder(
    configurations: Configurations,
    folder: str | os.PathLike[str],
    *,
    card: str | os.PathLike[str],
    provenance: Mapping[str, object] | None = None,
    rejections: Sequence[Rejection] = (),
) -> Path:
    """Write `<configuration>/<split>-00000-of-00001.parquet` and the card, all or nothing.

    A split without rows is counted in the card but gets no file, because `datasets` opens no empty split. Videos of a
    `Video` feature (images and audio too) are stored in the files; a column `video` of plain paths is emptied.

    Args:
        configurations: The rows to write; the first configuration is the default one. A `Dataset` gives its tables with
            `dataset.with_format("arrow").iter(10_000)`, or fewer rows where they hold videos.
        folder: A folder that does not exist yet, or is empty.
        card: The card to start from, Markdown with a YAML header and the two marks `COUNTS_START` and `COUNTS_END`;
            the counts go between them, the configurations into the header.
        provenance: Other facts of the origin: writer, seed, revisions, coverage.
        rejections: The refused rows; counted in the card and written beside it.

    Returns:
        The folder.

    Raises:
        FileExistsError: The folder has files.
        NoRowsError: There are no rows to write.
        FileNotFoundError: A video is not where its row says.
        ValueError: A configuration or split has a name that is not a file name, or the card lacks the marks or has an
            unreadable header.
    """
    folder = Path(folder)
    if folder.is_dir() and any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty; name another folder, or remove this one")
    _check_names(configurations)
    with draft_of(folder) as draft:
        counts = {
            (name, split): _write(tables, draft / name / f"{split}-00000-of-00001.parquet")
            for name, splits in configurations.items()
            for split, tables in splits.items()
        }
        if not any(counts.values()):
            raise NoRowsError(f"there is no row to write to {folder}; see what was rejected")
        text = _card_text(Path(card), counts, provenance or {}, rejections)
        (draft / "README.md").write_text(text, encoding="utf-8")
        if rejections:
            write_rejections(draft, ((None, rejection) for rejection in rejections))
    return folder


def push_folder(folder: str | os.PathLike[str], repo_id: str, *, private: bool = True, token: str | None = None) -> str:
    """Upload a folder that `write_folder` made, in one commit, as a dataset on the Hub.

    Only `PUBLISHED_FILES` go: the card, the Parquet files and the rejections.

    Args:
        folder: The folder.
        repo_id: `<namespace>/<name>`; made if it does not exist.
        private: Whether a new repository is private; an existing one stays as it is.
        token: By default the one of the environment or of `hf auth login`.

    Returns:
        The address of the dataset.

    Raises:
        FileNotFoundError: The folder holds no card.
    """
    folder = Path(folder)
    if not (folder / "README.md").is_file():
        raise FileNotFoundError(f"{folder} holds no README.md; make the folder with hf_datasets.publish.write_folder")
    hub = HfApi(token=token)
    address = hub.create_repo(repo_id, repo_type="dataset", private=private, exist_ok=True)
    hub.upload_folder(
        repo_id=repo_id,
        repo_type="dataset",
        folder_path=folder,
        allow_patterns=list(PUBLISHED_FILES),
        commit_message="Publish the dataset",
    )
    return str(address)


def _check_names(configurations: Configurations) -> None:
    for name, splits in configurations.items():
        if not CONFIGURATION_NAME.fullmatch(name):
            raise ValueError(
                f"configuration {name!r} is not a folder name; use letters, digits, '_', '-' and '.', "
                "the first a letter"
            )
        for split in splits:
            if not SPLIT_NAME.fullmatch(split):
                raise ValueError(
                    f"split {split!r} of {name!r} is not a split name; use letters, digits and '_', such as 'train'"
                )


def _write(tables: Iterable[pa.Table], path: Path) -> int:
    writer, count = None, 0
    try:
        for table in _portable(tables):
            if writer is None:
                path.parent.mkdir(parents=True, exist_ok=True)
                writer = pq.ParquetWriter(path, table.schema)
            writer.write_table(table)
            count += len(table)
    finally:
        if writer is not None:
            writer.close()
    return count


def _portable(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The rows as another machine can use them: media inside, no paths; tables without rows are left out.

    Yields:
        Tables, small where they hold media.
    """
    for table in tables:
        schema = table.schema
        for name in set(MACHINE_COLUMNS) & set(schema.names):
            kind = schema.field(name).type
            if not pa.types.is_struct(kind):
                place = schema.get_field_index(name)
                table = table.set_column(place, schema.field(name), pa.nulls(len(table), kind))
        has_media = require_storage_embed(Features.from_arrow_schema(schema))
        size = MEDIA_ROWS if has_media else max(len(table), 1)
        for start in range(0, len(table), size):
            part = table.slice(start, size)
            yield embed_table_storage(part, remote_files=False) if has_media else part


def _card_text(
    path: Path,
    counts: Mapping[tuple[str, str], int],
    provenance: Mapping[str, object],
    rejections: Sequence[Rejection],
) -> str:
    card = _read_card(path)
    before, start, rest = card.text.partition(COUNTS_START)
    _, end, after = rest.partition(COUNTS_END)
    if not start or not end:
        raise ValueError(f"{path} lacks the marks {COUNTS_START!r} and {COUNTS_END!r} between which the counts go")
    written = [key for key, count in counts.items() if count]
    names = list(dict.fromkeys(name for name, _ in written))
    card.data["configs"] = [
        {
            "config_name": name,
            "data_files": [
                {"split": split, "path": f"{name}/{split}-*.parquet"} for own, split in written if own == name
            ],
        }
        | ({"default": True} if name == names[0] else {})
        for name in names
    ]
    rows = [f"| `{name}` | {split} | {count:,} |" for (name, split), count in counts.items()]
    facts = [f"* {_one_line(key)}: {_one_line(value)}" for key, value in provenance.items()]
    empty = [f"{name}/{split}" for (name, split), count in counts.items() if not count]
    if empty:
        facts.append(f"* without rows, so not loadable: {_one_line(', '.join(empty))}")
    if rejections:
        facts.append(f"* {_one_line(summarise(list(rejections)))}")
    table = "\n".join(["| configuration | split | rows |", "|---|---|---:|", *rows, "", *facts])
    return f"---\n{card.data.to_yaml()}\n---\n{before}{start}\n{table.rstrip()}\n{end}{after}"


def _read_card(path: Path) -> DatasetCard:
    if not path.is_file():
        raise FileNotFoundError(f"the card {path} is not a file; name a Markdown file with a YAML header")
    try:
        card: DatasetCard = DatasetCard.load(path)
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{path} has no readable YAML header: {' '.join(str(error).split())}") from None
    for name, value in card.data.to_dict().items():
        texts = value if isinstance(value, list) and name != "pretty_name" else [value]
        if name in TEXT_FIELDS and not all(isinstance(text, str) for text in texts):
            raise ValueError(
                f"{path} has {name}: {value!r} in its YAML header; write text, in quotes where YAML "
                "reads something else"
            )
    return card


def _one_line(value: object) -> str:
    # Values come from data and configurations: they may not break out of the list or carry markup.
    text = " ".join(str(value).split()).replace("&", "&amp;").replace("<", "&lt;")
    return MARKUP.sub(r"\\\g<0>", text)
