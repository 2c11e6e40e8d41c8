"""Exact top-50 search against the bare matrix product it cannot do without, and against the released way."""

from collections.abc import Iterator

import torch
from torch import Tensor

from benchmarks.timing import Ratio, interleave, peak_megabytes
from hf_models.retrieval import search

NUM_QUERIES = 473  # the test queries of TF-CoVR
K = 50
BLOCK = 16384
CASES = ((10_000, 256), (10_000, 768), (100_000, 256), (100_000, 768), (100_000, 1024))


def unit_rows(count: int, size: int, seed: int) -> Tensor:
    rows = torch.empty(count, size).normal_(generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.normalize(rows, dim=1, out=rows)


def goal_of(num_rows: int, size: int) -> float:
    """Of search over the product; a product of a few milliseconds is not much longer than finding 50 rows."""
    if num_rows < 100_000:
        return 1.45 if size >= 768 else 2.4
    return 1.15 if size >= 768 else 1.3


def chunked_products(queries: Tensor, corpus: Tensor, buffer: Tensor) -> None:
    for start in range(0, len(corpus), BLOCK):
        block = corpus[start : start + BLOCK]
        torch.mm(queries, block.T, out=buffer[: len(queries) * len(block)].view(len(queries), len(block)))


def released_way(queries: Tensor, corpus: Tensor, own: Tensor) -> Tensor:
    """The whole score matrix, 100 off the query's own clip, a full sort (the released script's procedure)."""
    scores = (queries @ corpus.T).numpy()
    scores[range(len(queries)), own.numpy()] -= 100
    return torch.from_numpy(scores.argsort(axis=1)[:, ::-1][:, :K].copy())


def memory(num_rows: int, size: int) -> Ratio:
    """What one search adds to the peak; only true before anything has needed more and given it back."""
    queries, corpus = unit_rows(NUM_QUERIES, size, 0), unit_rows(num_rows, size, 1)
    queries[:8] @ corpus[:64].T  # whatever the library allocates once is not search's
    before = peak_megabytes()
    search(queries, corpus, K, exclude=torch.arange(NUM_QUERIES))
    extra = peak_megabytes() - before
    what = f"top-{K} of {num_rows:,} x {size}: extra memory"
    return Ratio(what, "100 MB", extra / 100, 1.0, at_most=True, detail=f"{extra:.0f} MB")


def measure() -> Iterator[Ratio]:
    """Memory at the largest size, then time at the sizes of TF-CoVR and beyond, one excluded row for each query."""
    yield memory(*CASES[-1])
    for num_rows, size in CASES:
        queries, corpus = unit_rows(NUM_QUERIES, size, 0), unit_rows(num_rows, size, 1)
        own = torch.arange(NUM_QUERIES)
        what = f"top-{K} of {num_rows:,} x {size}"
        rows, _ = search(queries, corpus, K, exclude=own)
        agreement = (rows == released_way(queries, corpus, own)).float().mean().item()
        buffer = torch.empty(NUM_QUERIES * BLOCK)
        seconds = interleave(
            {
                "product": lambda q=queries, c=corpus, b=buffer: chunked_products(q, c, b),
                "search": lambda q=queries, c=corpus, o=own: search(q, c, K, exclude=o),
                "released": lambda q=queries, c=corpus, o=own: released_way(q, c, o),
            },
            rounds=7,
        )
        yield Ratio(
            f"{what}: time",
            "the chunked matrix product alone",
            seconds["search"] / seconds["product"],
            goal_of(num_rows, size),
            at_most=True,
            detail=f"{1000 * seconds['search']:.0f} ms",
        )
        yield Ratio(
            f"{what}: speed",
            "all scores and a full sort, as released",
            seconds["released"] / seconds["search"],
            2.0 if size >= 768 else 4.0,
            detail=f"same ranks: {100 * agreement:.2f} %",
        )
