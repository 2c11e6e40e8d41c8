"""Train TF-CoVR's composer on stored embeddings, or everything end to end from pixels.

    python recipes/stage2.py
    accelerate launch recipes/stage2.py
    accelerate launch --config_file recipes/accelerate/4xa100.yaml recipes/stage2.py recipes/configs/stage2_4xa100.yaml

The embeddings of `embed.py` are made first where they are missing. They stay on the device, batches are index lists,
and each text was encoded once. Contrastive negatives come from all processes. Every epoch is validated by mAP@50, and
the best weights become `OUTPUT_DIR/model` with `OUTPUT_DIR/results.json`. A killed run started again with the same
configuration goes on from its last checkpoint and ends with the same weights as one that was never killed. The
miniature takes well under a minute.
"""

import json
import math
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from harness.config import option, parse_config, run_recipe
from harness.shared_config import DataConfig, EncoderConfig, QueryParts, TrainingRunConfig


@dataclass
class Stage2Config(TrainingRunConfig, EncoderConfig, DataConfig):
    """What to train and how; the defaults are for the miniature."""

    embeddings: str = option("outputs/embeddings/stage1", "Folder of embed.py's embeddings; made where missing.")
    end_to_end: bool = option(False, "Train the encoders too, from pixels.")
    query: QueryParts = option("both", "Parts of the query that the model sees; text and video are baselines.")
    fusion: Literal["mlp", "gated", "average"] = option(
        "mlp",
        "How clip and text are fused: the paper's MLP, the released code's gate, or the mean (nothing to train).",
    )
    projection_dim: int | None = option(128, "Size of the embeddings; none: that of the video encoder.")
    fusion_projection_dim: int = option(256, "Hidden size of each half in gated.")
    fusion_hidden_dim: int = option(256, "Hidden size of the fused vector in mlp and gated.")
    fusion_dropout: float = option(0.1, "Dropout probability (0 to 1) after each hidden layer.")
    project_targets: bool | None = option(None, "Give targets a linear layer; none: with mlp only.")
    standardize_video: bool = option(True, "Standardize video embeddings by the training clips; not with --end_to_end.")
    loss: Literal["hn_nce", "infonce", "multi_positive"] = option("multi_positive", "Contrastive loss.")
    temperature: float = option(0.07, "What similarities are divided by in the loss.")
    learnable_temperature: bool = option(False, "Train the temperature, starting from --temperature.")
    alpha: float = option(1.0, "Weight of the positive in hn_nce.")
    beta: float = option(0.0, "Hardness of the negatives in hn_nce; 0: all alike.")
    row_normalization: Literal["row", "official"] = option(
        "row", "Normalization of hn_nce's negative weights; official repeats a slip of the released code."
    )
    epochs: int = option(10, "Passes over the training triplets.")
    batch_size: int = option(256, "Triplets per optimizer step, of all processes together.")
    learning_rate: float = option(1e-3, "AdamW's highest learning rate, after the warm-up.")
    weight_decay: float = option(0.05, "AdamW's weight decay.")
    warmup_steps: int = option(0, "Optimizer steps of linear warm-up; a cosine to zero follows.")
    max_gradient_norm: float = option(0.0, "Clip gradients to this norm; 0: do not clip.")
    checkpoint_steps: int = 1000
    activation_checkpointing: bool = option(False, "Recompute activations: less memory, more time.")
    num_workers: int = option(2, "Processes that read frames; 0: the training process reads them.")
    output_dir: str = option("outputs/stage2", "Folder for the model, checkpoints and results.json.")


if __name__ == "__main__":  # before the imports below, which take seconds
    CONFIG = parse_config(Stage2Config, __doc__)

import torch
from accelerate import Accelerator, PartialState
from accelerate.utils import set_seed
from safetensors.torch import load_file, save_file
from torch.distributed.fsdp import register_fsdp_forward_method
from tqdm import tqdm

from harness.accelerator import make_accelerator
from harness.checkpoints import Checkpoints, Progress
from harness.models import load_encoders
from harness.results import replacing, write_results
from hf_models.fingerprints import weights_fingerprint
from tfcovr.batches import EmbeddingSource, PixelSource, embed_config
from tfcovr.queries import Queries, load_split, place_queries, place_triplets
from tfcovr.ranking import Measure, rank

MODEL_FIELDS = (
    *(
        "fusion",
        "projection_dim",
        "fusion_projection_dim",
        "fusion_hidden_dim",
        "fusion_dropout",
        "project_targets",
    ),
    *("loss", "temperature", "learnable_temperature", "alpha", "beta", "row_normalization"),
)

# What may change between a run and its continuation without changing the weights.
INCIDENTAL = ("restart", "output_dir", "checkpoint_steps", "num_workers", "device", "tracker", "cache_dir")


def learning_rate(step: int, total_steps: int, config: Stage2Config) -> float:
    """Linear warm-up, then a cosine to zero."""
    if step < config.warmup_steps:
        return config.learning_rate * (step + 1) / config.warmup_steps
    done = (step - config.warmup_steps) / max(1, total_steps - config.warmup_steps)
    return config.learning_rate * (1 + math.cos(math.pi * done)) / 2


def epoch_batches(num_rows: int, epoch: int, config: Stage2Config, accelerator: Accelerator) -> list[torch.Tensor]:
    """This process's part of each batch of an epoch, in an order that seed and epoch decide.

    The last batch may be smaller and the parts uneven; one with fewer than two rows for each process is left out.
    """
    order = torch.randperm(num_rows, generator=torch.Generator().manual_seed(config.seed * 1_000_003 + epoch))
    batches = [batch for batch in order.split(config.batch_size) if len(batch) >= 2 * accelerator.num_processes]
    return [batch.tensor_split(accelerator.num_processes)[accelerator.process_index] for batch in batches]


class Stage2:
    """One training run."""

    def __init__(self, config: Stage2Config) -> None:
        self.config, self.output_dir = config, Path(config.output_dir)
        self.accelerator = make_accelerator(
            config.device,
            self.output_dir,
            mixed_precision=config.mixed_precision,
            tracker=config.tracker,
            find_unused_parameters=config.end_to_end,  # some encoders have heads that nothing here reads
        )
        set_seed(config.seed)
        fields = {name: getattr(config, name) for name in MODEL_FIELDS}
        fields["standardize_video"] = config.standardize_video and not config.end_to_end
        self.whole, self.processor = load_encoders(config, **fields)
        if config.end_to_end:
            self.source = PixelSource(self.processor, config, self.accelerator)
        else:
            embed = embed_config(config, config.embeddings)
            self.source = EmbeddingSource.open(embed, self.whole, self.processor, self.accelerator.device)
        encoders = {kind: weights_fingerprint(getattr(self.whole, f"{kind}_model")) for kind in ("vision", "text")}
        self.triplets = place_triplets(load_split(config, "train"), self.source.clips, self.source.texts)
        if self.whole.config.standardize_video:
            clips = torch.cat([self.triplets.query, self.triplets.target]).unique()
            self.whole.set_video_statistics(self.source.video_embeds[clips.to(self.accelerator.device)].cpu())
        self.queries = self.validation_queries()
        self.model, self.optimizer = self.accelerator.prepare(*self.trainables())
        for method in ("get_query_features", "get_target_features", "encode_video", "encode_text"):
            register_fsdp_forward_method(self.model, method)  # nothing happens where the model is not sharded
        identity = {name: value for name, value in asdict(config).items() if name not in INCIDENTAL}
        identity |= {"num_processes": self.accelerator.num_processes, "encoders": encoders}
        self.checkpoints = Checkpoints(self.accelerator, self.output_dir, identity, restart=config.restart)
        self.measure = Measure()

    def validation_queries(self) -> Queries:
        """The queries of the validation split against all its clips."""
        gallery = load_split(self.config, "validation", clips=True)["clip_id"]
        return place_queries(load_split(self.config, "validation"), gallery, self.source.clips, self.source.texts)

    def trainables(self) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        """The part of the model that trains, and its optimizer; stored embeddings leave the encoders aside."""
        self.encoders = {}
        if self.config.end_to_end:
            if self.config.activation_checkpointing:
                self.whole.activation_checkpointing_enable()
        else:
            self.encoders = {name: getattr(self.whole, name) for name in ("vision_model", "text_model")}
            for name in self.encoders:
                setattr(self.whole, name, None)
        if self.config.query == "video":
            self.whole.text_projection.requires_grad_(False)
        set_seed(self.config.seed, device_specific=True)  # every process drops out something else
        config, device = self.config, self.accelerator.device
        optimizer = torch.optim.AdamW(
            self.whole.to(device).parameters(),
            lr=config.learning_rate,
            weight_decay=config.weight_decay,
            fused=True,
        )
        return self.whole, optimizer

    def train(self) -> dict[str, Any]:
        """Train from wherever the last run stopped; returns the figures of the best epoch."""
        config, accelerator = self.config, self.accelerator
        finished = self.output_dir / "results.json"
        if finished.is_file():
            accelerator.print(f"{finished} says that this run is complete; --restart trains anew")
            return json.loads(finished.read_text(encoding="utf-8"))["figures"]
        if config.tracker:
            accelerator.init_trackers("stage2", config={k: v for k, v in asdict(config).items() if v is not None})
        progress = self.checkpoints.resume()
        steps_per_epoch = len(epoch_batches(len(self.triplets), 0, config, accelerator))
        if not steps_per_epoch:
            raise SystemExit(
                f"{len(self.triplets)} triplets are fewer than two for each of {accelerator.num_processes} processes"
            )
        with tqdm(
            total=config.epochs * steps_per_epoch,
            initial=progress.total_steps,
            desc="stage 2",
            unit="step",
            disable=not accelerator.is_local_main_process,
        ) as bar:
            while progress.epoch < config.epochs:
                loss = self.train_epoch(progress, config.epochs * steps_per_epoch, bar)
                self.finish_epoch(progress, loss)
                bar.set_postfix({name: f"{value:.4f}" for name, value in progress.history[-1].items()})
        return self.save(progress)

    def train_epoch(self, progress: Progress, total_steps: int, bar: tqdm) -> float:
        """The rest of the current epoch; the mean loss over all of it."""
        config, accelerator = self.config, self.accelerator
        self.model.train()
        rows = epoch_batches(len(self.triplets), progress.epoch, config, accelerator)[progress.step :]
        loss_sum = torch.tensor(progress.loss_sum, dtype=torch.float64, device=accelerator.device)
        for batch in self.source.batches(self.triplets, rows, config.query):
            for group in self.optimizer.param_groups:
                group["lr"] = learning_rate(progress.total_steps, total_steps, config)
            loss = self.model(**batch, return_loss=True).loss
            accelerator.backward(loss)
            if config.max_gradient_norm:
                accelerator.clip_grad_norm_(self.model.parameters(), config.max_gradient_norm)
            self.optimizer.step()
            self.optimizer.zero_grad()
            loss_sum += loss.detach()
            progress.step += 1
            progress.total_steps += 1
            bar.update()
            if progress.total_steps % config.checkpoint_steps == 0:
                progress.loss_sum = loss_sum.item()
                self.checkpoints.save(progress)
        return loss_sum.item() / progress.step

    def finish_epoch(self, progress: Progress, loss: float) -> None:
        """Validate and keep the best weights."""
        figures = self.validate()
        progress.history.append({"loss": loss, "map@50": figures["map@50"]})
        log = {"train/loss": loss} | {f"validation/{name}": value for name, value in figures.items()}
        self.accelerator.log(log, step=progress.total_steps)
        state = self.accelerator.get_state_dict(self.model)
        if figures["map@50"] > progress.best:
            progress.best = figures["map@50"]
            if self.accelerator.is_main_process:
                with replacing(self.output_dir / "best.safetensors") as unfinished:
                    save_file({name: value.contiguous() for name, value in state.items()}, unfinished)
        progress.epoch, progress.step, progress.loss_sum = progress.epoch + 1, 0, 0.0

    def validate(self) -> dict[str, float]:
        """The figures of the weights as they are; every process does the same work."""
        model = self.accelerator.unwrap_model(self.model).eval()
        video_embeds, text_embeds = self.source.embeddings(model, self.queries)
        ranked, _ = rank(model, self.queries, video_embeds, text_embeds, parts=self.config.query)
        figures = self.measure(ranked, self.queries)
        return {name: value for name, value in figures.items() if name.startswith("map@")}

    def save(self, progress: Progress) -> dict[str, Any]:
        """Write the whole model with its best weights, and `results.json` last: it says that the run is complete."""
        self.accelerator.wait_for_everyone()
        if self.accelerator.is_main_process:
            model = self.accelerator.unwrap_model(self.model)
            state = load_file(self.output_dir / "best.safetensors")
            for name, encoder in self.encoders.items():
                setattr(model, name, encoder)
                state |= {f"{name}.{key}": value for key, value in encoder.state_dict().items()}
            with replacing(self.output_dir / "model") as unfinished:
                model.save_pretrained(unfinished, state_dict=state)
                self.processor.save_pretrained(unfinished)
            write_results(
                self.output_dir,
                {"validation/map@50": progress.best},
                config=self.config,
                seed=self.config.seed,
                history=progress.history,
                coverage={"train": self.triplets.coverage, "validation": self.queries.coverage},
                num_processes=self.accelerator.num_processes,
            )
            shutil.rmtree(self.output_dir / "checkpoints", ignore_errors=True)
        self.accelerator.wait_for_everyone()
        self.accelerator.end_training()
        return {"validation/map@50": progress.best}


def run(config: Stage2Config) -> dict[str, Any]:
    """Train one model; returns its figures on the validation split."""
    return Stage2(config).train()


def main(config: Stage2Config) -> None:
    figures = run(config)
    if PartialState().is_main_process:
        print(f"{config.output_dir}/model: validation mAP@50 {100 * figures['validation/map@50']:.2f}")


if __name__ == "__main__":
    sys.exit(run_recipe(main, CONFIG))
