"""Better starts and ends for found moments, by a model of moments (XML, ReLoCLNet, HERO) that reads their videos.

The model reads the features that it was trained on: they are made from the footage, by the encoders that made them
then, and kept by the file's fingerprint, so that no clip of a video is encoded twice. Of a video that is longer than
the model reads it sees a stretch around the moment.
"""

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModel
from transformers.utils.logging import disable_progress_bar

from hf_datasets.footage.files import file_fingerprint
from hf_datasets.video.failures import VideoError
from hf_datasets.video.pool import VideoFailure, VideoReaderPool, VideoRequest
from hf_datasets.video.segments import count_segments, group_frames
from hf_datasets.video.spans import read_spans, timeline_of
from hf_models.checkpoints import open_whole
from hf_models.feature_store import FeatureStore
from hf_models.fingerprints import key_of
from hf_models.moments.corpus import VideoBatch, encode_corpus
from hf_models.moments.feature_encoders import CLIPS_PER_READ, ClipEncoder, TokenEncoder
from hf_models.moments.modeling_moments import MomentRetrievalModel
from hf_models.moments.spans import MomentRanking, SpanSearch, end_offsets
from subtle.embedding.loop import Batch, fill
from subtle.fig.data import FEATURES_FILE, feature_origins
from subtle.run.model_folders import WEIGHTS, check_model_folder
from subtle.run.results import read_json
from subtle.run.shared_config import MomentDataConfig

VIDEOS_PER_BATCH = 16
READS_PER_SHARD = 256
FoundRow = dict[str, Any]


@dataclass(frozen=True)
class Stretch:
    """A part of a video that a model reads at once: clips `[first, stop)` of the file with this fingerprint."""

    fingerprint: str
    first: int
    stop: int


def what_made_features(folder: Path) -> dict[str, Any]:
    """What made the features of a model of moments: as it says itself, or by the run that it lies in.

    Raises:
        ValueError: It is unknown, or nothing that can be run again.
    """
    described, run = folder / FEATURES_FILE, folder.parent / "results.json"
    if described.is_file():
        made: dict[str, Any] = read_json(described)
    elif run.is_file():
        config = read_json(run, config=dict)["config"]
        known = {name: config[name] for name in MomentDataConfig.__dataclass_fields__ if name in config}
        try:
            made = feature_origins(MomentDataConfig(**known), config.get("granularity", "fine"))
        except FileNotFoundError as error:
            raise ValueError(f"{folder} was trained on features that are gone; {error}") from error
    else:
        raise ValueError(f"{folder} does not say which features it reads; train it again with `subtle vcmr`")
    if not made.get("video") or not made.get("query") or not made.get("vision_model"):
        raise ValueError(
            f"{folder} was trained on features that this package did not make, so they cannot be made of other videos; "
            "train it on features of `subtle embed moments`"
        )
    return made


def encoder_named(name: str, flag: str) -> str:
    """An encoder by its name, or the one that ships, where another machine had it in another place.

    Raises:
        ValueError: It was a folder of another machine.
    """
    own = WEIGHTS / Path(name).name
    if not Path(name).exists() and own.is_dir():
        return str(own)
    if not Path(name).exists() and (name.count("/") > 1 or name.startswith(("/", "<", "."))):
        raise ValueError(f"the features of --refine were made by {name}, which is not here; name its place with {flag}")
    return name


def check_maker(what: str, flag: str, name: str, made: Mapping[str, str], expected: Mapping[str, Any]) -> None:
    """Refuse an encoder that makes other features than a model was trained on.

    Raises:
        ValueError: It does.
    """
    if other := sorted(part for part in made if made[part] != expected.get(part)):
        raise ValueError(
            f"{name} is not the {what} model that made the features of --refine (other {', '.join(other)}); name that "
            f"one with {flag}, or train with `subtle vcmr` on features of {name}"
        )


def load_moment_model(folder: Path) -> MomentRetrievalModel:
    """A model that finds moments in videos without subtitles, in evaluation mode.

    Raises:
        ValueError: The folder holds something else.
    """
    if not folder.is_dir():
        raise ValueError(
            f"{folder} is not a folder; give the one that `subtle vcmr` wrote, or fetch it: `hf download {folder}`"
        )
    check_model_folder(str(folder))
    disable_progress_bar()
    model = open_whole(AutoModel, folder)
    if not isinstance(model, MomentRetrievalModel):
        raise ValueError(f"{folder} holds a {type(model).__name__}; --refine takes what `subtle vcmr` trained")
    if model.config.subtitle_feature_size is not None:
        raise ValueError(f"{folder} reads subtitles, which footage does not have; train one without them")
    model.eval()
    return model


class Refiner:
    """Moves found moments to the spans that a model of moments prefers.

    Args:
        folder: That `vcmr.py` wrote.
        cache: Folder for features.
        device: Where to compute.
        vision_model: Where the vision model of its features is; None: where it was.
        text_model: The same of the text model.
        num_workers: Processes that decode.
        timeout_seconds: Longest wait for the frames of one read.

    Raises:
        ValueError: The folder holds no such model, or its features cannot be made.
    """

    def __init__(
        self,
        folder: str | Path,
        cache: Path,
        device: torch.device,
        *,
        vision_model: str | None = None,
        text_model: str | None = None,
        num_workers: int = 2,
        timeout_seconds: float = 60.0,
    ) -> None:
        self.name, self.num_workers, self.timeout_seconds = str(folder), num_workers, timeout_seconds
        self.model = load_moment_model(Path(folder))
        self.model.to(device)  # type: ignore[arg-type]  # a wrapped method, which its annotation does not bind
        self.made = what_made_features(Path(folder))
        vision = vision_model or encoder_named(self.made["vision_model"], "--refine_vision_model")
        text = text_model or encoder_named(self.made["text_model"], "--refine_text_model")
        for name in (vision, text):
            check_model_folder(name)
        self.vision = ClipEncoder(vision, frames_per_clip=self.made["frames_per_clip"])
        self.text = TokenEncoder(text)
        vision_made = self.vision.fingerprints | {"sampler": self.vision.sampler}
        check_maker("vision", "--refine_vision_model", vision, vision_made, self.made["video"])
        check_maker("text", "--refine_text_model", text, self.text.fingerprints, self.made["query"])
        self.vision.model.to(device)
        self.text.model.to(device)
        self.clip_seconds = float(self.made["clip_seconds"])
        place = cache / f"features-{key_of({name: str(value) for name, value in self.made['video'].items()})}"
        self.clips, self.ends = FeatureStore(place / "clips", self.made["video"]), FeatureStore(place / "ends")

    def __call__(
        self, text: str, rows: Sequence[FoundRow], path_of: Callable[[FoundRow], Path]
    ) -> tuple[list[FoundRow], dict[str, str]]:
        """Refine found moments.

        Args:
            text: What is looked for.
            rows: As `search_moments` gives them, best first.
            path_of: Where the video of a row is; a VideoError where it is not.

        Returns:
            The rows with `span_score`, best first, each once; those of videos that cannot be read keep their place and
            have None. And why videos could not be read.

        Raises:
            ValueError: The text is longer than the model reads.
        """
        query = self.encode_query(text)
        failures = self.encode_videos(rows, path_of)
        stretches = [self.stretch_of(row) if row["video"] not in failures else None for row in rows]
        known = list(dict.fromkeys(stretch for stretch in stretches if stretch is not None))
        if not known:
            return [self.moved(row, None) for row in rows], failures
        ranking = self.rank(query, known)
        places = {stretch: place for place, stretch in enumerate(known)}
        refined = []
        for row, stretch in zip(rows, stretches, strict=True):
            found = (
                None if stretch is None else best_span(ranking, places[stretch], stretch.first * self.clip_seconds, row)
            )
            refined.append(self.moved(row, found))
        return without_repeats(reordered(refined, "span_score"), self.made["nms_threshold"]), failures

    def encode_query(self, text: str) -> Tensor:
        """`(1, M, D)`."""
        tokens, longest = self.text([text])[0], self.model.config.max_query_tokens
        if len(tokens) > longest or self.text.count_cut([text]):
            raise ValueError(f"--text has more tokens than {self.name} reads ({longest}); shorten it")
        features = F.normalize(tokens, dim=-1)[None].to(self.model.device)
        with torch.inference_mode():
            encoded: Tensor = self.model.encode_query(features, torch.ones(features.shape[:2], device=features.device))
        return encoded.float()

    def num_clips(self, file: str) -> int:
        """Clips of a file whose end is known."""
        return count_segments(float(self.ends[file][0]), self.clip_seconds)

    def stretch_of(self, row: FoundRow) -> Stretch:
        """What the model reads for a moment: the whole video, or where its middle is well inside."""
        total, longest = self.num_clips(row["fingerprint"]), self.model.config.max_video_clips
        if total <= longest:
            return Stretch(row["fingerprint"], 0, total)
        middle = (row["start_seconds"] + row["end_seconds"]) / 2 / self.clip_seconds
        hop = max(1, longest // 2)
        first = min(max(round((middle - longest / 2) / hop) * hop, 0), total - longest)
        return Stretch(row["fingerprint"], first, first + longest)

    def reads_of(self, stretch: Stretch) -> Iterator[tuple[str, int]]:
        """The reads that a stretch needs: their ids in the store, and the number of their first clip."""
        for number in range(stretch.first // CLIPS_PER_READ, math.ceil(stretch.stop / CLIPS_PER_READ)):
            yield f"{stretch.fingerprint}:{number}", number * CLIPS_PER_READ

    def has_features(self, row: FoundRow) -> bool:
        """Whether all that the model reads for a moment is there."""
        return row["fingerprint"] in self.ends and all(
            one in self.clips for one, _ in self.reads_of(self.stretch_of(row))
        )

    def encode_videos(self, rows: Sequence[FoundRow], path_of: Callable[[FoundRow], Path]) -> dict[str, str]:
        """Make the features that are missing; returns why videos could not be read."""
        failures: dict[str, str] = {}
        missing = {row["fingerprint"]: row for row in reversed(rows) if not self.has_features(row)}
        paths: dict[str, Path] = {}
        for file, row in missing.items():
            try:
                path = path_of(row)
                if file_fingerprint(path) != file:
                    raise VideoError(f"{row['video']} has changed since it was indexed; run `subtle index` again")
                paths[file] = path
            except (VideoError, OSError) as error:
                failures[file] = str(error)
        if paths:
            failures |= self.read(rows, paths)
        return {row["video"]: failures[row["fingerprint"]] for row in rows if row["fingerprint"] in failures}

    def read(self, rows: Sequence[FoundRow], paths: Mapping[str, Path]) -> dict[str, str]:
        """Decode and encode what is missing of some files; why some failed."""
        failures: dict[str, str] = {}
        frames = CLIPS_PER_READ * self.vision.frames_per_clip
        limits: dict[str, Any] = {"num_workers": self.num_workers, "timeout_seconds": self.timeout_seconds}
        with VideoReaderPool(frames, size=self.vision.size, reader=read_spans, **limits) as pool:
            unknown = [VideoRequest(file, path, options={"find": "timeline"}) for file, path in paths.items()]
            for file, read in pool.read([request for request in unknown if request.key not in self.ends]):
                if isinstance(read, VideoFailure):
                    failures[str(file)] = read.reason
                else:
                    self.ends.append([str(file)], torch.tensor([[timeline_of(read).end_seconds]]))
            wanted: dict[str, VideoRequest] = {}
            for row in rows:
                if row["fingerprint"] not in paths or row["fingerprint"] in failures:
                    continue
                for one, first in self.reads_of(self.stretch_of(row)):
                    start, end = (clip * self.clip_seconds for clip in (first, first + CLIPS_PER_READ))
                    if one not in self.clips:
                        wanted[one] = VideoRequest((one, start), paths[row["fingerprint"]], start, end)
            self.keep(pool.read(wanted.values()), len(wanted), failures)
        return failures

    def keep(self, reads: Iterator[Any], total: int, failures: dict[str, str]) -> None:
        """Encode reads and write them to the store, some at a time."""

        def encoded() -> Iterator[Batch]:
            for (one, start), read in reads:
                if isinstance(read, VideoFailure):
                    failures[one.partition(":")[0]] = read.reason
                    continue
                clips = group_frames(read, start, self.clip_seconds, CLIPS_PER_READ, self.vision.frames_per_clip)
                yield [one], [self.vision(clips)]

        fill(self.clips, encoded(), total, "read", READS_PER_SHARD, is_hidden=not sys.stderr.isatty())

    def features(self, stretch: Stretch) -> Tensor:
        """`(clips, D)`."""
        reads = list(self.reads_of(stretch))
        whole = torch.cat([self.clips[one] for one, _ in reads])
        first = stretch.first - reads[0][1]
        return F.normalize(whole[first : first + stretch.stop - stretch.first], dim=-1)

    def rank(self, query: Tensor, stretches: Sequence[Stretch]) -> MomentRanking:
        """All spans of some stretches, best first, in seconds from the start of each stretch."""
        features = [self.features(stretch) for stretch in stretches]
        longest = max(map(len, features))

        def batches() -> Iterator[VideoBatch]:
            for begin in range(0, len(features), VIDEOS_PER_BATCH):
                part = features[begin : begin + VIDEOS_PER_BATCH]
                lengths = torch.tensor([len(one) for one in part])
                mask = torch.arange(int(lengths.max())) < lengths[:, None]
                names = [str(begin + place) for place in range(len(part))]
                seconds = torch.full((len(part),), self.clip_seconds, dtype=torch.float64)
                yield VideoBatch(names, pad_sequence(part, batch_first=True), mask, seconds)

        corpus = encode_corpus(self.model, batches(), num_videos=len(features), max_clips=longest)
        limits: dict[str, Any] = {"min_clips": self.made["min_clips"], "max_clips": self.made["max_clips"]}
        offsets = end_offsets(**limits, end_convention=self.model.config.end_convention)
        everything: dict[str, Any] = {"num_videos": len(features), "num_spans": len(features) * longest * len(offsets)}
        return SpanSearch(self.model, corpus, **limits, **everything).rank(query)[0]

    @staticmethod
    def moved(row: FoundRow, found: tuple[float, float, float] | None) -> FoundRow:
        """A row at its span, with where it was."""
        window = {f"window_{name}": row[name] for name in ("start_seconds", "end_seconds")}
        if found is None:
            return row | window | {"span_score": None}
        start, end, score = found
        return row | window | {"start_seconds": start, "end_seconds": end, "score": score, "span_score": score}


def best_span(ranking: MomentRanking, place: int, offset: float, row: FoundRow) -> tuple[float, float, float] | None:
    """Start, end and score of the best span of a stretch whose middle lies in a moment; None where there is none."""
    starts, ends = ranking.start_seconds[0] + offset, ranking.end_seconds[0] + offset
    middles = (starts + ends) / 2
    inside = (middles >= row["start_seconds"]) & (middles <= row["end_seconds"])
    found = np.flatnonzero((ranking.video_indices[0] == place) & inside)
    if not len(found):
        return None
    return float(starts[found[0]]), float(ends[found[0]]), float(ranking.scores[0, found[0]])


def reordered(rows: Sequence[FoundRow], score: str) -> list[FoundRow]:
    """Rows by a score, the largest first; equal ones keep their order, those with None their place.

    >>> rows = [{"n": 1, "s": 2}, {"n": 2, "s": None}, {"n": 3, "s": 5}, {"n": 4, "s": 2}]
    >>> [row["n"] for row in reordered(rows, "s")]
    [3, 2, 1, 4]
    """
    ordered = iter(sorted((row for row in rows if row[score] is not None), key=lambda row: -row[score]))
    return [row if row[score] is None else next(ordered) for row in rows]


def without_repeats(rows: Sequence[FoundRow], threshold: float) -> list[FoundRow]:
    """Rows without those that overlap a better one of their video more than this (temporal IoU)."""
    kept: list[FoundRow] = []
    for row in rows:
        same = (one for one in kept if one["video"] == row["video"])
        if row["span_score"] is None or all(overlap(row, one) <= threshold for one in same):
            kept.append(row)
    return kept


def overlap(one: FoundRow, other: FoundRow) -> float:
    """Temporal IoU of two moments."""
    starts, ends = (sorted(row[name] for row in (one, other)) for name in ("start_seconds", "end_seconds"))
    ratio: float = max(0.0, ends[0] - starts[1]) / (ends[1] - starts[0])
    return ratio
