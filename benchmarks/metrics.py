"""Speed of the metrics against the loops and tools in use, and against evaluate's Arrow path."""

import importlib
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import evaluate
import numpy as np
from datasets import Features, List, Value

import metrics
from benchmarks.timing import Ratio, interleave
from metrics.map_at_k.scoring import mean_average_precision
from metrics.vcmr_recall.scoring import moment_retrieval_recall

METRICS = Path(metrics.__file__).parent
CUTS = (5, 10, 25, 50)
RANKS, GALLERY, MOST_TARGETS = 50, 5000, 8
SIZES = (473, 10_000, 100_000)  # 473 are the queries of the TF-CoVR test set


def measure() -> Iterator[Ratio]:
    for num_queries in SIZES:
        yield from measure_map_at_k(num_queries)
    yield from measure_vcmr_recall(10_000)


def peak_memory(way: Callable[[], object]) -> str:
    """What one call allocates beyond its arguments; the process's own peak would be that of the other tools."""
    tracemalloc.start()
    way()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return f"peak memory {peak / 1e6:.0f} MB"


def rankings_and_targets(num_queries: int) -> tuple[np.ndarray, list[list[int]]]:
    rng = np.random.default_rng(0)
    offsets = rng.integers(GALLERY, size=(num_queries, 1))
    ranked = (offsets + 7 * rng.permuted(np.tile(np.arange(200), (num_queries, 1)), axis=1)[:, :RANKS]) % GALLERY
    targets = [
        np.unique(row[rng.integers(RANKS, size=rng.integers(1, MOST_TARGETS))] + rng.integers(2)).tolist()
        for row in ranked
    ]
    return ranked, targets


def circo_loop(rankings: list[list[int]], targets: list[list[int]]) -> dict[str, float]:
    """The benchmark's way, one query after the other: mark hits, cumulate, divide, cut."""
    precisions: dict[int, list[float]] = {k: [] for k in CUTS}
    for ranking, relevant in zip(rankings, targets, strict=True):
        if len(set(ranking)) != len(ranking):
            raise ValueError("a duplicate")
        is_hit = np.isin(np.array(ranking, dtype=int), relevant)
        at_rank = np.cumsum(is_hit) * is_hit / np.arange(1, len(is_hit) + 1)
        for k in CUTS:
            precisions[k].append(float(at_rank[:k].sum() / min(len(relevant), k)))
    return {f"map@{k}": float(np.mean(values)) for k, values in precisions.items()}


class ArrowMapAtK(evaluate.Metric):
    """The same metrics through evaluate as it stands: rows to an Arrow file and back to lists."""

    def _info(self) -> evaluate.MetricInfo:
        ids = List(Value("int64"))
        return evaluate.MetricInfo(
            description="",
            citation="",
            inputs_description="",
            features=Features({"predictions": ids, "references": ids}),
        )

    def _compute(self, predictions: list, references: list) -> dict[str, float]:
        return mean_average_precision(predictions, references, k=CUTS)


def other_tools(rankings: list[list[int]], targets: list[list[int]]) -> tuple[dict[str, Callable], list[str]]:
    """The tools that are installed, and the names of those that are not; both divide by all relevant items."""
    qrels = {str(q): {str(one): 1 for one in relevant} for q, relevant in enumerate(targets)}
    run = {
        str(q): {str(one): float(RANKS - rank) for rank, one in enumerate(ranking)}
        for q, ranking in enumerate(rankings)
    }
    ways: dict[str, Callable] = {}
    absent = []
    try:
        ranx = importlib.import_module("ranx")
        names = [f"map@{k}" for k in CUTS]
        ways["ranx, from dictionaries"] = lambda: ranx.evaluate(ranx.Qrels(qrels), ranx.Run(run), names)
    except ImportError:
        absent.append("ranx")
    try:
        trec = importlib.import_module("pytrec_eval")
        measures = {"map_cut." + ",".join(map(str, CUTS))}
        ways["pytrec_eval, from dictionaries"] = lambda: trec.RelevanceEvaluator(qrels, measures).evaluate(run)
    except ImportError:
        absent.append("pytrec_eval")
    return ways, absent


def measure_map_at_k(num_queries: int) -> Iterator[Ratio]:
    rankings, targets = rankings_and_targets(num_queries)
    lists = rankings.tolist()
    compact = rankings.astype(np.int32)
    buffered = evaluate.load(str(METRICS / "map_at_k"))
    arrow = ArrowMapAtK()
    peak = peak_memory(lambda: mean_average_precision(compact, targets, k=CUTS))
    others, absent = other_tools(lists, targets)
    ways = {
        "CIRCO's loop": lambda: circo_loop(lists, targets),
        "arrays": lambda: mean_average_precision(compact, targets, k=CUTS),
        "lists": lambda: mean_average_precision(lists, targets, k=CUTS),
        "evaluate, arrays": lambda: buffered.compute(predictions=compact, references=targets, k=CUTS),
        "evaluate, lists": lambda: buffered.compute(predictions=lists, references=targets, k=CUTS),
        "Arrow, arrays": lambda: arrow.compute(predictions=rankings, references=targets),
        "Arrow, lists": lambda: arrow.compute(predictions=lists, references=targets),
        **others,
    }
    loop, ours = circo_loop(lists, targets), mean_average_precision(compact, targets, k=CUTS)
    difference = max(abs(loop[name] - ours[name]) for name in loop)
    seconds = interleave(ways, rounds=2 if num_queries > 10_000 else 7)
    goal = num_queries == 10_000

    def ratio(way: str, baseline: str, least: float | None, detail: str = "") -> Ratio:
        milliseconds = f"{1000 * seconds[way]:.1f} ms"
        what = f"map_at_k, {num_queries:,} queries, from {way}"
        return Ratio(what, baseline, seconds[baseline] / seconds[way], least, detail=f"{milliseconds} {detail}".strip())

    yield Ratio(f"map_at_k, {num_queries:,} queries, difference", "CIRCO's loop", difference, 1e-12, at_most=True)
    yield ratio("arrays", "CIRCO's loop", 50 if goal else None, peak)
    yield ratio("lists", "CIRCO's loop", 18 if goal else None)
    yield ratio("evaluate, arrays", "Arrow, arrays", 20 if goal else None)
    yield ratio("evaluate, lists", "Arrow, lists", 8 if goal else None)
    for tool in others:
        yield ratio("lists", tool, None, "this tool's metrics differ below K targets")
    for tool in absent:
        yield Ratio(f"map_at_k, {num_queries:,} queries", tool, float("nan"), detail=f"{tool} is not installed")


def reference_loop(predictions: list[np.ndarray], videos: np.ndarray, spans: np.ndarray) -> dict[str, float]:
    """The evaluator's way, one query after the other: pad, IoU of all predictions, compare, cut."""
    found: dict[str, list[bool]] = {f"vcmr_recall@{k}_iou@{t}": [] for t in (0.5, 0.7) for k in (1, 5, 10, 100)}
    for ranked, video, true in zip(predictions, videos, spans.astype(np.float32), strict=True):
        padded = np.zeros((100, 3), dtype=np.float32)
        padded[: len(ranked)] = ranked[:100, :3]
        left, right = np.maximum(padded[:, 1], true[0]), np.minimum(padded[:, 2], true[1])
        hull = np.maximum(padded[:, 2], true[1]) - np.minimum(padded[:, 1], true[0])
        shared = np.maximum(0, right - left)
        iou = np.divide(shared, hull, out=np.zeros_like(shared), where=hull != 0)
        for threshold in (0.5, 0.7):
            is_right = (padded[:, 0] == video) & (iou >= threshold)
            for k in (1, 5, 10, 100):
                found[f"vcmr_recall@{k}_iou@{threshold}"].append(bool(is_right[:k].any()))
    return {name: float(np.mean(values)) for name, values in found.items()}


def measure_vcmr_recall(num_queries: int, num_ranks: int = 100) -> Iterator[Ratio]:
    rng = np.random.default_rng(0)
    videos, true_videos = rng.integers(50, size=(num_queries, num_ranks)), rng.integers(50, size=num_queries)
    ends, true = (
        np.sort(rng.random((num_queries, num_ranks, 2)) * 60, axis=2),
        np.sort(rng.random((num_queries, 2)) * 60),
    )
    arrays = {"video_id": videos, "start": ends[..., 0].copy(), "end": ends[..., 1].copy()}
    columns = {"video_id": true_videos, "spans": true}
    stacked = list(np.concatenate([videos[..., None], ends], axis=2))
    listed = [matrix.tolist() for matrix in stacked]
    parts = zip(videos.tolist(), ends[..., 0].tolist(), ends[..., 1].tolist(), strict=True)
    records = [{"video_id": v, "start": s, "end": e} for v, s, e in parts]
    rows = [{"video_id": v, "spans": [s]} for v, s in zip(true_videos.tolist(), true.tolist(), strict=True)]
    ours = moment_retrieval_recall(arrays, columns)
    peak = peak_memory(lambda: moment_retrieval_recall(arrays, columns))
    loop = reference_loop(stacked, true_videos, true)
    seconds = interleave(
        {
            "the reference's way, arrays": lambda: reference_loop(stacked, true_videos, true),
            "the reference's way, lists": lambda: reference_loop([np.array(one) for one in listed], true_videos, true),
            "arrays": lambda: moment_retrieval_recall(arrays, columns),
            "dictionaries": lambda: moment_retrieval_recall(records, rows),
        }
    )
    difference = max(abs(loop[name] - ours[name]) for name in loop)
    title = f"vcmr_recall, {num_queries:,} queries of {num_ranks}"
    yield Ratio(f"{title}, difference", "the reference's way", difference, 1e-12, at_most=True)
    for way, baseline, goal, detail in (
        ("arrays", "the reference's way, arrays", 40, peak),
        ("dictionaries", "the reference's way, lists", 3, ""),
    ):
        value = seconds[baseline] / seconds[way]
        yield Ratio(
            f"{title}, from {way}",
            baseline,
            value,
            goal,
            detail=f"{1000 * seconds[way]:.1f} ms {detail}".strip(),
        )
