"""LanceDB, which indexes of footage are kept in."""

from typing import Any

FEWEST_PARTITIONED = 50_000
"""Vectors from which on an approximate index is of use."""


def connect(path: str) -> Any:
    """A connection to a LanceDB database.

    Raises:
        ImportError: LanceDB is not installed.
    """
    try:
        import lancedb
    except ImportError as error:
        raise ImportError("an index needs LanceDB: pip install 'subtle-video[index]'") from error
    return lancedb.connect(path)
