"""Search for moments in a corpus of Charades-FIG's size: 3720 queries, 1334 videos of 48 clips, the best 200 spans.

The baseline is the procedure of the released XML inference, written afresh: for every batch of 50 queries it
normalizes the corpus again, scores starts and ends of all videos, forms all spans of the best 100 and sorts them. "The
products alone" are the matrix products that no exact search can do without, in the same blocks.
"""

import math
import multiprocessing
import time
from collections.abc import Callable, Iterator

import evaluate
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

import metrics  # noqa: F401 - registers the metric's name
from benchmarks.timing import Ratio, interleave, peak_megabytes, resident_megabytes
from hf_models import XMLConfig, XMLForMomentRetrieval
from hf_models.moments.corpus import MomentCorpus
from hf_models.moments.spans import MomentRanking, SpanSearch
from hf_models.moments.temporal_nms import temporal_nms

QUERIES, VIDEOS, CLIPS = 3720, 1334, 48
MIN_CLIPS, MAX_CLIPS, TOP_VIDEOS, TOP_SPANS = 2, 16, 100, 200
TIMED_QUERIES, REFERENCE_QUERIES, REFERENCE_BATCH = 1280, 100, 50
NMS_THRESHOLD, SEED = 0.5, 0


class Case:
    """Random features and weights; the speed does not depend on them."""

    def __init__(self, width: int, num_streams: int) -> None:
        torch.manual_seed(SEED)
        subtitles = 768 if num_streams == 2 else None
        self.model = XMLForMomentRetrieval(
            XMLConfig(hidden_size=width, subtitle_feature_size=subtitles, end_convention="xml_legacy")
        ).eval()
        # Random directions of the queries at twice the initial scale, so that few spans share a score.
        for linear in self.model.span_head.queries:
            torch.nn.init.normal_(linear.weight, std=2 / math.sqrt(width))
        self.shallow = torch.randn(num_streams, VIDEOS, CLIPS, width)
        for video in self.shallow.flatten(0, 1):
            video /= video.norm(dim=-1, keepdim=True)
        self.corpus = MomentCorpus(
            [str(i) for i in range(VIDEOS)],
            torch.full((VIDEOS,), CLIPS),
            torch.ones(VIDEOS, dtype=torch.float64),
            self.shallow,
            torch.randn(VIDEOS, CLIPS, num_streams * width),
        )
        self.queries = torch.randn(QUERIES, num_streams, width)
        self.search = SpanSearch(
            self.model,
            self.corpus,
            min_clips=MIN_CLIPS,
            max_clips=MAX_CLIPS,
            num_videos=TOP_VIDEOS,
            num_spans=TOP_SPANS,
        )

    def products(self) -> None:
        """The matrix products of `TIMED_QUERIES` queries, nothing else."""
        block = self.search.query_block
        clips = [*self.shallow.flatten(1, 2), self.corpus.localization.flatten(0, 1)]
        for queries in self.queries[:TIMED_QUERIES].split(block):
            for stream, features in enumerate(clips):
                one = queries[:, stream] if stream < len(self.shallow) else queries.flatten(1)
                features @ one.T


@torch.inference_mode()
def reference_search(case: Case, num_queries: int) -> tuple[Tensor, Tensor]:
    """Scores and flat indices (video, start, end) of the best spans as the released procedure finds them."""
    head, found = case.model.span_head, []
    allowed = torch.ones(CLIPS, CLIPS).triu(MIN_CLIPS) - torch.ones(CLIPS, CLIPS).triu(MAX_CLIPS)
    width = case.shallow.shape[-1]
    deep = [one.contiguous() for one in case.corpus.localization.split(width, -1)]
    for queries in case.queries[:num_queries].split(REFERENCE_BATCH):
        scores, similarities = 0, 0
        for stream, clips in enumerate(case.shallow):
            query = queries[:, stream]
            cosines = torch.einsum("md,nld->mln", F.normalize(query, dim=-1), F.normalize(clips, dim=-1))
            scores = scores + cosines.max(1).values / len(case.shallow)
            projected = head.queries[stream](query)
            similarities = similarities + torch.einsum("md,nld->mnl", projected, deep[stream]) / len(deep)
        rows = similarities.view(-1, 1, CLIPS)
        start, end = (F.softmax(conv(rows).view(len(queries), VIDEOS, CLIPS), -1) for conv in (head.start, head.end))
        top = torch.exp(case.model.config.score_scale * scores).topk(TOP_VIDEOS, 1)
        row = torch.arange(len(queries))[:, None]
        start, end = start[row, top.indices], end[row, top.indices]
        spans = torch.einsum("qvm,qv,qvn->qvmn", start, top.values, end) * allowed
        ordered = spans.view(len(queries), -1).sort(dim=1, descending=True)
        values, flat = ordered.values[:, :TOP_SPANS], ordered.indices[:, :TOP_SPANS]
        videos = top.indices.gather(1, flat // CLIPS**2)
        found.append((values, videos * CLIPS**2 + flat % CLIPS**2))
    values, places = zip(*found, strict=True)
    return torch.cat(values), torch.cat(places)


@torch.inference_mode()
def one_at_a_time(case: Case, num_queries: int) -> None:
    """Score each query with each video by itself, and sort all spans in Python."""
    head = case.model.span_head
    width = case.shallow.shape[-1]
    for query in case.queries[:num_queries]:
        unit = F.normalize(query, dim=-1)
        span_query = head.span_queries(query[None])[0]
        scores = [
            float(torch.einsum("md,mld->ml", unit, case.shallow[:, video]).amax(1).mean()) for video in range(VIDEOS)
        ]
        spans = []
        for video in np.argsort(scores)[::-1][:TOP_VIDEOS].tolist():
            clips = case.corpus.localization[video].view(CLIPS, -1, width)
            row = torch.einsum("md,lmd->l", span_query, clips)[None, None]
            start, end = (conv(row)[0, 0].softmax(0).tolist() for conv in (head.start, head.end))
            factor = math.exp(case.model.config.score_scale * scores[video])
            for first in range(CLIPS):
                lasts = range(first + MIN_CLIPS, min(first + MAX_CLIPS, CLIPS))
                spans += [(factor * start[first] * end[last], video, first, last) for last in lasts]
        sorted(spans, reverse=True)[:TOP_SPANS]


def reference_iou(one: list[float], other: list[float]) -> float:
    overlap = max(0.0, min(one[1], other[1]) - max(one[0], other[0]))
    hull = max(one[1], other[1]) - min(one[0], other[0])
    return overlap / hull if hull else 0.0


def reference_nms(predictions: list[list[float]], limit: int = 100) -> list[list[float]]:
    """The released procedure for one query: lists by video, the best span first, the others compared one by one."""
    by_video: dict[int, list[list[float]]] = {}
    for video, *span in predictions:
        by_video.setdefault(video, []).append(span)
    merged = []
    for video, spans in by_video.items():
        left, kept = sorted(spans, key=lambda span: span[2], reverse=True), []
        while left and len(kept) < limit:
            best = left.pop(0)
            kept.append(best)
            place = 0
            while place < len(left):
                if reference_iou(best, left[place]) > NMS_THRESHOLD:
                    left.pop(place)
                else:
                    place += 1
        merged += [[video, *span] for span in kept]
    return sorted(merged, key=lambda span: span[3], reverse=True)[:limit]


def reference_recall(predictions: list[list[list[float]]], references: list[dict]) -> dict[str, float]:
    """VCMR recall as the TVR evaluator computes it, query by query."""
    hits = {(k, iou): 0 for k in (1, 5, 10, 100) for iou in (0.5, 0.7)}
    for spans, reference in zip(predictions, references, strict=True):
        found, truth = (
            np.array(spans[:100], dtype=np.float32),
            np.array(reference["spans"][0], dtype=np.float32),
        )
        overlap = np.minimum(found[:, 2], truth[1]) - np.maximum(found[:, 1], truth[0])
        hull = np.maximum(found[:, 2], truth[1]) - np.minimum(found[:, 1], truth[0])
        ious = np.divide(overlap.clip(0), hull, out=np.zeros_like(hull), where=hull != 0)
        right = found[:, 0] == reference["video_id"]
        for k, iou in hits:
            hits[k, iou] += bool((right & (ious >= iou))[:k].any())
    return {f"vcmr_recall@{k}_iou@{iou}": count / len(references) for (k, iou), count in hits.items()}


def as_lists(ranking: MomentRanking) -> list[list[list[float]]]:
    """[video, start, end, score] of each query, as a submission holds them."""
    columns = [getattr(ranking, name).tolist() for name in MomentRanking.__dataclass_fields__]
    return [[list(span) for span in zip(*query, strict=True) if span[0] >= 0] for query in zip(*columns, strict=True)]


class AfterSearch:
    """NMS and evaluation of what a search found: whole queries as lists for the reference, arrays for ours."""

    def __init__(self, ranking: MomentRanking) -> None:
        self.ranking, self.lists = ranking, as_lists(ranking)
        generator = np.random.default_rng(SEED)
        # Half of the queries ask for one of their own predictions, so that there are hits to count.
        ranks = generator.integers(0, 200, len(ranking))
        rows = np.arange(len(ranking))
        wanted = zip(
            ranking.video_indices[rows, ranks].tolist(),
            (ranking.start_seconds[rows, ranks] + (rows % 2) * 3).tolist(),
            (ranking.end_seconds[rows, ranks] + (rows % 2) * 3).tolist(),
            strict=True,
        )
        self.references = [{"video_id": video, "spans": [[start, end]]} for video, start, end in wanted]
        self.metric = evaluate.load("vcmr_recall")

    def ours(self) -> tuple[MomentRanking, dict[str, float]]:
        """What is kept, and its recalls, by this project."""
        kept = temporal_nms(self.ranking, threshold=NMS_THRESHOLD)
        predictions = {"video_id": kept.video_indices, "start": kept.start_seconds, "end": kept.end_seconds}
        return kept, self.metric.compute(predictions=predictions, references=self.references)

    def reference(self) -> tuple[list, dict[str, float]]:
        """The same by the released procedure."""
        kept = [reference_nms(spans) for spans in self.lists]
        return kept, reference_recall(kept, self.references)

    def check(self) -> str:
        """That both give the same lists and the same metrics."""
        (ours, our_metrics), (theirs, their_metrics) = self.ours(), self.reference()
        if as_lists(ours) != theirs:
            raise AssertionError("the spans kept differ from the reference's")
        worst = max(abs(our_metrics[name] - value) for name, value in their_metrics.items())
        if worst > 1e-9:
            raise AssertionError(f"a recall differs from the reference's by {worst}")
        return "spans equal list for list, all recalls equal"


def agreement(case: Case) -> str:
    """How the spans of the reference and ours compare, rank by rank."""
    values, places = reference_search(case, REFERENCE_QUERIES)
    ranking, _ = case.search.rank(case.queries[:REFERENCE_QUERIES])
    ours = (ranking.video_indices * CLIPS + ranking.start_seconds.astype(int)) * CLIPS
    ours += ranking.end_seconds.astype(int) - 1
    same_place = (ours == places.numpy()).mean()
    sets = np.mean([len(set(a) & set(b)) / TOP_SPANS for a, b in zip(ours, places.tolist(), strict=True)])
    worst = np.abs(np.exp(ranking.scores) / values.numpy() - 1).max()
    return f"same span at {same_place:.2%} of ranks, same set {sets:.2%}, scores within {worst:.0e}"


def extra_megabytes(width: int, num_streams: int, ways: multiprocessing.Queue) -> None:
    """In a process of its own: how far a search raises the peak of memory above what is in use before it."""
    case = Case(width, num_streams)
    case.search.rank(case.queries[:1])  # the libraries' own start-up
    ballast = np.ones(int((peak_megabytes() - resident_megabytes()) * 2**17))  # up to the peak that there was
    before = peak_megabytes()
    ranking, _ = case.search.rank(case.queries)
    result = sum(getattr(ranking, name).nbytes for name in MomentRanking.__dataclass_fields__)
    ways.put((peak_megabytes() - before, result / 2**20, ballast.nbytes))


def measure_memory(width: int, num_streams: int) -> tuple[float, float]:
    """Extra peak of a whole search and the size of its result, both in MB."""
    context = multiprocessing.get_context("spawn")
    ways = context.Queue()
    process = context.Process(target=extra_megabytes, args=(width, num_streams, ways))
    process.start()
    extra, result, _ = ways.get()
    process.join()
    return extra, result


def per_query(ways: dict[str, tuple[Callable[[], object], int]]) -> dict[str, float]:
    """Milliseconds for a query of each way, interleaved."""
    seconds = interleave({name: way for name, (way, _) in ways.items()}, rounds=3)
    return {name: 1000 * seconds[name] / ways[name][1] for name in ways}


def measure() -> Iterator[Ratio]:
    """Two streams, one stream, and what comes after the search."""
    for width, num_streams, goal in ((256, 2, 8.0), (256, 1, 12.0)):
        case = Case(width, num_streams)
        milliseconds = per_query(
            {
                "ours": (lambda case=case: case.search.rank(case.queries[:TIMED_QUERIES]), TIMED_QUERIES),
                "reference": (lambda case=case: reference_search(case, REFERENCE_QUERIES), REFERENCE_QUERIES),
                "products": (case.products, TIMED_QUERIES),
            }
        )
        ours, reference, products = (milliseconds[name] for name in ("ours", "reference", "products"))
        name = f"search, {'video and subtitles' if num_streams == 2 else 'video only'}"
        detail = f"{ours:.2f} against {reference:.2f} ms a query; {agreement(case)}"
        yield Ratio(name, "released XML procedure", reference / ours, goal, detail=detail)
        yield Ratio(name, "the products alone", ours / products, 1.7, at_most=True)
        extra, result = measure_memory(width, num_streams)
        detail = f"{extra:.0f} MB extra at the peak, {result:.0f} of them the result"
        yield Ratio(name, "130 MB", extra / 130, 1.0, at_most=True, detail=detail)
    start = time.perf_counter()
    one_at_a_time(case, 2)
    naive = 1000 * (time.perf_counter() - start) / 2
    yield Ratio(
        "search, video only",
        "one query and one video at a time",
        naive / ours,
        detail=f"{naive:.0f} ms a query",
    )
    ranking, _ = case.search.rank(case.queries)
    after = AfterSearch(ranking)
    detail = after.check()
    seconds = interleave({"ours": after.ours, "reference": after.reference}, rounds=3)
    detail = f"{seconds['ours']:.2f} against {seconds['reference']:.2f} s for {QUERIES} queries; {detail}"
    yield Ratio("NMS and evaluation", "released procedure", seconds["reference"] / seconds["ours"], 6.5, detail=detail)
