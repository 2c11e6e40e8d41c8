"""An index of segments against the exhaustive search for moments: 100,000 videos of 24 clips, synthetic features.

The features are clustered as those of footage are: a video is a few events of several clips, an event is of a kind, of
which the n-th has 1/n of the events, and clips of an event lie close together, as do, less so, the events of a video. A
query is an event of some video with noise. The corpus is mapped from disk and held by the page cache. Recall is the
share of the K best moments (video, start and end) or videos of the exhaustive search that are among the K best found.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import Tensor

from benchmarks.timing import Ratio
from hf_models import XMLConfig, XMLForMomentRetrieval
from hf_models.moments.corpus import MomentCorpus
from hf_models.moments.segment_index import SegmentIndex, ShortlistSearch
from hf_models.moments.spans import MomentRanking, SpanSearch

VIDEOS, CLIPS, WIDTH = 100_000, 24, 128
CLIPS_PER_EVENT = 4
QUERIES, ONE_BY_ONE, BATCH = 128, 16, 64
CUTS = (1, 10, 100)
LIMITS = {"min_clips": 2, "max_clips": 8, "num_videos": 100, "num_spans": 200}
BASELINE = "all videos"
SEED = 0


@dataclass(frozen=True)
class Setting:
    """An index and how it is searched: clips of a segment, videos of the shortlist, probes (None: exact)."""

    segment_clips: int
    shortlist: int
    probes: int | None = None

    def __str__(self) -> str:
        segments = "clips" if self.segment_clips == 1 else f"segments of {self.segment_clips} clips"
        return f"{segments}, {'exact' if self.probes is None else f'{self.probes} probes'}, {self.shortlist} videos"


SETTINGS = (
    Setting(1, 100, 8),
    Setting(1, 100, 32),
    Setting(1, 100, 128),
    Setting(CLIPS_PER_EVENT, 400, 32),
    Setting(CLIPS_PER_EVENT, 1600, 32),
    Setting(CLIPS_PER_EVENT, 400),
    Setting(1, 100),
)


class Footage:
    """Synthetic clip features, the same for the same seed."""

    def __init__(self, num_videos: int) -> None:
        self.generator = np.random.default_rng(SEED)
        self.kinds = self.normal(max(64, num_videos // 50), WIDTH)
        weights = 1 / np.arange(1, len(self.kinds) + 1)
        self.weights = weights / weights.sum()

    def normal(self, *shape: int) -> np.ndarray:
        """Rows of about unit norm."""
        return self.generator.standard_normal(shape, np.float32) / np.float32(shape[-1] ** 0.5)

    def videos(self, count: int) -> np.ndarray:
        """`(count, CLIPS, WIDTH)` of unit norm."""
        events = CLIPS // CLIPS_PER_EVENT
        kind = self.generator.choice(len(self.kinds), (count, events), p=self.weights)
        events_of = self.kinds[kind] + 0.5 * self.normal(count, 1, WIDTH) + 0.4 * self.normal(count, events, WIDTH)
        # Events begin anywhere, not where segments do.
        clips = np.repeat(events_of, CLIPS_PER_EVENT, axis=1)
        shift = self.generator.integers(0, CLIPS_PER_EVENT, (count, 1))
        clips = np.take_along_axis(clips, ((np.arange(CLIPS) + shift) % CLIPS)[..., None], 1)
        return unit(clips + 0.4 * self.normal(count, CLIPS, WIDTH))

    def queries(self, clips: np.ndarray) -> np.ndarray:
        """Queries that ask for clips `(N, WIDTH)`."""
        return unit(clips + 0.6 * self.normal(*clips.shape))


def unit(rows: np.ndarray) -> np.ndarray:
    """Rows of unit norm."""
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def make_corpus(folder: Path, num_videos: int) -> tuple[MomentCorpus, Tensor]:
    """A mapped corpus, and `(QUERIES, 1, WIDTH)`."""
    footage, at_once = Footage(num_videos), 4000
    shape = (num_videos, CLIPS, WIDTH)
    arrays = [np.lib.format.open_memmap(folder / f"{n}.npy", "w+", np.float32, shape) for n in ("retrieve", "localize")]
    for first in range(0, num_videos, at_once):
        clips = footage.videos(min(at_once, num_videos - first))
        for array in arrays:
            array[first : first + at_once] = clips
    wanted = footage.generator.integers(0, num_videos, QUERIES), footage.generator.integers(0, CLIPS, QUERIES)
    queries = footage.queries(arrays[0][wanted])
    retrieval, localization = (torch.from_numpy(array) for array in arrays)
    lengths, seconds = torch.full((num_videos,), CLIPS), torch.ones(num_videos, dtype=torch.float64)
    ids = [str(number) for number in range(num_videos)]
    return MomentCorpus(ids, lengths, seconds, retrieval[None], localization), torch.from_numpy(queries)[:, None]


def make_model() -> XMLForMomentRetrieval:
    """Random weights, but for queries that find clips as they find videos; the speed does not depend on them."""
    torch.manual_seed(SEED)
    model = XMLForMomentRetrieval(XMLConfig(hidden_size=WIDTH)).eval()
    for linear in model.span_head.queries:
        torch.nn.init.eye_(linear.weight)
    for predictor in (model.span_head.start, model.span_head.end):
        torch.nn.init.normal_(predictor.weight, mean=2.0)
    return model


def spans_of(ranking: MomentRanking, cut: int) -> list[set[tuple[int, float, float]]]:
    """The `cut` best moments of each query."""
    columns = (ranking.video_indices, ranking.start_seconds, ranking.end_seconds)
    rows = zip(*(column[:, :cut].tolist() for column in columns), strict=True)
    return [set(zip(*row, strict=True)) for row in rows]


def recalls(found: tuple[MomentRanking, np.ndarray], best: tuple[MomentRanking, np.ndarray]) -> str:
    """Of moments and of videos, at every cut."""
    words = []
    for name, of in (("moments", spans_of), ("videos", lambda videos, cut: [set(row) for row in videos[:, :cut]])):
        values = []
        for cut in CUTS:
            place = name == "videos"
            pairs = zip(of(found[place], cut), of(best[place], cut), strict=True)
            values.append(float(np.mean([len(one & other) / len(other) for one, other in pairs])))
        words.append(f"{name} {' / '.join(f'{value:.3f}' for value in values)}")
    return f"recall@{'/'.join(map(str, CUTS))} of {', of '.join(words)}"


def milliseconds(search: SpanSearch, queries: Tensor) -> dict[str, tuple[float, float]]:
    """Medians for a query, asked alone and in a batch: by the clock, and of processor time on all cores."""
    times: dict[str, tuple[float, float]] = {}
    search.rank(queries[:1])
    for name, size, stop in (("alone", 1, ONE_BY_ONE), (f"{BATCH} at a time", BATCH, len(queries))):
        taken = []
        for block in queries[:stop].split(size):
            clock, processor = time.perf_counter(), time.process_time()
            search.rank(block)
            taken.append((time.perf_counter() - clock, time.process_time() - processor))
        times[name] = tuple((1000 * np.median(taken, axis=0) / size).tolist())
    return times


def measure(num_videos: int = VIDEOS, settings: tuple[Setting, ...] = SETTINGS) -> Iterator[Ratio]:
    """Every setting against the search of all videos."""
    with TemporaryDirectory(prefix="subtle-bench-") as name:
        folder = Path(name)
        corpus, queries = make_corpus(folder, num_videos)
        model = make_model()
        exhaustive = SpanSearch(model, corpus, **LIMITS)
        best, baseline = exhaustive.rank(queries), milliseconds(exhaustive, queries)
        built: dict[tuple[int, bool], tuple[SegmentIndex, str]] = {}
        for setting in settings:
            kind = setting.segment_clips, setting.probes is not None
            if kind not in built:
                start, place = time.perf_counter(), folder / f"index-{kind[0]}-{kind[1]}"
                index = SegmentIndex.build(corpus, place, segment_clips=kind[0], approximate=kind[1])
                seconds = time.perf_counter() - start
                megabytes = sum(path.stat().st_size for path in place.rglob("*") if path.is_file()) / 1e6
                built[kind] = index, f"{index.num_segments[0]:,} segments, built in {seconds:.0f} s, {megabytes:.0f} MB"
            index, costs = built[kind]
            search = ShortlistSearch(model, index, shortlist=setting.shortlist, probes=setting.probes, **LIMITS)
            recall = recalls(search.rank(queries), best)
            for asked, ours in milliseconds(search, queries).items():
                (clock, processor), (all_clock, all_processor) = ours, baseline[asked]
                times = (
                    f"{clock:.1f} against {all_clock:.1f} ms a query, of processor time {processor:.1f} against "
                    f"{all_processor:.1f}"
                )
                what = f"{num_videos:,} videos, {setting}, {asked}"
                yield Ratio(what, BASELINE, all_clock / clock, detail=f"{times}; {recall}; {costs}")
