"""An index of moments against FAISS: same vectors, same queries, same recall.

The vectors are synthetic and clustered as those of footage are: moments of one kind (a vault with two turns) lie close
together, kinds of one sport less so, and few kinds have many moments. Each way is built in one process and searched in
another, so that times and peak memory are its own. One query is asked at a time, as `subtle search` does, for the best
10 of all moments and of the tenth with one label. The baseline is the exact search of our index.
"""

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.index_ways import LABELS, WAYS, Find, K, label_of
from benchmarks.timing import Ratio, cpu_seconds

SIZES = ((100_000, 256), (100_000, 768), (1_000_000, 256), (1_000_000, 768))
NUM_QUERIES = 200
SECONDS_PER_SETTING = 6.0
FEWEST_QUERIES = 20
RECALLS = (0.95, 0.99)
WRITTEN_AT_ONCE = 50_000
FIRST_RESULT_SECONDS = 3.0
BASELINE = "LanceDB, exact"
ROOT = Path(__file__).parents[1]
SEARCH = ROOT / "recipes" / "search.py"


def clustered(count: int, size: int, centers: tuple[np.ndarray, np.ndarray], generator: Any) -> np.ndarray:
    """Unit rows `(count, size)` about centers of sports and of kinds, of which the n-th has 1/n of the moments."""
    sports, kinds = centers
    weights = 1 / np.arange(1, len(kinds) + 1)
    kind = generator.choice(len(kinds), count, p=weights / weights.sum())
    rows = generator.standard_normal((count, size), np.float32) * np.float32(0.5 / size**0.5)
    rows += sports[kind % len(sports)] + np.float32(0.7) * kinds[kind]
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def write_data(folder: Path, count: int, size: int) -> None:
    """`vectors.npy`, `queries.npy`, and the exact answers `best.npy` and `best_of_label.npy`."""
    import torch

    from hf_models.retrieval import search

    generator = np.random.default_rng(0)
    centers = tuple(generator.standard_normal((n, size), np.float32) / np.float32(size**0.5) for n in (64, count // 50))
    vectors = np.lib.format.open_memmap(folder / "vectors.npy", "w+", np.float32, (count, size))
    for start in range(0, count, WRITTEN_AT_ONCE):
        vectors[start : start + WRITTEN_AT_ONCE] = clustered(
            min(WRITTEN_AT_ONCE, count - start), size, centers, generator
        )
    queries = clustered(NUM_QUERIES, size, centers, generator)
    best, _ = search(torch.from_numpy(queries), vectors, K)
    of_label, _ = search(torch.from_numpy(queries), np.ascontiguousarray(vectors[label_of(0) :: LABELS]), K)
    np.save(folder / "queries.npy", queries)
    np.save(folder / "best.npy", best.numpy())
    np.save(folder / "best_of_label.npy", of_label.numpy() * LABELS + label_of(0))


def measured(find: Find, queries: np.ndarray, best: np.ndarray, *, filtered: bool) -> dict[str, float]:
    """Recall of the K best, and queries per second by the median."""
    find(queries[0], filtered)
    seconds: list[float] = []
    recalls = []
    for query, right in zip(queries, best, strict=True):
        start = time.perf_counter()
        found = find(query, filtered)
        seconds.append(time.perf_counter() - start)
        recalls.append(len(set(map(int, found)) & set(right.tolist())) / K)
        if sum(seconds) > SECONDS_PER_SETTING and len(seconds) >= FEWEST_QUERIES:
            break
    return {"recall": statistics.mean(recalls), "per_second": 1 / statistics.median(seconds)}


def step(name: str, which: str, data: Path, store: Path) -> dict[str, Any]:
    """Build one way, or search it; what a subprocess does."""
    from benchmarks.timing import peak_megabytes

    way = WAYS[name]
    if which == "build":
        start = time.perf_counter()
        way.build(data, store)
        return {"seconds": time.perf_counter() - start, "peak": peak_megabytes()}
    queries = np.load(data / "queries.npy")
    settings = {}
    for setting, find in way.settings(data, store):
        settings[setting] = {
            kind: measured(find, queries, np.load(data / f"{file}.npy"), filtered=file != "best")
            for kind, file in (("all", "best"), ("filtered", "best_of_label"))
        }
        if all(result["recall"] >= RECALLS[-1] for result in settings[setting].values()):
            break  # settings become slower
    return {"settings": settings, "peak": peak_megabytes()}


def in_subprocess(*words: str) -> dict[str, Any]:
    """`step` in a process of its own; `failed` with the last line of its error where it fails."""
    code = (
        f"import sys, json; sys.path.insert(0, {str(ROOT)!r}); from pathlib import Path; from benchmarks import index; "
        "print(json.dumps(index.step(*sys.argv[1:3], *map(Path, sys.argv[3:]))))"
    )
    run = subprocess.run([sys.executable, "-P", "-c", code, *words], capture_output=True, text=True)
    if run.returncode:
        return {"failed": (run.stderr.strip().splitlines() or [f"exit status {run.returncode}"])[-1][:120]}
    answer: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return answer


def compare(count: int, size: int) -> Iterator[Ratio]:
    """All ways at one size."""
    moments = f"{count:,} x {size}"
    with tempfile.TemporaryDirectory(prefix="subtle-bench-") as folder:
        data = Path(folder, "data")
        data.mkdir()
        write_data(data, count, size)
        exact: dict[str, float] = {}
        for name in WAYS:
            store = Path(folder, "store")
            built = in_subprocess(name, "build", str(data), str(store))
            found = built if "failed" in built else in_subprocess(name, "search", str(data), str(store))
            if "failed" in found:
                yield Ratio(f"{moments}, {name}", BASELINE, float("nan"), detail=f"skipped: {found['failed']}")
            else:
                disk = sum(path.stat().st_size for path in store.rglob("*") if path.is_file()) / 1e6
                costs = (
                    f"built in {built['seconds']:.1f} s with {built['peak']:.0f} MB, {disk:.0f} MB on disk, "
                    f"searched with {found['peak']:.0f} MB"
                )
                yield from ratios(f"{moments}, {name}", found["settings"], exact, costs)
            shutil.rmtree(store, ignore_errors=True)


def ratios(
    what: str, settings: dict[str, dict[str, dict[str, float]]], exact: dict[str, float], costs: str
) -> Iterator[Ratio]:
    """The fastest setting of a way for each recall; fills `exact` from the first way, the baseline."""
    for kind, label in (("all", ""), ("filtered", ", filtered")):
        shown = set()
        for recall in RECALLS:
            enough = {name: results[kind] for name, results in settings.items() if results[kind]["recall"] >= recall}
            if not enough:
                best = max(results[kind]["recall"] for results in settings.values())
                detail = f"its best recall is {best:.3f}; {costs}"
                yield Ratio(f"{what}{label}, recall {recall}", BASELINE, float("nan"), detail=detail)
                continue
            name = max(enough, key=lambda setting: enough[setting]["per_second"])
            if name in shown:
                continue
            shown.add(name)
            speed = enough[name]["per_second"]
            exact.setdefault(kind, speed)
            detail = f"{speed:.1f}/s, recall {enough[name]['recall']:.3f}{name and f' with {name}'}; {costs}"
            yield Ratio(f"{what}{label}, recall {recall}", BASELINE, speed / exact[kind], detail=detail)


def first_result(count: int = 100_000) -> Ratio:
    """From the shell to the first result of a query by text, imports included; the median of five."""
    from benchmarks.index_ways import miniature_index

    with tempfile.TemporaryDirectory(prefix="subtle-bench-") as folder:
        path = miniature_index(Path(folder), count)
        words = [sys.executable, str(SEARCH), str(path), "--text", "show with 2 turns"]
        seconds = []
        for _ in range(6):  # the first one reads the libraries from disk
            start = time.perf_counter()
            subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
            seconds.append(time.perf_counter() - start)
    median = statistics.median(seconds[1:])
    what = f"first result of a query by text, {count:,} moments"
    limit = f"{FIRST_RESULT_SECONDS:g} s"
    return Ratio(what, limit, median / FIRST_RESULT_SECONDS, 1.0, at_most=True, detail=f"{median:.2f} s")


def commits(count: int = 2000, size: int = 16) -> Iterator[Ratio]:
    """The last of many commits of 100 moments against the 100th (medians of 20), and the folder against its data."""
    from benchmarks.index_ways import KEY, moment_table
    from hf_models.index.store import IndexedModel, MomentIndex

    seconds, waited = list[float](), list[float]()  # of the processor; of the clock, which other work on the disk moves
    with tempfile.TemporaryDirectory(prefix="subtle-bench-") as folder:
        index = MomentIndex.create(folder)
        index.add(IndexedModel(KEY, KEY, {}, size, "/"))
        for number in range(count):
            moments = moment_table(100 * number, np.random.default_rng(number).random((100, size), np.float32))
            files = [{"video": video, "num_moments": 50} for video in sorted(set(moments["video"].to_pylist()))]
            start, processor = time.perf_counter(), cpu_seconds()
            index.replace(KEY, moments, files)
            waited.append(time.perf_counter() - start)
            seconds.append(cpu_seconds() - processor)
        index.tidy(KEY)
        disk = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
        data = index.moments(KEY).to_arrow().nbytes + index.database.open_table(f"files_{KEY}").to_arrow().nbytes
    early, late = (statistics.median(seconds[place - 20 : place]) for place in (100, count))
    detail = f"{1000 * early:.0f} and {1000 * late:.0f} ms of CPU; {1000 * statistics.mean(waited):.0f} ms each to wait"
    yield Ratio(f"commit {count:,} of an index", "its 100th", late / early, 2.0, at_most=True, detail=detail)
    yield Ratio("folder of the index", "its data", disk / data, 2.0, at_most=True, detail=f"{disk / 1e6:.1f} MB")


def measure(sizes: tuple[tuple[int, int], ...] = SIZES) -> Iterator[Ratio]:
    """The first result, many commits, then every way at every size."""
    yield first_result()
    yield from commits()
    for count, size in sizes:
        yield from compare(count, size)
