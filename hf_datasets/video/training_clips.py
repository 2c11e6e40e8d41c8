"""Labeled clips for training a video classifier: frames chosen by a seed and augmented once per clip."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset
from torchvision.transforms import InterpolationMode, v2

from hf_datasets.records import ClipRow

from .failures import VideoError
from .frame_cache import FrameCache
from .reading import Spread, read_frames


class Augmentation:
    """Random crop, flip, brightness and RandAugment, drawn once for all frames of a clip.

    Args:
        size: Height and width of the result.
        crop_scale: Smallest share of the picture that a crop keeps; 1 does not crop.
        flip: Probability of mirroring.
        brightness: Largest relative change of brightness.
        rand_augment: Number of RandAugment's operations and their magnitude; (0, 0) turns it off.
        per_frame: Draw again for every frame, as the released code does; it breaks temporal consistency.

    Example:
        >>> frames = torch.randint(256, (8, 3, 32, 48), dtype=torch.uint8)
        >>> Augmentation((16, 16), crop_scale=0.5, brightness=0.2)(frames).shape
        torch.Size([8, 3, 16, 16])
    """

    def __init__(
        self,
        size: tuple[int, int],
        *,
        crop_scale: float = 1.0,
        flip: float = 0.5,
        brightness: float = 0.0,
        rand_augment: tuple[int, int] = (0, 0),
        per_frame: bool = False,
    ) -> None:
        bicubic = InterpolationMode.BICUBIC
        steps: list[Any] = []
        if crop_scale < 1:
            steps.append(v2.RandomResizedCrop(size, (crop_scale, 1.0), interpolation=bicubic, antialias=True))
        if flip:
            steps.append(v2.RandomHorizontalFlip(flip))
        if rand_augment[0]:
            steps.append(v2.RandAugment(*rand_augment, interpolation=InterpolationMode.BILINEAR))
        if brightness:
            steps.append(v2.ColorJitter(brightness=brightness))
        self.transform = v2.Compose(steps or [v2.Identity()])
        self.per_frame = per_frame

    def __call__(self, frames: Tensor) -> Tensor:
        """Augment `(T, 3, H, W)` uint8 frames."""
        if self.per_frame:
            return torch.stack([self.transform(frame) for frame in frames])
        augmented: Tensor = self.transform(frames)
        return augmented


class LabeledClips(Dataset[dict[str, Tensor]]):
    """Clips as `frames (T, 3, height, width)` uint8 and `labels`; an item is indexed by `(position, seed)`.

    The seed decides frame choice and augmentation, so an item is the same in every process and at any time;
    None takes the middle frames without augmentation.

    Args:
        clips: Rows with `clip_id`, `video`, `start_seconds`, `end_seconds`.
        labels: Class index of each.
        num_frames: T.
        size: Height and width.
        augmentation: For items with a seed.
        frames_per_part: The clip is cut into T parts; of each this many frames are read and one is drawn.
        cache: Decoded frames, `T * frames_per_part` per clip.
        spread: Of frames that are in no cache, as in `read_frames`.

    Raises:
        VideoError: On indexing, if a clip cannot be read; its message begins with the clip's id.
    """

    def __init__(
        self,
        clips: Sequence[ClipRow],
        labels: Sequence[int],
        num_frames: int,
        size: tuple[int, int],
        *,
        augmentation: Augmentation | None = None,
        frames_per_part: int = 1,
        cache: FrameCache | None = None,
        spread: Spread = "middles",
    ) -> None:
        self.clips, self.labels, self.num_frames, self.size = clips, labels, num_frames, size
        self.augmentation, self.frames_per_part, self.cache, self.spread = augmentation, frames_per_part, cache, spread

    def __len__(self) -> int:
        return len(self.clips)

    def __getitem__(self, index: tuple[int, int | None]) -> dict[str, Tensor]:
        position, seed = index
        if seed is None:
            frames = self.read(position)
        else:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                offsets = torch.randint(self.frames_per_part, (self.num_frames,))
                drawn = torch.arange(self.num_frames) * self.frames_per_part + offsets
                frames = self.read(position, drawn.numpy())
                frames = self.augmentation(frames) if self.augmentation else frames
        return {"frames": frames, "labels": torch.tensor(self.labels[position])}

    def read(self, position: int, drawn: np.ndarray | slice = slice(None)) -> Tensor:
        """The frames that are read of a clip, uint8, or those drawn of them.

        Raises:
            VideoError: The clip cannot be read.
        """
        clip = self.clips[position]
        if self.cache is not None:
            return self.cache.read(clip["clip_id"], drawn)
        count = self.num_frames * self.frames_per_part
        try:
            span = clip["start_seconds"], clip["end_seconds"]
            read = read_frames(clip["video"], count, *span, size=self.size, spread=self.spread)
        except VideoError as error:
            raise VideoError(f"clip {clip['clip_id']!r} does not decode: {error}") from error
        return read.frames[drawn].contiguous()  # the memory layout decides how resizing rounds
