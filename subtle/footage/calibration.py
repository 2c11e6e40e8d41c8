"""When nothing in an index fits: the least score that tells a query with an answer from one about something else.

Scores of different models, indexes and kinds of queries cannot be compared, so the threshold comes from the index
itself: from the best scores of sentences about everyday subjects, each alone or with a clip of the index; of clips,
from what the index's own moments find in other videos.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from hf_datasets.drafts import write_json
from hf_datasets.video import VideoError, VideoStore, read_frames
from hf_models.encoders import Encoder, TFCoVREncoder
from hf_models.fingerprints import key_of
from hf_models.index.search import checked_rows, conditions
from hf_models.index.store import IndexedModel, MomentIndex

QueryKind = Literal["text", "clip", "both"]
MOMENTS_PER_BATCH = 8192
OWN_MOMENTS = 256
OWN_QUANTILE = 0.01
MISFITS_SHOWN = {"text": 0.1, "both": 0.3}
"""On the miniature, queries with an answer keep 98 % of their answers, and 8 to 9 of 10 others are told."""
EVERYDAY = """
a cat sleeps on a sofa; two men repair a car engine; rain falls on a city street at night; a woman reads a newspaper
in a cafe; a train leaves the station; children build a sandcastle on the beach; a chef cuts onions in a kitchen; a
dog chases a ball in a park; a plane lands on a runway; people shop in a supermarket; a man plays the piano; a
teacher writes on a blackboard; a ship sails past a lighthouse; a farmer drives a tractor; a bird builds a nest; a
barber cuts hair; an elephant drinks from a river; a family eats dinner at a table; a painter paints a wall; snow
covers a village in the mountains; a doctor talks to a patient; a bus stops at a crossing; a fisherman mends a net;
a crowd waits in front of a shop; a potter shapes a bowl; a baby laughs in a bath; a clerk stamps a form; smoke
rises from a chimney; a spider spins a web; a tailor sews a coat; a queue of cars on a motorway; a gardener waters
flowers; a judge enters a court; a robot welds a frame; a cow grazes on a meadow; a violinist tunes her instrument;
a worker stacks boxes in a warehouse; a volcano erupts; a couple dances at a wedding; a politician gives a speech; a
baker takes bread from an oven; waves break on rocks; a mechanic changes a tire; a monkey eats a banana; a nurse
takes a blood sample; a student types on a laptop; a waiter carries plates; a windmill turns in the wind; fireworks
over a bridge; a vet examines a horse; a carpenter saws a plank; a helicopter hovers over a forest; a girl brushes
her teeth; a fox crosses a field; a welder lights a torch; an old man feeds pigeons; a truck unloads sand; a choir
sings in a church; a glacier melts; a reporter holds a microphone; a bee lands on a flower; a plumber fixes a sink;
a market with fruit and vegetables; a satellite circles the earth
"""
SENTENCES = tuple(" ".join(EVERYDAY.split()).split("; "))


class Threshold(NamedTuple):
    """The least score of a moment that fits, and what it was chosen by, in words."""

    score: float
    why: str


def query_kind(encoder: Encoder, *, clip: bool, text: bool) -> QueryKind:
    """Which kind a query is.

    Raises:
        ValueError: The scores of this kind do not tell whether anything fits.
    """
    kind: QueryKind = "both" if clip and text else "clip" if clip else "text"
    is_composed = isinstance(encoder, TFCoVREncoder)
    if kind == ("text" if is_composed else "both"):
        have = "a clip, with a text or alone," if is_composed else "a text alone or a clip alone"
        raise ValueError(
            f"--nothing_fits needs {have} with this model: its scores of other queries do not tell whether anything "
            "fits; leave it out, or give a --min_score"
        )
    return kind


def threshold_of(
    index: MomentIndex,
    model: IndexedModel,
    encoder: Encoder,
    kind: QueryKind,
    *,
    cache: Path,
    root: str,
    where: str | None = None,
    folder: str | None = None,
) -> Threshold:
    """The threshold for a kind of query; what it takes to compute is kept until the index changes.

    Raises:
        ValueError: The index has too little to calibrate on.
    """
    condition = " AND ".join(f"({part})" for part in conditions(where, folder, None))
    table = index.moments(model.key)
    path = cache / f"threshold-{kind}-{key_of({'index': index.place, 'model': model.key})}.json"
    state = [table.version, table.count_rows()]
    known = kept_scores(path, state)
    if condition not in known:
        scan = Scan(index.path, table, condition)
        best = scan.best_elsewhere() if kind == "clip" else scan.best(misfits(encoder, kind, scan, root))
        known |= {condition: best}
        write_json(path, {"state": state, "scores": known})
    scores = known[condition]
    if kind == "clip":
        return Threshold(
            float(np.quantile(scores, OWN_QUANTILE)),
            f"{1 - OWN_QUANTILE:.0%} of the index's own moments find a better one in another video",
        )
    shown = MISFITS_SHOWN[kind]
    what = "clips of the index with a sentence" if kind == "both" else "sentences"
    return Threshold(
        float(np.quantile(scores, 1 - shown)),
        f"{shown:.0%} of {len(scores)} {what} about something else find a better one",
    )


def kept_scores(path: Path, state: list[int]) -> dict[str, list[float]]:
    """What was computed for this state of an index, by condition; nothing where the file is absent or damaged."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        scores = {str(name): [float(one) for one in values] for name, values in kept["scores"].items()}
        return scores if kept["state"] == state and all(map(len, scores.values())) else {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def misfits(encoder: Encoder, kind: QueryKind, scan: "Scan", root: str) -> np.ndarray:
    """Vectors of queries that fit nothing, `(Q, D)`.

    Raises:
        ValueError: Too few clips can be read.
    """
    if kind == "text":
        return np.stack([encoder.query(text=sentence) for sentence in SENTENCES])
    store, queries = VideoStore(root), []
    for row, sentence in zip(scan.some_rows(len(SENTENCES)), SENTENCES, strict=False):
        try:
            span = row["start_seconds"], row["end_seconds"]
            path, size = store.path(row["video"]), encoder.frame_size
            read = read_frames(path, encoder.num_frames, *span, size=size, spread="seconds")
        except (VideoError, OSError):
            continue
        queries.append(encoder.query(read.frames, sentence))
    if len(queries) < len(SENTENCES) // 8:
        raise ValueError(
            f"--nothing_fits reads clips of the index, and only {len(queries)} can be read below {root}; name the "
            "folder of the videos with --video_dir"
        )
    return np.stack(queries)


class Scan:
    """Passes over the moments of an index that fulfil a condition, in bounded memory."""

    def __init__(self, path: str, table: Any, condition: str) -> None:
        self.path, self.table, self.condition = path, table, condition

    def batches(self, *columns: str) -> Iterator[Any]:
        """Record batches."""
        search = self.table.search().select(list(columns)).limit(None)
        if self.condition:
            search = search.where(self.condition)
        for batch in search.to_batches(batch_size=MOMENTS_PER_BATCH):
            checked_rows(self.path, pa.Table.from_batches([batch]))
            yield batch

    def some_rows(self, number: int, *columns: str) -> list[dict[str, Any]]:
        """Rows spread evenly over the index."""
        names = ("video", "start_seconds", "end_seconds", *columns)
        total = self.table.count_rows(self.condition or None)
        wanted: Any = np.unique(np.linspace(0, total - 1, min(number, total)).round().astype(int)) if total else []
        rows: list[dict[str, Any]] = []
        first = 0
        for batch in self.batches(*names):
            here = [place - first for place in wanted if first <= place < first + batch.num_rows]
            rows += batch.take(np.asarray(here, np.int64)).to_pylist() if here else []
            first += batch.num_rows
        return rows

    def best(self, queries: np.ndarray, own: np.ndarray | None = None) -> list[float]:
        """The best score of each query, of moments of other files than its `own` fingerprint."""
        found = np.full(len(queries), -np.inf, np.float32)
        for batch in self.batches("vector", "fingerprint"):
            column = batch.column("vector")
            vectors = column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), -1)
            scores = queries.astype(np.float32) @ vectors.T
            if own is not None:
                files = np.asarray(batch.column("fingerprint").to_pylist())
                scores[own[:, None] == files[None]] = -np.inf
            found = np.maximum(found, scores.max(1, initial=-np.inf))
        return [float(score) for score in found if np.isfinite(score)]

    def best_elsewhere(self) -> list[float]:
        """The best score of some moments in other files.

        Raises:
            ValueError: There is one file only.
        """
        rows = self.some_rows(OWN_MOMENTS, "vector", "fingerprint")
        queries = np.asarray([row["vector"] for row in rows], np.float32)
        scores = self.best(queries, np.asarray([row["fingerprint"] for row in rows])) if rows else []
        if len(scores) < 2:
            raise ValueError(
                "--nothing_fits compares moments of several videos, and the search covers one or none; leave it out, "
                "or give a --min_score"
            )
        return scores
