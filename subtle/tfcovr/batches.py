"""Where training batches come from: stored embeddings that stay on the device, or videos."""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor
from torch.utils.data import Dataset, default_collate

from hf_datasets.video import read_frames
from hf_datasets.video.pool import NO_FILE, VideoRequest, unreadable
from hf_models import FactoredCoVRForComposedRetrieval, TFCoVRForComposedRetrieval, TFCoVRProcessor
from hf_models.feature_store import FeatureStore
from hf_models.frame_reading import frame_size_of
from hf_models.retrieval import encode
from hf_models.tfcovr.queries import Queries, Triplets, index_of
from hf_models.tfcovr.ranking import query_inputs
from subtle.run.batches import batched
from subtle.run.data import load_split
from subtle.run.loading import shared_bytes
from subtle.run.shared_config import DataConfig, EmbedConfig, EncoderConfig, QueryParts
from subtle.tfcovr.clip_embeddings import TEXTS_AT_ONCE, made_by, prepared_clips

PairBatch = dict[str, Any]
PIXEL_INPUTS = {"pixel_values", "target_pixel_values"}
UNPREPARED = {"do_sample_frames": False, "do_rescale": False, "do_normalize": False}
"""What a video processor leaves to do in a worker, so that frames are uint8 until they are on the device."""
PREPARED = {"do_sample_frames": False, "do_resize": False, "do_center_crop": False}
"""What is done of it then."""


def embed_config(config: Any, output_dir: str, **changes: Any) -> EmbedConfig:
    """The configuration of `embed.py clips` for the encoders and data of another recipe's."""
    shared = {*EncoderConfig.__dataclass_fields__, *DataConfig.__dataclass_fields__}
    shared |= {"device", "mixed_precision", "num_workers", "cache_dir", "shuffle_frames"}
    values = {name: getattr(config, name) for name in shared if hasattr(config, name)}
    return EmbedConfig(**{**values, "output_dir": output_dir, **changes})


@dataclass(frozen=True)
class EmbeddingSource:
    """Embeddings of all clips and texts on the device; a batch is four index operations there.

    Attributes:
        clips: clip id -> row of `video_embeds`.
        texts: text -> row of `text_embeds`.
        video_embeds: `(N, D)`, of the clips of queries.
        text_embeds: `(M, E)`.
        target_embeds: `(N, D)`, of targets and of the gallery; `video_embeds` unless a query has frames of its own.
    """

    clips: dict[str, int]
    texts: dict[str, int]
    video_embeds: Tensor
    text_embeds: Tensor
    target_embeds: Tensor

    @classmethod
    def open(
        cls,
        config: EmbedConfig,
        model: TFCoVRForComposedRetrieval,
        processor: TFCoVRProcessor,
        device: torch.device,
        *,
        make: Callable[[EmbedConfig], Any],
        query_frames: int | None = None,
    ) -> "EmbeddingSource":
        """Load the folder of `config`, which `make` fills if needed; embeddings of other encoders are refused.

        With `query_frames` the clips of queries come from a folder beside it, `FOLDER-N-frames`, made likewise; clips
        that are in both count.
        """
        folder = Path(config.output_dir)
        if not (folder / "results.json").is_file():
            make(config)
        origin = made_by(model, processor, config)
        try:
            (clips, video), (texts, text) = (FeatureStore(folder / kind, origin[kind]).load() for kind in origin)
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{error}; make them with `python recipes/embed.py clips`") from error
        if isinstance(model, FactoredCoVRForComposedRetrieval):
            finder = model.word_finder
            tokens = processor(text=texts)["input_ids"]
            text = torch.cat([text, finder(tokens.to(finder.token_ids.device)).to(text)], -1)
        video = video.to(device)
        targets = cls(index_of(clips), index_of(texts), video, text.to(device), video)
        if query_frames is None:
            return targets
        fewer = copy.deepcopy(processor)
        fewer.video_processor.num_frames = query_frames
        own = replace(config, num_frames=query_frames, output_dir=f"{config.output_dir}-{query_frames}-frames")
        queries = cls.open(own, model, fewer, device, make=make)
        both = [clip for clip in targets.clips if clip in queries.clips]
        rows, own_rows = ([source.clips[clip] for clip in both] for source in (targets, queries))
        return replace(
            targets,
            clips=index_of(both),
            video_embeds=queries.video_embeds[own_rows],
            target_embeds=targets.target_embeds[rows],
        )

    def batches(self, triplets: Triplets, rows: Sequence[Tensor], parts: QueryParts) -> Iterator[PairBatch]:
        """One batch for each list of triplet rows."""
        device = self.video_embeds.device
        query, text, target, label = (
            part.to(device) for part in (triplets.query, triplets.text, triplets.target, triplets.label)
        )
        sizes = [len(part) for part in rows]
        for row in torch.cat([*rows]).to(device).split(sizes) if sizes else ():
            yield query_inputs(parts, self.video_embeds[query[row]], self.text_embeds[text[row]]) | {
                "target_video_embeds": self.target_embeds[target[row]],
                "target_labels": label[row],
            }

    def embeddings(self, _model: TFCoVRForComposedRetrieval, _queries: Queries) -> dict[str, Any]:
        """What `rank_clips` takes, by position; it does not depend on what is trained."""
        return {
            "video_embeds": self.video_embeds,
            "text_embeds": self.text_embeds,
            "gallery_embeds": self.target_embeds,
        }


class PixelSource:
    """Videos decoded and texts tokenized for each batch, for training end to end.

    Args:
        processor: The model's.
        config: Of stage 2.
        accelerator: Its processes share the validation.
        read: `TrainingRun.read_batches`.
    """

    def __init__(
        self,
        processor: TFCoVRProcessor,
        config: Any,
        accelerator: Accelerator,
        read: Callable[..., Iterator[PairBatch]],
    ) -> None:
        self.processor, self.config, self.accelerator, self.read = processor, config, accelerator, read
        rows = [clip for split in ("train", "validation") for clip in load_split(config, split, clips=True)]
        with accelerator.main_process_first():
            self.failures = unreadable_clips(rows, embed_config(config, ""))
        self.rows = [clip for clip in rows if clip["clip_id"] not in self.failures]
        self.clips = index_of([clip["clip_id"] for clip in self.rows])
        texts = {text for split in ("train", "validation") for text in load_split(config, split)["modification_text"]}
        self.texts = index_of(sorted(texts))
        self.pairs = PairFrames(self.rows, list(self.texts), processor, config)

    def batches(self, triplets: Triplets, rows: Sequence[Tensor], _: QueryParts) -> Iterator[PairBatch]:
        """One batch for each list of triplet rows; the parts of a query are those of the configuration."""
        columns = (triplets.query, triplets.text, triplets.target, triplets.label)
        indices = [list(zip(*(column[part].tolist() for column in columns), strict=True)) for part in rows]
        video, workers = self.processor.video_processor, self.config.num_workers
        most, size = max(map(len, rows), default=0), frame_size_of(video)
        sides = size if isinstance(size, tuple) else (0, 0)  # others differ from video to video
        needed = shared_bytes(2 * most, video.num_frames, sides, workers)
        for batch in self.read(
            self.pairs, indices, num_workers=workers, collate=self.pairs.collate, needed_bytes=needed
        ):
            for name in PIXEL_INPUTS & batch.keys():
                batch[name] = video(list(batch[name]), return_tensors="pt", **PREPARED)["pixel_values"]
            yield batch

    def embeddings(self, model: TFCoVRForComposedRetrieval, queries: Queries) -> dict[str, Any]:
        """What `rank_clips` takes, by position, from the model as it is; what the queries do not need stays zero.

        Every process encodes its part of the clips. Where each holds only a part of the weights all encode all of
        them, since they have to call the model equally often.
        """
        config, accelerator = embed_config(self.config, ""), self.accelerator
        video = torch.zeros(len(self.clips), model.config.video_embed_dim, device=accelerator.device)
        needed = [self.rows[place] for place in sorted({*queries.query.tolist(), *queries.gallery.tolist()})]
        shares = accelerator.num_processes > 1 and not accelerator.is_fsdp2
        own = needed[accelerator.process_index :: accelerator.num_processes] if shares else needed
        clips = prepared_clips(own, self.processor, config, {}, device=accelerator.device)
        loader = ({"clip_id": clip_ids, "pixel_values": pixels} for clip_ids, pixels in clips)
        encoded = encode(model, loader, features="encode_video") if own else ([], video[:0])
        for clip_ids, embeds in gather_object([(encoded[0], encoded[1].cpu())]) if shares else [encoded]:
            video[[self.clips[clip_id] for clip_id in clip_ids]] = embeds.to(video)
        tokens = ({"texts": texts, **self.processor(text=texts)} for texts in batched(self.texts, TEXTS_AT_ONCE))
        _, text = encode(model, tokens, features="encode_text", id_key="texts")
        return {"video_embeds": video, "text_embeds": text.to(video.device)}


class PairFrames(Dataset[tuple[PairBatch, str]]):
    """Triplets, indexed by the places of query, text and target, and the label: tensors, and the text.

    The frames of clips are uint8, `(T, C, H, W)`, as large as the processor makes them, which has still to normalize.

    Args:
        rows: The clips.
        texts: In their order.
        processor: The model's.
        config: With `spread` and `query`.
    """

    def __init__(self, rows: list[dict[str, Any]], texts: list[str], processor: TFCoVRProcessor, config: Any) -> None:
        self.rows, self.texts, self.processor = rows, texts, processor
        self.spread, self.parts = config.spread, config.query

    def __getitem__(self, places: tuple[int, int, int, int]) -> tuple[PairBatch, str]:
        query, text, target, label = places
        clips = {"target_pixel_values": target} | ({} if self.parts == "text" else {"pixel_values": query})
        frames = {name: self.frames(self.rows[place]) for name, place in clips.items()}
        return frames | {"target_labels": torch.tensor(label)}, self.texts[text]

    def frames(self, clip: dict[str, Any]) -> Tensor:
        """Of one clip."""
        processor, span = self.processor.video_processor, (clip["start_seconds"], clip["end_seconds"])
        read = read_frames(clip["video"], processor.num_frames, *span, spread=self.spread)
        pixels: Tensor = processor(read.frames, return_tensors="pt", **UNPREPARED)["pixel_values"][0]
        return pixels

    def collate(self, items: list[tuple[PairBatch, str]]) -> PairBatch:
        """Stack clips and tokenize texts."""
        tensors, texts = zip(*items, strict=True)
        tokens = {} if self.parts == "video" else self.processor(text=list(texts))
        return {**default_collate(list(tensors)), **tokens}


def unreadable_clips(clips: list[dict[str, Any]], config: EmbedConfig) -> dict[str, str]:
    """Clips of which not even one frame can be read, with the reason; found before training rather than during it."""
    failures = {clip["clip_id"]: NO_FILE for clip in clips if not clip["video"]}
    requests = [
        VideoRequest(clip["clip_id"], clip["video"], clip["start_seconds"], clip["end_seconds"])
        for clip in clips
        if clip["video"]
    ]
    limits: dict[str, Any] = {"num_workers": config.num_workers, "timeout_seconds": config.timeout_seconds}
    return failures | unreadable(requests, **limits)
