"""Train XML, ReLoCLNet or HERO to find moments in a corpus of videos.

    python recipes/vcmr.py
    accelerate launch recipes/vcmr.py --model reloclnet --granularity coarse
    accelerate launch recipes/vcmr.py recipes/configs/vcmr_charades_fig.yaml

Reads moments and features (see `hf_models.feature_store`; those of the miniature are made where they are missing,
others by `embed_moments.py`), trains on fine or coarse captions, and chooses the epoch with the highest VCMR recall@1 at IoU 0.5 plus 0.7 on the validation split; it stops early when that
has not risen for `patience` epochs. Negatives come from the batches of all processes. `OUTPUT_DIR/model` and
`OUTPUT_DIR/results.json` are left behind. A killed run started again goes on from its last checkpoint and ends with the
same weights as one that was never killed.
"""

import json
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from harness.config import option, parse_config, run_recipe
from harness.shared_config import Device, EndConvention, Granularity, MomentDataConfig, TrainingRunConfig


@dataclass
class VCMRConfig(TrainingRunConfig, MomentDataConfig):
    """What to train and how; the defaults are for the miniature."""

    model: Literal["xml", "reloclnet", "hero"] = option("xml", "Architecture.")
    size: Literal["miniature", "paper"] = option("miniature", "Size of the model.")
    roberta: str | None = option(
        None, "RoBERTa that HERO starts from: a model folder or a name on the Hub; none: random weights."
    )
    end_convention: EndConvention = option(
        "inclusive",
        "Which clip is a moment's end: its last one, or the one after it, or as the released XML.",
    )
    granularity: Granularity = option("fine", "Captions to train on.")
    same_video_negatives: bool = option(
        False, "Let two captions of one video repel each other, as the released code does."
    )
    train_split: str = option("train", "Split to train on.")
    validation_split: str = option("validation", "Split that chooses the epoch.")
    max_query_tokens: int = option(48, "Longest query, in tokens; longer ones are cut and counted.")
    epochs: int = option(12, "Most passes over the training moments.")
    patience: int = option(10, "Epochs without a better validation score after which training stops.")
    hard_negative_epoch: int = option(20, "Epoch (from 0) from which on negatives are the hardest ones.")
    batch_size: int = option(128, "Moments per optimizer step, of all processes together.")
    learning_rate: float = option(2e-3, "AdamW's highest learning rate, after the warm-up.")
    weight_decay: float = option(0.01, "AdamW's weight decay; not of norms and biases.")
    warmup_share: float = option(0.01, "Share (0 to 1) of all steps that warms up; a linear decay follows.")
    span_loss_weight: float | None = option(
        None, "Weight of the cross-entropies of start and end; none: as published, or more in the miniature."
    )
    max_gradient_norm: float = option(0.0, "Clip gradients to this norm; 0: do not clip.")
    memory_megabytes: float = option(96, "Memory for the scores of a block of the corpus, in megabytes.")
    output_dir: str = option("outputs/vcmr", "Folder for the model, checkpoints and results.json.")


if __name__ == "__main__":  # before the imports below, which take seconds
    CONFIG = parse_config(VCMRConfig, __doc__)

import numpy as np
import torch
from accelerate import PartialState
from accelerate.utils import set_seed
from embed_moments import EmbedMomentsConfig
from embed_moments import run as embed
from safetensors.torch import load_file, save_file
from torch import Tensor
from tqdm import tqdm
from transformers import get_linear_schedule_with_warmup
from transformers.trainer_pt_utils import get_parameter_names

from fig.data import load_moments, span_preset
from fig.measure import Measure, selection_score
from harness.accelerator import make_accelerator
from harness.checkpoints import Checkpoints, Progress
from harness.results import replacing, write_json, write_results
from hf_models import (
    HEROConfig,
    HEROForMomentRetrieval,
    ReLoCLNetConfig,
    ReLoCLNetForMomentRetrieval,
    XMLConfig,
    XMLForMomentRetrieval,
)
from hf_models.moments.modeling_moments import MomentRetrievalModel
from hf_models.moments.ranking import rank
from hf_models.moments.spans import PRESETS

MODELS = {
    "xml": (XMLConfig, XMLForMomentRetrieval),
    "reloclnet": (ReLoCLNetConfig, ReLoCLNetForMomentRetrieval),
    "hero": (HEROConfig, HEROForMomentRetrieval),
}
# Attention without dropout is several times faster on a CPU. In a few hundred steps, start and end are learned only where
# their loss counts more than published, and in every step.
MINIATURE_SIZES = {
    "hidden_size": 64,
    "num_attention_heads": 2,
    "hidden_dropout": 0.0,
    "span_loss_weight": 0.1,
}
MINIATURE_HERO = {
    "num_cross_modal_layers": 2,
    "num_temporal_layers": 1,
    "intermediate_size": 128,
    "vocab_size": 8,  # captions come as features
    "span_loss_weight": 1.0,  # beside ranking losses of weight 8
    "span_loss_probability": 1.0,
}


# What may change between a run and its continuation without changing the weights.
INCIDENTAL = ("restart", "output_dir", "checkpoint_steps", "device", "tracker", "memory_megabytes")


def make_model(config: VCMRConfig, feature_sizes: tuple[int, int]) -> MomentRetrievalModel:
    """A new model for features of these sizes."""
    config_class, model_class = MODELS[config.model]
    fields: dict[str, Any] = {
        "video_feature_size": feature_sizes[0],
        "query_feature_size": feature_sizes[1],
        "max_query_tokens": config.max_query_tokens,
        "max_video_clips": span_preset(config).max_video_clips,
        "end_convention": config.end_convention,
    }
    if config.size == "miniature":
        fields |= MINIATURE_SIZES | (MINIATURE_HERO if config.model == "hero" else {})
    if config.span_loss_weight is not None:
        fields["span_loss_weight"] = config.span_loss_weight
    if config.roberta is None:
        return model_class(config_class(**fields))
    if config.model != "hero" or config.size != "paper":
        raise SystemExit("--roberta is where a HERO of size 'paper' starts from; give --model hero --size paper")
    return HEROForMomentRetrieval.from_roberta(config.roberta, **fields)


def make_features(config: MomentDataConfig, device: Device) -> None:
    """The features of the miniature where there are none; those of other data take hours and are made on purpose."""
    if config.dataset in PRESETS and config.dataset_config == "mini":
        if (Path(config.features) / "results.json").is_file():
            return
        embed(EmbedMomentsConfig(dataset=config.dataset, output_dir=config.features, device=device))


def epoch_batches(num_rows: int, epoch: int, config: VCMRConfig) -> list[np.ndarray]:
    """The batches of an epoch, in an order that seed and epoch decide; the last may be smaller."""
    order = np.random.default_rng([config.seed, epoch]).permutation(num_rows)
    return np.split(order, range(config.batch_size, num_rows, config.batch_size))


class VCMR:
    """One training run."""

    def __init__(self, config: VCMRConfig) -> None:
        self.config, self.output_dir = config, Path(config.output_dir)
        self.accelerator = make_accelerator(
            config.device, self.output_dir, mixed_precision=config.mixed_precision, tracker=config.tracker
        )
        make_features(config, config.device)
        set_seed(config.seed)
        long_videos = MODELS[config.model][0]().long_videos
        self.train_split, self.validation_split = (
            load_moments(config, split, granularity=config.granularity, long_videos=long_videos)
            for split in (config.train_split, config.validation_split)
        )
        for split in (self.train_split, self.validation_split):
            split.count_long_queries(config.max_query_tokens)
        self.rows = np.flatnonzero(~self.train_split.is_outside)
        model = make_model(config, self.train_split.feature_sizes)
        set_seed(config.seed, device_specific=True)  # every process drops out something else
        self.model, self.optimizer = self.accelerator.prepare(
            model, torch.optim.AdamW(parameter_groups(model, config.weight_decay), lr=config.learning_rate)
        )
        self.num_batches = len(self.batches(0))
        if not self.num_batches:
            raise SystemExit(f"{len(self.rows)} moments are too few for {self.accelerator.num_processes} processes")
        steps = self.num_batches * config.epochs
        self.schedule = get_linear_schedule_with_warmup(self.optimizer, round(config.warmup_share * steps), steps)
        self.accelerator.register_for_checkpointing(self.schedule)
        identity = {name: value for name, value in asdict(config).items() if name not in INCIDENTAL}
        identity["num_processes"] = self.accelerator.num_processes
        self.checkpoints = Checkpoints(self.accelerator, self.output_dir, identity, restart=config.restart)
        self.measure = Measure()

    def batches(self, epoch: int) -> list[np.ndarray]:
        """This process's part of each batch; one with fewer than two rows for each process is left out."""
        parts, place = self.accelerator.num_processes, self.accelerator.process_index
        batches = epoch_batches(len(self.rows), epoch, self.config)
        return [np.array_split(self.rows[batch], parts)[place] for batch in batches if len(batch) >= 2 * parts]

    def train(self) -> dict[str, float]:
        """Train from wherever the last run stopped; returns the figures of the best epoch."""
        config, accelerator = self.config, self.accelerator
        if config.tracker:
            accelerator.init_trackers("vcmr", config={k: v for k, v in asdict(config).items() if v is not None})
        finished = self.output_dir / "results.json"
        if finished.is_file():
            accelerator.print(f"{finished} says that this run is complete; --restart trains anew")
            return json.loads(finished.read_text(encoding="utf-8"))["figures"]
        progress = self.checkpoints.resume()
        with tqdm(
            total=config.epochs * self.num_batches,
            initial=progress.total_steps,
            desc=f"{config.model}, {config.granularity}",
            unit="step",
            disable=not accelerator.is_local_main_process,
        ) as bar:
            while progress.epoch < config.epochs and not self.is_exhausted(progress):
                loss = self.train_epoch(progress, bar)
                self.finish_epoch(progress, loss)
                bar.set_postfix({name: f"{value:.4f}" for name, value in progress.history[-1].items()})
        return self.save(progress)

    def is_exhausted(self, progress: Progress) -> bool:
        """Whether the best epoch lies `patience` epochs back."""
        scores = [epoch["score"] for epoch in progress.history]
        return bool(scores) and len(scores) - 1 - scores.index(max(scores)) >= self.config.patience

    def train_epoch(self, progress: Progress, bar: tqdm) -> float:
        """The rest of the current epoch; the mean loss over all of it."""
        config, accelerator = self.config, self.accelerator
        self.model.train()
        loss_sum = progress.loss_sum
        for rows in self.batches(progress.epoch)[progress.step :]:
            batch = self.train_split.training_batch(
                rows,
                accelerator.unwrap_model(self.model).config,
                same_video_negatives=config.same_video_negatives,
            )
            batch = {name: value.to(accelerator.device) for name, value in batch.items()}
            loss = self.model(**batch, hard_negatives=progress.epoch >= config.hard_negative_epoch).loss
            accelerator.backward(loss)
            if config.max_gradient_norm:
                accelerator.clip_grad_norm_(self.model.parameters(), config.max_gradient_norm)
            self.optimizer.step()
            self.schedule.step()
            self.optimizer.zero_grad()
            loss_sum += loss.item()
            progress.step += 1
            progress.total_steps += 1
            bar.update()
            if progress.total_steps % config.checkpoint_steps == 0:
                progress.loss_sum = loss_sum
                self.checkpoints.save(progress)
        return loss_sum / progress.step

    def finish_epoch(self, progress: Progress, loss: float) -> None:
        """Validate and keep the best weights."""
        figures = self.validate()
        score = selection_score(figures)
        progress.history.append({"loss": loss, "score": score})
        log = {"train/loss": loss} | {f"validation/{name}": value for name, value in figures.items()}
        self.accelerator.log(log, step=progress.total_steps)
        if score > progress.best:
            progress.best = score
            state = self.accelerator.get_state_dict(self.model)
            if self.accelerator.is_main_process:
                keep_best(self.output_dir / "best.safetensors", state, figures)
        self.accelerator.wait_for_everyone()
        progress.epoch, progress.step, progress.loss_sum = progress.epoch + 1, 0, 0.0

    def validate(self) -> dict[str, float]:
        """Recall without NMS, as the released code chooses; every process does the same work."""
        model = self.accelerator.unwrap_model(self.model).eval()
        rankings = rank(model, self.validation_split, memory_megabytes=self.config.memory_megabytes)
        return self.measure(rankings, self.validation_split)

    def save(self, progress: Progress) -> dict[str, float]:
        """Write the model with its best weights, and `results.json` last: it says that the run is complete."""
        best = self.output_dir / "best.safetensors"
        figures = json.loads(best.with_suffix(".json").read_text(encoding="utf-8"))
        self.accelerator.wait_for_everyone()
        if self.accelerator.is_main_process:
            model = self.accelerator.unwrap_model(self.model).cpu()
            model.load_state_dict(load_file(best))
            with replacing(self.output_dir / "model") as unfinished:
                model.save_pretrained(unfinished)
            write_results(
                self.output_dir,
                figures,
                config=self.config,
                seed=self.config.seed,
                signature=self.measure.signature,
                history=progress.history,
                coverage={
                    "train": self.train_split.coverage | {"moments_trained_on": len(self.rows)},
                    "validation": self.validation_split.coverage,
                },
                num_processes=self.accelerator.num_processes,
            )
            shutil.rmtree(self.output_dir / "checkpoints", ignore_errors=True)
        self.accelerator.wait_for_everyone()
        self.accelerator.end_training()
        return figures


def parameter_groups(model: MomentRetrievalModel, weight_decay: float) -> list[dict[str, Any]]:
    """Biases and norms do not decay."""
    decaying = set(get_parameter_names(model, [torch.nn.LayerNorm], [r"bias$"]))
    parameters = dict(model.named_parameters())
    return [
        {"params": [p for name, p in parameters.items() if name in decaying], "weight_decay": weight_decay},
        {"params": [p for name, p in parameters.items() if name not in decaying], "weight_decay": 0.0},
    ]


def keep_best(path: Path, state: dict[str, Tensor], figures: dict[str, float]) -> None:
    """Replace the best weights and their figures."""
    with replacing(path) as unfinished:
        save_file({name: value.contiguous() for name, value in state.items()}, unfinished)
    write_json(path.with_suffix(".json"), figures)


def run(config: VCMRConfig) -> dict[str, float]:
    """Train one model; returns its figures on the validation split."""
    return VCMR(config).train()


def main(config: VCMRConfig) -> None:
    figures = run(config)
    if PartialState().is_main_process:
        found = ", ".join(f"{100 * figures[f'vcmr_recall@1_iou@{iou}']:.2f} at IoU {iou}" for iou in (0.5, 0.7))
        print(f"{config.output_dir}/model: validation VCMR recall@1 {found}")


if __name__ == "__main__":
    sys.exit(run_recipe(main, CONFIG))
