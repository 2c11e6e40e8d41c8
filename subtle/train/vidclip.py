"""Train VidCLIP on contrast pairs, or pre-train it on stacked clips (VideoComp, section 3)."""

import random
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from datasets import disable_progress_bars
from torch import Tensor
from torch.utils.data import default_collate
from transformers import AutoConfig, AutoImageProcessor, AutoModel, AutoProcessor, AutoTokenizer
from transformers.utils import logging

from hf_datasets.comp.contrasts import Contrast, ContrastFrames, Span, SpanReader, Stacks, draw_negatives, group
from hf_datasets.video.reading import Spread
from hf_models import AIMVideoProcessor, VidCLIPModel, VidCLIPProcessor
from hf_models.encoders import VidCLIPEncoder
from hf_models.fingerprints import processor_fingerprint, weights_fingerprint
from subtle.comp.data import clips_to_stack, load_rows
from subtle.comp.scores import Scores
from subtle.run.accelerator import processes
from subtle.run.loading import shared_bytes
from subtle.run.model_folders import check_model_folder
from subtle.run.training import TrainingRun, epoch_batches, epoch_seed
from subtle.train.options import VidCLIPRunConfig

# Frame tokens of frozen towers, by the fingerprints of tower and processor; runs of one process share them.
FROZEN_TOKENS: dict[tuple[str, str], dict[tuple[Span, int, Spread], Tensor]] = {}
PREFERENCE = ("preference_weight", "preference_pairs", "preference_scale")
CAPTIONING = ("captioning_weight", "num_captioning_layers")
ZERO_INIT_RATE = 20.0
"""Learning rate of what starts from zero, in units of --learning_rate."""


def load_vidclip(config: VidCLIPRunConfig) -> tuple[VidCLIPModel, VidCLIPProcessor]:
    """The model to start from, with the configured objective, and its processor."""
    logging.disable_progress_bar()
    assert config.model is not None  # its configuration has chosen one
    check_model_folder(config.model)
    fields = {name: getattr(config, name) for name in PREFERENCE} | {"loss": config.objective}
    new_layers = config.num_captioning_layers if config.captioning_weight else 0
    torch.manual_seed(config.seed)  # for what is new
    start = AutoConfig.from_pretrained(config.model)
    if start.model_type == "vidclip":
        model = load_saved(config.model, 0 if start.num_captioning_layers else new_layers)
        if model.captioner is not None:
            fields["captioning_weight"] = config.captioning_weight  # 0 switches off what it was trained with before
        if model.config.num_frames not in {1, config.num_frames}:
            raise SystemExit(f"{config.model} has {model.config.num_frames} frames; give it as --num_frames")
        model.config.update(fields)
        processor = AutoProcessor.from_pretrained(config.model)
    else:
        if new_layers:
            fields |= {name: getattr(config, name) for name in CAPTIONING}
        model = VidCLIPModel.from_clip(config.model, num_frames=config.num_frames, **fields)
        image_processor = AutoImageProcessor.from_pretrained(config.model)
        video_processor = AIMVideoProcessor.from_image_processor(image_processor, num_frames=config.num_frames)
        processor = VidCLIPProcessor(video_processor, AutoTokenizer.from_pretrained(config.model))
    model.resize_videos_(num_frames=config.num_frames, side=config.frame_side)
    processor.video_processor.num_frames = config.num_frames
    if config.frame_side:
        processor.video_processor.size = {"height": config.frame_side, "width": config.frame_side}
    return model, processor


def load_saved(path: str, new_layers: int) -> VidCLIPModel:
    """A saved VidCLIP, with a new text decoder of so many layers where it has none; 0: as it is."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # it would list all weights of a new decoder
    options = {"num_captioning_layers": new_layers} if new_layers else {}
    model: VidCLIPModel
    model, report = AutoModel.from_pretrained(path, output_loading_info=True, **options)
    logging.set_verbosity(verbosity)
    if lost := sorted(name for name in report["missing_keys"] if not (new_layers and name.startswith("captioner."))):
        raise SystemExit(f"{path} lacks {len(lost)} weights, such as {lost[0]}; it was not saved to its end")
    return model


def rate_groups(model: VidCLIPModel, config: VidCLIPRunConfig) -> list[dict[str, Any]]:
    """What is trained, with its highest learning rate: the rest, the poolers, and what starts from zero."""
    modules: Iterable[Any] = model.modules()
    zero = {
        id(module.weight) for module in modules if getattr(module, "starts_at_zero", False) and not module.weight.any()
    }
    poolers = {id(weight) for weight in model.video_pooler.parameters()} - zero
    rate, of_poolers = config.learning_rate, config.pooler_learning_rate
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    return [
        {"params": [weight for weight in trained if id(weight) not in poolers | zero], "lr": rate},
        {
            "params": [weight for weight in trained if id(weight) in poolers],
            "lr": rate if of_poolers is None else of_poolers,
        },
        {
            "params": [weight for weight in trained if id(weight) in zero],
            "lr": rate * ZERO_INIT_RATE if of_poolers is None else of_poolers,
        },
    ]


def pixels(processor: VidCLIPProcessor, frames: Tensor) -> Tensor:
    """What the model takes of videos `(B, T, 3, height, width)` uint8."""
    options: dict[str, Any] = {"do_sample_frames": False}
    made: Tensor = processor(videos=frames, **options)["pixel_values"]
    return made


def collate(
    items: list[tuple[Tensor, Contrast]], *, processor: VidCLIPProcessor, visual: str, negatives: bool
) -> dict[str, Tensor]:
    """What the model takes of a batch, except that pixels are still uint8."""
    videos, contrasts = default_collate([video for video, _ in items]), [contrast for _, contrast in items]
    texts = [contrast.positive for contrast in contrasts]
    if not negatives:
        return {visual: videos, **processor(text=texts)}
    negative_texts, levels = ([getattr(contrast, name) for contrast in contrasts] for name in ("negatives", "levels"))
    return {visual: videos, **processor.tokenize_contrasts(texts, negative_texts, levels)}


class Training(TrainingRun):
    """One training run."""

    NAME, METRIC = "vidclip", "comprehensive_accuracy"
    KEEPS_BEST = False  # the last weights are published

    def __init__(self, config: VidCLIPRunConfig) -> None:
        super().__init__(config)
        model, self.processor = load_vidclip(config)
        if config.pooler_learning_rate is not None and not config.learning_rate:
            model.requires_grad_(False)
            model.video_pooler.requires_grad_(True)
        if config.freeze_vision:
            model.vision_model.requires_grad_(False)
        if config.num_frames == 1:  # an image has no place in time
            model.video_pooler.temporal_embedding.requires_grad_(False)
        if model.captioner is not None and not config.captioning_weight:
            model.captioner.requires_grad_(False)  # several processes want a gradient of all that is trained
        if config.activation_checkpointing:
            model.activation_checkpointing_enable()
        size = self.processor.video_processor.size
        self.size = (size["height"], size["width"])
        keeps_tokens = config.freeze_vision and config.keep_frames and not config.num_workers
        self.visual = "frame_tokens" if keeps_tokens else "pixel_values"
        keep = config.keep_frames and not config.num_workers  # each worker would keep as much
        self.reader = SpanReader(
            self.size, keep=keep, transform=self.frame_tokens if keeps_tokens else Tensor.contiguous
        )
        if keeps_tokens:
            frames = processor_fingerprint(self.processor.video_processor)
            self.reader.kept = FROZEN_TOKENS.setdefault((weights_fingerprint(model.vision_model), frames), {})
        with self.accelerator.main_process_first():
            if config.stack:
                self.clips, self.coverage = clips_to_stack(config.clips_dataset, config.clips_config, size=config.stack)
                self.draws = {}
            else:
                rows, self.coverage = load_rows(config, "train", num_workers=config.num_workers)
                self.draws = {0: group(rows)}
            validation, _ = load_rows(config, "validation", num_workers=config.num_workers)
        self.scores = Scores(
            validation,
            SpanReader(self.size, keep=config.keep_frames),
            num_workers=config.num_workers,
            accelerator=self.accelerator,
        )
        self.frames = ContrastFrames(self.reader, config.num_frames)
        model.to(self.accelerator.device)
        adam = torch.optim.Adam if config.optimizer == "adam" else torch.optim.AdamW
        optimizer = adam(rate_groups(model, config), weight_decay=config.weight_decay)
        self.model, self.optimizer = self.accelerator.prepare(model, optimizer)

    @property
    def description(self) -> str:
        """With the objective."""
        return f"{self.NAME} {self.config.objective}{' + captioning' if self.config.captioning_weight else ''}"

    def identity(self) -> dict[str, Any]:
        """Without the options that only other objectives read."""
        unread = {
            *(PREFERENCE if self.config.objective != "comploss" else ()),
            *(("negclip_negatives",) if self.config.objective != "negclip" else ()),
            *(CAPTIONING if not self.config.captioning_weight else ()),
        }
        return {name: value for name, value in super().identity().items() if name not in unread}

    def epoch_contrasts(self, epoch: int) -> Sequence[Contrast]:
        """The pairs of an epoch, or its stacks of clips; each epoch draws its own."""
        config, seed = self.config, epoch_seed(self.config.seed, epoch)
        contrasts: Sequence[Contrast]
        if config.stack:
            contrasts = Stacks(self.clips, size=config.stack, seed=seed)
        else:
            draw = epoch % config.draws
            if draw not in self.draws:
                with self.accelerator.main_process_first():
                    self.draws[draw] = group(load_rows(config, "train", draw=draw)[0])
            contrasts = self.draws[draw]
        if config.objective == "negclip" and config.negclip_negatives:
            return draw_negatives(contrasts, config.negclip_negatives, random.Random(seed))
        return contrasts

    @torch.no_grad()
    def frame_tokens(self, frames: Tensor) -> Tensor:
        """The frozen tower's tokens of the frames of one video `(T, 3, height, width)`."""
        model = self.plain_model
        tokens: Tensor = model.get_frame_tokens(pixels(self.processor, frames[None]).to(self.accelerator.device))
        return tokens[0].cpu()

    def count_steps(self) -> int:
        """A batch of an epoch with fewer than two pairs for each process is left out."""
        steps = len(epoch_batches(len(self.epoch_contrasts(0)), 0, self.config, self.accelerator))
        if not steps:
            raise SystemExit(
                f"there are fewer than two pairs for each of {self.accelerator.num_processes} processes; give more data"
            )
        disable_progress_bars()  # of `datasets`, which would break this run's into pieces at every epoch
        return steps

    def train_epoch(self) -> None:
        """The rest of the current epoch."""
        config, accelerator, progress = self.config, self.accelerator, self.progress
        self.model.train()
        if config.freeze_vision:
            self.plain_model.vision_model.eval()
        self.contrasts = self.epoch_contrasts(progress.epoch)
        parts = epoch_batches(len(self.contrasts), progress.epoch, config, accelerator)[progress.step :]
        rows = [part.tolist() for part in parts]
        most, workers = -(-config.batch_size // accelerator.num_processes), config.num_workers
        batches = self.read_batches(
            self.frames,
            ([self.contrasts[row] for row in part] for part in rows),
            num_workers=workers,
            collate=partial(  # of values that a worker process can be given
                collate, processor=self.processor, visual=self.visual, negatives=config.objective != "clip"
            ),
            needed_bytes=shared_bytes(most, config.num_frames, self.size, workers),
        )
        for inputs, part in self.fetched(zip(batches, rows, strict=True)):
            if self.visual == "pixel_values":
                inputs["pixel_values"] = pixels(self.processor, inputs["pixel_values"])
            loss = self.model(**inputs, return_loss=True).loss
            self.take_step(loss)
            self.plain_model.limit_logit_scale_()
            self.finish_step(loss, part)

    def row_name(self, row: int) -> str:
        """Where the spans of a pair or stack begin in their videos."""
        spans = self.contrasts[row].spans
        return " + ".join(f"{Path(span.path).stem} at {span.start_seconds or 0:g} s" for span in spans)

    def validate(self) -> dict[str, float]:
        """Comprehensive accuracy and recall on the validation split; processes share the encoding of its videos."""
        model = self.plain_model.eval()
        metrics = self.scores(VidCLIPEncoder(model, self.processor, self.config.num_frames))
        self.signature = metrics["signature"]
        return {name: value for name, value in metrics.items() if isinstance(value, float)}

    def publish(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Write the model with its last weights."""
        metrics = {name: value for name, value in self.progress.history[-1].items() if name != "loss"}
        state = self.trained_state()
        if self.accelerator.is_main_process:
            self.write_model(self.plain_model, self.processor, state=state)
        details = {"signature": self.signature, "coverage": {"train": self.coverage}}
        return {f"validation/{name}": value for name, value in metrics.items()}, details


def run(config: VidCLIPRunConfig) -> dict[str, Any]:
    """Train one model; returns its metrics on the validation split."""
    return Training(config).train()


def main(config: VidCLIPRunConfig) -> None:
    metrics = run(config)
    if processes().is_main_process:
        accuracy = 100 * metrics["validation/comprehensive_accuracy"]
        print(f"{config.output_dir}/model: validation comprehensive accuracy {accuracy:.1f}")
