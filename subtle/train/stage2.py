"""Train the fusion of clip and text into one query, on embeddings or pixels (TF-CoVR, stage 2)."""

from typing import Any

import polars as pl
import torch
from accelerate.utils import set_seed
from safetensors.torch import load_file
from torch.distributed.fsdp import register_fsdp_forward_method
from transformers import AutoTokenizer

from hf_datasets.tfcovr.labels import answers_of, folded_text, labels_by_id
from hf_models import FactoredCoVRForComposedRetrieval, TFCoVRForComposedRetrieval
from hf_models.fingerprints import weights_fingerprint
from hf_models.tfcovr.queries import Queries, numbers_of, place_queries, place_triplets, position
from hf_models.tfcovr.ranking import rank_clips
from subtle.embedding import embed_clips
from subtle.run.accelerator import processes
from subtle.run.data import load_split
from subtle.run.models import load_encoders
from subtle.run.shared_config import DataConfig
from subtle.run.training import TrainingRun, epoch_batches
from subtle.tfcovr.batches import EmbeddingSource, PixelSource, embed_config
from subtle.tfcovr.clip_embeddings import encoders_made_by, imported_into
from subtle.tfcovr.measure import ComposedRetrievalMeasure
from subtle.train.options import Stage2Config

COMPOSED_MODELS = {"tfcovr": TFCoVRForComposedRetrieval, "factored_covr": FactoredCoVRForComposedRetrieval}
MODEL_FIELDS = (
    *(
        "fusion",
        "projection_dim",
        "fusion_projection_dim",
        "fusion_hidden_dim",
        "fusion_dropout",
        "project_text",
        "project_targets",
    ),
    *("loss", "temperature", "alpha", "beta", "row_normalization"),
)


def label_numbers(label2id: dict[str, int]) -> dict[str, int]:
    """The number of each label; a label that the model does not have has that of one with the same text."""
    answers = answers_of()
    numbers = {answers.get(name, name): number for name, number in label2id.items()}
    names = answers | {name: answers.get(name, name) for name in label2id}
    return {name: numbers[answer] for name, answer in names.items() if answer in numbers}


def trained_labels(config: DataConfig) -> dict[str, str]:
    """The labels of training clips, each with what it says."""
    known = {name: folded_text(label.description) for name, label in labels_by_id().items()}
    clips = load_split(config, "train", clips=True).select_columns(["label", "description"])
    said = {clip["label"]: clip["description"] for clip in clips if clip["label"]}
    return {label: known.get(label) or folded_text(said[label] or label) for label in sorted(said)}


class Stage2(TrainingRun):
    """One training run."""

    NAME, METRIC = "stage2", "map@50"
    TRAINS_IN_SHARDS = True

    def __init__(self, config: Stage2Config) -> None:
        # Some encoders have heads that nothing here reads.
        super().__init__(config, find_unused_parameters=config.end_to_end)
        fields = {name: getattr(config, name) for name in MODEL_FIELDS}
        fields["standardize_video"] = config.standardize_video and not config.end_to_end
        fields["imported_video"] = None if config.end_to_end else imported_into(config.embeddings)
        if fields["imported_video"] and config.query_frames is not None:
            raise SystemExit(
                f"{config.embeddings} holds imported embeddings, and --query_frames {config.query_frames} needs "
                "videos: leave it out, or name other --embeddings"
            )
        if config.model == "factored_covr":
            fields["label_texts"] = trained_labels(config)
            fields["composed_labels"] = config.composed_labels
            fields["tokenizer"] = AutoTokenizer.from_pretrained(config.text_model)
        self.whole, self.processor = load_encoders(config, COMPOSED_MODELS[config.model], **fields)
        self.source: PixelSource | EmbeddingSource
        if config.end_to_end:
            self.source = PixelSource(self.processor, config, self.accelerator, self.read_batches)
        else:
            made_as, device = embed_config(config, config.embeddings), self.accelerator.device
            self.source = EmbeddingSource.open(
                made_as, self.whole, self.processor, device, make=embed_clips.run, query_frames=config.query_frames
            )
        self.fingerprints = encoders_made_by(self.whole)
        if config.model == "factored_covr":
            classifier: Any = self.whole.target_classifier
            self.fingerprints["classifier"] = weights_fingerprint(classifier)
        label2id: Any = self.whole.config.label2id
        labels = label_numbers(label2id) if config.model == "factored_covr" else None
        rows = load_split(config, "train").to_polars()
        self.triplets = place_triplets(rows, self.source.clips, self.source.texts, labels)
        if self.whole.config.standardize_video:
            assert isinstance(self.source, EmbeddingSource)  # from pixels, nothing is standardized
            clips = torch.cat([self.triplets.query, self.triplets.target]).unique()
            self.whole.set_video_statistics(self.source.target_embeds[clips.to(self.accelerator.device)].cpu())
        if isinstance(self.whole, FactoredCoVRForComposedRetrieval) and isinstance(self.source, EmbeddingSource):
            named = load_split(config, "train", clips=True).to_polars().drop_nulls("label")
            named = named.with_columns(place=position(named["clip_id"], self.source.clips)).filter(pl.col("place") >= 0)
            places, numbers = named["place"].to_torch(), numbers_of(named["label"], labels).to_torch()
            self.whole.fit_words(self.source.target_embeds[places].cpu(), numbers)
        self.queries = self.validation_queries()
        self.model, self.optimizer = self.accelerator.prepare(*self.trainables())
        for method in ("get_query_features", "get_target_features", "encode_video", "encode_text"):
            register_fsdp_forward_method(self.model, method)  # nothing happens where the model is not sharded
        self.measure = ComposedRetrievalMeasure()

    def identity(self) -> dict[str, Any]:
        """The encoders' weights count, not only their names."""
        return super().identity() | {"encoders": self.fingerprints}

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
            self.whole.freeze_encoders()
            both = {name: getattr(self.whole, name) for name in ("vision_model", "text_model")}
            self.encoders = {name: encoder for name, encoder in both.items() if encoder is not None}
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

    def count_steps(self) -> int:
        """A batch of an epoch with fewer than two triplets for each process is left out."""
        steps = len(self.epoch_batches(0))
        if not steps:
            raise SystemExit(
                f"{len(self.triplets)} triplets are fewer than two for each of {self.accelerator.num_processes} "
                "processes"
            )
        return steps

    def epoch_batches(self, epoch: int) -> list[torch.Tensor]:
        """The rows of each batch."""
        return epoch_batches(len(self.triplets), epoch, self.config, self.accelerator)

    def train_epoch(self) -> None:
        """The rest of the current epoch."""
        config, progress = self.config, self.progress
        self.model.train()
        rows = self.epoch_batches(progress.epoch)[progress.step :]
        batches = self.source.batches(self.triplets, rows, config.query)
        for batch, part in self.fetched(zip(batches, rows, strict=True)):
            loss = self.model(**batch, return_loss=True).loss
            self.take_step(loss)
            self.finish_step(loss, part.tolist())

    def row_name(self, row: int) -> str:
        """The clips of a triplet."""
        ids = list(self.source.clips)
        return f"{ids[self.triplets.query[row]]} -> {ids[self.triplets.target[row]]}"

    def validate(self) -> dict[str, float]:
        """Mean average precision on the validation split; processes share the encoding of its videos."""
        model = self.plain_model.eval()
        embeddings = self.source.embeddings(model, self.queries)
        ranked, _ = rank_clips(model, self.queries, **embeddings, parts=self.config.query)
        metrics = self.measure(ranked, self.queries)
        return {name: value for name, value in metrics.items() if name.startswith("map@")}

    def summary(self, metrics: dict[str, float]) -> dict[str, float]:
        """The history keeps one metric."""
        return {self.METRIC: metrics[self.METRIC]}

    def publish(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Write the whole model with its best weights."""
        if self.accelerator.is_main_process:
            model = self.plain_model
            state = load_file(self.best_weights)
            for name, encoder in self.encoders.items():
                setattr(model, name, encoder)
                state |= {f"{name}.{key}": value for key, value in encoder.state_dict().items()}
            self.write_model(model, self.processor, state=state)
        coverage = {"train": self.triplets.coverage, "validation": self.queries.coverage}
        details = {"signature": self.measure.signature, "coverage": coverage}
        return {"validation/map@50": self.progress.best}, details


def run(config: Stage2Config) -> dict[str, Any]:
    """Train one model; returns its metrics on the validation split."""
    return Stage2(config).train()


def main(config: Stage2Config) -> None:
    metrics = run(config)
    if processes().is_main_process:
        print(f"{config.output_dir}/model: validation mAP@50 {100 * metrics['validation/map@50']:.2f}")
