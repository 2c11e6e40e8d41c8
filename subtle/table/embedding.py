"""Embeddings of clips, texts and composed queries by any encoder, in stores that survive a kill.

What is stored is found by what it depends on: weights, processor, prompts, frames, and of a clip its file and times.
Rows of a table with one model share their embeddings, and a second run encodes only what is missing.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from hf_datasets.records import ClipRow
from hf_datasets.video.pool import NO_FILE
from hf_models.feature_store import FeatureStore
from hf_models.frame_reading import frames_read
from subtle.embedding.loop import Batch, Work, fill, read_clip_frames
from subtle.run.batches import batched
from subtle.run.data import missing_by_reason

NO_CAPTION = "no usable caption"


@dataclass(frozen=True)
class Embedded:
    """What could be embedded, in the order in which it was asked for.

    Attributes:
        ids: of clips or queries, or the texts; each once.
        vectors: `(N, D)` float32, on the CPU, as the encoder gives them.
        failures: id -> why it has no vector.
        num_encoded: how many were encoded now, rather than found in the store.
    """

    ids: list[str]
    vectors: Tensor
    failures: dict[str, str]
    num_encoded: int = 0

    @property
    def missing(self) -> dict[str, int]:
        """Why some have no vector, with counts."""
        reasons = list(self.failures.values())
        found = missing_by_reason(why for why in reasons if why != NO_CAPTION)
        return {why: count for why, count in (found | {NO_CAPTION: reasons.count(NO_CAPTION)}).items() if count}

    def rows(self, ids: Iterable[str]) -> Tensor:
        """The vectors of some ids, `(n, D)`.

        Raises:
            KeyError: one of them has no vector.
        """
        places = {one: place for place, one in enumerate(self.ids)}
        return self.vectors[[places[one] for one in ids]]


class Embedder:
    """Makes the vectors that a row of a table needs, as far as they are not stored.

    A number of frames is by default that of the middles of as many equal parts (1: the middle frame), see
    `Encoder.spread`; None: as many as the encoder reads.

    Args:
        encoder: of `hf_models.encoders`.
        folder: of all stores; each is named after what its embeddings depend on.
        work: how much at a time.
    """

    def __init__(self, encoder: Any, folder: Path | str, work: Work) -> None:
        self.encoder, self.folder, self.work = encoder, Path(folder), work

    def clips(self, clips: Iterable[ClipRow], num_frames: int | None = None) -> Embedded:
        """One vector for each clip: what the encoder makes of its frames.

        Args:
            clips: rows with `clip_id`, `video` (a path or None), `start_seconds` and `end_seconds`.
            num_frames: of a clip.

        Raises:
            ValueError: no clip can be read, or the encoder does not take as many frames.
        """
        encoder, num_frames = self.encoder, num_frames or self.encoder.num_frames
        by_id = {clip["clip_id"]: clip for clip in clips}
        store = self.store("clips", num_frames)
        keys = {clip_id: clip_key(clip) for clip_id, clip in by_id.items()}
        todo = [clip for clip_id, clip in by_id.items() if clip["video"] and keys[clip_id] not in store]
        failures = {clip_id: NO_FILE for clip_id, clip in by_id.items() if not clip["video"]}

        def encoded() -> Iterator[Batch]:
            arriving = read_clip_frames(todo, num_frames, failures, self.work, spread=encoder.spread)
            for read in batched(arriving, self.work.batch_size):
                yield (
                    [keys[clip_id] for clip_id, _ in read],
                    encoder.embeds(encoder.encode_video([frames for _, frames in read])),
                )

        num_encoded = fill(store, encoded(), len(todo), "clip", self.work.shard_size)
        return collect(store, keys, failures, "clip can be read", num_encoded)

    def texts(self, texts: Iterable[str]) -> Embedded:
        """One vector for each text, which may repeat; `ids` are the texts.

        Raises:
            ValueError: there is no text, or the encoder reads none.
        """
        keys = {text: text for text in texts}
        store = self.store("texts")
        todo = [text for text in keys if text not in store]
        batches = ((batch, self.encoder.encode_text(batch)) for batch in batched(todo, self.work.batch_size))
        return collect(store, keys, {}, "text is there", fill(store, batches, len(todo), "text", self.work.shard_size))

    def queries(
        self,
        rows: Iterable[Mapping[str, Any]],
        clips: Iterable[ClipRow],
        num_frames: int | None = None,
        texts: Mapping[str, str] | None = None,
    ) -> Embedded:
        """One vector for each query that the encoder composes itself, from frames and text together; by query id.

        Args:
            rows: queries with `query_id`, `query_clip_id` and `modification_text`.
            clips: their clips, and maybe others.
            num_frames: of a query's clip.
            texts: query id -> the text to take instead of the modification.

        Raises:
            ValueError: no query can be made, or the encoder does not take as many frames.
        """
        encoder, num_frames = self.encoder, num_frames or self.encoder.num_frames
        by_id = {clip["clip_id"]: clip for clip in clips}
        store = self.store("queries", num_frames)
        pairs: dict[str, dict[str, str]] = {}  # clip id -> key of the query -> its text
        keys, failures = {}, {}
        for row in rows:
            clip, query_id = by_id.get(row["query_clip_id"]), row["query_id"]
            if clip is None or not clip["video"]:
                failures[query_id] = NO_FILE
                continue
            text = row["modification_text"] if texts is None else texts[query_id]
            keys[query_id] = digest_of(clip_key(clip), text)
            if keys[query_id] not in store:
                pairs.setdefault(clip["clip_id"], {})[keys[query_id]] = text
        unreadable: dict[str, str] = {}

        def read_pairs() -> Iterator[tuple[str, Tensor, str]]:
            wanted = [by_id[clip_id] for clip_id in pairs]
            for clip_id, frames in read_clip_frames(wanted, num_frames, unreadable, self.work, spread=encoder.spread):
                yield from ((key, frames, text) for key, text in pairs[clip_id].items())

        def encoded() -> Iterator[Batch]:
            for batch in batched(read_pairs(), self.work.batch_size):
                names, frames, said = map(list, zip(*batch, strict=True))
                yield names, encoder.encode_query(frames, said)

        num_encoded = fill(store, encoded(), sum(map(len, pairs.values())), "query", self.work.shard_size)
        reasons = {key: why for clip_id, why in unreadable.items() for key in pairs[clip_id]}
        failures |= {query_id: reasons[key] for query_id, key in keys.items() if key in reasons}
        return collect(store, keys, failures, "query can be made", num_encoded)

    def store(self, kind: str, num_frames: int | None = None) -> FeatureStore:
        """`FOLDER/KIND-<digest of what its vectors depend on>`."""
        depends_on = {"kind": kind, **self.encoder.fingerprint}
        if num_frames is None:
            depends_on.pop("processor", None)  # of frames, which texts have not
        else:
            depends_on |= frames_read(num_frames, self.encoder.spread)
        return FeatureStore(
            self.folder / f"{kind}-{digest_of(json.dumps(depends_on, sort_keys=True))[:12]}", depends_on
        )


def clip_key(clip: ClipRow) -> str:
    """What tells the frames of a clip from all others on this machine: its id, file's name and size, and times."""
    path = Path(clip["video"] or "")
    size = path.stat().st_size if path.is_file() else None
    return digest_of(clip["clip_id"], path.name, str(size), str(clip["start_seconds"]), str(clip["end_seconds"]))


def digest_of(*parts: str) -> str:
    """32 hexadecimal digits for texts."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def collect(
    store: FeatureStore, keys: Mapping[str, str], failures: dict[str, str], what: str, num_encoded: int
) -> Embedded:
    """The vectors of keys by id; without one it is an error."""
    found = [one for one, key in keys.items() if key in store]
    if not found:
        reasons = "; ".join(sorted(set(failures.values()))[:3])
        raise ValueError(f"not one {what}{f': {reasons}' if reasons else ''}")
    stored, vectors = store.load()
    places = {key: place for place, key in enumerate(stored)}
    lost = {one: why for one, why in failures.items() if keys.get(one) not in places}
    return Embedded(found, vectors[[places[keys[one]] for one in found]], lost, num_encoded)


def clips_of_queries(rows: Iterable[Mapping[str, Any]], clips: Collection[ClipRow]) -> list[ClipRow]:
    """The clips of queries, each once."""
    wanted = {row["query_clip_id"] for row in rows}
    return [clip for clip in clips if clip["clip_id"] in wanted]
