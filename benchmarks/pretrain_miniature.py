"""Train the miniature's CLIP on single rendered frames; its weights ship with the recipes.

    python -m benchmarks.pretrain_miniature
    python -m benchmarks.pretrain_miniature --output_dir recipes/weights/miniature-clip  # what ships

A real `CLIPModel` (48 px, 16 px patches) learns from single frames of the *training* competitions and their captions.
It also learns from values that only a renderer knows, so its features are better than from captions alone: the 3-D
joints of the athlete are regressed from the class token after every block but the first, the words of a text from its
embedding, and half of the stills carry a random position in time, added to all tokens as AIM's temporal embedding
will be, which it has to predict. It never sees more than one frame.
"""

import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm
from transformers import (
    AutoModel,
    AutoProcessor,
    CLIPConfig,
    CLIPImageProcessor,
    CLIPModel,
    CLIPProcessor,
    PreTrainedTokenizerFast,
)

from benchmarks.miniature_stills import NUM_TARGETS, Stills, read_stills, still_caption
from hf_datasets.drafts import replacing_files, writing
from hf_datasets.miniature import MiniatureConfig, plan_competitions, prepare_miniature
from hf_datasets.miniature.captions import fine_caption
from hf_datasets.miniature.competitions import Shot
from hf_datasets.tfcovr.labels import find_label, load_labels
from hf_datasets.tfcovr.modifications.writer import write_modification
from hf_datasets.tfcovr.pairs import label_pairs
from hf_models.tfcovr.layers_aim import time_code
from hf_models.vidclip.layers_vidclip import limited_scale
from subtle.options import option, parse_config, run_recipe
from subtle.run.accelerator import make_accelerator
from subtle.run.results import write_results
from subtle.run.schedules import rate_factor
from subtle.run.shared_config import Device


@dataclass
class PretrainConfig:
    """The size of the model and of its training; the defaults made the weights that ship."""

    image_size: int = option(48, "Side of an image, in pixels.")
    patch_size: int = option(16, "Side of a patch, in pixels.")
    hidden_size: int = option(96, "Width of the vision tower.")
    num_layers: int = option(4, "Blocks of the vision tower.")
    num_heads: int = option(3, "Attention heads of the vision tower.")
    text_hidden_size: int = option(64, "Width of the text tower.")
    text_layers: int = option(2, "Blocks of the text tower.")
    text_heads: int = option(2, "Attention heads of the text tower.")
    projection_dim: int = option(64, "Size of the embeddings.")
    vocab_size: int = option(700, "Tokens of the vocabulary.")
    max_tokens: int = option(48, "Longest text, in tokens.")
    num_frames: int = option(12, "Stills of each clip, and positions in time.")
    steps: int = option(1500, "Optimizer steps.")
    batch_size: int = option(64, "Stills per step.")
    text_batch_size: int = option(
        24, "How many of these come with their captions; as many modification texts are added."
    )
    learning_rate: float = option(2e-3, "AdamW's highest learning rate, after the warm-up.")
    weight_decay: float = option(0.02, "AdamW's weight decay.")
    warmup_steps: int = option(100, "Steps of linear warm-up; a cosine to zero follows.")
    joint_weight: float = option(4.0, "Weight of the regression of 3-D joints.")
    word_weight: float = option(1.0, "Weight of the prediction of a text's words.")
    contrast_weight: float = option(0.3, "Weight of the contrast of stills and captions.")
    time_weight: float = option(0.5, "Weight of the prediction of the position in time.")
    time_amplitude: float = option(0.25, "Amplitude of the sinusoids that mark the position in time.")
    num_workers: int = option(2, "Processes that decode; 0: this one decodes.")
    device: Device = option("cpu", "Where to compute; auto: on the GPU where there is one.")
    output_dir: str = option("outputs/miniature-clip", "Folder for the model and results.json.")
    seed: int = option(0, "Seed of everything random.")


def clip_captions(shot: Shot) -> tuple[str, str]:
    """The label's text and the fine caption of the clip that a still comes from."""
    return find_label(shot.action.label).description, fine_caption(shot.action, shot.scene.hall, shot.scene.socks)


def modification_texts(labels: tuple[str, ...]) -> list[str]:
    """The modification texts of TF-CoVR's rule-based generator between any two of these labels."""
    attributes: dict[str, Any] = {label: find_label(label).attributes for label in labels}
    pairs = label_pairs([find_label(label) for label in labels])
    texts = {write_modification(attributes[pair.source], attributes[pair.target]) for pair in pairs}
    return sorted(texts)


def train_tokenizer(texts: list[str], config: PretrainConfig) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer, lower-cased, that can write any text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<pad>", "<s>", "<unk>", "</s>"]
    trainer = trainers.BpeTrainer(
        vocab_size=config.vocab_size,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        bos_token="<s>",
        unk_token="<unk>",
        eos_token="</s>",
        model_max_length=config.max_tokens,
    )


def build_processor(texts: list[str], config: PretrainConfig) -> CLIPProcessor:
    """Frames stretched to the model's size, and texts."""
    size = {"height": config.image_size, "width": config.image_size}
    images = CLIPImageProcessor(size=size, do_center_crop=False)
    return CLIPProcessor(images, train_tokenizer(texts, config))


def build_model(vocab_size: int, config: PretrainConfig) -> CLIPModel:
    """A CLIP of the miniature's size at random weights."""
    text = {
        "hidden_size": config.text_hidden_size,
        "intermediate_size": 4 * config.text_hidden_size,
        "num_hidden_layers": config.text_layers,
        "num_attention_heads": config.text_heads,
        "vocab_size": vocab_size,
        "max_position_embeddings": config.max_tokens,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 3,
    }
    vision = {
        "hidden_size": config.hidden_size,
        "intermediate_size": 4 * config.hidden_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "image_size": config.image_size,
        "patch_size": config.patch_size,
    }
    return CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=config.projection_dim))


class Pretraining(nn.Module):
    """The CLIP with the heads that only training needs."""

    def __init__(self, model: CLIPModel, config: PretrainConfig) -> None:
        super().__init__()
        self.model, self.config = model, config
        text_config: Any = model.config.text_config
        width, vocab_size = config.hidden_size, text_config.vocab_size
        self.code: Tensor
        self.register_buffer("code", time_code(config.num_frames, width))
        depths = range(2, config.num_layers + 1)
        self.pose = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, NUM_TARGETS + width)) for _ in depths
        )
        self.words = nn.Linear(config.projection_dim, vocab_size)
        self.positions: Tensor | None = None
        model.vision_model.embeddings.register_forward_hook(self.add_time)

    def add_time(self, _module: nn.Module, _inputs: Any, tokens: Tensor) -> Tensor:
        """Add the code of each still's position in time to all of its tokens; -1 marks a still without one."""
        if self.positions is None:
            return tokens
        code = self.code[self.positions.clamp(min=0)] * (self.positions >= 0)[:, None]
        return tokens + self.config.time_amplitude * code[:, None]

    def forward(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """The losses of a batch."""
        self.positions = batch["positions"]
        seen = self.model.vision_model(batch["pixel_values"], output_hidden_states=True)
        self.positions = None
        pooled = seen.pooler_output[: self.config.text_batch_size]  # the others have no text
        image = F.normalize(self.model.visual_projection(pooled), dim=-1)
        read = self.model.text_model(batch["input_ids"], batch["attention_mask"])
        text = F.normalize(self.model.text_projection(read.pooler_output), dim=-1)
        timed = batch["positions"] >= 0
        pose, when = [], []
        for head, states in zip(self.pose, seen.hidden_states[2:], strict=True):
            predicted = head(states[:, 0])
            pose.append(F.mse_loss(predicted[:, :NUM_TARGETS], batch["targets"]))
            when.append(F.mse_loss(predicted[timed, NUM_TARGETS:], self.code[batch["positions"][timed]]))
        num_images = len(image)
        scale = limited_scale(self.model.logit_scale, math.log(50))
        logits = scale * image @ text[:num_images].T
        diagonal = torch.arange(num_images, device=logits.device)
        present = torch.zeros(len(text), self.words.out_features, device=logits.device)
        present.scatter_(1, batch["input_ids"], 1.0)
        return {
            "joints": torch.stack(pose).mean(),
            "time": torch.stack(when).mean(),
            "contrast": (F.cross_entropy(logits, diagonal) + F.cross_entropy(logits.T, diagonal)) / 2,
            "words": F.binary_cross_entropy_with_logits(self.words(4 * text)[:, 4:], present[:, 4:]) * 50,
        }


class Batches:
    """Random stills with captions, and modification texts, of which only the words are predicted."""

    def __init__(
        self, stills: Stills, modifications: list[str], processor: CLIPProcessor, config: PretrainConfig
    ) -> None:
        self.stills, self.modifications, self.tokenizer, self.config = (
            stills,
            modifications,
            processor.tokenizer,
            config,
        )
        self.of_clip = [clip_captions(shot) for shot in stills.shots]
        mean, std = (
            torch.tensor(values)[:, None, None] * 255
            for values in (processor.image_processor.image_mean, processor.image_processor.image_std)
        )
        self.normalize: Callable[[Tensor], Tensor] = lambda frames: (frames.float() - mean) / std

    def caption(self, clip: int, frame: int, generator: np.random.Generator) -> str:
        """One of the still's three captions."""
        choice = generator.integers(4)
        if choice < 2:
            return self.of_clip[clip][choice]
        return still_caption(self.stills.shots[clip], self.stills.joints[clip, frame])

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        generator = np.random.default_rng(self.config.seed)
        size, num_texts = self.config.batch_size, self.config.text_batch_size
        num_clips, num_frames = self.stills.frames.shape[:2]
        for _ in range(self.config.steps):
            clips, frames = (
                generator.integers(num_clips, size=size),
                generator.integers(num_frames, size=size),
            )
            right, down = generator.integers(-2, 3, 2).tolist()
            pictures = torch.roll(self.stills.frames[clips, frames], (down, right), (2, 3))
            light = torch.from_numpy(generator.uniform(-0.15, 0.15, (size, 1, 1, 1))).float()
            texts = [
                self.caption(clip, frame, generator)
                for clip, frame in zip(clips[:num_texts], frames[:num_texts], strict=True)
            ]
            texts += generator.choice(self.modifications, num_texts).tolist()
            positions = np.where(generator.random(size) < 0.5, frames, -1)
            yield {
                "pixel_values": self.normalize(pictures) + light,
                "targets": self.stills.targets[clips, frames],
                "positions": torch.from_numpy(positions),
                **self.tokenizer(texts, padding=True, truncation=True, return_tensors="pt"),
            }


@torch.no_grad()
def measure(model: CLIPModel, processor: CLIPProcessor, stills: Stills, *, choices: int = 64) -> dict[str, float]:
    """Metrics of a CLIP on stills that it has not seen.

    Returns:
        `caption_recall@1`: how often a still's own caption is the nearest of `choices`.
        `chance`: what random scores reach.
        `joints_r2`: how much of the joints' variance a linear map from the image features explains, fitted on one
            half of the clips and measured on the other.
    """
    model.eval()
    num_clips, num_frames = stills.frames.shape[:2]
    pixels = processor.image_processor(list(stills.frames.flatten(0, 1)), return_tensors="pt")["pixel_values"]
    features = torch.cat([model.vision_model(part).pooler_output for part in pixels.split(512)])
    order = torch.randperm(num_clips, generator=torch.Generator().manual_seed(0))
    halves = order[: num_clips // 2], order[num_clips // 2 :]
    seen = features.unflatten(0, (num_clips, num_frames))
    (known, known_pose), (new, new_pose) = (
        (seen[half].flatten(0, 1).numpy(), stills.targets[half].flatten(0, 1).numpy()) for half in halves
    )
    read = Ridge(1.0).fit(known, known_pose).predict(new)
    # One still of each clip against those of other clips; the stills of one clip are too much alike.
    frame = torch.randint(num_frames, (num_clips,), generator=torch.Generator().manual_seed(1))
    image = F.normalize(model.visual_projection(seen[order, frame[order]]), dim=-1)
    texts = [still_caption(stills.shots[clip], stills.joints[clip, frame[clip]]) for clip in order.tolist()]
    tokens = processor.tokenizer(texts, padding=True, return_tensors="pt")
    pooled = model.text_model(tokens["input_ids"], tokens["attention_mask"]).pooler_output
    text = F.normalize(model.text_projection(pooled), dim=-1)
    groups = [part for part in torch.arange(num_clips).split(choices) if len(part) == choices]
    right = [
        texts[one] == texts[other]
        for group in groups
        for one, other in zip(group.tolist(), group[(image[group] @ text[group].T).argmax(1)].tolist(), strict=True)
    ]
    return {
        "caption_recall@1": sum(right) / len(right),
        "chance": 1 / choices,
        "joints_r2": r2_score(new_pose, read, multioutput="variance_weighted"),
    }


def run(config: PretrainConfig) -> dict[str, float]:
    """Train, measure on the validation competitions and save."""
    torch.manual_seed(config.seed)
    accelerator = make_accelerator(config.device, Path(config.output_dir))
    plan = plan_competitions(MiniatureConfig())
    folder = prepare_miniature()
    train, validation = (
        read_stills(
            folder,
            [competition for competition in plan if competition.split == split],
            config.num_frames,
            config.image_size,
            num_workers=config.num_workers,
        )
        for split in ("train", "validation")
    )
    labels = tuple(dict.fromkeys(shot.action.label for shot in train.shots))
    modifications = modification_texts(labels)
    corpus = [*modifications, *(label.description for label in load_labels())]
    corpus += [text for shot in train.shots for text in clip_captions(shot)]
    corpus += [still_caption(shot, seen[0]) for shot, seen in zip(train.shots, train.joints, strict=True)]
    processor = build_processor(corpus, config)
    training = Pretraining(build_model(len(processor.tokenizer), config), config)
    optimizer = torch.optim.AdamW(
        training.parameters(), config.learning_rate, (0.9, 0.98), weight_decay=config.weight_decay
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, (step + 1) / config.warmup_steps) * rate_factor(step, config.steps, 0)
    )
    training, optimizer = accelerator.prepare(training, optimizer)
    weights = {
        "joints": config.joint_weight,
        "time": config.time_weight,
        "contrast": config.contrast_weight,
        "words": config.word_weight,
    }
    started = time.perf_counter()
    with tqdm(total=config.steps, desc="Training CLIP on stills", unit="step") as bar:
        for step, batch in enumerate(Batches(train, modifications, processor, config)):
            losses = training({name: value.to(accelerator.device) for name, value in batch.items()})
            accelerator.backward(sum(weights[name] * loss for name, loss in losses.items()))
            accelerator.clip_grad_norm_(training.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            bar.update()
            if step % 50 == 0:
                bar.set_postfix({name: f"{loss.item():.3f}" for name, loss in losses.items()})
    model = accelerator.unwrap_model(training).model.cpu()
    metrics = measure(model, processor, validation)
    seconds = time.perf_counter() - started
    with replacing_files(Path(config.output_dir)) as draft:
        with writing(Path(config.output_dir)):
            model.save_pretrained(draft)
            processor.save_pretrained(draft)
        write_results(draft, metrics, config=config, seed=config.seed, training_seconds=seconds)
    return metrics


def load(folder: str | Path) -> tuple[CLIPModel, CLIPProcessor]:
    """The model and processor that `run` saved."""
    return AutoModel.from_pretrained(folder), AutoProcessor.from_pretrained(folder)


def main(config: PretrainConfig) -> None:
    print(run(config))
    print(f"saved to {config.output_dir}")


if __name__ == "__main__":
    sys.exit(run_recipe(main, parse_config(PretrainConfig, __doc__)))
