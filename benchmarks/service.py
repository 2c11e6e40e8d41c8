"""The service against the library that it is made of: one text, 32 clients at once, memory over many requests."""

import itertools
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import subtle
from benchmarks.index_ways import miniature_index
from benchmarks.timing import Ratio

MOMENTS, REQUESTS, CLIENTS, MANY = 100_000, 300, 32, 10_000
WORDS = [f"{word} with {number} turns" for word in ("vault", "dive", "salto", "beam") for number in range(25)]


def seconds_of(search: object, number: int) -> list[float]:
    """Of each of so many searches, one after the other."""
    found = []
    for text in itertools.islice(itertools.cycle(WORDS), number):
        start = time.perf_counter()
        search(text=text)  # type: ignore[operator]
        found.append(time.perf_counter() - start)
    return found


def megabytes(process: int) -> float:
    """That a process has in memory of its own, without files that it maps."""
    status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    return int(status.partition("RssAnon:")[2].split()[0]) / 1024


def measure() -> Iterator[Ratio]:
    """Give all ratios."""
    with tempfile.TemporaryDirectory() as name:
        index = miniature_index(Path(name), MOMENTS)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        command = [sys.executable, "-P", "-m", "subtle", "serve", str(index), "--port", str(port), "--device", "cpu"]
        with subprocess.Popen(
            [*command, "--num_workers", "1"], stderr=subprocess.DEVNULL, env=dict(os.environ)
        ) as server:
            try:
                yield from measured(index, f"http://127.0.0.1:{port}", server.pid)
            finally:
                server.terminate()


def measured(index: Path, address: str, process: int) -> Iterator[Ratio]:
    """Of a service that starts."""
    with subtle.Client(address) as client, subtle.open_index(index, device="cpu") as alone:
        for _ in range(600):
            try:
                client.search(text=WORDS[0])
                break
            except OSError:
                time.sleep(0.5)
        alone.loaded()
        seconds_of(alone.search, 10)
        library, service = [], []
        for _ in range(5):
            library += seconds_of(alone.search, REQUESTS // 5)
            service += seconds_of(client.search, REQUESTS // 5)
        p50, base = statistics.median(service), statistics.median(library)
        detail = f"{1e3 * p50:.1f} against {1e3 * base:.1f} ms, {MOMENTS:,} moments"
        yield Ratio("a text over HTTP, p50", "the library alone", p50 / base, 1.3, at_most=True, detail=detail)
        texts = list(itertools.islice(itertools.cycle(WORDS), 4 * REQUESTS))
        with ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(lambda text: client.search(text=text), texts[:CLIENTS]))
            start = time.perf_counter()
            list(pool.map(lambda text: client.search(text=text), texts))
            rate = len(texts) / (time.perf_counter() - start)
            one = len(service) / sum(service)
            detail = f"{rate:.0f} against {one:.0f} searches/s"
            yield Ratio(f"{CLIENTS} clients at once", "one after the other", rate / one, 3.0, detail=detail)
            list(pool.map(lambda text: client.search(text=text), texts[:1000]))
            before = megabytes(process)
            list(pool.map(lambda text: client.search(text=text), itertools.islice(itertools.cycle(WORDS), MANY)))
            after = megabytes(process)
        detail = f"{before:.0f} MB, then {after:.0f} MB"
        yield Ratio(f"memory after {MANY:,} more requests", "before", after / before, 1.1, at_most=True, detail=detail)
