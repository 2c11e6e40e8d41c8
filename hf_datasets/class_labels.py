"""Columns with few fixed values: stored as `ClassLabel`, read as names."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, cast

import pyarrow as pa
import pyarrow.compute as pc
from datasets import ClassLabel, Dataset, DatasetDict, Features, IterableDataset, Value
from datasets.table import table_cast

Labeled = TypeVar("Labeled", Dataset, DatasetDict, IterableDataset, pa.Table)


def labeled_features(schema: pa.Schema, names: Mapping[str, Sequence[str]]) -> Features:
    """The features of a schema, with `ClassLabel` for the columns whose values are given.

    Args:
        schema: The columns, those of `names` as text.
        names: Column -> its values, in the order of their numbers; a column that the schema lacks is passed over.

    Example:
        >>> labeled_features(pa.schema({"kind": pa.string()}), {"kind": ("a", "b")})
        {'kind': ClassLabel(names=['a', 'b'])}
    """
    features = Features.from_arrow_schema(schema)
    return Features(
        {name: ClassLabel(names=list(names[name])) if name in names else features[name] for name in features}
    )


def with_labels(table: pa.Table, features: Features) -> pa.Table:
    """A table as `features` store it: names become the numbers of their `ClassLabel`, null stays null.

    Raises:
        ValueError: A column holds another value than the names of its label.

    Example:
        >>> features = Features(kind=ClassLabel(names=["a", "b"]))
        >>> with_labels(pa.table({"kind": ["b", None, "a"]}), features)["kind"].to_pylist()
        [1, None, 0]
    """
    for name, feature in features.items():
        column = table[name]
        if isinstance(feature, ClassLabel) and not pa.types.is_integer(column.type):
            numbers = pc.index_in(column, value_set=pa.array(feature.names, column.type)).cast(pa.int64())
            if numbers.null_count > column.null_count:
                unknown = sorted(set(column.unique().to_pylist()) - {None, *feature.names})
                raise ValueError(f"{name} is {unknown[0]!r}, which is none of {', '.join(feature.names)}; fix the row")
            table = table.set_column(table.schema.get_field_index(name), name, numbers)
    return table_cast(table, features.arrow_schema)


def with_names(rows: Labeled) -> Labeled:
    """Rows with names in place of the numbers of each `ClassLabel`; null stays null, other columns are not touched.

    Rows that were stored with names, as before version 0.2, come back as they are. Of a dataset only the changed
    columns are copied into memory.

    Args:
        rows: A dataset, its splits, a stream, or an Arrow table that was read from a file of one.

    Example:
        >>> rows = Dataset.from_dict({"kind": [1, None]}, features=Features(kind=ClassLabel(names=["a", "b"])))
        >>> with_names(rows)["kind"][:]
        ['b', None]
    """
    if isinstance(rows, DatasetDict):
        return DatasetDict({split: with_names(part) for split, part in rows.items()})
    labels = label_names(rows.schema if isinstance(rows, pa.Table) else rows.features)
    if not labels:
        return rows
    if isinstance(rows, IterableDataset):
        named = Features(rows.features | {name: Value("string") for name in labels})
        return rows.map(partial(_named_row, labels), features=named)
    if isinstance(rows, pa.Table):
        for name, names in labels.items():
            place = rows.schema.get_field_index(name)
            rows = rows.set_column(place, name, _names_of(rows[name], names))
        return rows.replace_schema_metadata(None)
    for name, names in labels.items():
        column = rows.select_columns(name).with_format("arrow")[:][name]
        rows = replace_column(rows, name, _names_of(column, names))
    return rows


def label_names(features: Features | pa.Schema | None) -> dict[str, list[str]]:
    """Column -> its names, for the columns of a dataset, or of a file that one wrote, that are a `ClassLabel`."""
    if isinstance(features, pa.Schema):
        features = Features.from_arrow_schema(features)
    return {name: feature.names for name, feature in (features or {}).items() if isinstance(feature, ClassLabel)}


def replace_column(rows: Dataset, name: str, values: pa.ChunkedArray) -> Dataset:
    """A dataset with other values, of a plain type, in one column; the order of the columns stays."""
    columns = rows.column_names
    feature = Features.from_arrow_schema(pa.schema({name: values.type}))[name]
    other = "-".join([*columns, "changed"])  # no column's name
    changed = rows.add_column(other, values, feature=feature).remove_columns(name).rename_column(other, name)
    return cast("Dataset", changed.select_columns(columns))


def _names_of(numbers: pa.ChunkedArray, names: Sequence[str]) -> pa.ChunkedArray:
    known = pc.if_else(pc.greater_equal(numbers, 0), numbers, pa.scalar(None, numbers.type))  # -1 is "no label"
    return pa.chunked_array([pa.array(names, pa.string()).take(chunk) for chunk in known.chunks], pa.string())


def _named_row(labels: Mapping[str, Sequence[str]], row: dict[str, Any]) -> dict[str, Any]:
    return {
        name: None if row[name] is None or row[name] < 0 else names[row[name]]  # -1 is "no label"
        for name, names in labels.items()
    }
