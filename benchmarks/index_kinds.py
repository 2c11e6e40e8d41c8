"""The kinds of approximate index that LanceDB has: recall of the ten best, bytes, time to build and time of a query.

Candidates are scored exactly by their whole vectors, as `subtle search --approximate` does it. The vectors are those of
`benchmarks.index`. Kinds are built one after another beside one table; queries of all settings are asked in turn.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.index import write_data
from benchmarks.index_ways import KEY, TABLE, K, build_lancedb
from benchmarks.timing import Ratio, cpu_seconds

SIZES = ((100_000, 256),)
NUM_QUERIES = 50
CANDIDATES = (26, 104)
"""What a search for ten fetches, and four times as many."""


def kinds(count: int) -> dict[str, Any]:
    """LanceDB's indexes for so many vectors, by name; graphs in fewer and larger parts, as a part is a whole graph."""
    from lancedb.index import IvfFlat, IvfHnswSq, IvfRq, IvfSq

    parts, graphs = {"num_partitions": round(count**0.5)}, {"num_partitions": max(1, count // 100_000)}
    ways = {"flat": (IvfFlat, parts), "sq": (IvfSq, parts), "IvfRq": (IvfRq, parts), "IvfHnswSq": (IvfHnswSq, graphs)}
    return {name: kind(distance_type="dot", **options) for name, (kind, options) in ways.items()}


def finder(table: Any, candidates: int, probes: int | None) -> Callable[[np.ndarray], list[int]]:
    """Gives the numbers of the best moments; without `probes` by LanceDB's exact search."""

    def find(query: np.ndarray) -> list[int]:
        search = table.search(query, vector_column_name="vector").distance_type("dot")
        search = search.bypass_vector_index() if probes is None else search.nprobes(probes)
        rows = search.limit(candidates).select(["moment_id", "vector", "_distance"]).to_arrow()
        vectors = np.stack(rows["vector"].to_numpy()).astype(np.float32)
        best = np.argsort(-(vectors @ query), kind="stable")[:K]
        return [int(name) for name in rows["moment_id"].take(best).to_pylist()]

    return find


def asked(ways: dict[str, Callable[[np.ndarray], list[int]]], data: Path) -> dict[str, str]:
    """Recall of each way, and medians of its queries, which are asked in turn."""
    queries, right = np.load(data / "queries.npy")[:NUM_QUERIES], np.load(data / "best.npy")
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    hits = dict.fromkeys(ways, 0)
    for query, best in zip([queries[0], *queries], [right[0], *right], strict=False):  # the first one warms up
        for name, find in ways.items():
            start, processor = time.perf_counter(), cpu_seconds()
            found = find(query)
            times[name].append((time.perf_counter() - start, cpu_seconds() - processor))
            hits[name] += len(set(found) & set(best.tolist())) if len(times[name]) > 1 else 0
    found = {}
    for name, seconds in times.items():
        wall, processor = (1000 * statistics.median(column) for column in zip(*seconds[1:], strict=True))
        found[name] = f"recall {hits[name] / K / len(queries):.3f}, {wall:.1f} ms, {processor:.1f} ms of CPU"
    return found


def bytes_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def compare(count: int, size: int) -> Iterator[Ratio]:
    """All kinds at one size, and vectors stored as float16."""
    import lancedb
    import pyarrow as pa

    with tempfile.TemporaryDirectory(prefix="subtle-bench-") as folder:
        data, store = Path(folder, "data"), Path(folder, "store")
        data.mkdir()
        write_data(data, count, size)
        build_lancedb(data, store)
        database = lancedb.connect(store)
        table = database.open_table(TABLE)
        whole = bytes_of(store)

        def line(name: str, text: str, disk: int) -> Ratio:
            return Ratio(f"{count:,} x {size}, {name}", "bytes of the table", disk / whole, detail=text)

        yield line("exact, by LanceDB", asked({"": finder(table, K, None)}, data)[""], whole)
        half = pa.list_(pa.float16(), size)
        schema = pa.schema([field if field.name != "vector" else field.with_type(half) for field in table.schema])

        def converted(batch: Any) -> Any:
            values = batch.column("vector").flatten().cast(pa.float16())
            columns = [*batch.columns[:-1], pa.FixedSizeListArray.from_arrays(values, size)]  # vectors are the last
            return pa.RecordBatch.from_arrays(columns, schema=schema)

        blocks = map(converted, table.search().limit(None).to_batches())
        halves = database.create_table(f"{KEY}_half", pa.RecordBatchReader.from_batches(schema, blocks))
        found = asked({"": finder(halves, CANDIDATES[0], None)}, data)[""]
        yield line("float16, exact, by LanceDB", found, bytes_of(store / f"{KEY}_half.lance"))
        database.drop_table(f"{KEY}_half")
        for name, config in kinds(count).items():
            start, processor = time.perf_counter(), cpu_seconds()
            table.create_index("vector", config=config, name=name)
            cost = f"built in {time.perf_counter() - start:.0f} s, {cpu_seconds() - processor:.0f} s of CPU"
            disk = bytes_of(store) - whole
            many = max(1, round(2 * config.num_partitions**0.5))
            settings = [(probes, number) for probes in {max(1, many // 2): 0, many: 0} for number in CANDIDATES]
            settings = settings if name not in {"flat", "sq"} else settings[::2]  # few of theirs are in a wrong place
            ways = {f"{probes} probes, {number} scored": finder(table, number, probes) for probes, number in settings}
            for setting, text in asked(ways, data).items():
                yield line(f"{name}, {setting}", f"{text}; {cost}, {disk / 1e6:.1f} MB", disk)
            table.drop_index(name)
            table.optimize(cleanup_older_than=None)
            whole = bytes_of(store)


def measure(sizes: tuple[tuple[int, int], ...] = SIZES) -> Iterator[Ratio]:
    """Every kind at every size."""
    for count, size in sizes:
        yield from compare(count, size)
