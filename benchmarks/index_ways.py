"""The ways of searching that `benchmarks/index.py` compares: how each is built, and its settings."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

K = 10
LABELS = 10  # a filter leaves one of so many
AT_ONCE = 20_000
LABEL = "3"
KEY = "bench"
TABLE = f"moments_{KEY}"
VECTORS = "vectors.npy"

Find = Callable[[np.ndarray, bool], Any]
"""The numbers of the K best moments of a query; of those with the label, where the second argument is true."""


@dataclass(frozen=True)
class Way:
    """Build from the folder of data into a folder; give settings, the fastest first."""

    build: Callable[[Path, Path], None]
    settings: Callable[[Path, Path], Iterator[tuple[str, Find]]]


def label_of(row: int) -> int:
    """The number of the label of a filter: rows `label_of(0)`, `label_of(0) + LABELS`, ... have it."""
    return row + int(LABEL)


def blocks(data: Path) -> Iterator[tuple[int, np.ndarray]]:
    """The vectors a block at a time, read and not mapped, so that memory is what a way itself needs."""
    count, size = np.load(data / VECTORS, mmap_mode="r").shape
    offset = (data / VECTORS).stat().st_size - 4 * count * size
    for start in range(0, count, AT_ONCE):
        rows = min(AT_ONCE, count - start)
        values = np.fromfile(data / VECTORS, np.float32, rows * size, offset=offset + 4 * size * start)
        yield start, values.reshape(rows, size)


def moment_table(start: int, vectors: np.ndarray) -> Any:
    """Rows of an index, 50 moments to a video."""
    import pyarrow as pa

    from hf_models.index.store import moment_schema

    numbers = np.arange(start, start + len(vectors))
    videos = [f"{number // 50}.mp4" for number in numbers.tolist()]
    size = vectors.shape[1]
    columns = {
        "moment_id": [str(number) for number in numbers.tolist()],
        "video": videos,
        "label": [str(number % LABELS) for number in numbers.tolist()],
        "text": [""] * len(videos),
        "fingerprint": videos,
        "start_seconds": numbers % 50 * 2.0,
        "end_seconds": numbers % 50 * 2.0 + 4.0,
        "modified": pa.array(np.zeros(len(videos), np.int64), pa.timestamp("s", tz="UTC")),
        "vector": pa.FixedSizeListArray.from_arrays(vectors.reshape(-1), size),
    }
    return pa.table(columns).cast(moment_schema(size))


def build_lancedb(data: Path, store: Path) -> None:
    """Our index, as `subtle index` writes it."""
    from hf_models.index.store import IndexedModel, MomentIndex

    index = MomentIndex.create(store)
    for start, vectors in blocks(data):
        if not start:
            index.add(IndexedModel(KEY, KEY, {}, vectors.shape[1], "/"))
        index.moments(KEY).add(moment_table(start, vectors))
    index.moments(KEY).optimize(cleanup_older_than=timedelta(0))  # what the next `tidy` leaves


def exact_lancedb(data: Path, store: Path) -> Iterator[tuple[str, Find]]:  # noqa: ARG001
    """`search_moments`."""
    from hf_models.index.search import search_moments
    from hf_models.index.store import MomentIndex

    index = MomentIndex(store)
    model = index.find(KEY)

    def find(query: np.ndarray, filtered: bool) -> Any:
        where = f"label = '{LABEL}'" if filtered else None
        return [row["moment_id"] for row in search_moments(index, model, query, limit=K, where=where)]

    yield "", find


def approximate_lancedb(kind: str) -> Way:
    """Our index with an approximate one of LanceDB's beside it."""

    def build(data: Path, store: Path) -> None:
        import lancedb

        build_lancedb(data, store)
        table = lancedb.connect(store).open_table(TABLE)
        table.create_index("vector", config=getattr(lancedb.index, kind)(distance_type="dot"))

    def settings(data: Path, store: Path) -> Iterator[tuple[str, Find]]:  # noqa: ARG001
        import lancedb

        table = lancedb.connect(store).open_table(TABLE)
        for probes in (4, 16, 64, 256):
            for refine in (1,) if kind == "IvfFlat" else (5, 20):

                def find(query: np.ndarray, filtered: bool, probes: int = probes, refine: int = refine) -> Any:
                    search = table.search(query, vector_column_name="vector").distance_type("dot").nprobes(probes)
                    search = search.limit(K).select(["moment_id", "_distance"])
                    search = search if kind == "IvfFlat" else search.refine_factor(refine)
                    if filtered:
                        search = search.where(f"label = '{LABEL}'", prefilter=True)
                    return search.to_arrow()["moment_id"].to_pylist()

                yield f"{probes} probes" + ("" if kind == "IvfFlat" else f", refined {refine}"), find

    return Way(build, settings)


def faiss_through_datasets(factory: str) -> Way:
    """FAISS as `datasets` builds it; all vectors in memory."""

    def build(data: Path, store: Path) -> None:
        import datasets.search

        count = len(np.load(data / VECTORS, mmap_mode="r"))
        lists = max(16, int(2 * count**0.5))
        index = datasets.search.FaissIndex(string_factory=factory.format(lists=lists), metric_type=0)
        index.add_vectors(np.load(data / VECTORS), train_size=min(count, 64 * lists))
        store.mkdir()
        index.save(store / "index.faiss")

    def settings(data: Path, store: Path) -> Iterator[tuple[str, Find]]:
        import datasets.search
        import faiss

        index = datasets.search.FaissIndex.load(store / "index.faiss")
        count = len(np.load(data / VECTORS, mmap_mode="r"))
        selector = faiss.IDSelectorBatch(np.arange(label_of(0), count, LABELS))
        for probes in (0,) if factory == "Flat" else (4, 16, 64, 256):
            kinds = {"nprobe": probes} if probes else {}
            parameters = faiss.SearchParametersIVF if probes else faiss.SearchParameters

            def find(query: np.ndarray, filtered: bool, kinds: Any = kinds, parameters: Any = parameters) -> Any:
                chosen = parameters(**kinds, **({"sel": selector} if filtered else {}))
                return index.search(query, K, params=chosen).indices

            yield f"{probes} probes" if probes else "", find

    return Way(build, settings)


def miniature_index(folder: Path, count: int) -> Path:
    """An index of vectors by chance that the model that ships could have made, with its text half."""
    from hf_models.index.store import MomentIndex
    from subtle.footage.models import indexed_model, load_model
    from subtle.footage.options import IndexConfig
    from subtle.footage.text_queries import keep_text_queries

    config = IndexConfig(output=str(folder / "index"), device="cpu")
    encoder = load_model(config)
    (folder / "videos").mkdir()
    index = MomentIndex.create(config.output)
    model = index.add(indexed_model(encoder, config, str(folder / "videos")))
    generator = np.random.default_rng(0)
    for start in range(0, count, AT_ONCE):
        vectors = generator.standard_normal((min(AT_ONCE, count - start), model.dimensions), np.float32)
        table = moment_table(start, vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
        index.moments(model.key).add(table)
    index.tidy(model.key)
    keep_text_queries(config.model, encoder)
    return folder / "index"


WAYS = {
    "LanceDB, exact": Way(build_lancedb, exact_lancedb),
    "LanceDB, IVF": approximate_lancedb("IvfFlat"),
    "LanceDB, IVF-PQ": approximate_lancedb("IvfPq"),
    "FAISS, exact": faiss_through_datasets("Flat"),
    "FAISS, IVF": faiss_through_datasets("IVF{lists},Flat"),
}
