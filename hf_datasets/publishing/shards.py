"""Rows -> Parquet files that streaming workers share, with media inside and no paths of this machine."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from datasets import Features
from datasets.arrow_writer import ParquetWriter
from datasets.features.features import require_storage_embed
from datasets.table import embed_table_storage

from hf_datasets.class_labels import with_names
from hf_datasets.long_videos import SPLITS
from hf_datasets.sharding import Shards, even_spans

MACHINE_COLUMNS = ("video",)
"""Columns of paths, which mean nothing on another machine; they are published empty."""
SHARDS = 4
"""Files of a split that is worth sharing: four workers, or processes, then read it without a common file."""
SHARED_ROWS = 1_000
SHARED_BYTES = 16 * 10**6
"""A split of that many rows, or of files that large, is worth sharing."""
MAX_SHARD_BYTES = 500 * 10**6
GROUP_ROWS = 10_000
MEDIA_ROWS = 10
"""Rows whose media are held in memory, and that make a row group: what `datasets` takes for videos."""
GROUP_BYTES = 64 * 10**6
"""A row group with media ends sooner when it is that large."""


@dataclass(frozen=True)
class WrittenSplit:
    """What a split came to: its size in memory and in files; without rows it has no file and no features."""

    num_rows: int = 0
    num_bytes: int = 0
    download_size: int = 0
    num_shards: int = 0
    features: Features | None = None


def write_split(
    tables: Iterable[pa.Table],
    folder: Path,
    split: str,
    *,
    max_shard_bytes: int = MAX_SHARD_BYTES,
) -> WrittenSplit:
    """Write `<split>-00000-of-00004.parquet` and its siblings, in the order of the rows.

    Files are as `push_to_hub` writes them: with a page index, chunks by content, media uncompressed.
    There is one, but `SHARDS` for a split with media, of `SHARED_ROWS` rows or of `SHARED_BYTES`, and more where a
    file would be larger than `max_shard_bytes`.

    Args:
        tables: The rows, in tables of one schema.
        folder: Where the files go; it is made when there is a row.
        split: The name of the split.
        max_shard_bytes: About the largest file.

    Returns:
        What was written.

    Raises:
        FileNotFoundError: A video is not where its row says.
    """
    whole = folder / f".{split}.parquet"
    num_rows, num_bytes, schema = _write(portable(tables), whole)
    if schema is None:
        return WrittenSplit()
    size = whole.stat().st_size
    features = Features.from_arrow_schema(schema)
    worth_sharing = num_rows >= SHARED_ROWS or size >= SHARED_BYTES or has_media(features)
    num_shards = min(num_rows, max(SHARDS if worth_sharing else 1, -(-size // max_shard_bytes)))
    paths = [folder / f"{split}-{number:05d}-of-{num_shards:05d}.parquet" for number in range(num_shards)]
    if num_shards == 1:
        whole.replace(paths[0])
    else:
        _divide(whole, paths, num_rows)
        whole.unlink()
    download_size = sum(path.stat().st_size for path in paths)
    return WrittenSplit(num_rows, num_bytes, download_size, num_shards, features)


def has_media(features: Features) -> bool:
    """Whether a column is a `Video`, an `Image` or an `Audio`, whose files are published inside the Parquet files."""
    return any(require_storage_embed(feature) for feature in features.values())


def portable(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
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
        if has_media(Features.from_arrow_schema(schema)):
            yield from _embedded(table)
        else:
            for start in range(0, len(table), GROUP_ROWS):
                yield table.slice(start, GROUP_ROWS)


def split_files(folder: Path, config: str, split: str = "*") -> list[Path]:
    """The files of a split, or of all splits, of a configuration that `write_split` wrote."""
    return sorted((folder / config).glob(f"{split}-*-of-*.parquet"))


def published_tables(folder: Path, schema: pa.Schema) -> dict[str, Shards]:
    """The splits of a configuration that `write_split` wrote, to be opened by the builder that made them.

    Args:
        folder: Of the configuration.
        schema: The columns to read, those of a `ClassLabel` as names.

    Returns:
        Split -> its tables, in the usual order; splits without rows are left out, which `datasets` cannot open. Empty
        where the folder is not there.

    Raises:
        ValueError: A file lacks a column or is not a Parquet file.
    """
    groups: dict[str, list[tuple[Path, int]]] = {}
    for path in sorted(folder.glob("[!.]*-*.parquet")):
        try:
            metadata = pq.read_metadata(path)
        except pa.ArrowInvalid as error:
            raise ValueError(f"{path} is not a Parquet file ({error}); make the folder again") from None
        names = metadata.schema.to_arrow_schema().names
        if missing := [name for name in schema.names if name not in names]:
            raise ValueError(f"{path} has no column {', '.join(missing)}; it has {', '.join(names)}")
        own = groups.setdefault(path.name.partition("-")[0], [])
        own += [(path, group) for group in range(metadata.num_row_groups) if metadata.num_rows]
    usual = sorted(groups, key=lambda split: SPLITS.index(split) if split in SPLITS else len(SPLITS))
    return {
        split: Shards(
            [
                partial(_published, groups[split][start:stop], schema)
                for start, stop in even_spans(len(groups[split]), least=1)
            ]
        )
        for split in usual
        if groups[split]
    }


def _published(groups: Iterable[tuple[Path, int]], schema: pa.Schema) -> Iterator[pa.Table]:
    for path, group in groups:
        for batch in pq.ParquetFile(path).iter_batches(row_groups=[group], columns=schema.names):
            yield with_names(pa.Table.from_batches([batch])).select(schema.names).cast(schema)


def tables_in(files: Iterable[Path]) -> Iterator[pa.Table]:
    """Read Parquet files.

    Yields:
        Tables, small where they hold media.
    """
    for path in files:
        with pq.ParquetFile(path) as file:
            schema = file.schema_arrow
            for batch in file.iter_batches(MEDIA_ROWS if has_media(Features.from_arrow_schema(schema)) else GROUP_ROWS):
                yield pa.Table.from_batches([batch]).replace_schema_metadata(schema.metadata)


def _embedded(table: pa.Table) -> Iterator[pa.Table]:
    # With the media inside, in tables of up to `MEDIA_ROWS` rows and about `GROUP_BYTES`.
    rows: list[pa.Table] = []
    for number in range(len(table)):
        rows.append(embed_table_storage(table.slice(number, 1), remote_files=False))
        if len(rows) == MEDIA_ROWS or sum(row.nbytes for row in rows) >= GROUP_BYTES or number == len(table) - 1:
            yield pa.concat_tables(rows).combine_chunks()
            rows = []


def _write(tables: Iterable[pa.Table], path: Path) -> tuple[int, int, pa.Schema | None]:
    tables = iter(tables)
    first = next(tables, None)
    if first is None:
        return 0, 0, None
    path.parent.mkdir(parents=True, exist_ok=True)
    with ParquetWriter(path=str(path), schema=first.schema) as writer:
        for table in chain([first], tables):
            writer.write_table(table, len(table))
        return *writer.finalize(), first.schema


def _divide(whole: Path, paths: list[Path], num_rows: int) -> None:
    """Copy the rows of a file to several files of equally many, group by group."""
    ends = [num_rows * (number + 1) // len(paths) for number in range(len(paths))]
    with pq.ParquetFile(whole) as source:
        groups = (source.read_row_group(number) for number in range(source.num_row_groups))
        rest, row = next(groups), 0
        for path, end in zip(paths, ends, strict=True):
            with ParquetWriter(path=str(path), schema=source.schema_arrow) as writer:
                while row < end:
                    part = rest.slice(0, end - row)
                    writer.write_table(part, len(part))
                    row += len(part)
                    rest = rest.slice(len(part))
                    if not len(rest) and row < num_rows:
                        rest = next(groups)
                writer.finalize()
