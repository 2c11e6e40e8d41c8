"""Check this machine: versions, GPUs, decoders, limits, and whether training computes here what it should."""

import importlib.util
import io
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout, suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import av
import numpy as np
import torch
from accelerate.state import AcceleratorState, GradientState

from hf_datasets.drafts import write_json, write_text
from hf_datasets.video import VideoError, read_frames
from subtle.checking.options import DoctorConfig
from subtle.run.model_folders import MINIATURE_CLIP
from subtle.run.results import versions
from subtle.train.finetune_vlm import FinetuneVLM
from subtle.train.noise_evaluator import NoiseEvaluatorTraining
from subtle.train.options import (
    FinetuneVLMConfig,
    NoiseEvaluatorConfig,
    Stage1Config,
    Stage2Config,
    VCMRConfig,
    VidCLIPRunConfig,
)
from subtle.train.stage1 import Stage1
from subtle.train.stage2 import Stage2
from subtle.train.vcmr import VCMR
from subtle.train.vidclip import Training
from subtle.vlm.models import make_tiny

State = Literal["ok", "warning", "failed"]
STEPS, ROWS = 10, 4
TOLERANCES = {"no": 0.02, "bf16": 0.1}
"""Largest difference of a loss of ten steps from the processor's in 32 bits, as a share of the largest of these: errors
of rounding grow with each step."""
SHARED_GIGABYTES, DISK_GIGABYTES, OPEN_FILES = 1, 10, 4096
FRAMES, SIDE = 48, 224


@dataclass(frozen=True)
class Check:
    """What was found of one thing, and what to do where it is not well."""

    name: str
    state: State
    found: str
    cure: str = ""


def check_devices(config: DoctorConfig) -> Iterator[Check]:
    """GPUs, what they can compute, and NCCL."""
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    if not torch.cuda.is_available():
        built = torch.version.cuda
        state: State = "failed" if config.device == "cuda" else "warning"
        cure = "install PyTorch for CUDA" if built is None else "see whether `nvidia-smi` lists a GPU and its driver"
        yield Check("GPU", state, f"none; PyTorch is built for CUDA {built or 'not at all'}", f"{cure}, or use no GPU")
        return
    for index, name in enumerate(names):
        free, total = torch.cuda.mem_get_info(index)
        yield Check(f"GPU {index}", "ok", f"{name}, {free / 2**30:.0f} of {total / 2**30:.0f} GB free")
    if torch.cuda.is_bf16_supported():
        yield Check("bfloat16", "ok", "supported")
    else:
        yield Check("bfloat16", "warning", "not supported", "give --mixed_precision fp16 to recipes")
    has_nccl = torch.distributed.is_nccl_available()
    found = ".".join(map(str, torch.cuda.nccl.version())) if has_nccl else "missing"
    lacking = len(names) > 1 and not has_nccl
    yield Check("NCCL", "failed" if lacking else "ok", found, "install PyTorch for CUDA on Linux" if lacking else "")


def write_blocks(path: Path) -> Path:
    """An H.264 file of 720p."""
    blocks = np.random.default_rng(0).integers(0, 255, (9, 16, 3), np.uint8).repeat(80, 0).repeat(80, 1)
    pictures = np.stack([np.roll(blocks, 4 * frame, 1) for frame in range(FRAMES)])
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=25)
        stream.height, stream.width, stream.pix_fmt = *pictures.shape[1:3], "yuv420p"
        for picture in pictures:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())
    return path


def check_decoders(folder: Path) -> Iterator[Check]:
    """Each decoder reads a file made on the spot, as PyAV does; and how fast that is."""
    path = write_blocks(folder / "blocks.mp4")
    expected = read_frames(path, 12, size=(SIDE, SIDE)).frames
    start = time.perf_counter()
    for _ in range(3):
        read_frames(path, 12, size=(SIDE, SIDE))
    seconds = (time.perf_counter() - start) / 3
    speed = f"{1 / seconds:.1f} clips/s of one core, {1000 * seconds / 12:.1f} ms a frame of 720p that a model sees"
    yield Check("decoder PyAV", "ok", f"{av.__version__}: {speed}")
    for name in ("torchcodec", "decord"):
        if importlib.util.find_spec(name) is None:
            yield Check(f"decoder {name}", "ok", "not installed, and not needed")
            continue
        try:
            found = read_frames(path, 12, size=(SIDE, SIDE), backend=name).frames
            differs = float((found.float() - expected.float()).abs().mean())
            state: State = "ok" if differs < 3 else "warning"
            yield Check(
                f"decoder {name}", state, f"mean difference from PyAV {differs:.2f} of 255", "use PyAV" * (differs >= 3)
            )
        except VideoError as error:
            cure = "use PyAV, or install the FFmpeg that it wants" if name == "torchcodec" else "use PyAV"
            yield Check(f"decoder {name}", "warning", str(error).splitlines()[0], cure)


def check_limits(output_dir: Path) -> Iterator[Check]:
    """Shared memory, open files and disk."""
    shared = Path("/dev/shm")
    if shared.is_dir():
        free = shutil.disk_usage(shared).free / 2**30
        cure = "start the container with --shm-size=16g or --ipc=host, or give --num_workers 0"
        yield judged(
            "shared memory",
            free,
            SHARED_GIGABYTES,
            f"{free:.1f} GB of /dev/shm free; --dry_run says how much a run needs",
            cure,
        )
    with suppress(ImportError):  # not on Windows
        import resource

        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        most = limit if limit >= 0 else OPEN_FILES
        yield judged("open files", most, OPEN_FILES, f"at most {limit}", "allow more with `ulimit -n 4096`")
    free = shutil.disk_usage(output_dir).free / 2**30
    yield judged("disk", free, DISK_GIGABYTES, f"{free:.0f} GB free", "free some, or name another --output_dir")


def judged(name: str, value: float, least: float, found: str, cure: str) -> Check:
    return Check(name, "ok", found) if value >= least else Check(name, "warning", found, cure)


def run_of(name: str, folder: Path, **options: Any) -> tuple[type[Any], Any]:
    """The class of a recipe and its options, for ten steps on the miniature without what drops out at random."""
    few = {"batch_size": ROWS, "max_steps": STEPS, "num_workers": 0, "output_dir": str(folder), **options}
    if name == "stage1":
        stage1: dict[str, Any] = {
            "cache_frames": False,
            "frames_per_part": 1,
            "classifier_dropout": 0.0,
            "num_frames": 4,
        }
        return Stage1, Stage1Config(**few, **stage1, init_from=None)
    if name == "stage2":
        towers: dict[str, Any] = {"vision_model": MINIATURE_CLIP, "num_frames": 2, "fusion_dropout": 0.0}
        return Stage2, Stage2Config(**few, **towers, end_to_end=True)
    if name == "vidclip":
        return Training, VidCLIPRunConfig(**few, draws=1, keep_frames=False)
    if name == "vcmr":
        features: dict[str, Any] = {"features": str(Path(features_folder().name) / "features")}
        return VCMR, VCMRConfig(**few, **features, model_fields={"hidden_dropout": 0.0, "input_dropout": 0.0})
    if name == "noise_evaluator":
        return FewMoments, NoiseEvaluatorConfig(**few, num_frames=2)
    tiny = folder.parent / "tiny"
    make_tiny("tiny-random-qwen3-vl", tiny)
    return FinetuneVLM, FinetuneVLMConfig(**few, model=str(tiny), lora_dropout=0.0, max_triplets=ROWS * STEPS)


CHECKED_RECIPES = ("stage1", "stage2", "vidclip", "vcmr", "noise_evaluator", "finetune_vlm")


class FewMoments(NoiseEvaluatorTraining):
    """Decodes no more moments than it trains on."""

    def load_examples(self) -> Any:
        """As many as ten steps see."""
        examples, paths, rejections = super().load_examples()
        return {"train": examples["train"][: ROWS * STEPS]}, paths, rejections


@cache
def features_folder() -> "tempfile.TemporaryDirectory[str]":
    """For the features that the first run of vcmr makes, and removed at the end of this program."""
    return tempfile.TemporaryDirectory()


def trained_losses(
    name: str, device: Any, precision: str, adjust: Callable[[Any], None] | None = None
) -> tuple[list[float], float]:
    """The losses of ten steps of a recipe, and the clips or texts that a second trains, the first step left out.

    Args:
        name: Of `CHECKED_RECIPES`.
        device: auto, cpu or cuda.
        precision: As `--mixed_precision`.
        adjust: Changes the run before it trains.
    """
    for state in (AcceleratorState, GradientState):  # one process, several devices in turn
        state._reset_state(**({"reset_partial_state": True} if state is AcceleratorState else {}))
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()):  # what recipes say of themselves
        kind, config = run_of(name, Path(folder) / "run", device=device, mixed_precision=precision)
        losses: list[float] = []
        times: list[float] = []

        class Short(kind):  # type: ignore[valid-type,misc]  # which recipe is a value
            def finish_step(self, loss: torch.Tensor, rows: Any = None) -> None:
                losses.append(loss.item())
                times.append(time.perf_counter())
                super().finish_step(loss, rows)

            KEEPS_BEST = False

            def validate(self) -> dict[str, float]:
                return {}

            def summary(self, _: dict[str, float]) -> dict[str, float]:
                return {self.METRIC: 0.0}

            def finish(self) -> dict[str, Any]:
                return {}

        run = Short(config)
        if adjust is not None:
            adjust(run)
        run.train()
    return losses, ROWS * (len(times) - 1) / max(times[-1] - times[0], 1e-9)


def check_training(config: DoctorConfig) -> Iterator[Check]:
    """Each recipe on the device and in bfloat16, against the processor in 32 bits."""
    on_gpu = config.device != "cpu" and torch.cuda.is_available()
    others = [("cuda", "no"), ("cuda", "bf16")] if on_gpu else [("cpu", "bf16")]
    for name in CHECKED_RECIPES:
        expected: list[float] | None = None  # of the first run, on the processor
        for device, precision in (("cpu", "no"), *others):
            label = f"train {name}, {device}, {'float32' if precision == 'no' else precision}"
            try:
                found, speed = trained_losses(name, device, precision)
            except (Exception, SystemExit) as error:  # whatever is wrong with this machine
                cure = "run that recipe alone, and send this report"
                label = label if expected else f"train {name}"
                yield Check(label, "failed", f"{type(error).__name__}: {error}", cure)
                if expected is None:
                    break
                continue
            if expected is None:
                expected = found
                shown = f"on the processor, losses {found[0]:.3f} to {found[-1]:.3f}, {speed:.1f} rows/s"
                yield Check(f"train {name}", "ok", shown)
            else:
                yield compared(label, expected, found, TOLERANCES[precision], f"{speed:.1f} rows/s")


def compared(label: str, expected: list[float], found: list[float], tolerance: float, speed: str) -> Check:
    """Whether losses agree.

    >>> compared("train", [2.0, 1.0], [2.0, 1.3], 0.1, "9 rows/s").state
    'failed'
    """
    differs = float(np.abs(np.subtract(expected, found)).max() / np.abs(expected).max())
    shown = f"losses differ by at most {differs:.1%} of the processor's largest (allowed: {tolerance:.0%}), {speed}"
    if differs <= tolerance:  # also False where a loss is no number
        return Check(label, "ok", shown)
    return Check(label, "failed", shown, "do not train here so; send this report")


def without_names(text: str, output_dir: Path) -> str:
    """A text without the folders of this machine."""
    for folder in (output_dir.resolve(), Path.cwd(), Path.home(), Path(tempfile.gettempdir()), Path(sys.prefix)):
        text = text.replace(str(folder), "FOLDER") if len(folder.parts) > 1 else text
    return text


def checks_of(config: DoctorConfig) -> Iterator[Check]:
    """All checks, the quick ones first."""
    found = ", ".join(f"{name} {version}" for name, version in versions().items())
    yield Check("versions", "ok", found)
    yield from check_devices(config)
    with tempfile.TemporaryDirectory() as folder:
        try:
            yield from check_decoders(Path(folder))
        except (VideoError, OSError, ValueError) as error:
            yield Check("decoder PyAV", "failed", str(error), "install PyAV again: pip install --force-reinstall av")
    yield from check_limits(Path(config.output_dir))
    yield from check_training(config)


def main(config: DoctorConfig) -> int:
    output_dir = Path(config.output_dir)
    output_dir.mkdir(parents=True, exist_ok=True)
    checks: list[Check] = []
    lines: list[str] = []
    for check in checks_of(config):
        shown = Check(**{key: without_names(value, output_dir) for key, value in asdict(check).items()})  # type: ignore[arg-type]
        lines.append(f"{shown.state:<8} {shown.name}: {shown.found}" + (f"; {shown.cure}" if shown.cure else ""))
        print(lines[-1], flush=True)
        checks.append(shown)
    failed = sum(check.state == "failed" for check in checks)
    warned = sum(check.state == "warning" for check in checks)
    lines.append(f"{len(checks)} checks: {failed} failed, {warned} warnings; {output_dir / 'doctor.json'} can be sent")
    print(lines[-1])
    write_json(output_dir / "doctor.json", {"versions": versions(), "checks": [asdict(check) for check in checks]})
    write_text(output_dir / "doctor.txt", "\n".join(lines) + "\n")
    return int(failed > 0)
