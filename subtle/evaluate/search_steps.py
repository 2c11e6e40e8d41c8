"""What each step of a search adds: moments of known queries, found by vectors, refined and re-ranked."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from tqdm import tqdm

from hf_models.encoders import Encoder
from hf_models.index.search import search_moments
from hf_models.index.store import IndexedModel, MomentIndex
from subtle.footage.refining import FoundRow
from subtle.run.metric_loading import load_metric

SearchStep = Callable[[str, list[FoundRow]], list[FoundRow]]
K, IOU = (1, 5, 10), (0.5, 0.7)
SEARCH_METRICS = [f"vcmr_recall@{k}_iou@{iou}" for iou in IOU for k in K]


class SearchQueries:
    """Texts with the moment that each describes, and the shortlist of each by vectors.

    Args:
        index: Windows of the videos.
        model: Its model.
        encoder: That model.
        rows: `caption, video_id, start_seconds, end_seconds` of each query.
        shortlist: Moments of each query.
    """

    def __init__(
        self,
        index: MomentIndex,
        model: IndexedModel,
        encoder: Encoder,
        rows: Sequence[FoundRow],
        *,
        shortlist: int,
    ) -> None:
        self.rows = rows
        self.metric = load_metric("vcmr_recall")
        begun = time.perf_counter()
        self.shortlists = [
            search_moments(index, model, encoder.query(text=row["caption"]), limit=shortlist)
            for row in tqdm(rows, desc="vectors", unit="query")
        ]
        self.seconds = (time.perf_counter() - begun) / len(rows)

    def after(self, step: SearchStep, found: Sequence[list[FoundRow]], name: str) -> tuple[list[list[FoundRow]], float]:
        """What a step makes of what was found before for each query, and the seconds that it takes for one."""
        begun = time.perf_counter()
        rows = tqdm(self.rows, desc=name, unit="query")
        made = [step(row["caption"], before) for row, before in zip(rows, found, strict=True)]
        return made, (time.perf_counter() - begun) / len(self.rows)

    def measure(self, found: Sequence[list[FoundRow]], seconds: float) -> dict[str, float]:
        """VCMR recall in [0, 1] of what was found for each query, and `seconds` as they are.

        Each recall has its standard error (`..._error`): how far it moves from one set of so many queries to another.
        """
        predictions = [
            {
                "video_id": [Path(row["video"]).stem for row in rows],
                "start": [row["start_seconds"] for row in rows],
                "end": [row["end_seconds"] for row in rows],
            }
            for rows in found
        ]
        references = [
            {"video_id": row["video_id"], "spans": [[row["start_seconds"], row["end_seconds"]]]} for row in self.rows
        ]
        measured = self.metric.compute(
            predictions=predictions, references=references, task="vcmr", k=list(K), iou=list(IOU)
        )
        results = {name: float(measured[name]) for name in SEARCH_METRICS}
        errors = {f"{name}_error": math.sqrt(value * (1 - value) / len(found)) for name, value in results.items()}
        return results | errors | {"seconds": seconds}


def some(rows: Sequence[FoundRow], number: int | None, seed: int) -> list[FoundRow]:
    """That many rows, drawn by the seed; None: all."""
    if number is None or number >= len(rows):
        return list(rows)
    chosen = np.random.default_rng(seed).choice(len(rows), number, replace=False)
    return [rows[place] for place in sorted(chosen)]


def added(results: Mapping[str, Mapping[str, float]], first: str) -> dict[str, dict[str, float]]:
    """What each system has more than the first one."""
    return {
        name: {metric: values[metric] - results[first][metric] for metric in SEARCH_METRICS}
        for name, values in results.items()
        if name != first
    }
