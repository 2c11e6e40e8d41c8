"""An index of segments: nearest neighbors propose a bounded number of videos, and the model refines in those alone.

`SpanSearch` scores every video of the corpus for every query. Here the vectors by which a model finds videos are kept
in LanceDB, one for each clip or for each few. A query's nearest ones name the videos that are looked at, and only these
are scored and searched for spans: segment, propose, refine.

The score of a video is the largest cosine of the query with one of its clips. Where every clip is a segment and the
search for neighbors is exact, the videos of the nearest clips are therefore the best ones of an exhaustive search, and
the result is the same. Longer segments and an approximate search make the index smaller and faster, and may miss some.
With subtitles a video's score is the mean over two streams; each stream proposes videos in turn, which guarantees less.
"""

import json
import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor
from torch.nn import functional as F

from hf_models.atomic_files import replacing
from hf_models.best_rows import stable_topk
from hf_models.vector_database import FEWEST_PARTITIONED, connect

from .corpus import MomentCorpus
from .spans import SpanSearch

DESCRIPTION, BEGUN = "segments.json", "begun.json"
SEGMENTS_AT_ONCE = 65_536
FIRST_SEGMENTS = 4  # looked at for each video that is wanted
MORE = 4  # times as many where those are of too few videos


class SegmentIndex:
    """Segments of the videos of a corpus, by which videos are proposed.

    Args:
        folder: That `build` wrote.
        corpus: That it was built of.

    Attributes:
        segment_clips: Clips of a segment.
        is_approximate: Whether there is an approximate index beside the vectors.

    Raises:
        ImportError: LanceDB is not installed.
        FileNotFoundError: There is no index.
        ValueError: It is of another corpus.
    """

    def __init__(self, folder: Path | str, corpus: MomentCorpus) -> None:
        self.folder, self.corpus = Path(folder), corpus
        if not (self.folder / DESCRIPTION).is_file():
            raise FileNotFoundError(f"{folder} holds no segments; SegmentIndex.build(corpus, folder) writes them")
        described = json.loads((self.folder / DESCRIPTION).read_text(encoding="utf-8"))
        if described["corpus"] != corpus.fingerprint:
            raise ValueError(
                f"{folder} holds segments of another corpus; build the index of this one in another folder"
            )
        self.segment_clips, self.is_approximate = described["segment_clips"], described["is_approximate"]
        database = connect(str(self.folder))
        self.tables = [database.open_table(f"segments_{stream}") for stream in range(len(corpus.retrieval))]
        self.num_segments = [table.count_rows() for table in self.tables]

    @classmethod
    def build(
        cls, corpus: MomentCorpus, folder: Path | str, *, segment_clips: int = 1, approximate: bool = False
    ) -> "SegmentIndex":
        """Index a corpus, in memory that does not depend on its size; open what is there if it is this very index.

        The index appears complete or not at all, and a killed build goes on after the segments that it wrote.

        Args:
            corpus: In memory or mapped.
            folder: For the index.
            segment_clips: Clips of a segment, whose vector is the mean of theirs, of unit norm.
            approximate: Build an approximate index (IVF), for `propose` with `probes`.

        Returns:
            The index.

        Raises:
            ImportError: LanceDB is not installed.
            ValueError: A segment has no clip, the folder holds something else, or there are too few segments for an
                approximate index to be of use.
        """
        folder = Path(folder)
        if segment_clips < 1:
            raise ValueError(f"segment_clips must be at least 1, not {segment_clips}")
        described = {"corpus": corpus.fingerprint, "segment_clips": segment_clips, "is_approximate": approximate}
        if _read(folder / DESCRIPTION) == described:
            return cls(folder, corpus)
        if folder.exists() and any(folder.iterdir()) and not (folder / DESCRIPTION).is_file():
            raise ValueError(f"{folder} holds something else than segments; name another folder")
        counts = (corpus.num_clips + segment_clips - 1) // segment_clips
        if approximate and int(counts.sum()) < FEWEST_PARTITIONED:
            raise ValueError(
                f"{int(counts.sum()):,} segments are searched exactly in a moment; an approximate index is for "
                f"{FEWEST_PARTITIONED:,} or more"
            )
        scratch = folder.with_name(f".{folder.name}-unfinished")
        if _read(scratch / BEGUN) != described:
            shutil.rmtree(scratch, ignore_errors=True)
            with replacing(scratch / BEGUN) as unfinished:
                unfinished.write_text(json.dumps(described), encoding="utf-8")
        for stream in range(len(corpus.retrieval)):
            _fill(scratch, stream, corpus, segment_clips, np.cumsum(counts.numpy()), approximate)
        (scratch / BEGUN).replace(scratch / DESCRIPTION)
        shutil.rmtree(folder, ignore_errors=True)
        scratch.replace(folder)
        return cls(folder, corpus)

    def propose(self, queries: Tensor, num_videos: int, *, probes: int | None = None) -> Tensor:
        """The videos of the segments that are nearest to queries.

        Args:
            queries: `(Q, M, D)`, from `encode_query`.
            num_videos: How many videos, at most the whole corpus.
            probes: Look only into so many parts of the approximate index; None: at all segments.

        Returns:
            `(Q, num_videos)` int64, places in the corpus, ascending.

        Raises:
            ValueError: There are not so many videos, or no approximate index.
        """
        if not 1 <= num_videos <= len(self.corpus):
            raise ValueError(f"num_videos must lie between 1 and {len(self.corpus)}, not {num_videos}")
        if probes is not None and (probes < 1 or not self.is_approximate):
            raise ValueError(
                f"probes must be at least 1, not {probes}"
                if self.is_approximate
                else f"{self.folder} has no approximate index; build it with approximate=True, or search without probes"
            )
        if num_videos == len(self.corpus):
            return torch.arange(num_videos).expand(len(queries), -1)
        unit = F.normalize(queries.float(), dim=-1).cpu().numpy()
        ranked = [self._nearest(stream, unit[:, stream], num_videos, probes) for stream in range(unit.shape[1])]
        turns = np.stack(ranked, 2).reshape(len(queries), -1)  # the streams of a query take turns
        return torch.from_numpy(np.stack([np.sort(_first_of(row, num_videos)) for row in turns]).astype(np.int64))

    def _nearest(self, stream: int, vectors: np.ndarray, num_videos: int, probes: int | None) -> np.ndarray:
        """`(Q, num_videos)`, the videos of the segments nearest to `vectors (Q, D)`, nearest first."""
        videos = np.empty((len(vectors), num_videos), np.int32)
        number, left = FIRST_SEGMENTS * num_videos, np.arange(len(vectors))
        while len(left):
            search = self.tables[stream].search(vectors[left], vector_column_name="vector").distance_type("dot")
            search = search.bypass_vector_index() if probes is None else search.nprobes(probes)
            found = search.select(["video", "_distance"]).limit(number).to_arrow()
            video, distance = (found[name].to_numpy() for name in ("video", "_distance"))
            # LanceDB leaves out the number of a single query.
            query = found["query_index"].to_numpy() if len(left) > 1 else np.zeros(len(video), np.int32)
            order = np.lexsort((distance, query))
            stops = np.searchsorted(query[order], np.arange(len(left)), side="right")
            unique = [_first_of(row, num_videos) for row in np.split(video[order], stops[:-1])]
            for row, of_row in zip(left, unique, strict=True):
                if len(of_row) == num_videos:
                    videos[row] = of_row
            is_short = np.array([len(of_row) < num_videos for of_row in unique])
            if probes is not None and (np.diff(stops, prepend=0)[is_short] < number).any():
                probes = MORE * probes if MORE * probes < self.num_segments[stream] else None
            number, left = MORE * number, left[is_short]
        return videos


def _first_of(ranked: np.ndarray, number: int) -> np.ndarray:
    """The first different values, in their order."""
    values, first = np.unique(ranked, return_index=True)
    return values[np.argsort(first)[:number]]


class ShortlistSearch(SpanSearch):
    """Find the moments of queries in the videos that an index proposes for each.

    Args:
        model: That encoded queries and corpus.
        index: Of the corpus.
        shortlist: How many videos are looked at for a query; at most the whole corpus.
        probes: See `SegmentIndex.propose`.
        **options: Of `SpanSearch`.

    Raises:
        ValueError: The shortlist is empty, or the limits leave no span.
    """

    def __init__(
        self, model: Any, index: SegmentIndex, *, shortlist: int, probes: int | None = None, **options: Any
    ) -> None:
        super().__init__(model, index.corpus, **options)
        if shortlist < 1:
            raise ValueError(f"shortlist must be at least 1, not {shortlist}")
        self.index, self.probes = index, probes
        self.shortlist = min(shortlist, len(index.corpus))
        self.num_videos = min(self.num_videos, self.shortlist)

    def _best_videos(self, queries: Tensor, without: Tensor | None) -> tuple[Tensor, Tensor]:
        proposed = self.index.propose(queries, self.shortlist, probes=self.probes)
        unit = F.normalize(queries, dim=-1)
        scores = queries.new_zeros(proposed.shape)
        for stream, videos in enumerate(self.corpus.retrieval):
            for row, place, clips in self._rows_of(videos, proposed):
                cosines = clips.to(queries.device) @ unit[row, stream]
                scores[row, place : place + len(clips)] += cosines.amax(1)
        scores /= len(self.corpus.retrieval)
        proposed = proposed.to(queries.device)
        if without is not None:
            scores = scores.masked_fill(proposed == without[:, None], -torch.inf)
        values, places = stable_topk(scores, self.num_videos)
        return values, proposed.gather(1, places)

    def _similarities(self, queries: Tensor, videos: Tensor) -> Tensor:
        span_queries = self._span_queries(queries)
        result = queries.new_empty(*videos.shape, self.length)
        for row, place, clips in self._rows_of(self.corpus.localization, videos.cpu()):
            result[row, place : place + len(clips)] = clips.to(queries.device) @ span_queries[row]
        return result

    def _rows_of(self, features: Tensor, videos: Tensor) -> Iterator[tuple[int, int, Tensor]]:
        """The features of each query's videos, some at a time, so that memory is bounded.

        Yields:
            The query, the place of the first of these videos among its own, and `(n, L, D)`.
        """
        for row, places in enumerate(videos):
            for first in range(0, len(places), self.videos_at_once):
                yield row, first, features[places[first : first + self.videos_at_once]]

    @property
    def videos_at_once(self) -> int:
        """Videos whose features fit into what the search may use."""
        return max(1, self.video_block * self.query_block // self.corpus.localization.shape[-1])


def _fill(
    folder: Path, stream: int, corpus: MomentCorpus, segment_clips: int, stops: np.ndarray, approximate: bool
) -> None:
    """Write what is missing of the segments of a stream; `stops` counts those of each video and all before it."""
    schema = pa.schema([("video", pa.int32()), ("vector", pa.list_(pa.float32(), corpus.retrieval.shape[-1]))])
    table = connect(str(folder)).create_table(f"segments_{stream}", schema=schema, exist_ok=True)
    # Every addition is whole videos, and there or not.
    first = int(np.searchsorted(stops, table.count_rows(), side="right"))
    while first < len(corpus):
        before = int(stops[first - 1]) if first else 0
        stop = max(first + 1, int(np.searchsorted(stops, before + SEGMENTS_AT_ONCE, side="right")))
        videos, vectors = segments_of(corpus, stream, first, stop, segment_clips)
        column = pa.FixedSizeListArray.from_arrays(vectors.reshape(-1).numpy(), vectors.shape[1])
        table.add(pa.table({"video": pa.array(videos.numpy(), pa.int32()), "vector": column}, schema=schema))
        first = stop
    if approximate and not table.list_indices():
        from lancedb.index import IvfFlat

        table.create_index("vector", config=IvfFlat(distance_type="dot"))
    table.optimize(cleanup_older_than=timedelta(milliseconds=1))  # nobody else reads what is unfinished


def segments_of(corpus: MomentCorpus, stream: int, first: int, stop: int, segment_clips: int) -> tuple[Tensor, Tensor]:
    """The segments of the videos `[first, stop)` of a corpus.

    Args:
        corpus: With V videos.
        stream: Which one.
        first: Place of the first video.
        stop: Place behind the last one.
        segment_clips: Clips of a segment; the last of a video may have fewer.

    Returns:
        `(S,)` int64, the place of each segment's video, and `(S, D)` float32 of unit norm.
    """
    clips, counts = corpus.retrieval[stream, first:stop], corpus.num_clips[first:stop]
    clips = clips[:, : int(counts.max())]
    starts = torch.arange(0, clips.shape[1], segment_clips)
    if segment_clips > 1:
        is_clip = torch.arange(clips.shape[1]) < counts[:, None]
        clips = F.pad(clips * is_clip[..., None], (0, 0, 0, -clips.shape[1] % segment_clips))
        clips = F.normalize(clips.unflatten(1, (-1, segment_clips)).sum(2), dim=-1)
    row, segment = (starts < counts[:, None]).nonzero(as_tuple=True)
    return row + first, clips[row, segment]


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
