"""BLIP-CoVR trained: the text encoder looks at the middle frame of the query's clip; the targets stay as they are.

As CoVR trains it: the vision encoder is frozen, each target is the mean of its frames' embeddings, computed once before
training, and the text encoder with its projection learns to meet them. CoVR can weight a target's frames by their
similarity to the modification text; it tells the target what it is searched with (CoVR's issue 43), so it is left out.

With `enriched` it is BLIP-CoVR-ECDE: a query is 0.8 x that with the modification and 0.2 x that with a description of
its clip, and the loss 0.8 x that to the target's frames and 0.2 x that to its multimodal embedding. How ECDE's authors
made the latter was not released; here it is what the model gives, before training, for the target's middle frame and
its description. They have a third one, of the description alone, which was not released either and is left out.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from accelerate.utils import set_seed
from safetensors.torch import load_file
from torch import Tensor

from hf_datasets.video.frame_cache import FrameCache
from hf_models.encoders import BlipEncoder, BlipForComposedRetrieval, load_encoder
from hf_models.encoders.blip import COVR_TOKENS, COVR_TRAINING_TOKENS
from hf_models.fingerprints import weights_fingerprint
from hf_models.retrieval import ranked_ids, search
from hf_models.tfcovr.distributed_gather import gather_with_gradient
from hf_models.tfcovr.losses import configured_loss
from hf_models.tfcovr.modification_texts import normalize_modification
from hf_models.tfcovr.queries import Queries, index_of, place_queries, place_triplets
from subtle.embedding.loop import Work
from subtle.options import option
from subtle.run.batches import batched
from subtle.run.data import load_split
from subtle.run.shared_config import (
    DataConfig,
    EmbeddingsConfig,
    FrameCacheConfig,
    ReleasedLossConfig,
    TextsConfig,
    TrainingRunConfig,
)
from subtle.run.training import TrainingRun, epoch_batches
from subtle.table.caption_texts import texts_digest
from subtle.table.embedding import Embedder
from subtle.table.queries import DESCRIPTION_WEIGHT, blend
from subtle.tfcovr.measure import ComposedRetrievalMeasure

STATES_GIGABYTES = 2.0
"""What the frozen vision encoder gives is kept in memory up to this; else it runs for each batch."""
QUERY_FRAMES = 1
FRAMES_AT_ONCE = 64


@dataclass
class CrossAttentionConfig(
    TrainingRunConfig, ReleasedLossConfig, EmbeddingsConfig, TextsConfig, FrameCacheConfig, DataConfig
):
    """What to train and how."""

    model: str = option("Salesforce/blip-itm-large-coco", "BLIP for retrieval: a model folder or a name on the Hub.")
    enriched: bool = option(False, "Train ECDE, which also reads descriptions of clips.")
    target_frames: int = option(15, "Frames of a target.")
    embeddings: str = "outputs/finetune_baseline/embeddings"
    loss: Literal["hn_nce", "infonce", "multi_positive"] = "hn_nce"
    batch_size: int = 256
    learning_rate: float = 1e-4
    weight_decay: float = 0.05
    output_dir: str = "outputs/finetune_baseline/blip-covr"


class Clips:
    """The clips of some splits as a cross-attention model takes them: frames, tokens, targets.

    Args:
        encoder: as it is before training; its vision encoder stays so.
        config: what to train.
        splits: whose clips and texts.
        descriptions: clip id -> text, for ECDE; None otherwise.
        device: where the model is.
        most_tokens: where modification texts are cut.

    Attributes:
        ids: clip id -> position, of the clips that can be read.
        texts: text -> position.
        target_embeds: `(N, D)`, of the clips' frames.
        multimodal_embeds: `(N, D)`, of their middle frames with their descriptions; None without descriptions.
    """

    def __init__(
        self,
        encoder: BlipEncoder,
        config: CrossAttentionConfig,
        splits: tuple[str, ...],
        descriptions: Mapping[str, str] | None,
        device: torch.device,
        most_tokens: int = COVR_TOKENS,
    ) -> None:
        self.encoder, self.device = encoder, device
        rows = [clip for split in splits for clip in load_split(config, split, clips=True)]
        embedder = Embedder(encoder, config.embeddings, Work(num_workers=config.num_workers))
        targets = embedder.clips(rows, config.target_frames)
        images = encoder.processor.image_processor.size
        size = (images["height"], images["width"])
        self.frames = FrameCache(Path(config.cache_dir), rows, QUERY_FRAMES, size, num_workers=config.num_workers)
        described = set(targets.ids) if descriptions is None else set(targets.ids) & descriptions.keys()
        known = [clip["clip_id"] for clip in rows if clip["clip_id"] in described - self.frames.failures.keys()]
        if not known:
            wanted = "a readable video" if descriptions is None else "a readable video and a description"
            raise ValueError(f"none of {len(rows):,} clips has {wanted}")
        self.ids = index_of(known)
        self.target_embeds = targets.rows(known).to(device)
        written = {text for split in splits for text in load_split(config, split)["modification_text"]}
        said = [] if descriptions is None else [descriptions[clip_id] for clip_id in known]
        self.texts = index_of(sorted(written | set(said)))
        spelled = [normalize_modification(text) if config.number_words else text for text in self.texts]
        self.tokens = encoder.tokens(spelled, most_tokens)
        self.tokens["input_ids"][:, 0] = encoder.enc_token_id
        self.multimodal_embeds: Tensor | None = None
        self.description = torch.tensor([self.texts[text] for text in said])
        if descriptions is not None:
            texts = dict(zip(known, (spelled[self.texts[text]] for text in said), strict=True))
            self.multimodal_embeds = torch.cat([self.describe(part, texts) for part in batched(known, FRAMES_AT_ONCE)])
        self.states = self.encode_all()

    def encode_all(self) -> Tensor | None:
        """What the vision encoder gives for all clips `(N, P, width)`, on the CPU; None where it is too much."""
        ids = list(self.ids)
        first = self.encode(ids[:1])
        if len(ids) * first.nbytes > STATES_GIGABYTES * 1e9:
            return None
        return torch.cat([self.encode(part).cpu() for part in batched(ids, FRAMES_AT_ONCE)])

    @torch.no_grad()
    def encode(self, clip_ids: list[str]) -> Tensor:
        """What the vision encoder gives for the middle frames of clips, `(n, P, width)`."""
        pixels = self.encoder.images([self.frames[clip_id] for clip_id in clip_ids])
        states: Tensor = self.encoder.model.vision_model(**pixels).last_hidden_state
        return states

    @torch.no_grad()
    def describe(self, clip_ids: list[str], texts: Mapping[str, str]) -> Tensor:
        """What the model gives before training for the middle frames of clips with texts, `(n, D)`."""
        return self.encoder.encode_query([self.frames[one] for one in clip_ids], [texts[one] for one in clip_ids])

    def inputs(self, clips: Tensor, texts: Tensor) -> dict[str, Tensor]:
        """What the model takes for queries by position; with descriptions the same clips once more with these."""
        if self.states is None:
            ids = list(self.ids)
            states = self.encode([ids[place] for place in clips])
        else:
            states = self.states[clips].to(self.device)
        if self.multimodal_embeds is not None:
            states, texts = states.repeat(2, 1, 1), torch.cat([texts, self.description[clips]])
        tokens = {name: values[texts.to(values.device)] for name, values in self.tokens.items()}
        longest = int(tokens["attention_mask"].sum(1).max())  # padded on the right
        return {"image_states": states} | {name: values[:, :longest] for name, values in tokens.items()}


class CrossAttentionTraining(TrainingRun):
    """One training run.

    Args:
        config: what to train.
        descriptions: clip id -> text, for ECDE; None otherwise.
    """

    NAME, METRIC = "cross_attention", "map@50"

    def __init__(self, config: CrossAttentionConfig, descriptions: Mapping[str, str] | None) -> None:
        super().__init__(config)
        device = self.accelerator.device
        self.encoder, whole = load_blip(config, device)
        self.fingerprint = weights_fingerprint(self.encoder.model)
        self.descriptions = descriptions
        with self.accelerator.main_process_first():
            self.clips = Clips(
                self.encoder, config, ("train", "validation"), descriptions, device, COVR_TRAINING_TOKENS
            )
        self.triplets = place_triplets(load_split(config, "train").to_polars(), self.clips.ids, self.clips.texts)
        self.queries = place_split(config, "validation", self.clips)
        whole.freeze_vision()
        self.vision_model = whole.vision_model
        whole.register_module("vision_model", None)  # frozen, and run by the encoder
        set_seed(config.seed, device_specific=True)  # every process drops out something else
        trained = [weight for weight in whole.parameters() if weight.requires_grad]
        fused = device.type != "mps"
        optimizer = torch.optim.AdamW(trained, lr=config.learning_rate, weight_decay=config.weight_decay, fused=fused)
        self.model, self.optimizer = self.accelerator.prepare(whole.to(device), optimizer)
        self.measure = ComposedRetrievalMeasure()

    def identity(self) -> dict[str, Any]:
        """The weights and the descriptions count, not only where they are."""
        descriptions = {"descriptions": texts_digest(self.descriptions)} if self.descriptions else {}
        return super().identity() | {"encoder": self.fingerprint} | descriptions

    def count_steps(self) -> int:
        """A batch of an epoch with fewer than two triplets for each process is left out."""
        steps = len(epoch_batches(len(self.triplets), 0, self.config, self.accelerator))
        if not steps:
            raise SystemExit(f"{len(self.triplets)} triplets are fewer than two for each process")
        return steps

    def train_epoch(self) -> None:
        """The rest of the current epoch."""
        config, accelerator, progress = self.config, self.accelerator, self.progress
        self.model.train()
        batches = epoch_batches(len(self.triplets), progress.epoch, config, accelerator)[progress.step :]
        for rows in self.fetched(batches):
            loss = self.loss_of(rows)
            self.take_step(loss)
            self.finish_step(loss, rows.tolist())

    def row_name(self, row: int) -> str:
        """The clips of a triplet."""
        ids = list(self.clips.ids)
        return f"{ids[self.triplets.query[row]]} -> {ids[self.triplets.target[row]]}"

    def loss_of(self, rows: Tensor) -> Tensor:
        """The loss of this process's triplets with the negatives of all processes."""
        config, triplets, clips, device = self.config, self.triplets, self.clips, self.accelerator.device
        query = compose_batch(self.model, clips, triplets.query[rows], triplets.text[rows])
        labels = gather_with_gradient(triplets.label[rows].to(device))
        target = triplets.target[rows].to(device)
        query = gather_with_gradient(query)
        plain = gather_with_gradient(clips.target_embeds[target])
        loss = configured_loss(config, query, plain, config.temperature, labels)
        if clips.multimodal_embeds is None:
            return loss
        enriched = gather_with_gradient(clips.multimodal_embeds[target])
        described = configured_loss(config, query, enriched, config.temperature, labels)
        return (1 - DESCRIPTION_WEIGHT) * loss + DESCRIPTION_WEIGHT * described

    def validate(self) -> dict[str, float]:
        """Mean average precision on the validation split; every process does the same work."""
        model = self.plain_model.eval()
        metrics = self.measure(rank_queries(model, self.clips, self.queries), self.queries)
        return {name: value for name, value in metrics.items() if name.startswith("map@")}

    def summary(self, metrics: dict[str, float]) -> dict[str, float]:
        """The history keeps one metric."""
        return {self.METRIC: metrics[self.METRIC]}

    def publish(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Write the whole model with its best weights."""
        if self.accelerator.is_main_process:
            model = self.plain_model
            model.load_state_dict(load_file(self.best_weights))
            model.vision_model = self.vision_model
            self.write_model(model, self.encoder.processor)
        coverage = {"train": self.triplets.coverage, "validation": self.queries.coverage}
        details = {"signature": self.measure.signature, "coverage": coverage}
        return {"validation/map@50": self.progress.best}, details


def load_blip(config: CrossAttentionConfig, device: torch.device) -> tuple[BlipEncoder, BlipForComposedRetrieval]:
    """The encoder as it is, and the model to train, of one folder or name.

    Raises:
        ValueError: It is no BLIP.
    """
    encoder: Any = load_encoder(config.model, device, config.target_frames)
    if not isinstance(encoder, BlipEncoder):
        raise ValueError(
            f"{config.model} is a {encoder.model.config.model_type!r} model, whose text encoder does not look at a "
            "frame; take a BLIP for retrieval, such as Salesforce/blip-itm-large-coco"
        )
    return encoder, BlipForComposedRetrieval.from_pretrained(config.model)


def compose_batch(model: Any, clips: Clips, query: Tensor, text: Tensor) -> Tensor:
    """Unit-norm queries `(n, D)` by position of clip and text."""
    composed: Tensor = model(**clips.inputs(query, text))
    if clips.multimodal_embeds is None:
        return composed
    modified, described = composed.chunk(2)
    return blend(modified, described)


@torch.inference_mode()
def rank_queries(model: Any, clips: Clips, queries: Queries) -> list[list[str]]:
    """The first 50 gallery ids of each query, without its own clip."""
    parts = zip(queries.query.split(FRAMES_AT_ONCE), queries.text.split(FRAMES_AT_ONCE), strict=True)
    composed = torch.cat([compose_batch(model, clips, query, text) for query, text in parts])
    corpus = clips.target_embeds[queries.gallery.to(clips.device)]
    rows, _ = search(composed, corpus, 50, exclude=queries.exclude)
    return ranked_ids(rows.cpu(), queries.gallery_ids)


def place_split(config: CrossAttentionConfig, split: str, clips: Clips) -> Queries:
    """The queries of a split against all its clips."""
    gallery = load_split(config, split, clips=True)["clip_id"]
    return place_queries(load_split(config, split), gallery, clips.ids, clips.texts)


def rank_split(
    config: CrossAttentionConfig, descriptions: Mapping[str, str] | None, split: str, device: torch.device
) -> tuple[list[list[str]], Queries]:
    """The rankings of a split by the model that `config` has trained, and its queries."""
    encoder, _ = load_blip(config, device)
    trained = BlipForComposedRetrieval.from_pretrained(Path(config.output_dir) / "model")
    trained.to(device).eval()  # type: ignore[arg-type]  # a wrapped method, which its annotation does not bind
    clips = Clips(encoder, config, (split,), descriptions, device)
    queries = place_split(config, split, clips)
    return rank_queries(trained, clips, queries), queries
