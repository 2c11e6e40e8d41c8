"""Fine-tune a vision-language model that embeds, such as Qwen3-VL-Embedding, for composed retrieval.

    python recipes/finetune_vlm.py --dry_run
    python recipes/finetune_vlm.py recipes/configs/finetune_vlm_qwen3_vl_2b.yaml
    python recipes/finetune_vlm.py --model Qwen/Qwen3-VL-Embedding-2B --train_on clips --mixed_precision bf16

Trains LoRA, or with `--method frozen_layers` a small head over the last token's states of several layers of the frozen
model (PREGEN's idea); from clips with modification texts, or from texts alone (TARA's idea), which opens no video.
Gradient caching makes the contrastive batch independent of memory. Download, memory and hours are printed before
anything loads, and a GPU that is too small is refused. Validated by mAP@50 every epoch; the best weights become
`OUTPUT_DIR/model`, a few MB that `load_encoder(MODEL, adapter="OUTPUT_DIR/model")` reads. A killed run started again
ends with the same weights. Without `--model` it makes one of random weights, to try the recipe out in a minute.
"""

import sys
from dataclasses import dataclass
from typing import Any, Literal

from harness.config import option, parse_config, run_recipe
from harness.shared_config import DataConfig, TrainingRunConfig

NEGATIVE_KINDS = ("count", "direction", "order", "negation", "composition")  # as in hf_datasets.caption_negatives


@dataclass
class FinetuneVLMConfig(TrainingRunConfig, DataConfig):
    """What to train, on what and how; the defaults are for the miniature and a model of random weights."""

    model: str = option(
        "tiny-random-qwen3-vl",
        "Multimodal language model that embeds: a folder or a name on the Hub, such as Qwen/Qwen3-VL-Embedding-2B; "
        "tiny-random-qwen3-vl and tiny-random-qwen2-vl are made here, to try the recipe out.",
    )
    method: Literal["lora", "frozen_layers"] = option(
        "lora", "What trains: LoRA in the language model, or a head over layers of the frozen model."
    )
    train_on: Literal["texts", "clips"] = option(
        "texts", "Captions and how they change, which opens no video; or clips with modification texts."
    )
    adapter: str | None = option(None, "Adapter of the same model to go on from, with --method lora; none: a new one.")
    rank: int = option(8, "Rank of LoRA's matrices.")
    lora_alpha: int = option(16, "LoRA's outputs are multiplied by this over the rank.")
    lora_dropout: float = option(0.05, "Dropout probability (0 to 1) before LoRA, or in the blocks of the head.")
    target_modules: list[str] = option(
        ["q_proj", "k_proj", "v_proj", "o_proj"],
        "Linear layers of the language model that get LoRA; the vision tower stays frozen.",
    )
    layers: list[int] | None = option(
        None, "Layers that the head reads, 0 the token embeddings, -1 the last; none: all but the embeddings."
    )
    head_dim: int = option(256, "Width of the head's blocks, a multiple of 4.")
    head_layers: int = option(2, "Blocks of the head.")
    loss: Literal["multi_positive", "infonce", "hn_nce"] = option(
        "multi_positive", "Contrastive loss: what says the same as the target is a positive; in-batch; hard negatives."
    )
    temperature: float = option(0.05, "What similarities are divided by in the loss.")
    alpha: float = option(1.0, "Weight of the positive in hn_nce.")
    beta: float = option(0.5, "Hardness of the negatives in hn_nce; 0: all alike.")
    negatives: list[str] = option(
        list(NEGATIVE_KINDS), f"Hard negatives by what they change: {', '.join(NEGATIVE_KINDS)}; of clips by label."
    )
    hard_negatives: int = option(2, "Most hard negatives of a query, drawn again every epoch; 0: in-batch ones only.")
    max_triplets: int | None = option(None, "Train on a random choice of this many triplets; none: on all.")
    num_frames: int | None = option(None, "Frames of a clip; none: as the model was used.")
    frame_size: int | None = option(None, "Shorter side of the frames as they are read, in pixels; none: as filmed.")
    epochs: int = option(2, "Passes over the triplets.")
    batch_size: int = option(64, "Triplets per optimizer step, of all processes together; memory does not limit it.")
    chunk_size: int = option(16, "Clips or texts of one forward pass, which is what takes memory.")
    learning_rate: float = option(2e-3, "AdamW's highest learning rate, after the warm-up; 1e-4 for real models.")
    weight_decay: float = option(0.0, "AdamW's weight decay.")
    warmup_steps: int = option(0, "Optimizer steps of linear warm-up; a cosine to zero follows.")
    max_gradient_norm: float = option(1.0, "Clip gradients to this norm.")
    activation_checkpointing: bool = option(True, "Recompute activations with --method lora: less memory, more time.")
    validation: Literal["texts", "clips"] | None = option(
        None,
        "What mAP@50 is measured on: changes of texts that are held out, or the validation split's clips; none: "
        "as --train_on.",
    )
    validation_queries: int | None = option(None, "Validate on the first queries only, this many; none: on all.")
    tflops: float = option(100.0, "What the GPU reaches in a step, in 10^12 operations a second, for the hours.")
    dry_run: bool = option(False, "Print download, memory and hours; load nothing.")
    num_workers: int = option(2, "Processes that read frames; 0: the training process reads them.")
    output_dir: str = option("outputs/finetune_vlm", "Folder for the adapter, checkpoints and results.json.")

    def __post_init__(self) -> None:
        if unknown := sorted(set(self.negatives) - set(NEGATIVE_KINDS)):
            raise ValueError(f"--negatives: there is no {unknown[0]!r}; there are {', '.join(NEGATIVE_KINDS)}")
        if self.adapter is not None and self.method != "lora":
            raise ValueError("--adapter is for --method lora; leave it out")
        if self.validates_on == "texts" and self.train_on == "clips":
            raise ValueError("--validation texts holds out texts of --train_on texts; use --validation clips")
        for name in ("rank", "batch_size", "chunk_size", "epochs", "head_layers"):
            if getattr(self, name) < 1:
                raise ValueError(f"--{name} must be at least 1, not {getattr(self, name)}")
        if self.hard_negatives < 0 or self.temperature <= 0 or self.tflops <= 0:
            raise ValueError("--hard_negatives must be at least 0, --temperature and --tflops above 0")

    @property
    def validates_on(self) -> str:
        """What validation measures on."""
        return self.validation or self.train_on


if __name__ == "__main__":  # before the imports below, which take seconds
    CONFIG = parse_config(FinetuneVLMConfig, __doc__)

from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from accelerate import PartialState
from accelerate.utils import set_seed
from vlm.costs import count_items, describe, estimate_run, refuse_small_gpu
from vlm.items import Batch, Frames, Item, chunks_of, embed, with_frames
from vlm.layer_features import LayerFeatures
from vlm.models import TINY, TrainedWeights, add_lora, load_frozen, make_tiny, new_head, read_checked_config
from vlm.publication import save_adapter
from vlm.sources import ClipSource, TextSource, validation_on_clips

from harness.schedules import warmup_cosine
from harness.training import TrainingRun, epoch_batches, identity_of
from hf_models.fingerprints import weights_fingerprint
from hf_models.gradient_caching import backward_in_chunks
from hf_models.retrieval import ranked_ids, search
from hf_models.tfcovr.distributed_gather import gather_with_gradient, world_size
from hf_models.tfcovr.losses import hn_nce, infonce, multi_positive, negatives_of
from tfcovr.measure import ComposedRetrievalMeasure

NOT_WEIGHTS = ("dry_run", "tflops")
"""Options that change no weight."""


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
        cost = estimate_run(config, model_config)
        accelerator.print(describe(cost, config, count_items(config)))
        refuse_small_gpu(cost, config, device)
        self.source = TextSource(config) if config.train_on == "texts" else ClipSource(config)
        self.clips = dict(self.source.clips)
        self.place_validation()
        self.encoder = load_frozen(config, device)
        self.fingerprint = weights_fingerprint(self.encoder.model)
        set_seed(config.seed)
        self.features: LayerFeatures | None = None
        self.trained = self.add_trained(model_config)
        set_seed(config.seed, device_specific=True)  # every process drops out something else
        self.prepare()
        self.measure = ComposedRetrievalMeasure()

    def place_validation(self) -> None:
        """The queries to validate on, and the items of queries and gallery."""
        if self.config.validates_on == "texts":
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
        head = new_head(model_config, config).to(self.accelerator.device)
        encoder.add_head(head)
        details = {"weights": self.fingerprint, "frames": encoder.num_frames, "frame_size": config.frame_size}
        details |= {name: value for name, value in encoder.depends_on.items() if name != "head"}
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
        chosen = identity_of(self.config, without=NOT_WEIGHTS)
        return chosen | {"num_processes": self.accelerator.num_processes, "weights": self.fingerprint}

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
        for batch, frames in zip(batches, self.frames_of([batch.items for batch in batches]), strict=True):
            rate = warmup_cosine(progress.total_steps, self.total_steps, config.warmup_steps, config.learning_rate)
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            chunks = [partial(self.rows, chunk, frames) for chunk in chunks_of(batch.items, config.chunk_size)]
            loss = backward_in_chunks(
                chunks, partial(self.loss, batch=batch), accelerator.device, backward=accelerator.backward
            )
            self.average_gradients()
            accelerator.clip_grad_norm_(self.weights, config.max_gradient_norm or float("inf"))
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.finish_step(loss)

    def frames_of(self, groups: list[list[Item]]) -> Any:
        """The frames of each group's clips; none where the states of the frozen model are there."""
        if self.features is not None:
            return ({} for _ in groups)
        return with_frames(groups, self.clips, self.encoder.num_frames, self.config)

    def rows(self, items: list[Item], frames: Frames) -> torch.Tensor:
        """The embeddings `(N, D)` of items of one kind."""
        with self.accelerator.autocast():
            if self.features is not None:
                return self.encoder.rows(self.features.stacked(items))
            return embed(self.encoder, items, frames)

    def loss(self, embeds: torch.Tensor, *, batch: Batch) -> torch.Tensor:
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
        if config.loss == "multi_positive":
            return multi_positive(queries, targets, temperature, labels, negative_logits=further)
        if config.loss == "infonce":
            return infonce(queries, targets, temperature, negative_logits=further)
        return hn_nce(queries, targets, temperature, config.alpha, config.beta, negative_logits=further)

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
            save_adapter(
                self.output_dir / "model",
                self.trained,
                self.best_weights,
                self.encoder,
                self.config,
                details | {"metrics": {"map@50": self.progress.best}},
            )
        return metrics, details | {"base_weights": self.fingerprint}


def with_model(config: FinetuneVLMConfig) -> FinetuneVLMConfig:
    """The configuration with the folder of the model of random weights, which is made once, in place of its name."""
    if config.model not in TINY:
        return config
    folder = Path("outputs", config.model)
    state = PartialState(cpu=config.device == "cpu")
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
        print(describe(estimate_run(config, read_checked_config(config.model)), config, count_items(config)))
        return
    metrics = run(config)
    if PartialState().is_main_process:
        print(f"{config.output_dir}/model: validation mAP@50 {100 * metrics['validation/map@50']:.2f}")


if __name__ == "__main__":
    sys.exit(run_recipe(main, CONFIG))
