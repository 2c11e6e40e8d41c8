"""Train XML, ReLoCLNet or HERO to find moments in a corpus of videos."""

import dataclasses
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import set_seed
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoConfig
from transformers.trainer_pt_utils import get_parameter_names

from hf_datasets.drafts import write_json
from hf_models import (
    HEROConfig,
    HEROForMomentRetrieval,
    ReLoCLNetConfig,
    ReLoCLNetForMomentRetrieval,
    XMLConfig,
    XMLForMomentRetrieval,
)
from hf_models.moments.modeling_moments import MomentRetrievalModel
from hf_models.moments.presets import PRESETS
from hf_models.moments.ranking import rank_moments
from subtle.embedding.embed_moments import run as embed
from subtle.embedding.options import EmbedMomentsConfig
from subtle.fig.data import FEATURES_FILE, feature_origins, load_moments, span_preset
from subtle.fig.measure import MomentRetrievalMeasure
from subtle.options import nearest
from subtle.run.accelerator import from_main, processes
from subtle.run.checkpoints import AGAIN
from subtle.run.data import with_split
from subtle.run.model_folders import check_model_folder
from subtle.run.results import read_json
from subtle.run.schedules import rate_factor
from subtle.run.shared_config import Device, MomentDataConfig
from subtle.run.training import TrainingRun, split_batches
from subtle.train.options import VCMRConfig

MOMENT_MODELS = {
    "xml": (XMLConfig, XMLForMomentRetrieval),
    "reloclnet": (ReLoCLNetConfig, ReLoCLNetForMomentRetrieval),
    "hero": (HEROConfig, HEROForMomentRetrieval),
}
# Attention without dropout is several times faster on a CPU. In a few hundred steps, start and end are learned only
# where their loss counts more than published, and in every step.
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


def make_model(config: VCMRConfig, feature_sizes: tuple[int, int]) -> MomentRetrievalModel:
    """A new model for features of these sizes."""
    config_class, model_class = MOMENT_MODELS[config.model]
    fields: dict[str, Any] = {
        "video_feature_size": feature_sizes[0],
        "query_feature_size": feature_sizes[1],
        "max_query_tokens": config.max_query_tokens,
        "max_video_clips": span_preset(config).max_video_clips,
        "end_convention": config.end_convention,
    }
    if config.size == "miniature":
        fields |= MINIATURE_SIZES | (MINIATURE_HERO if config.model == "hero" else {})
    known = {field.name for field in dataclasses.fields(config_class)}
    if unknown := sorted(config.model_fields.keys() - known):
        raise SystemExit(f"--model_fields: {config_class.__name__} has no {unknown[0]!r}{nearest(unknown[0], known)}")
    fields |= config.model_fields
    if config.init_from is None:
        model: MomentRetrievalModel = model_class(config_class(**fields))
        return model
    if config.model != "hero" or config.size != "paper":
        raise SystemExit("--init_from is where a HERO of size 'paper' starts from: give --model hero --size paper")
    check_model_folder(config.init_from)
    if AutoConfig.from_pretrained(config.init_from).model_type == HEROConfig.model_type:
        return HEROForMomentRetrieval.from_hero(config.init_from, **fields)
    return HEROForMomentRetrieval.from_roberta(config.init_from, **fields)


def make_features(config: MomentDataConfig, device: Device, num_workers: int) -> None:
    """The features of the miniature where there are none; those of other data take hours and are made on purpose."""
    is_mini = config.dataset in PRESETS and config.dataset_config == "mini"
    if is_mini and not (Path(config.features) / "results.json").is_file():
        embed(
            EmbedMomentsConfig(
                dataset=config.dataset,
                data_dir=config.data_dir,
                output_dir=config.features,
                device=device,
                num_workers=num_workers,
            )
        )


class VCMR(TrainingRun):
    """One training run."""

    NAME, METRIC = "vcmr", "score"

    def __init__(self, config: VCMRConfig) -> None:
        chosen = with_split(config, "validation_split", ("validation", "test"))
        if chosen.validation_split == "test" and config.validation_split is None and processes().is_main_process:
            sys.stderr.write(
                f"{config.dataset!r} has no split 'validation': 'test' chooses the epoch, as in the released code, so "
                "results on it are too good; --validation_split names another\n"
            )
        config = chosen
        assert config.validation_split is not None  # `with_split` filled it
        super().__init__(config)
        self.patience = config.patience
        make_features(config, config.device, config.num_workers)
        set_seed(config.seed)  # whether or not there were features to make
        long_videos = MOMENT_MODELS[config.model][0]().long_videos
        self.train_split, self.validation_split = (
            load_moments(config, split, granularity=config.granularity, long_videos=long_videos)
            for split in ("train", config.validation_split)
        )
        for split in (self.train_split, self.validation_split):
            split.count_long_queries(config.max_query_tokens)
        self.rows = np.flatnonzero(~self.train_split.is_outside)
        model = make_model(config, self.train_split.feature_sizes)
        set_seed(config.seed, device_specific=True)  # every process drops out something else
        self.model, self.optimizer = self.accelerator.prepare(
            model,
            torch.optim.AdamW(
                decay_groups(model, config.weight_decay),
                lr=config.learning_rate,
                betas=(0.9, config.adam_beta2),
            ),
        )
        self.measure = MomentRetrievalMeasure()

    @property
    def description(self) -> str:
        """Architecture and captions."""
        return f"{self.config.model}, {self.config.granularity}"

    def batches(self, epoch: int) -> list[np.ndarray]:
        """This process's part of each batch of an epoch, in an order that seed and epoch decide."""
        order = self.rows[np.random.default_rng([self.config.seed, epoch]).permutation(len(self.rows))]
        parts = split_batches(torch.from_numpy(order), self.config.batch_size, self.accelerator)
        return [part.numpy() for part in parts]

    def count_steps(self) -> int:
        """A batch of an epoch with fewer than two moments for each process is left out."""
        steps = len(self.batches(0))
        if not steps:
            raise SystemExit(f"{len(self.rows)} moments are too few for {self.accelerator.num_processes} processes")
        return steps

    def rate_factor(self, step: int) -> float:
        """Linear, as the released code has it."""
        return rate_factor(step, self.total_steps, round(self.warmup), shape="linear", first=0)

    def train_epoch(self) -> None:
        """The rest of the current epoch."""
        config, accelerator, progress = self.config, self.accelerator, self.progress
        self.model.train()
        parts = self.batches(progress.epoch)[progress.step :]
        make = partial(
            self.train_split.training_batch,
            config=self.plain_model.config,
            same_video_negatives=config.same_video_negatives,
        )
        for rows, batch in self.fetched((rows, make(rows)) for rows in parts):
            batch = {name: value.to(accelerator.device) for name, value in batch.items()}
            done, first = progress.epoch, config.hard_negative_epoch
            if config.hard_negative_step is not None:
                done, first = progress.total_steps, config.hard_negative_step
            loss = self.model(**batch, hard_negatives=done >= first).loss
            self.take_step(loss)
            self.finish_step(loss, rows.tolist())

    def row_name(self, row: int) -> str:
        """The query of a moment."""
        return str(self.train_split.desc_ids[row])

    def validate(self) -> dict[str, float]:
        """Recall without NMS, as the released code chooses; every process does the same work."""
        model = self.plain_model.eval()
        rankings = rank_moments(model, self.validation_split)
        return self.measure(rankings, self.validation_split)

    def summary(self, metrics: dict[str, float]) -> dict[str, float]:
        """The history keeps what chooses the epoch, the sum of two recalls as in the released code."""
        return {self.METRIC: metrics["vcmr_recall@1_iou@0.5"] + metrics["vcmr_recall@1_iou@0.7"]}

    def keep_best(self, state: dict[str, Tensor]) -> None:
        """With their metrics, which become those of the run."""
        super().keep_best(state)
        write_json(self.best_weights.with_suffix(".json"), self.metrics)

    def publish(self) -> tuple[dict[str, float], dict[str, Any]]:
        """Write the model with its best weights."""
        metrics = from_main(lambda: read_json(self.best_weights.with_suffix(".json"), AGAIN))
        if self.accelerator.is_main_process:
            model = self.plain_model.cpu()
            model.load_state_dict(load_file(self.best_weights))
            self.write_model(model, files={FEATURES_FILE: feature_origins(self.config, self.config.granularity)})
        coverage = {
            "train": self.train_split.coverage | {"moments_trained_on": len(self.rows)},
            "validation": self.validation_split.coverage,
        }
        return metrics, {"signature": self.measure.signature, "coverage": coverage}


def decay_groups(model: MomentRetrievalModel, weight_decay: float) -> list[dict[str, Any]]:
    """Biases and norms do not decay."""
    decaying = set(get_parameter_names(model, [torch.nn.LayerNorm], [r"bias$"]))
    parameters = dict(model.named_parameters())
    return [
        {"params": [p for name, p in parameters.items() if name in decaying], "weight_decay": weight_decay},
        {"params": [p for name, p in parameters.items() if name not in decaying], "weight_decay": 0.0},
    ]


def run(config: VCMRConfig) -> dict[str, float]:
    """Train one model; returns its metrics on the validation split."""
    return VCMR(config).train()


def main(config: VCMRConfig) -> None:
    metrics = run(config)
    if processes().is_main_process:
        found = ", ".join(f"{100 * metrics[f'vcmr_recall@1_iou@{iou}']:.2f} at IoU {iou}" for iou in (0.5, 0.7))
        print(f"{config.output_dir}/model: validation VCMR recall@1 {found}")
