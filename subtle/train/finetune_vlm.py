"""Fine-tune a vision-language model that embeds, such as Qwen3-VL-Embedding, for composed retrieval."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from accelerate.utils import set_seed
from safetensors.torch import load_file

from hf_models.encoders.estimates import check_memory
from hf_models.encoders.modeling_layer_head import LayerHead
from hf_models.frame_reading import frames_read
from hf_models.gradient_caching import backward_in_chunks
from hf_models.retrieval import ranked_ids, search
from hf_models.tfcovr.distributed_gather import gather_with_gradient, world_size
from hf_models.tfcovr.losses import configured_loss, negatives_of
from subtle.run.accelerator import processes
from subtle.run.architectures import read_sizes
from subtle.run.training import TrainingRun, epoch_batches
from subtle.tfcovr.measure import ComposedRetrievalMeasure
from subtle.train.options import FinetuneVLMConfig
from subtle.vlm.costs import CURE, count_items, estimate_finetuning, estimate_lines
from subtle.vlm.items import Frames, Item, TrainingBatch, chunks_of, clip_loader, embed_items, with_frames
from subtle.vlm.layer_features import LayerFeatures
from subtle.vlm.models import TINY, TrainedWeights, add_lora, load_frozen, make_tiny, new_head, read_checked_config
from subtle.vlm.sources import ClipSource, TextSource, validation_on_clips


class FinetuneVLM(TrainingRun):
    """One training run."""

    NAME, METRIC = "finetune_vlm", "map@50"

    def __init__(self, config: FinetuneVLMConfig) -> None:
        super().__init__(config)
        accelerator, device = self.accelerator, self.accelerator.device
        processes = accelerator.num_processes
        if config.batch_size < 2 * processes:
            raise SystemExit(
                f"--batch_size {config.batch_size} is fewer than two triplets for each of {processes} processes; give "
                f"--batch_size {2 * processes} or more, or start fewer processes"
            )
        model_config = read_checked_config(config.model)
        cost = estimate_finetuning(config, model_config)
        accelerator.print(estimate_lines(cost, config, count_items(config)))
        doing = f"to train with --chunk_size {config.chunk_size}"
        check_memory(cost, device, config.model, doing=doing, cure=CURE)
        self.source = TextSource(config) if config.train_on == "texts" else ClipSource(config)
        self.clips = dict(self.source.clips)
        self.place_validation()
        self.encoder = load_frozen(config, device)
        self.fingerprint = self.encoder.weights
        set_seed(config.seed)
        self.features: LayerFeatures | None = None
        self.trained = self.add_trained(model_config)
        set_seed(config.seed, device_specific=True)  # every process drops out something else
        self.prepare()
        self.measure = ComposedRetrievalMeasure()

    def place_validation(self) -> None:
        """The queries to validate on, and the items of queries and gallery."""
        if self.config.validates_on == "texts":
            assert isinstance(self.source, TextSource)  # the configuration refuses texts beside clips
            self.queries, self.query_items, self.gallery_items = self.source.validation()
        else:
            self.queries, self.query_items, self.gallery_items, clips = validation_on_clips(self.config)
            self.clips |= clips

    def add_trained(self, model_config: Any) -> torch.nn.Module:
        """The part that trains: the model with LoRA, or a head over its layers."""
        config, encoder = self.config, self.encoder
        if config.method == "lora":
            adapted = add_lora(encoder, config)
            if config.activation_checkpointing:
                encoder.model.activation_checkpointing_enable()
            return adapted
        head: LayerHead = new_head(model_config, config).to(self.accelerator.device)
        encoder.add_head(head)
        details = encoder.fingerprint | frames_read(encoder.num_frames, "middles", config.frame_size)
        details = {name: value for name, value in details.items() if name != "head"}
        details["dtype"] = self.accelerator.mixed_precision
        self.features = LayerFeatures(self.output_dir / "features", details, encoder, config, self.accelerator)
        items = [*self.source.all_items(), *self.query_items, *self.gallery_items]
        self.features.fill(items, self.clips)
        return head

    def prepare(self) -> None:
        """Optimizer and weights that train, of which all processes start with the same."""
        weights = TrainedWeights(self.trained)
        if world_size() > 1:
            for weight in weights.parameters():
                dist.broadcast(weight.data, 0)
        # Not wrapped in DDP: a step has many backward passes, and `train_epoch` averages once after the last.
        self.model = self.accelerator.prepare_model(weights, evaluation_mode=True)
        self.weights = list(weights.parameters())
        optimizer = torch.optim.AdamW(self.weights, lr=self.config.learning_rate, weight_decay=self.config.weight_decay)
        self.optimizer = self.accelerator.prepare(optimizer)

    def identity(self) -> dict[str, Any]:
        """The model's weights count, not only their name."""
        return super().identity() | {"num_processes": self.accelerator.num_processes, "weights": self.fingerprint}

    def count_steps(self) -> int:
        """A batch of an epoch with fewer than two triplets for each process is left out."""
        steps = len(epoch_batches(len(self.source), 0, self.config, self.accelerator))
        if not steps:
            raise SystemExit(
                f"{len(self.source)} triplets are fewer than two for each of {self.accelerator.num_processes} "
                "processes; start fewer processes or give more data"
            )
        return steps

    def train_epoch(self) -> None:
        """The rest of the current epoch."""
        config, accelerator, progress = self.config, self.accelerator, self.progress
        self.trained.train()
        rows = epoch_batches(len(self.source), progress.epoch, config, accelerator)[progress.step :]
        batches = [self.source.batch(part, progress.epoch) for part in rows]
        frames_of_each = self.frames_of([batch.items for batch in batches])
        for batch, frames, part in self.fetched(zip(batches, frames_of_each, rows, strict=True)):
            chunks = [partial(self.rows, chunk, frames) for chunk in chunks_of(batch.items, config.chunk_size)]
            loss = backward_in_chunks(
                chunks, partial(self.loss, batch=batch), accelerator.device, backward=accelerator.backward
            )
            self.average_gradients()
            self.clip_gradients(self.weights)
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.finish_step(loss, part.tolist())

    def row_name(self, row: int) -> str:
        """The query of a triplet: its text, or its clip with the text."""
        query, second, *_ = self.source.triplets[row]
        return f"{query} + {second}" if self.config.train_on == "clips" else query

    def frames_of(self, groups: list[list[Item]]) -> Any:
        """The frames of each group's clips; none where the states of the frozen model are there."""
        if self.features is not None:
            return ({} for _ in groups)
        if self.loader is None:  # `train` lets it go
            self.loader = clip_loader(self.clips, self.encoder.num_frames, self.config, self.accelerator.device)
        return with_frames(groups, self.loader)

    def rows(self, items: list[Item], frames: Frames) -> torch.Tensor:
        """The embeddings `(N, D)` of items of one kind."""
        with self.accelerator.autocast():
            if self.features is not None:
                return self.encoder.rows(self.features.stacked(items))
            return embed_items(self.encoder, items, frames)

    def loss(self, embeds: torch.Tensor, *, batch: TrainingBatch) -> torch.Tensor:
        """The contrastive loss over the embeddings of all processes."""
        config, device = self.config, self.accelerator.device
        queries, targets, negatives = (gather_with_gradient(part.contiguous()) for part in embeds.split(batch.sizes))
        labels, negative_labels = (
            gather_with_gradient(part.to(device)) for part in (batch.labels, batch.negative_labels)
        )
        temperature, further = config.temperature, None
        if len(negatives):
            answers = {"labels": labels, "negative_labels": negative_labels}
            further = negatives_of(queries, negatives, temperature, **answers)
        return configured_loss(config, queries, targets, temperature, labels, negative_logits=further)

    def average_gradients(self) -> None:
        """The mean over processes, as DDP takes it."""
        if world_size() > 1:
            for weight in self.weights:
                weight.grad = torch.zeros_like(weight) if weight.grad is None else weight.grad
                dist.all_reduce(weight.grad)
                weight.grad /= world_size()

    def validate(self) -> dict[str, float]:
        """Mean average precision by the encoder's own methods; every process embeds its share."""
        self.trained.eval()
        queries = self.queries
        embeds, gallery = self.embed_all(self.query_items), self.embed_all(self.gallery_items)
        rows, _ = search(embeds, gallery, 50, exclude=queries.exclude)
        metrics = self.measure(ranked_ids(rows.cpu(), queries.gallery_ids), queries)
        return {name: value for name, value in metrics.items() if name.startswith("map@")}

    @torch.no_grad()
    def embed_all(self, items: list[Item]) -> torch.Tensor:
        """The embeddings `(N, D)` of items, the same on every process."""
        first, step = self.accelerator.process_index, self.accelerator.num_processes
        chunks = chunks_of(items[first::step], self.config.chunk_size)
        width = self.encoder.model.config.get_text_config().hidden_size
        own = torch.cat(
            [
                torch.empty(0, width, device=self.accelerator.device),
                *(self.rows(*part) for part in zip(chunks, self.frames_of(chunks), strict=True)),
            ]
        )
        gathered = gather_with_gradient(own)
        order = [place for rank in range(step) for place in range(rank, len(items), step)]
        embeds = torch.empty_like(gathered)
        embeds[order] = gathered
        return embeds

    def summary(self, metrics: dict[str, float]) -> dict[str, float]:
        """The history keeps one metric."""
        return {self.METRIC: metrics[self.METRIC]}

    def publish(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Write the adapter or head with its best weights."""
        metrics = {"validation/map@50": self.progress.best}
        measured_on = f"validation, {self.config.validates_on}"
        details = {"measured_on": measured_on, "signature": self.measure.signature, "coverage": self.source.coverage}
        if self.accelerator.is_main_process:
            weights = dict(self.trained.named_parameters())
            for name, value in load_file(self.best_weights).items():
                weights[name.replace("/", ".")].data.copy_(value)
            embeddings: dict[str, Any] = {"save_embedding_layers": False} if self.config.method == "lora" else {}
            self.write_model(self.trained, **embeddings)
        return metrics, details | {"base_weights": self.fingerprint}


def with_model(config: FinetuneVLMConfig) -> FinetuneVLMConfig:
    """The configuration with the folder of the model of random weights, which is made once, in place of its name."""
    if config.model not in TINY:
        return config
    folder = Path("outputs", config.model)
    state = processes(cpu=config.device == "cpu")
    with state.main_process_first():
        make_tiny(config.model, folder)
    if state.is_main_process:
        print(
            f"{config.model} has random weights, to try the recipe out; for a real model give --model "
            "Qwen/Qwen3-VL-Embedding-2B or Alibaba-NLP/gme-Qwen2-VL-2B-Instruct, or a folder with one"
        )
    return replace(config, model=str(folder))


def run(config: FinetuneVLMConfig) -> dict[str, Any]:
    """Train one adapter or head; returns its metrics on validation."""
    return FinetuneVLM(with_model(config)).train()


def main(config: FinetuneVLMConfig) -> None:
    if config.dry_run:
        config = with_model(config)
        sizes = read_sizes(config.model) or read_checked_config(config.model)
        print(estimate_lines(estimate_finetuning(config, sizes), config, count_items(config)))
        return
    metrics = run(config)
    if processes().is_main_process:
        print(f"{config.output_dir}/model: validation mAP@50 {100 * metrics['validation/map@50']:.2f}")
