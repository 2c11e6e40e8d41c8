"""Where training batches come from: stored embeddings that stay on the device, or videos."""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from hf_datasets.video import read_frames
from hf_datasets.video.pool import NO_FILE, VideoRequest, unreadable
from hf_models import TFCoVRForComposedRetrieval, TFCoVRProcessor
from hf_models.feature_store import FeatureStore
from hf_models.retrieval import encode
from hf_models.tfcovr.queries import Queries, Triplets, index_of
from hf_models.tfcovr.ranking import query_inputs
from subtle.run.batches import batched
from subtle.run.data import load_split
from subtle.run.shared_config import DataConfig, EmbedConfig, EncoderConfig, QueryParts
from subtle.tfcovr.clip_embeddings import TEXTS_AT_ONCE, made_by, prepared_clips

Batch = dict[str, Any]


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

        With `query_frames` the clips of queries come from a folder beside it, `FOLDER-N-frames`, made likewise.
        """
        if query_frames is not None:
            return cls.with_query_frames(config, model, processor, device, make=make, query_frames=query_frames)
        folder = Path(config.output_dir)
        if not (folder / "results.json").is_file():
            make(config)
        origin = made_by(model, processor, config)
        try:
            (clips, video), (texts, text) = (FeatureStore(folder / kind, origin[kind]).load() for kind in origin)
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{error}; make them with `python recipes/embed.py clips`") from error
        video = video.to(device)
        return cls(index_of(clips), index_of(texts), video, text.to(device), video)

    @classmethod
    def with_query_frames(
        cls,
        config: EmbedConfig,
        model: TFCoVRForComposedRetrieval,
        processor: TFCoVRProcessor,
        device: torch.device,
        *,
        make: Callable[[EmbedConfig], Any],
        query_frames: int,
    ) -> "EmbeddingSource":
        """Targets from the folder of `config`, queries from one with this many frames; clips that are in both."""
        targets = cls.open(config, model, processor, device, make=make)
        fewer = copy.deepcopy(processor)
        fewer.video_processor.num_frames = query_frames
        folder = f"{config.output_dir}-{query_frames}-frames"
        own = replace(config, num_frames=query_frames, output_dir=folder)
        queries = cls.open(own, model, fewer, device, make=make)
        both = [clip for clip in targets.clips if clip in queries.clips]
        rows, own_rows = ([source.clips[clip] for clip in both] for source in (targets, queries))
        return replace(
            targets,
            clips=index_of(both),
            video_embeds=queries.video_embeds[own_rows],
            target_embeds=targets.target_embeds[rows],
        )

    def batches(self, triplets: Triplets, rows: Sequence[Tensor], parts: QueryParts) -> Iterator[Batch]:
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
        """What `rank` takes, by position; it does not depend on what is trained."""
        return {
            "video_embeds": self.video_embeds,
            "text_embeds": self.text_embeds,
            "gallery_embeds": self.target_embeds,
        }


class PixelSource:
    """Videos decoded and texts tokenized for each batch, for training end to end."""

    def __init__(self, processor: TFCoVRProcessor, config: Any, accelerator: Accelerator) -> None:
        self.processor, self.config, self.device = processor, config, accelerator.device
        rows = [clip for split in ("train", "validation") for clip in load_split(config, split, clips=True)]
        with accelerator.main_process_first():
            self.failures = unreadable_clips(rows, embed_config(config, ""))
        self.rows = [clip for clip in rows if clip["clip_id"] not in self.failures]
        self.clips = index_of([clip["clip_id"] for clip in self.rows])
        texts = {text for split in ("train", "validation") for text in load_split(config, split)["modification_text"]}
        self.texts = index_of(sorted(texts))

    def batches(self, triplets: Triplets, rows: Sequence[Tensor], parts: QueryParts) -> Iterator[Batch]:
        """One batch for each list of triplet rows."""
        loader = DataLoader(
            PairFrames(self, triplets),
            batch_sampler=[part.tolist() for part in rows],
            collate_fn=self.collate,
            num_workers=self.config.num_workers,
            # A loader draws a number when it starts. Drawn from the global state, it would change what drops out after
            # a resume.
            generator=torch.Generator().manual_seed(self.config.seed),
        )
        unused = {"both": set(), "text": {"pixel_values"}, "video": {"input_ids", "attention_mask"}}[parts]
        for batch in loader:
            yield {name: value.to(self.device) for name, value in batch.items() if name not in unused}

    def collate(self, items: list[Batch]) -> Batch:
        """Stack clips and tokenize texts."""
        return {
            "pixel_values": torch.stack([item["query"] for item in items]),
            "target_pixel_values": torch.stack([item["target"] for item in items]),
            "target_labels": torch.stack([item["label"] for item in items]),
            **self.processor(text=[item["text"] for item in items]),
        }

    def embeddings(self, model: TFCoVRForComposedRetrieval, queries: Queries) -> dict[str, Any]:
        """What `rank` takes, by position, from the model as it is; what the queries do not need stays zero."""
        config = embed_config(self.config, "")
        video = torch.zeros(len(self.clips), model.config.video_embed_dim, device=self.device)
        needed = [self.rows[place] for place in sorted({*queries.query.tolist(), *queries.gallery.tolist()})]
        clips = prepared_clips(needed, self.processor, config, {})
        loader = ({"clip_id": clip_ids, "pixel_values": pixels} for clip_ids, pixels in clips)
        clip_ids, embeds = encode(model, loader, features="encode_video")
        video[[self.clips[clip_id] for clip_id in clip_ids]] = embeds.to(self.device)
        tokens = ({"texts": texts, **self.processor(text=texts)} for texts in batched(self.texts, TEXTS_AT_ONCE))
        _, text = encode(model, tokens, features="encode_text", id_key="texts")
        return {"video_embeds": video, "text_embeds": text.to(self.device)}


class PairFrames(Dataset[Batch]):
    """The frames of a triplet's query and target clip, its text and its label."""

    def __init__(self, source: PixelSource, triplets: Triplets) -> None:
        self.source, self.triplets = source, triplets
        self.texts = list(source.texts)

    def __len__(self) -> int:
        return len(self.triplets)

    def __getitem__(self, row: int) -> Batch:
        return {
            "query": self.frames(self.triplets.query[row]),
            "target": self.frames(self.triplets.target[row]),
            "text": self.texts[self.triplets.text[row]],
            "label": self.triplets.label[row],
        }

    def frames(self, place: Tensor) -> Tensor:
        """`pixel_values (T, C, H, W)` of one clip."""
        clip, processor = self.source.rows[place], self.source.processor.video_processor
        span, spread = (clip["start_seconds"], clip["end_seconds"]), self.source.config.spread
        read = read_frames(clip["video"], processor.num_frames, *span, spread=spread)
        pixels: Tensor = processor(read.frames, do_sample_frames=False, return_tensors="pt")["pixel_values"][0]
        return pixels


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
