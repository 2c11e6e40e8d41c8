"""What a training run will take, for `--dry_run`: the model of each recipe and its loss on tensors without values.

No data, weights or GPU are needed: sizes come from the configuration of the run, from that of the model (a folder, the
Hub's cache, or `subtle.run.architectures.KNOWN`), and numbers of clips from the papers.
"""

import os
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import BlipForImageTextRetrieval

from hf_datasets.fig.statistics import PAPER_COUNTS as FIG_COUNTS
from hf_datasets.tfcovr.labels import labels_by_id
from hf_datasets.tfcovr.statistics import PAPER_COUNTS as TFCOVR_COUNTS
from hf_models import AIMConfig, AIMForVideoClassification, VidCLIPConfig, VidCLIPModel
from hf_models.encoders.estimates import CONTEXT_BYTES
from hf_models.tfcovr.encoders import encoder_fields
from hf_models.tfcovr.modeling_aim import CLIPVisionTower
from hf_models.vidclip.modeling_vidclip_matching import VidCLIPMatcher, contrastive_loss, matching_loss
from hf_models.video_text_matching import MAX_TEXT_TOKENS, BlipMatcher
from subtle.commands import CONFIGS
from subtle.options import parse_config
from subtle.run.architectures import KNOWN, read_sizes
from subtle.run.gpus import GPUS, UTILIZATION, cards_for
from subtle.run.loading import batches_in_memory
from subtle.run.step_costs import StepCost, count_step
from subtle.table.costs import FRAME_SECONDS
from subtle.tfcovr.classifiers import aim_fields, new_adapters
from subtle.train.noise_evaluator import NEGATIVES, POSITIVES
from subtle.train.options import NoiseEvaluatorConfig, Stage1Config, Stage2Config, VCMRConfig, VidCLIPRunConfig
from subtle.train.stage2 import COMPOSED_MODELS, MODEL_FIELDS
from subtle.train.vcmr import make_model
from subtle.train.vidclip import CAPTIONING, PREFERENCE

FEATURE_SIZES = (2048, 768)
"""VERIFIED's features: ResNet-152 of videos, RoBERTa of queries."""
DISRUPTED_TEXTS = 3
"""Of a video in a batch of VidCLIP, at most about one of each kind of disruption."""
MODIFICATION_TOKENS = 30


@dataclass(frozen=True)
class Planned:
    """A training step of one process.

    Attributes:
        what: Is trained.
        model: On the `meta` device.
        loss_of: Its loss on a batch without values.
        frames: That a step decodes; 0 where nothing is.
        worker_bytes: Of a batch, as the workers of the loader hand it over.
        rows: Of an epoch; None where they are not known without the data.
        note: About `rows`.
    """

    what: str
    model: nn.Module
    loss_of: Callable[[Any], Tensor]
    frames: int = 0
    worker_bytes: int = 0
    rows: float | None = None
    note: str = ""


def sizes_of(name: str, option: str) -> Any:
    """The configuration of a model that is here, known, or made by a run whose configuration ships.

    Raises:
        ValueError: Its sizes cannot be known.
    """
    found = read_sizes(name)
    if found is not None:
        return found
    for path in sorted(CONFIGS.glob("stage1*.yaml")):
        made: Stage1Config = parse_config(Stage1Config, None, [str(path)])
        if f"{made.output_dir}/model" == name:
            return whole_aim(made)
    for path in sorted(CONFIGS.glob("vidclip*.yaml")):
        trained: VidCLIPRunConfig = parse_config(VidCLIPRunConfig, None, [str(path)])
        if f"{trained.output_dir}/model" == name:
            return vidclip_sizes(trained)
    raise ValueError(
        f"the sizes of {name} are not known here, so neither memory nor time: give --{option} a folder with its "
        f"config.json, or one of {', '.join(sorted(KNOWN))}"
    )


def on_meta(make: Callable[[], Any]) -> Any:
    """What is made without values."""
    with torch.device("meta"):
        return make()


def part_of(batch_size: int, num_processes: int) -> int:
    """The rows of the largest part of a batch."""
    return -(-batch_size // num_processes)


def whole_aim(config: Stage1Config) -> AIMConfig:
    """The sizes of the AIM that stage 1 makes, with the head of all labels."""
    clip = sizes_of(config.base, "base")
    return AIMConfig.from_clip_config(getattr(clip, "vision_config", clip), **aim_fields(config, list(labels_by_id())))


def plan_stage1(config: Stage1Config, num_processes: int) -> Planned:
    """AIM with a head of all labels."""
    clip = sizes_of(config.base, "base")
    vision = getattr(clip, "vision_config", clip)
    if config.full:
        model = on_meta(lambda: AIMForVideoClassification(whole_aim(config)))
        if config.activation_checkpointing:
            model.activation_checkpointing_enable()
    else:
        model = on_meta(lambda: new_adapters(CLIPVisionTower(vision), config, list(labels_by_id())))
    rows, side = part_of(config.batch_size, num_processes), vision.image_size

    def loss_of(model: Any) -> Tensor:
        frames = torch.empty(rows, config.num_frames, 3, side, side, dtype=torch.uint8)
        logits = model(pixel_values=(frames.float() - torch.zeros(3, 1, 1)) / torch.ones(3, 1, 1)).logits
        return nn.functional.cross_entropy(logits, torch.zeros(rows, dtype=torch.long))

    frames = rows * config.num_frames * config.frames_per_part
    what = f"AIM, {'all weights' if config.full else 'adapters'}, on {Path(config.base).name}"
    counts = [TFCOVR_COUNTS[source]["clips"] for source in ("finegym", "finediving")]
    known = config.dataset_config == "release"
    return Planned(
        what,
        model,
        loss_of,
        frames=0 if config.cache_frames else frames,
        worker_bytes=rows * config.num_frames * 3 * side**2,
        rows=(1 - config.validation_fraction) * sum(counts) if known else None,
        note="at most: all clips of FineGym and FineDiving" if known else "",
    )


def plan_stage2(config: Stage2Config, num_processes: int) -> Planned:
    """The fusion on stored embeddings, or with its encoders from pixels."""
    fields = {name: getattr(config, name) for name in MODEL_FIELDS}
    fields["standardize_video"] = config.standardize_video and not config.end_to_end
    for kind in ("vision", "text"):
        whole = sizes_of(getattr(config, f"{kind}_model"), f"{kind}_model")
        fields |= encoder_fields(whole, kind, getattr(config, f"{kind}_model_class"))
    model_class: Any = COMPOSED_MODELS[config.model]
    model: Any = on_meta(lambda: model_class(model_class.config_class(**fields)))
    rows = part_of(config.batch_size, num_processes)
    labels = torch.arange(rows)
    embeds = {"video_embeds": model.config.video_embed_dim, "text_embeds": model.config.text_embed_dim}
    embeds |= {"target_video_embeds": model.config.video_embed_dim}
    known = TFCOVR_COUNTS["train"]["rows"] if config.dataset_config == "release" else None
    if not config.end_to_end:
        model.freeze_encoders()
        model.vision_model = model.text_model = None
        if config.query == "video":
            model.text_projection.requires_grad_(False)

        def loss_of_embeddings(model: Any) -> Tensor:
            loss: Tensor = model(
                **{name: torch.empty(rows, size) for name, size in embeds.items()},
                target_labels=labels,
                return_loss=True,
            ).loss
            return loss

        return Planned(f"{config.model}, {config.fusion}, on stored embeddings", model, loss_of_embeddings, rows=known)
    if config.activation_checkpointing:
        model.activation_checkpointing_enable()
    vision = model.vision_model.config
    frames: Any = config.num_frames or getattr(vision, "num_frames", 12)
    side = vision.image_size

    def loss_of_pixels(model: Any) -> Tensor:
        clips = {name: torch.empty(rows, frames, 3, side, side) for name in ("pixel_values", "target_pixel_values")}
        tokens = torch.ones(rows, MODIFICATION_TOKENS, dtype=torch.long)
        texts = {"input_ids": tokens, "attention_mask": tokens}
        loss: Tensor = model(**clips, **texts, target_labels=labels, return_loss=True).loss
        return loss

    of_batch = 2 * rows * frames
    what = f"{config.model}, {config.fusion}, and both encoders, end to end"
    return Planned(what, model, loss_of_pixels, frames=of_batch, worker_bytes=of_batch * 3 * side**2, rows=known)


def vidclip_sizes(config: VidCLIPRunConfig) -> VidCLIPConfig:
    """The sizes of the VidCLIP that a run trains."""
    start: Any = sizes_of(config.model or "", "model")
    fields: dict[str, Any] = {name: getattr(config, name) for name in PREFERENCE} | {"loss": config.objective}
    if config.captioning_weight:
        fields |= {name: getattr(config, name) for name in CAPTIONING}
    if isinstance(start, VidCLIPConfig):
        start.update({"num_frames": config.num_frames, **fields})
    else:
        start = VidCLIPConfig.from_clip_config(start, num_frames=config.num_frames, **fields)
    if config.frame_side:
        start.vision_config.image_size = config.frame_side
    made: VidCLIPConfig = start
    return made


def plan_vidclip(config: VidCLIPRunConfig, num_processes: int) -> Planned:
    """VidCLIP on videos and texts, with disrupted ones where the objective has them."""
    sizes: Any = vidclip_sizes(config)
    model: Any = on_meta(lambda: VidCLIPModel(sizes))
    if config.pooler_learning_rate is not None and not config.learning_rate:
        model.requires_grad_(False)
        model.video_pooler.requires_grad_(True)
    if config.freeze_vision:
        model.vision_model.requires_grad_(False)
    if config.activation_checkpointing:
        model.activation_checkpointing_enable()
    rows, side = part_of(config.batch_size, num_processes), sizes.vision_config.image_size
    length = sizes.text_config.max_position_embeddings

    def loss_of(model: Any) -> Tensor:
        tokens = {"input_ids": torch.ones(rows, length, dtype=torch.long)}
        tokens |= {"attention_mask": torch.ones(rows, length, dtype=torch.long)}
        if config.objective != "clip":
            shape = (rows, config.negclip_negatives or DISRUPTED_TEXTS) if config.objective == "negclip" else None
            shape = shape or (rows, DISRUPTED_TEXTS)
            tokens |= {f"negative_{name}": torch.ones(*shape, length, dtype=torch.long) for name in [*tokens]}
            tokens["negative_levels"] = torch.ones(*shape, dtype=torch.long)
        pixels = torch.empty(rows, config.num_frames, 3, side, side)
        loss: Tensor = model(pixel_values=pixels, **tokens, return_loss=True).loss
        return loss

    frames = 0 if config.keep_frames else rows * config.num_frames
    what = f"VidCLIP, {config.objective}, {config.num_frames} frames of {side} pixels"
    return Planned(what, model, loss_of, frames=frames, worker_bytes=frames * 3 * side**2)


def plan_vcmr(config: VCMRConfig, num_processes: int) -> Planned:
    """An architecture of moment retrieval on features of the paper's sizes."""
    if config.init_from is not None:
        config = replace(config, init_from=None)  # its own configuration has the same sizes
    model: Any = on_meta(lambda: make_model(config, FEATURE_SIZES))
    rows, sizes = part_of(config.batch_size, num_processes), model.config

    def loss_of(model: Any) -> Tensor:
        loss: Tensor = model(
            query_features=torch.empty(rows, sizes.max_query_tokens, FEATURE_SIZES[1]),
            query_mask=torch.ones(rows, sizes.max_query_tokens, dtype=torch.bool),
            video_features=torch.empty(rows, sizes.max_video_clips, FEATURE_SIZES[0]),
            video_mask=torch.ones(rows, sizes.max_video_clips, dtype=torch.bool),
            start_positions=torch.zeros(rows, dtype=torch.long),
            end_positions=torch.zeros(rows, dtype=torch.long),
            target_indices=torch.arange(rows),
            video_indices=torch.arange(rows),
        ).loss
        return loss

    counts = FIG_COUNTS.get(f"{config.dataset}/train", {})
    known = counts.get("moments") if config.dataset_config != "mini" else None
    return Planned(f"{config.model}, {sizes.max_video_clips} clips of a video", model, loss_of, rows=known)


def plan_noise_evaluator(config: NoiseEvaluatorConfig, _num_processes: int) -> Planned:
    """A matcher of clips and texts, with as many texts and pairs of each clip as are drawn at most."""
    sizes = sizes_of(config.model, "model")
    frames: Any = config.num_frames
    if sizes.model_type == "blip":
        model: Any = on_meta(lambda: BlipMatcher(BlipForImageTextRetrieval(sizes), max_frames=frames))
        side, length = sizes.vision_config.image_size, MAX_TEXT_TOKENS
    else:
        if sizes.model_type == "clip":
            longest = max(MAX_TEXT_TOKENS, sizes.text_config.max_position_embeddings)
            sizes = VidCLIPConfig.from_clip_config(sizes, num_frames=frames, max_text_tokens=longest)
        towers = getattr(sizes, "vidclip_config", sizes)
        model = on_meta(lambda: VidCLIPMatcher.from_vidclip(VidCLIPModel(towers)))
        side, length = towers.vision_config.image_size, min(MAX_TEXT_TOKENS, model.max_tokens)
    rows, texts = config.batch_size, config.batch_size * POSITIVES

    def loss_of(matcher: Any) -> Tensor:
        tokens = torch.ones(rows * (POSITIVES + NEGATIVES), length, dtype=torch.long)
        seen = matcher.encode_clips(torch.empty(rows, frames, 3, side, side))
        read = matcher.encode_texts(input_ids=tokens, attention_mask=torch.ones_like(tokens))
        owners = torch.zeros(texts, dtype=torch.long)
        positives, negatives = read.take(torch.arange(texts)), read.take(torch.arange(texts, len(tokens)))
        same = torch.zeros(rows, texts, dtype=torch.bool)
        contrast = contrastive_loss(seen, positives, owners, negatives, same, matcher.scale)
        pairs = torch.zeros(len(tokens) + rows + texts, dtype=torch.long)  # and the hard ones
        logits = matcher.match(seen.take(pairs), read.take(pairs))
        return contrast + matching_loss(logits[:texts], logits[texts:])

    return Planned(f"{Path(config.model).name} that matches clips and texts", model, loss_of)


PLANS: dict[type, Callable[[Any, int], Planned]] = {
    Stage1Config: plan_stage1,
    Stage2Config: plan_stage2,
    VidCLIPRunConfig: plan_vidclip,
    VCMRConfig: plan_vcmr,
    NoiseEvaluatorConfig: plan_noise_evaluator,
}


@dataclass(frozen=True)
class RunCost:
    """What a run takes.

    Attributes:
        planned: Its step.
        cost: Of that step, for one process.
        num_processes: One for each GPU.
        memory: Bytes of a GPU, by what they are for.
        num_steps: Of the whole run; None where they are not known.
    """

    planned: Planned
    cost: StepCost
    num_processes: int
    memory: dict[str, int]
    num_steps: float | None

    @property
    def memory_bytes(self) -> int:
        """Of a GPU."""
        return sum(self.memory.values())

    def step_seconds(self, card: str) -> float:
        """Of a step on one of `GPUS`."""
        return self.cost.flops / (UTILIZATION * GPUS[card][1])

    def hours(self, card: str) -> float | None:
        """Of the run on one of `GPUS` for each process; None where it is not known."""
        return None if self.num_steps is None else self.num_steps * self.step_seconds(card) / 3600

    def decoding_cores(self, card: str) -> float:
        """That decode as fast as a GPU of this kind trains."""
        return self.planned.frames * FRAME_SECONDS / self.step_seconds(card)


def estimate_run(config: Any, num_processes: int | None = None) -> RunCost:
    """What a training run will take, by its configuration.

    Args:
        config: Of stage1, stage2, vidclip, vcmr or noise_evaluator.
        num_processes: One for each GPU; None: those of this launch.

    Raises:
        ValueError: The sizes of a model are not known here.
    """
    launched = os.environ
    processes = num_processes or int(launched.get("WORLD_SIZE", "1"))
    planned = PLANS[type(config)](config, processes)
    planned.model.train()
    precision = config.mixed_precision or launched.get("ACCELERATE_MIXED_PRECISION")
    cost = count_step(planned.model, planned.loss_of, precision=precision)
    memory = cost.memory_bytes(processes, sharded=launched.get("ACCELERATE_USE_FSDP") == "true")
    steps = getattr(config, "max_steps", None)
    if steps is None and planned.rows is not None:
        steps = config.epochs * planned.rows // config.batch_size
    return RunCost(planned, cost, processes, memory | {"CUDA itself": CONTEXT_BYTES}, steps)


def dry_run_table(config: Any) -> str:
    """The table that `--dry_run` prints, at most 100 columns wide."""
    run = estimate_run(config)
    cost, planned, gigabytes = run.cost, run.planned, run.memory_bytes / 2**30
    parts = ", ".join(f"{name} {size / 2**30:.1f}" for name, size in run.memory.items())
    per_step = (
        f"{1000 * run.step_seconds('A100'):,.0f} ms on an A100, {1000 * run.step_seconds('H100'):,.0f} on an H100"
    )
    lines = {
        "trains": planned.what,
        "parameters": f"{cost.parameters / 1e6:,.1f}M, of which {cost.trained_parameters / 1e6:,.2f}M train",
        "GPU memory": f"{gigabytes:.1f} GB ({parts})",
        "cards (GB)": cards_for(run.memory_bytes),
        "step": f"{config.batch_size} rows on {run.num_processes} GPU{'s' * (run.num_processes > 1)}, "
        f"{cost.flops / 1e12:,.3g} TFLOP on each: {per_step}, at {UTILIZATION:.0%} of its peak (assumed)",
    }
    if run.num_steps is None:
        lines["run"] = "how many steps an epoch has is not known without its data"
    else:
        hours = ", ".join(f"{run.hours(card):.2g} hours on {card}" for card in ("A100", "H100"))
        about = f" ({planned.note})" if planned.note else ""
        lines["run"] = f"{run.num_steps:,.0f} steps{about}: {hours}, without validation and waiting for videos"
    if planned.frames:
        cores = " and ".join(f"{run.decoding_cores(card):.0f} for an {card}" for card in ("A100", "H100"))
        lines["decoding"] = f"cores for each GPU: {cores}, at {1000 * FRAME_SECONDS:.1f} ms a frame of 720p (measured)"
    if planned.worker_bytes and config.num_workers:
        ready = planned.worker_bytes * batches_in_memory(config.num_workers) * run.num_processes
        lines["/dev/shm"] = f"{ready / 2**30:.1f} GB for {config.num_workers} workers of each process"
    if os.environ.get("ACCELERATE_DYNAMO_BACKEND", "NO").upper() != "NO":
        lines["compiled"] = "counted without the compiler, which mostly needs less"
    wrapped = (textwrap.wrap(text, 86, subsequent_indent=" " * 13) for text in lines.values())
    shown = [f"{name + ':':<12} " + "\n".join(part) for name, part in zip(lines, wrapped, strict=True)]
    return "\n".join([*shown, "Nothing was trained or written."])


def main(config: Any) -> None:
    """What `--dry_run` of a recipe does, on one process of a launch."""
    if os.environ.get("RANK", "0") == "0":
        print(dry_run_table(config))
