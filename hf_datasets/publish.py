"""Rows -> Parquet and a card, in a folder that `load_dataset` opens and the Hub shows; and from there to the Hub."""

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from huggingface_hub import DatasetCard, HfApi

from hf_datasets.records import Rejection
from hf_datasets.registration import summarise, write_rejections

COUNTS_START = "<!-- counts: filled in by hf_datasets.publish -->"
COUNTS_END = "<!-- end of counts -->"
MACHINE_COLUMNS = ("video",)
"""Columns of paths, which mean nothing on another machine; they are published empty."""

Configurations = Mapping[str, Mapping[str, Iterable[pa.Table]]]
"""Configuration -> split -> its rows, in tables of one schema."""


def write_folder(
    configurations: Configurations,
    folder: str | os.PathLike[str],
    *,
    card: str | os.PathLike[str],
    provenance: Mapping[str, object] | None = None,
    rejections: Sequence[Rejection] = (),
) -> Path:
    """Write `<configuration>/<split>-00000-of-00001.parquet` and the card, all or nothing.

    Args:
        configurations: What to write; the first configuration is the default one. A `Dataset` gives its tables with
            `dataset.with_format("arrow").iter(10_000)`.
        folder: A folder that does not exist yet, or is empty.
        card: The card to start from, Markdown with a YAML header and the two marks `COUNTS_START` and `COUNTS_END`;
            the counts go between them, the configurations into the header.
        provenance: What else to say of the origin: writer, seed, revisions, coverage.
        rejections: What was refused on the way; counted in the card and written beside it.

    Returns:
        The folder.

    Raises:
        FileExistsError: The folder has files.
        ValueError: There are no rows to write, or the card lacks the marks.
    """
    folder = Path(folder)
    if folder.is_dir() and any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty; name another folder, or remove this one")
    draft = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
    try:
        counts = {
            (name, split): _write(tables, draft / name / f"{split}-00000-of-00001.parquet")
            for name, splits in configurations.items()
            for split, tables in splits.items()
        }
        if not any(counts.values()):
            raise ValueError(f"there is no row to write to {folder}; see what was rejected")
        text = _card_text(Path(card), counts, provenance or {}, rejections)
        (draft / "README.md").write_text(text, encoding="utf-8")
        if rejections:
            write_rejections(draft, ((None, one) for one in rejections))
        if folder.is_dir():
            folder.rmdir()
        draft.replace(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder


def push_folder(
    folder: str | os.PathLike[str], repo_id: str, *, private: bool = True, token: str | None = None
) -> str:
    """Upload a folder that `write_folder` made, in one commit, as a data set on the Hub.

    Args:
        folder: The folder.
        repo_id: `<namespace>/<name>`; made if it does not exist.
        private: Who sees a new repository; an existing one stays as it is.
        token: By default the one of the environment or of `hf auth login`.

    Returns:
        The address of the data set.

    Raises:
        FileNotFoundError: The folder holds no card.
    """
    folder = Path(folder)
    if not (folder / "README.md").is_file():
        raise FileNotFoundError(
            f"{folder} holds no README.md; make the folder with hf_datasets.publish.write_folder"
        )
    hub = HfApi(token=token)
    address = hub.create_repo(repo_id, repo_type="dataset", private=private, exist_ok=True)
    hub.upload_folder(
        repo_id=repo_id, repo_type="dataset", folder_path=folder, commit_message="Publish the data set"
    )
    return str(address)


def _write(tables: Iterable[pa.Table], path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    writer, count = None, 0
    try:
        for table in tables:
            for name in set(MACHINE_COLUMNS) & set(table.column_names):
                empty = pa.nulls(len(table), table.schema.field(name).type)
                table = table.set_column(table.column_names.index(name), name, empty)
            writer = writer or pq.ParquetWriter(path, table.schema)
            writer.write_table(table)
            count += len(table)
    finally:
        if writer is not None:
            writer.close()
    return count


def _card_text(
    path: Path,
    counts: Mapping[tuple[str, str], int],
    provenance: Mapping[str, object],
    rejections: Sequence[Rejection],
) -> str:
    card = DatasetCard.load(path)
    before, start, rest = card.text.partition(COUNTS_START)
    _, end, after = rest.partition(COUNTS_END)
    if not start or not end:
        raise ValueError(
            f"{path} lacks the marks {COUNTS_START!r} and {COUNTS_END!r} between which the counts go"
        )
    names = list(dict.fromkeys(name for name, _ in counts))
    card.data.configs = [
        {
            "config_name": name,
            "data_files": [
                {"split": split, "path": f"{name}/{split}-*.parquet"} for own, split in counts if own == name
            ],
        }
        | ({"default": True} if name == names[0] else {})
        for name in names
    ]
    rows = [f"| `{name}` | {split} | {count:,} |" for (name, split), count in counts.items()]
    facts = [f"* {key}: {_one_line(value)}" for key, value in provenance.items()]
    if rejections:
        facts.append(f"* {summarise(list(rejections))}")
    table = "\n".join(["| configuration | split | rows |", "|---|---|---:|", *rows, "", *facts])
    return f"---\n{card.data.to_yaml()}\n---\n{before}{start}\n{table.rstrip()}\n{end}{after}"


def _one_line(value: object) -> str:
    # Values come from data and configurations: they may not break out of the list or carry markup.
    return " ".join(str(value).split()).replace("<", "&lt;")
