"""Train AIM, the video encoder, to classify clips by fine-grained action (TF-CoVR, stage 1)."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast, gather_object, set_seed
from safetensors.torch import load_file
from torch import Tensor, nn

from hf_datasets.records import ClipRow
from hf_datasets.video.frame_cache import FrameCache
from hf_datasets.video.training_clips import Augmentation, LabeledClips
from hf_models.tfcovr.merging_aim import to_aim
from subtle.run.accelerator import processes
from subtle.run.loading import NamedDatasets, shared_bytes
from subtle.run.training import TrainingRun, epoch_seed
from subtle.tfcovr.classifiers import (
    accuracies,
    class_indices,
    class_names,
    make_classifier,
    make_processor,
    parameter_groups,
)
from subtle.tfcovr.labeled_splits import labeled_splits
from subtle.train.options import Stage1Config


def epoch_items(labels: Tensor, epoch: int, config: Stage1Config) -> list[tuple[int, int]]:
    """The items of an epoch in order, `(position, seed)`, decided by configuration and epoch alone."""
    generator = torch.Generator().manual_seed(epoch_seed(config.seed, epoch))
    if config.class_balanced:
        weights = 1 / labels.bincount()[labels].double()
        order = torch.multinomial(weights, len(labels), replacement=True, generator=generator)
    else:
        order = torch.randperm(len(labels), generator=generator)
    seeds = torch.randint(2**62, (len(labels),), generator=generator)
    return list(zip(order.tolist(), seeds.tolist(), strict=True))


class Stage1(TrainingRun):
    """One training run."""

    NAME, METRIC = "stage1", "accuracy"

    def __init__(self, config: Stage1Config) -> None:
        super().__init__(config)
        self.processor = make_processor(config.base, config.num_frames)
        self.size = (self.processor.size["height"], self.processor.size["width"])
        self.splits = labeled_splits(
            config,
            validation=config.validation,
            validation_fraction=config.validation_fraction,
            seed=config.seed,
        )
        clips = self.splits.clips
        for note in (self.splits.refused, *(f"{name}: {note}" for name, note in self.splits.notes.items())):
            if note:
                self.accelerator.print(note)
        named = clips["train"] if config.head == "present" else [clip for part in clips.values() for clip in part]
        self.names = class_names(named, config.head)
        for split, part in clips.items():  # before the videos are decoded, which can take hours
            class_indices(part, self.names, split)
        self.coverage: dict[str, dict[str, Any]] = {}
        self.data = {split: self.make_data(split, clips[split]) for split in clips}
        self.items = NamedDatasets(self.data)
        self.loss = nn.CrossEntropyLoss(label_smoothing=config.label_smoothing)
        self.model = make_classifier(config, self.names)
        groups = parameter_groups(self.model, config, config.learning_rate)
        optimizer = torch.optim.AdamW(groups, betas=(0.9, config.adam_beta2))
        self.model, self.optimizer = self.accelerator.prepare(self.model, optimizer)
        set_seed(config.seed, device_specific=True)  # every process drops out something else

    def identity(self) -> dict[str, Any]:
        """Where processes have parts of different sizes, the mean of their losses is another one."""
        processes, size = self.accelerator.num_processes, self.config.batch_size
        return super().identity() | ({"processes_of_uneven_parts": processes} if size % processes else {})

    def make_data(self, split: str, clips: list[ClipRow]) -> LabeledClips:
        """One split; clips that do not decode are left out and counted where frames are cached."""
        config, training = self.config, split == "train"
        per_part = config.frames_per_part if training else 1
        cache, failures = None, {}
        if config.cache_frames:
            with self.accelerator.main_process_first():
                cache = FrameCache(
                    Path(config.cache_dir),
                    clips,
                    config.num_frames * per_part,
                    self.size,
                    num_workers=config.num_workers,
                    also=config.num_frames if per_part > 1 else None,  # what embed.py reads
                    spread=config.spread,
                )
            failures = cache.failures
        usable = [clip for clip in clips if clip["clip_id"] not in failures]
        for clip_id, reason in failures.items():
            self.accelerator.print(f"left out {clip_id} of {split}: {reason}")
        if not usable:
            raise SystemExit(f"no clip of {split} can be read, of {len(clips)}; the last reason: {reason}")
        augmentation = Augmentation(
            self.size,
            crop_scale=config.crop_scale,
            flip=config.flip,
            brightness=config.brightness,
            rand_augment=tuple(config.rand_augment),
            per_frame=config.augment_per_frame,
        )
        self.coverage[split] = self.splits.coverage[split] | {"usable": len(usable)}
        return LabeledClips(
            usable,
            class_indices(usable, self.names, split),
            config.num_frames,
            self.size,
            augmentation=augmentation if training else None,
            frames_per_part=per_part,
            cache=cache,
            spread=config.spread,
        )

    def parts(self, items: Sequence[Any], batch_size: int) -> list[Any]:
        """This process's items of each batch."""
        rank, step = self.accelerator.process_index, self.accelerator.num_processes
        return [items[start : start + batch_size][rank::step] for start in range(0, len(items), batch_size)]

    def batches(self, split: str, items: Sequence[Any], batch_size: int) -> Iterator[dict[str, Tensor]]:
        """This process's part of each batch, normalized on the device."""
        accelerator = self.accelerator
        indices = [[(split, item) for item in chunk] for chunk in self.parts(items, batch_size)]
        workers, most = self.config.num_workers, -(-batch_size // accelerator.num_processes)
        mean, std = (
            255 * torch.tensor(values, device=accelerator.device)[:, None, None]
            for values in (self.processor.image_mean, self.processor.image_std)
        )
        for batch in self.read_batches(
            self.items,
            indices,
            num_workers=workers,
            may_be_empty=split != "train",
            needed_bytes=shared_bytes(most, self.config.num_frames, self.size, workers),
        ):
            yield {"pixel_values": (batch["frames"].float() - mean) / std, "labels": batch["labels"]}

    def count_steps(self) -> int:
        """The last batch of an epoch is left out where it is smaller."""
        steps = len(self.data["train"]) // self.config.batch_size
        if not steps:
            raise SystemExit(
                f"{len(self.data['train'])} training clips are less than one batch of {self.config.batch_size}; "
                "lower --batch_size"
            )
        return int(steps)

    def train_epoch(self) -> None:
        """The rest of the current epoch."""
        config, accelerator, progress = self.config, self.accelerator, self.progress
        self.model.train()
        items = epoch_items(torch.tensor(self.data["train"].labels), progress.epoch, config)
        items = items[progress.step * config.batch_size : self.steps_per_epoch * config.batch_size]
        batches = self.batches("train", items, config.batch_size)
        for batch, rows in self.fetched(zip(batches, self.parts(items, config.batch_size), strict=True)):
            with accelerator.autocast():
                loss = self.loss(self.model(pixel_values=batch["pixel_values"]).logits, batch["labels"])
            self.take_step(loss)
            self.finish_step(loss, rows)

    def row_name(self, row: tuple[int, int]) -> str:
        """The clip of an item."""
        return str(self.data["train"].clips[row[0]]["clip_id"])

    def validate(self) -> dict[str, float]:
        """Accuracy on the validation clips."""
        return self.evaluate("validation")

    @torch.no_grad()
    def evaluate(self, split: str, *, shuffle_frames: bool = False) -> dict[str, float]:
        """Top-1 and mean-class accuracy; labels with the same text are one class.

        With `shuffle_frames` the frames of each clip come in a random order; the loss of accuracy is due to their
        order.
        """
        # DDP would exchange buffers in the first pass, also with processes that have no clip and make none.
        model = self.plain_model.eval()
        data, pairs = self.data[split], []
        generator = torch.Generator().manual_seed(self.config.seed)
        items = [(position, None) for position in range(len(data))]
        for batch in self.batches(split, items, self.config.batch_size):
            pixels = batch["pixel_values"]
            if shuffle_frames:
                pixels = torch.stack([clip[torch.randperm(len(clip), generator=generator)] for clip in pixels])
            logits = model(pixel_values=pixels).logits
            pairs += list(zip(batch["labels"].tolist(), logits.argmax(-1).tolist(), strict=True))
        pairs = gather_object(pairs) if self.accelerator.num_processes > 1 else pairs
        if not pairs:
            raise SystemExit(f"no clip of {split} can be read, of {len(data)}; the reasons are above")
        return accuracies(pairs, self.names)

    def best_metrics(self) -> dict[str, float]:
        """The metrics of the best epoch on validation, measured when it ended."""
        best = max(self.progress.history, key=lambda epoch: epoch["accuracy"])
        return {name: value for name, value in best.items() if name != "loss"}

    def publish(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Measure the best weights, and write them as a full AIM and as adapters."""
        model = self.plain_model
        if self.accelerator.is_main_process:
            model.load_state_dict(load_file(self.best_weights))
        for weights in model.state_dict().values():  # other nodes may not see the file
            broadcast(weights)
        measured = {"validation": self.best_metrics()}
        if "test" in self.data:
            measured["test"] = self.evaluate("test")
        metrics = {f"{split}/{name}": value for split, named in measured.items() for name, value in named.items()}
        shuffled = self.evaluate("validation", shuffle_frames=True)["accuracy"]
        metrics["validation/accuracy_shuffled_frames"] = shuffled
        if self.accelerator.is_main_process:
            native = model if self.config.full else to_aim(model)
            self.write_model(native.cpu(), self.processor)
            if not self.config.full:
                # It changes no embedding; PEFT would look for the base's configuration to find that out.
                self.write_model(model, folder="adapter", save_embedding_layers=False)
        return metrics, {"coverage": self.coverage, "notes": self.splits.notes}

    def remove_leftovers(self) -> None:
        """The best weights too: the model has them."""
        super().remove_leftovers()
        if self.accelerator.is_main_process:
            self.best_weights.unlink(missing_ok=True)


def run(config: Stage1Config) -> dict[str, Any]:
    """Train one model; returns its metrics."""
    return Stage1(config).train()


def main(config: Stage1Config) -> None:
    metrics = run(config)
    if processes().is_main_process:
        shown = ", ".join(f"{name} {100 * value:.1f}" for name, value in metrics.items())
        print(f"{config.output_dir}/model: {shown}")
