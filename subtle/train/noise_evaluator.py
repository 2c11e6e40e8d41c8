"""Train VERIFIED's noise evaluator, which scores how well a text describes a clip."""

import itertools
import random
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import set_seed
from torch import Tensor
from tqdm import tqdm
from transformers.utils.logging import disable_progress_bar

from hf_datasets.fig.miniature import miniature_examples
from hf_datasets.fig.noise import NoiseExample, built_examples
from hf_datasets.long_videos import Split
from hf_datasets.miniature import prepare_miniature
from hf_datasets.records import Rejection
from hf_datasets.video import VideoStore
from hf_datasets.video.frame_cache import FrameCache
from hf_models.vidclip.modeling_vidclip_matching import Encoded, contrastive_loss, matching_loss
from hf_models.video_text_matching import BlipMatcher, Scorer, load_matcher
from subtle.run.model_folders import check_model_folder
from subtle.run.schedules import rate_factor
from subtle.run.training import TrainingRun, epoch_batches
from subtle.train.options import NoiseEvaluatorConfig

POSITIVES, NEGATIVES = 2, 2
"""Texts that are drawn for each moment and step."""


class Examples:
    """Examples whose frames can be read, from a cache on disk.

    Attributes:
        examples: in their order.
        failures: desc_id -> why a moment is left out.
    """

    def __init__(
        self,
        examples: list[NoiseExample],
        paths: dict[str, str],
        size: tuple[int, int],
        config: NoiseEvaluatorConfig,
    ) -> None:
        rows = [
            {
                "clip_id": str(example.desc_id),
                "video": paths.get(example.video_id),
                "start_seconds": example.start_seconds,
                "end_seconds": example.end_seconds,
            }
            for example in examples
        ]
        folder = Path(config.output_dir) / "frames"
        folder.mkdir(parents=True, exist_ok=True)
        self.cache = FrameCache(folder, rows, config.num_frames, size, num_workers=config.num_workers)
        self.failures = self.cache.failures
        self.examples = [example for example in examples if str(example.desc_id) not in self.failures]

    def frames(self, examples: list[NoiseExample]) -> Tensor:
        """`(n, T, 3, H, W)` uint8."""
        places = [self.cache.places[str(example.desc_id)] for example in examples]
        return torch.from_numpy(self.cache.frames[places])


def load_examples(
    config: NoiseEvaluatorConfig,
) -> tuple[dict[Split, list[NoiseExample]], dict[str, str], list[Rejection]]:
    """Examples by split, the path of each video that is there, and what was refused."""
    rejections: list[Rejection] = []
    if config.build is None:
        root = prepare_miniature()
        examples, video_dir = miniature_examples(root), root / "videos"
    else:
        if not config.video_dir:
            raise SystemExit("the evaluator looks at the moments: name their videos with --video_dir")
        try:
            examples, rejections = built_examples(Path(config.build))
        except (FileNotFoundError, ValueError) as error:
            raise SystemExit(str(error)) from None
        video_dir = Path(config.video_dir)
    store = VideoStore(video_dir)
    wanted = {example.video_id for split in examples.values() for example in split}
    return (
        examples,
        {video_id: str(store.path(video_id)) for video_id in store.coverage(sorted(wanted)).found},
        rejections,
    )


def draw_texts(examples: list[NoiseExample], generator: random.Random) -> tuple[list[list[str]], list[list[str]]]:
    """Texts that fit each clip, its caption first, and negative ones, static and dynamic in turn."""
    positives, negatives = [], []
    for example in examples:
        caption, *rewrites = example.positives
        positives.append([caption, *generator.sample(rewrites, min(POSITIVES - 1, len(rewrites)))])
        kinds = [generator.sample(kind, len(kind)) for kind in (example.static_negatives, example.dynamic_negatives)]
        turns = [text for pair in itertools.zip_longest(*kinds) for text in pair if text is not None]
        negatives.append(turns[:NEGATIVES])
    return positives, negatives


def training_loss(
    scorer: Scorer,
    clips: Examples,
    examples: list[NoiseExample],
    generator: random.Random,
) -> Tensor:
    """Both objectives on one batch."""
    matcher = scorer.matcher
    fitting, wrong = draw_texts(examples, generator)
    texts = [text for own in fitting for text in own]
    negative_texts = [text for own in wrong for text in own]
    owners = torch.tensor([row for row, own in enumerate(fitting) for _ in own], device=scorer.device)
    negative_owners = torch.tensor([row for row, own in enumerate(wrong) for _ in own], device=scorer.device)
    captions = [set(example.positives) for example in examples]
    same = [[text in fits for text in texts] for fits in captions]
    is_same = torch.tensor(same, device=scorer.device)
    seen = matcher.encode_clips(scorer.pixels(clips.frames(examples)))
    read = matcher.encode_texts(**scorer.tokens(texts + negative_texts))
    positives = read.take(torch.arange(len(texts), device=scorer.device))
    negatives = read.take(torch.arange(len(texts), len(texts) + len(negative_texts), device=scorer.device))
    contrast = contrastive_loss(seen, positives, owners, negatives, is_same, matcher.scale)
    hard_clips, hard_texts = hard_pairs(seen, positives, is_same, matcher.scale)
    logits = matcher.match(
        concatenate(seen.take(owners), seen.take(negative_owners), seen.take(hard_clips)),
        concatenate(positives, negatives, positives.take(hard_texts)),
    )
    return contrast + matching_loss(logits[: len(texts)], logits[len(texts) :])


def hard_pairs(seen: Encoded, positives: Encoded, is_same: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """For every clip a text of another one, and for every text another clip; similar ones are drawn more often."""
    with torch.no_grad():
        similarity = (seen.embeds @ positives.embeds.T * scale).float().masked_fill(is_same, -torch.inf)
    clips = torch.arange(len(seen.embeds), device=similarity.device)
    texts = torch.arange(len(positives.embeds), device=similarity.device)
    has_other, has_clip = (~is_same).any(1), (~is_same).any(0)
    text_of_clip = torch.multinomial(similarity[has_other].softmax(1), 1)[:, 0] if has_other.any() else texts[:0]
    clip_of_text = torch.multinomial(similarity[:, has_clip].T.softmax(1), 1)[:, 0] if has_clip.any() else clips[:0]
    return torch.cat([clips[has_other], clip_of_text]), torch.cat([text_of_clip, texts[has_clip]])


def concatenate(*parts: Encoded) -> Encoded:
    """Several groups as one."""
    fields = zip(*((part.embeds, part.states, part.mask, part.input_ids) for part in parts), strict=True)
    joined: list[Any] = [None if values[0] is None else torch.cat(values) for values in fields]
    return Encoded(*joined)


@torch.inference_mode()
def preference_accuracy(scorer: Scorer, clips: Examples, config: NoiseEvaluatorConfig) -> dict[str, float]:
    """How often a moment's caption, or every text that fits it, is scored above the negative ones."""
    scorer.matcher.eval()
    examples = clips.examples[: config.max_evaluated]
    wins: dict[str, list[float]] = {name: [] for name in ("static", "dynamic", "best_fits")}
    for example in tqdm(examples, desc="evaluating", unit="moment"):
        texts = [*example.positives, *example.negatives]
        scores = torch.tensor(scorer(clips.frames([example])[0], texts))
        fitting, wrong = scores[: len(example.positives)], scores[len(example.positives) :]
        static, dynamic = wrong.split([len(example.static_negatives), len(example.dynamic_negatives)])
        for name, others in (("static", static), ("dynamic", dynamic)):
            if len(others):
                wins[name].append((fitting[:, None] > others).float().mean().item())
        wins["best_fits"].append(float(fitting.max() > wrong.max()))
    accuracies = {f"accuracy_{name}": sum(values) / max(len(values), 1) for name, values in wins.items()}
    return {"moments": len(examples), **accuracies}


class NoiseEvaluatorTraining(TrainingRun):
    """One training run."""

    NAME, METRIC = "noise_evaluator", "loss"
    KEEPS_BEST = False  # the last weights are published

    def __init__(self, config: NoiseEvaluatorConfig) -> None:
        super().__init__(config)
        if self.accelerator.num_processes > 1:
            raise SystemExit(
                "the noise evaluator trains in one process; start it with `python`, on one GPU if there is one"
            )
        disable_progress_bar()
        self.examples, paths, self.rejections = self.load_examples()
        self.scorer = self.load_scorer()
        size = self.scorer.frame_size
        self.clips = {split: Examples(of_split, paths, size, config) for split, of_split in self.examples.items()}
        if not self.clips.get("train") or not self.clips["train"].examples:
            raise SystemExit("no training moment has a video and a negative caption; see --build and --video_dir")
        self.held_out = self.clips.get("test") or self.clips.get("validation")
        matcher = self.scorer.matcher
        optimizer = torch.optim.AdamW(matcher.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay)
        self.model, self.optimizer = self.accelerator.prepare(matcher, optimizer)

    def load_examples(self) -> tuple[dict[Split, list[NoiseExample]], dict[str, str], list[Rejection]]:
        """Examples by split, the path of each video that is there, and what was refused."""
        return load_examples(self.config)

    def load_scorer(self) -> Scorer:
        """What training starts from; the same at each call, with the parts that are new."""
        check_model_folder(self.config.model)
        set_seed(self.config.seed)
        scorer = Scorer(*load_matcher(self.config.model, num_frames=self.config.num_frames))
        scorer.matcher.to(self.accelerator.device)
        return scorer

    def identity(self) -> dict[str, Any]:
        """What is measured on does not count."""
        return {name: value for name, value in super().identity().items() if name != "max_evaluated"}

    def batches(self, epoch: int) -> list[list[NoiseExample]]:
        """The examples of each batch of an epoch."""
        examples = self.clips["train"].examples
        parts = epoch_batches(len(examples), epoch, self.config, self.accelerator)
        return [[examples[row] for row in part.tolist()] for part in parts]

    def count_steps(self) -> int:
        """A batch of one moment has no others to compare it with, and is left out."""
        steps = len(self.batches(0))
        if not steps:
            raise SystemExit("one moment is too few to train on; give at least two")
        return steps

    def rate_factor(self, step: int) -> float:
        """Linear, after at least one step of warm-up."""
        return rate_factor(step, self.total_steps, max(1, round(self.warmup)), shape="linear")

    def train_epoch(self) -> None:
        """The rest of the current epoch."""
        accelerator, progress, config = self.accelerator, self.progress, self.config
        self.model.train()
        for batch in self.fetched(self.batches(progress.epoch)[progress.step :]):
            generator = random.Random(f"{config.seed} {progress.epoch} {progress.step}")
            with accelerator.autocast():
                loss = training_loss(self.scorer, self.clips["train"], batch, generator)
            self.take_step(loss)
            self.scorer.matcher.limit_logit_scale_()
            self.finish_step(loss, [example.desc_id for example in batch])

    def validate(self) -> dict[str, float]:
        """On the held-out moments."""
        return preference_accuracy(self.scorer, self.held_out, self.config) if self.held_out else {}

    def publish(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Write the model with its last weights; the figures of what it started from are taken now."""
        scorer, after = (
            self.scorer,
            {name: value for name, value in self.progress.history[-1].items() if name != "loss"},
        )
        matcher = scorer.matcher.model if isinstance(scorer.matcher, BlipMatcher) else scorer.matcher
        self.write_model(matcher, scorer.processor, scorer.tokenizer)
        before = preference_accuracy(self.load_scorer(), self.held_out, self.config) if self.held_out else {}
        failures = {desc_id: reason for split in self.clips.values() for desc_id, reason in split.failures.items()}
        coverage = {
            "moments": {split: len(of_split) for split, of_split in self.examples.items()},
            "without_negatives": len(self.rejections),
            "without_frames": failures,
        }
        if failures or self.rejections:
            counts = f"{len(self.rejections)} moments without a negative caption, {len(failures)} without frames"
            print(f"left out: {counts}")
        return {"trained": after, "before_training": before}, {"coverage": coverage}


def run(config: NoiseEvaluatorConfig) -> dict[str, Any]:
    """Train one model; returns its metrics on the held-out moments, and those before training."""
    return NoiseEvaluatorTraining(config).train()


def main(config: NoiseEvaluatorConfig) -> None:
    metrics = run(config)
    for name, value in metrics["trained"].items():
        was = metrics["before_training"][name]
        print(f"{name}: {value:.3f}, before training {was:.3f}" if name != "moments" else f"{value:,} moments")
    print(f"model: {(Path(config.output_dir) / 'model').resolve()}")
