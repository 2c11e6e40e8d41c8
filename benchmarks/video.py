"""Twelve frames of a clip: milliseconds per clip of `read_frames` against the decoders that people use today.

The videos are made here, H.264 at 240p and 25 frames a second with a keyframe every 12. Each frame carries its
number, and every frame that any way returns is checked to be the right one before anything is timed. All decode with
one thread, take turns over the same clips, and are compared by their medians. decord2 installs the module `decord`
as decord does, so it goes into a folder of its own and is measured in a process of its own.
"""

import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import av
import numpy as np
import torch
from torchvision.transforms.functional import to_tensor
from torchvision.transforms.v2 import InterpolationMode, functional

from benchmarks.timing import Ratio, interleave
from hf_datasets.video import frame_indices, read_frames
from hf_datasets.video.pool import VideoReaderPool, VideoRequest
from subtle.run.screen import Screen

WIDTH, HEIGHT, BLOCK, BITS, RATE = 426, 240, 24, 17, 25
NUM_FRAMES = 12
CLIP_FRAMES = (20, 66)  # 43 on average, as in TF-CoVR
MEAN, STD = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]
OFFICIAL = "from benchmarks.video import serve_official; serve_official()"


@dataclass(frozen=True)
class Clip:
    """Frames `first` to `last - 1` of a file; `number` is what the file's frame 0 shows."""

    path: str
    first: int
    last: int
    is_whole_file: bool = False
    number: int = 0

    @property
    def indices(self) -> list[int]:
        """Which frames of the file to read."""
        return [self.first + index for index in frame_indices(self.last - self.first, NUM_FRAMES)]


console = Screen()
Way = Callable[[Clip], np.ndarray]  # -> (T, H, W, 3)


def write_video(path: Path, first: int, num_frames: int) -> str:
    """Encode frames that show `first`, `first + 1`, ... in a row of blocks, over a background that moves."""
    noise = np.random.default_rng(0).integers(40, 215, (HEIGHT // 24, WIDTH // 24 + 1)).astype(np.uint8)
    background = noise.repeat(24, axis=0).repeat(24, axis=1)[:, :WIDTH]
    with av.open(str(path), "w") as container:
        options = {"g": "12", "bf": "3", "preset": "superfast", "crf": "23"}
        stream = container.add_stream("libx264", rate=RATE, options=options)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for number in range(first, first + num_frames):
            planes = np.full((HEIGHT * 3 // 2, WIDTH), 128, np.uint8)
            planes[:HEIGHT] = np.roll(background, 3 * number % WIDTH, axis=1)
            for bit in range(BITS):
                planes[:BLOCK, bit * BLOCK : (bit + 1) * BLOCK] = 235 if number >> bit & 1 else 16
            container.mux(stream.encode(av.VideoFrame.from_ndarray(planes, format="yuv420p")))
        container.mux(stream.encode(None))
    return str(path)


def number_of(frame: np.ndarray) -> int:
    """The number that a frame shows."""
    row = frame[BLOCK // 2, BLOCK // 2 : BITS * BLOCK : BLOCK].mean(axis=-1)
    return sum(1 << bit for bit, light in enumerate(row) if light > 128)


def clip_files(folder: Path, number: int) -> list[Clip]:
    """Clips that were cut into files."""
    dice, clips = random.Random(0), []
    for clip in range(number):
        length, first = dice.randint(*CLIP_FRAMES), dice.randrange(90_000)
        path = write_video(folder / f"clip-{clip:03}.mp4", first, length)
        clips.append(Clip(path, 0, length, is_whole_file=True, number=first))
    return clips


def moments(path: str, num_frames: int, number: int) -> list[Clip]:
    """Clips inside a long video, in the order in which bulk readers take them."""
    dice = random.Random(1)
    starts = sorted(dice.randrange(num_frames - CLIP_FRAMES[1]) for _ in range(number))
    return [Clip(path, start, start + dice.randint(*CLIP_FRAMES)) for start in starts]


def ours(clip: Clip) -> np.ndarray:
    """`read_frames`."""
    span = (None, None) if clip.is_whole_file else (clip.first / RATE, clip.last / RATE)
    return read_frames(clip.path, NUM_FRAMES, *span).frames.permute(0, 2, 3, 1).numpy()


def decord_opened(clip: Clip) -> np.ndarray:
    """Decord as the official code uses it."""
    import decord

    return decord.VideoReader(clip.path, num_threads=1).get_batch(clip.indices).asnumpy()


def torchcodec_opened(clip: Clip) -> np.ndarray:
    """torchcodec, exact, opened for each clip."""
    from torchcodec.decoders import VideoDecoder

    return VideoDecoder(clip.path, dimension_order="NHWC").get_frames_at(clip.indices).data.numpy()


def torchcodec_cached() -> Way:
    """torchcodec, exact, each file opened once."""
    decoders: dict[str, Any] = {}

    def read(clip: Clip) -> np.ndarray:
        from torchcodec.decoders import VideoDecoder

        if clip.path not in decoders:
            decoders[clip.path] = VideoDecoder(clip.path, dimension_order="NHWC")
        return decoders[clip.path].get_frames_at(clip.indices).data.numpy()

    return read


def video_feature(clip: Clip) -> np.ndarray:
    """The `Video` feature of datasets."""
    from datasets import Video

    decoder = Video().decode_example({"path": clip.path, "bytes": None})
    return decoder.get_frames_at(clip.indices).data.permute(0, 2, 3, 1).numpy()


def other_tools(clip: Clip) -> dict[str, Way]:
    """What can be measured on this machine."""
    torchcodec = {"torchcodec opened": torchcodec_opened, "torchcodec cached": torchcodec_cached()}
    return usable("decord", {"decord opened": decord_opened}, clip) | usable(
        "torchcodec", torchcodec | {"datasets Video": video_feature}, clip
    )


def usable(library: str, ways: dict[str, Way], clip: Clip) -> dict[str, Way]:
    """The ways to read with a library, none where it cannot read a clip here."""
    try:
        next(iter(ways.values()))(clip)
    except (ImportError, RuntimeError, OSError) as error:  # torchcodec looks for FFmpeg's libraries only now
        console.print(f"{library} is left out: {str(error).splitlines()[0].partition('. ')[0]}", highlight=False)
        return {}
    return ways


def check(name: str, way: Way, clips: list[Clip]) -> None:
    """Stop if a way returns a wrong frame: its speed would mean nothing."""
    for clip in clips:
        shown = [number_of(frame) for frame in way(clip)]
        wanted = [clip.number + index for index in clip.indices]
        if shown != wanted:
            raise RuntimeError(f"{name} read frames {shown} of {clip} instead of {wanted}")


def milliseconds(clips: list[Clip], rounds: int) -> dict[str, float]:
    """Milliseconds per clip of each way, after checking every frame."""
    ways = {"ours": ours} | other_tools(clips[0])
    for name, way in ways.items():
        check(name, way, clips)
    runs = {name: lambda way=way: [way(clip) for clip in clips] for name, way in ways.items()}
    return {name: 1000 * seconds / len(clips) for name, seconds in interleave(runs, rounds).items()}


def compare(what: str, measured: dict[str, float], baseline: str, goal: float | None, *, at_most: bool) -> Ratio:
    """Ours against one baseline, or a line that says that it is not here."""
    if baseline not in measured:
        return Ratio(what, baseline, float("nan"), detail="skipped: not usable here")
    ours, theirs = measured["ours"], measured[baseline]
    value = ours / theirs if at_most else theirs / ours
    return Ratio(what, baseline, value, goal, at_most, f"{ours:.1f} ms against {theirs:.1f} ms per clip")


def normalized(frames: torch.Tensor) -> torch.Tensor:
    """`(T, C, H, W)` uint8 to what a CLIP tower takes, by torchvision on the batch."""
    resized = functional.resize(frames, [224, 224], InterpolationMode.BICUBIC, antialias=True)
    return functional.normalize(functional.to_dtype(resized, torch.float32, scale=True), MEAN, STD)


def serve_official() -> None:
    """In the process that has decord2: for each line of clips, decode with it, and resize with PIL, frame by frame."""
    import decord
    from PIL import Image

    torch.set_num_threads(1)
    for line in sys.stdin:
        for path, *indices in (clip.split("|") for clip in line.strip().split("\t")):
            frames = decord.VideoReader(path, num_threads=1).get_batch([int(i) for i in indices]).asnumpy()
            images = [Image.fromarray(frame).resize((224, 224), Image.Resampling.BICUBIC) for frame in frames]
            torch.stack([functional.normalize(to_tensor(image), MEAN, STD) for image in images])
        print(decord.__version__, flush=True)


def preprocessing(clips: list[Clip], folder: Path) -> Ratio:
    """Decode, resize and normalize, against decord2 with PIL."""
    what, baseline = "decode + resize + normalize", "decord2 + PIL"
    target = str(folder / "decord2")
    install = [sys.executable, "-P", "-m", "pip", "install", "-q", "--no-deps", "--target", target, "decord2"]
    if subprocess.run(install, check=False, capture_output=True).returncode:
        return Ratio(what, baseline, float("nan"), detail="skipped: decord2 cannot be installed here")
    line = "\t".join("|".join(map(str, [clip.path, *clip.indices])) for clip in clips) + "\n"
    paths = [target, str(Path(__file__).parents[1])]
    program = f"import sys; sys.path[:0] = {paths!r}; {OFFICIAL}"
    with subprocess.Popen([sys.executable, "-P", "-c", program], stdin=-1, stdout=-1, text=True) as process:

        def official() -> None:
            process.stdin.write(line)
            process.stdin.flush()
            if not process.stdout.readline():
                raise RuntimeError("the process that measures decord2 died; its words are on stderr")

        runs = {
            "ours": lambda: [normalized(torch.from_numpy(ours(clip)).permute(0, 3, 1, 2)) for clip in clips],
            baseline: official,
        }
        measured = {name: 1000 * seconds / len(clips) for name, seconds in interleave(runs).items()}
        process.stdin.close()
    return compare(what, measured, baseline, 1.8, at_most=False)


def two_workers(clips: list[Clip]) -> Ratio:
    """The pool with two workers against one."""
    requests = [VideoRequest(number, clip.path) for number, clip in enumerate(clips * 4)]

    def run(pool: VideoReaderPool) -> None:
        for number, answer in pool.read(requests):
            clip = clips[number % len(clips)]
            if number_of(answer.frames[0].permute(1, 2, 0).numpy()) != clip.number + clip.indices[0]:
                raise RuntimeError(f"the pool answered with a wrong frame of {clip}")

    with (
        VideoReaderPool(NUM_FRAMES, num_workers=1) as one,
        VideoReaderPool(NUM_FRAMES, num_workers=2) as two,
    ):
        seconds = interleave({"one": lambda: run(one), "two": lambda: run(two)})
    one_ms, two_ms = (1000 * seconds[name] / len(requests) for name in ("one", "two"))
    detail = f"{two_ms:.1f} ms against {one_ms:.1f} ms per clip"
    return Ratio("pool, two workers", "one worker", one_ms / two_ms, 1.7, detail=detail)


def kept_as(clips: list[Clip], folder: Path) -> Iterator[Ratio]:
    """Moments of a long video, as TF-CoVR's gymnastics, against the same cut into files, and as FineDiving's frames."""
    files, folders = [], []
    for number, clip in enumerate(clips):
        length, place = clip.last - clip.first, folder / f"frames-{number}"
        path = write_video(folder / f"cut-{number}.mp4", clip.first, length)
        files.append(Clip(path, 0, length, is_whole_file=True, number=clip.first))
        place.mkdir()
        with av.open(path) as container:
            for index, frame in enumerate(container.decode(video=0), start=1):
                frame.to_image().save(place / f"{index:05}.jpg", quality=90)
        folders.append(replace(files[-1], path=str(place)))
    kept = {"moments of a long video": clips, "files": files, "folders of frames": folders}
    for name, several in kept.items():
        check(name, ours, several)
    measured = interleave({name: lambda several=several: [*map(ours, several)] for name, several in kept.items()})
    for name, goal in (("moments of a long video", 1.3), ("folders of frames", 1.0)):
        mine, cut = (1000 * measured[one] / len(clips) for one in (name, "files"))
        detail = f"{mine:.1f} ms against {cut:.1f} ms per clip"
        yield Ratio(name, "the same clips as files", mine / cut, goal, at_most=True, detail=detail)


def measure() -> Iterator[Ratio]:
    """Clip files, moments in a 10-minute and a 1-hour video, how clips are kept, preprocessing, and the pool."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        clips = clip_files(Path(folder), 40)
        measured = milliseconds(clips, rounds=7)
        best = min((name for name in measured if name != "ours"), key=measured.get, default="decord opened")
        yield compare("clip files, the best other tool", measured, best, 1.15, at_most=True)
        yield compare("clip files", measured, "decord opened", None, at_most=False)
        yield preprocessing(clips, Path(folder))
        yield two_workers(clips)
        for minutes, decord_goal, feature_goal in [(10, 3.0, 2.0), (60, 7.0, 7.0)]:
            num_frames = minutes * 60 * RATE
            path = write_video(Path(folder, f"{minutes}-minutes.mp4"), 0, num_frames)
            measured = milliseconds(moments(path, num_frames, 24), rounds=5)
            what = f"moments in {minutes} minutes"
            yield compare(what, measured, "torchcodec cached", 1.25, at_most=True)
            yield compare(what, measured, "decord opened", decord_goal, at_most=False)
            yield compare(what, measured, "datasets Video", feature_goal, at_most=False)
        yield from kept_as(moments(path, num_frames, 24), Path(folder))
