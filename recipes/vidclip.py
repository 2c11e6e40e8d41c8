"""Train VidCLIP: fine-tune it on contrast pairs, or pre-train it on stacked short clips (VideoComp, sections 3.2, 3.3).

    python recipes/vidclip.py
    accelerate launch recipes/vidclip.py --objective negclip --output_dir outputs/vidclip/negclip
    python recipes/vidclip.py recipes/configs/vidclip_miniature_stacked.yaml     # CompPretrain
    python recipes/vidclip.py --model outputs/vidclip/stacked/model --output_dir outputs/vidclip/stacked_comploss

`--model` is a CLIP, which becomes a VidCLIP, or a VidCLIP. Contrastive negatives come from all processes. Every epoch is
measured on the validation split; the last weights become `OUTPUT_DIR/model`, with `OUTPUT_DIR/results.json`. A killed run
started again with the same configuration goes on from its last checkpoint and ends with the same weights as one that
was never killed.
"""

import json
import math
import random
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from harness.config import option, parse_config, run_recipe
from harness.model_folders import MINIATURE_CLIP, MINIATURE_VIDCLIP, check_model_folder
from harness.shared_config import COMP_DATASETS, ContrastConfig, TrainingRunConfig


@dataclass
class VidCLIPRunConfig(TrainingRunConfig, ContrastConfig):
    """What to train and how; the defaults are for the miniature."""

    model: str | None = option(
        None,
        "CLIP or VidCLIP to start from: a model folder or a name on the Hub; none: the miniature's VidCLIP-base, or with "
        "--stack its CLIP.",
    )
    objective: Literal["clip", "negclip", "comploss"] = option("comploss", "Training objective.")
    stack: int = option(0, "Clips in a stack to pre-train on, 1 to 8; 0: fine-tune on contrast pairs.")
    clips_dataset: str = option("activitynet_comp", "Dataset of the short clips for --stack.", names=COMP_DATASETS)
    clips_config: str = option("mini-clips", "Its configuration.")
    clips_data_dir: str | None = option(None, "Folder of its annotations; none where it needs none.")
    num_frames: int = option(16, "Frames of each video or stack.")
    preference_weight: float = option(2.0, "Weight of comploss' preference; see `comp_loss` for all five.")
    preference_pairs: Literal["adjacent", "all", "positive"] = option(
        "positive",
        "Texts that it compares: adjacent levels of disruption, all levels, or the positive with each.",
    )
    preference_kind: Literal["logistic", "hinge"] = option("logistic", "Loss of one comparison.")
    preference_scale: float = option(20.0, "Factor on the difference of two cosine similarities.")
    preference_margin: float = option(0.0, "Margin of a comparison, after the factor.")
    negclip_negatives: int = option(1, "Disrupted texts per video and epoch for negclip; 0: all.")
    freeze_vision: bool = option(True, "Leave the vision tower as it is.")
    draws: int = option(6, "Drawings of the disruptions, a new one each epoch; published pairs have 1.")
    epochs: int = option(20, "Passes over the training videos.")
    batch_size: int = option(32, "Videos per optimizer step, of all processes together.")
    learning_rate: float = option(1e-3, "AdamW's highest learning rate, after the warm-up.")
    zero_init_rate: float = option(20.0, "Learning rate of what starts from zero, times --learning_rate.")
    weight_decay: float = option(1e-5, "AdamW's weight decay.")
    warmup_steps: int = option(20, "Optimizer steps of linear warm-up; a cosine to zero follows.")
    max_gradient_norm: float = option(1.0, "Clip gradients to this norm; 0: do not clip.")
    keep_frames: bool = option(True, "Keep frames in memory once read; switch it off for large frames.")
    activation_checkpointing: bool = option(False, "Recompute activations: less memory, more time.")
    num_workers: int = option(0, "Processes that read frames; 0: the training process reads them.")
    output_dir: str = option("outputs/vidclip/comploss", "Folder for the model, checkpoints and results.json.")

    def __post_init__(self) -> None:
        self.model = self.model or (MINIATURE_CLIP if self.stack else MINIATURE_VIDCLIP)
        if self.draws < 1:
            raise ValueError(f"--draws {self.draws}: at least 1 draw of the pairs is needed")
        if self.negclip_negatives < 0:
            raise ValueError(f"--negclip_negatives {self.negclip_negatives}: it is 0 for all, or more")
        if not 0 <= self.stack <= 8:
            raise ValueError(f"--stack {self.stack}: a stack has 1 to 8 clips, 0 is none")
        if self.stack == 1 and self.objective != "clip":
            raise ValueError("--stack 1 has no disrupted texts: give --objective clip, or a larger stack")


if __name__ == "__main__":  # before the imports below, which take seconds
    CONFIG = parse_config(VidCLIPRunConfig, __doc__)

import torch
from accelerate import Accelerator, PartialState
from accelerate.utils import set_seed
from datasets import disable_progress_bars
from torch import Tensor
from torch.utils.data import DataLoader
from tqdm import tqdm
from transformers import AutoConfig, AutoImageProcessor, AutoModel, AutoProcessor, AutoTokenizer
from transformers.utils.logging import disable_progress_bar
from video_text_encoders import VidCLIPEncoder

from comp.data import load_rows, load_stacks
from comp.scores import Scores
from harness.accelerator import make_accelerator
from harness.checkpoints import Checkpoints, Progress
from harness.results import replacing, write_results
from hf_datasets.comp.contrasts import Contrast, ContrastFrames, Span, SpanReader, draw_negatives, group
from hf_models import AIMVideoProcessor, VidCLIPModel, VidCLIPProcessor
from hf_models.fingerprints import processor_fingerprint, weights_fingerprint

# What may change between a run and its continuation without changing the weights by more than rounding.
INCIDENTAL = ("restart", "output_dir", "checkpoint_steps", "num_workers", "keep_frames", "device", "tracker")
# What frozen towers said, by the fingerprints of tower and processor: runs of one process share it.
FROZEN_TOKENS: dict[tuple[str, str], dict[tuple[Span, int], Tensor]] = {}
PREFERENCE = (
    "preference_weight",
    "preference_pairs",
    "preference_kind",
    "preference_scale",
    "preference_margin",
)


def identity(config: VidCLIPRunConfig) -> dict[str, Any]:
    """The part of a configuration that decides the weights: without what another objective alone would read."""
    unread = {
        *INCIDENTAL,
        *(PREFERENCE if config.objective != "comploss" else ()),
        *(("negclip_negatives",) if config.objective != "negclip" else ()),
    }
    return {name: value for name, value in asdict(config).items() if name not in unread}


def load_vidclip(config: VidCLIPRunConfig) -> tuple[VidCLIPModel, VidCLIPProcessor]:
    """The model to start from, with the objective that is asked for, and its processor."""
    disable_progress_bar()
    check_model_folder(config.model)
    fields = {name: getattr(config, name) for name in PREFERENCE} | {"loss": config.objective}
    if AutoConfig.from_pretrained(config.model).model_type == "vidclip":
        model = AutoModel.from_pretrained(config.model)
        if model.config.num_frames != config.num_frames:
            raise SystemExit(f"{config.model} has {model.config.num_frames} frames; give it as --num_frames")
        model.config.update(fields)
        return model, AutoProcessor.from_pretrained(config.model)
    torch.manual_seed(config.seed)  # for what is new
    model = VidCLIPModel.from_clip(config.model, num_frames=config.num_frames, **fields)
    image = AutoImageProcessor.from_pretrained(config.model)
    size = image.crop_size if getattr(image, "do_center_crop", False) else image.size
    side = size.get("height") or size.get("shortest_edge")
    videos = AIMVideoProcessor(
        num_frames=config.num_frames,
        size={"height": side, "width": side},
        image_mean=image.image_mean,
        image_std=image.image_std,
    )
    return model, VidCLIPProcessor(videos, AutoTokenizer.from_pretrained(config.model))


def learning_rate(step: int, total_steps: int, config: VidCLIPRunConfig) -> float:
    """Linear warm-up, then a cosine to zero."""
    if step < config.warmup_steps:
        return config.learning_rate * (step + 1) / config.warmup_steps
    done = (step - config.warmup_steps) / max(1, total_steps - config.warmup_steps)
    return config.learning_rate * (1 + math.cos(math.pi * done)) / 2


def parameter_groups(model: VidCLIPModel, config: VidCLIPRunConfig) -> list[dict[str, Any]]:
    """What is trained, with the factor of its learning rate."""
    zero = {
        id(module.weight)
        for module in model.modules()
        if getattr(module, "starts_at_zero", False) and not module.weight.any()
    }
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    return [
        {"params": [weight for weight in trained if id(weight) not in zero], "rate": 1.0},
        {"params": [weight for weight in trained if id(weight) in zero], "rate": config.zero_init_rate},
    ]


def epoch_batches(count: int, epoch: int, config: VidCLIPRunConfig, accelerator: Accelerator) -> list[list[int]]:
    """This process's part of each batch of an epoch, in an order that seed and epoch decide.

    The last batch may be smaller and the parts uneven; one with fewer than two pairs for each process is left out.
    """
    order = torch.randperm(count, generator=torch.Generator().manual_seed(config.seed * 1_000_003 + epoch))
    parts, rank = accelerator.num_processes, accelerator.process_index
    batches = [batch for batch in order.split(config.batch_size) if len(batch) >= 2 * parts]
    return [batch.tensor_split(parts)[rank].tolist() for batch in batches]


class Training:
    """One training run."""

    def __init__(self, config: VidCLIPRunConfig) -> None:
        self.config, self.output_dir = config, Path(config.output_dir)
        self.accelerator = make_accelerator(
            config.device, self.output_dir, mixed_precision=config.mixed_precision, tracker=config.tracker
        )
        set_seed(config.seed)
        model, self.processor = load_vidclip(config)
        model.vision_model.requires_grad_(not config.freeze_vision)
        if config.activation_checkpointing:
            model.activation_checkpointing_enable()
        size = self.processor.video_processor.size
        self.size = (size["height"], size["width"])
        keeps_tokens = config.freeze_vision and config.keep_frames and not config.num_workers
        self.visual = "frame_tokens" if keeps_tokens else "pixel_values"
        self.reader = SpanReader(
            self.size, keep=config.keep_frames, transform=self.frame_tokens if keeps_tokens else Tensor.contiguous
        )
        if keeps_tokens:
            frames = processor_fingerprint(self.processor.video_processor)
            self.reader.kept = FROZEN_TOKENS.setdefault((weights_fingerprint(model.vision_model), frames), {})
        with self.accelerator.main_process_first():
            rows, self.coverage = load_rows(config, "train", num_workers=config.num_workers)
            validation, _ = load_rows(config, "validation", num_workers=config.num_workers)
        self.draws = {0: group(rows)}
        self.scores = Scores(validation, SpanReader(self.size, keep=config.keep_frames))
        model.to(self.accelerator.device)
        optimizer = torch.optim.AdamW(
            parameter_groups(model, config), lr=config.learning_rate, weight_decay=config.weight_decay
        )
        self.model, self.optimizer = self.accelerator.prepare(model, optimizer)
        decisive = identity(config) | {"num_processes": self.accelerator.num_processes}
        self.checkpoints = Checkpoints(self.accelerator, self.output_dir, decisive, restart=config.restart)

    def epoch_contrasts(self, epoch: int) -> list[Contrast]:
        """The pairs of an epoch: drawn anew, or clips stacked anew."""
        config, seed = self.config, self.config.seed * 1_000_003 + epoch
        with self.accelerator.main_process_first():
            if config.stack:
                clips = (config.clips_dataset, config.clips_config, config.clips_data_dir)
                contrasts = load_stacks(*clips, size=config.stack, seed=seed)
            else:
                draw = epoch % config.draws
                if draw not in self.draws:
                    self.draws[draw] = group(load_rows(config, "train", draw=draw)[0])
                contrasts = self.draws[draw]
        if config.objective == "negclip" and config.negclip_negatives:
            return draw_negatives(contrasts, config.negclip_negatives, random.Random(seed))
        return contrasts

    def pixels(self, frames: Tensor) -> Tensor:
        """What the model takes of videos `(B, T, 3, height, width)` uint8."""
        return self.processor(videos=frames, do_sample_frames=False)["pixel_values"]

    @torch.no_grad()
    def frame_tokens(self, frames: Tensor) -> Tensor:
        """What the frozen tower says of the frames of one video `(T, 3, height, width)`."""
        model = self.accelerator.unwrap_model(self.model)
        return model.get_frame_tokens(self.pixels(frames[None]).to(self.accelerator.device))[0].cpu()

    def collate(self, items: list[tuple[Tensor, Contrast]]) -> dict[str, Tensor]:
        """What the model takes of a batch."""
        videos, contrasts = torch.stack([video for video, _ in items]), [contrast for _, contrast in items]
        if self.visual == "pixel_values":
            videos = self.pixels(videos)
        texts = [contrast.positive for contrast in contrasts]
        if self.config.objective == "clip":
            return {self.visual: videos, **self.processor(text=texts)}
        negatives, levels = ([getattr(one, name) for one in contrasts] for name in ("negatives", "levels"))
        return {self.visual: videos, **self.processor.tokenize_contrasts(texts, negatives, levels)}

    def train(self) -> dict[str, Any]:
        """Train from wherever the last run stopped; returns the figures of the last epoch."""
        config, accelerator = self.config, self.accelerator
        finished = self.output_dir / "results.json"
        if finished.is_file():
            accelerator.print(f"{finished} says that this run is complete; --restart trains anew")
            return json.loads(finished.read_text(encoding="utf-8"))["figures"]
        if config.tracker:
            accelerator.init_trackers("vidclip", config={k: v for k, v in asdict(config).items() if v is not None})
        progress = self.checkpoints.resume()
        steps_per_epoch = len(epoch_batches(len(self.epoch_contrasts(0)), 0, config, accelerator))
        if not steps_per_epoch:
            raise SystemExit(
                f"there are fewer than two pairs for each of {accelerator.num_processes} processes; give more data"
            )
        disable_progress_bars()  # of `datasets`, which would break this one into pieces at every epoch
        with tqdm(
            total=config.epochs * steps_per_epoch,
            initial=progress.total_steps,
            desc=f"vidclip {config.objective}",
            unit="step",
            disable=not accelerator.is_local_main_process,
        ) as bar:
            while progress.epoch < config.epochs:
                loss = self.train_epoch(progress, config.epochs * steps_per_epoch, bar)
                figures = self.validate()
                progress.history.append({"loss": loss, **figures})
                accelerator.log(progress.history[-1], step=progress.total_steps)
                progress.epoch, progress.step, progress.loss_sum = progress.epoch + 1, 0, 0.0
                accuracy = figures["comprehensive_accuracy"]
                bar.set_postfix(loss=f"{loss:.3f}", comprehensive_accuracy=f"{accuracy:.3f}")
        return self.save(progress)

    def train_epoch(self, progress: Progress, total_steps: int, bar: tqdm) -> float:
        """The rest of the current epoch; the mean loss over all of it."""
        config, accelerator = self.config, self.accelerator
        self.model.train()
        if config.freeze_vision:
            accelerator.unwrap_model(self.model).vision_model.eval()
        contrasts = self.epoch_contrasts(progress.epoch)
        batches = epoch_batches(len(contrasts), progress.epoch, config, accelerator)[progress.step :]
        loader = DataLoader(
            ContrastFrames(contrasts, self.reader, config.num_frames),
            batch_sampler=batches,
            collate_fn=self.collate,
            num_workers=config.num_workers,
            generator=torch.Generator(),  # else a run that goes on draws from the global one once more
        )
        for batch in loader:
            for group_ in self.optimizer.param_groups:
                rate = learning_rate(progress.total_steps, total_steps, config)
                group_["lr"] = rate * group_["rate"]
            inputs = {name: value.to(accelerator.device) for name, value in batch.items()}
            loss = self.model(**inputs, return_loss=True).loss
            accelerator.backward(loss)
            if config.max_gradient_norm:
                accelerator.clip_grad_norm_(self.model.parameters(), config.max_gradient_norm)
            self.optimizer.step()
            accelerator.unwrap_model(self.model).limit_logit_scale_()
            self.optimizer.zero_grad()
            progress.loss_sum += loss.item()
            progress.step += 1
            progress.total_steps += 1
            bar.update()
            if progress.total_steps % config.checkpoint_steps == 0:
                self.checkpoints.save(progress)
        return progress.loss_sum / progress.step

    def validate(self) -> dict[str, float]:
        """The figures of the weights as they are; every process does the same work."""
        model = self.accelerator.unwrap_model(self.model).eval()
        figures = self.scores(VidCLIPEncoder(model, self.processor, self.config.num_frames))
        return {name: value for name, value in figures.items() if isinstance(value, float)}

    def save(self, progress: Progress) -> dict[str, Any]:
        """Write the model, and `results.json` last: it says that the run is complete."""
        figures = {f"validation/{name}": value for name, value in progress.history[-1].items() if name != "loss"}
        state = self.accelerator.get_state_dict(self.model)
        if self.accelerator.is_main_process:
            with replacing(self.output_dir / "model") as unfinished:
                self.accelerator.unwrap_model(self.model).save_pretrained(unfinished, state_dict=state)
                self.processor.save_pretrained(unfinished)
            write_results(
                self.output_dir,
                figures,
                config=self.config,
                seed=self.config.seed,
                history=progress.history,
                coverage={"train": self.coverage},
                num_processes=self.accelerator.num_processes,
            )
            shutil.rmtree(self.output_dir / "checkpoints", ignore_errors=True)
        self.accelerator.wait_for_everyone()
        self.accelerator.end_training()
        return figures


def run(config: VidCLIPRunConfig) -> dict[str, Any]:
    """Train one model; returns its figures on the validation split."""
    return Training(config).train()


def main(config: VidCLIPRunConfig) -> None:
    figures = run(config)
    if PartialState().is_main_process:
        accuracy = 100 * figures["validation/comprehensive_accuracy"]
        print(f"{config.output_dir}/model: validation comprehensive accuracy {accuracy:.1f}")


if __name__ == "__main__":
    sys.exit(run_recipe(main, CONFIG))
