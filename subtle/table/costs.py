"""What a row of a table will cost, from the model's configuration alone: download, GPU memory, hours.

The hours are a rule of thumb: 2 operations for each parameter and token, at the throughput that `--tflops` states;
decoding is not in them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from rich.console import Console
from rich.table import Table

from hf_models.encoders import Estimate, estimate, short_name
from hf_models.encoders.adapters import base_of, is_adapter
from hf_models.encoders.aim import is_aim
from hf_models.encoders.estimates import FREE_SHARE, TOKENS_OF_IMAGE, TOKENS_OF_TEXT, parts_of, tokens_of_frame
from hf_models.encoders.loading import read_config

WIDTH = 140
OPERATIONS = 2
"""For each parameter and token: one multiplication and one addition."""


@dataclass(frozen=True)
class Cost:
    """What a row will cost.

    Attributes:
        name: of the row.
        model: a folder or a name on the Hub; None where none is configured.
        estimate: of the model; None where it cannot be estimated.
        hours: of encoding, without decoding.
        note: why it cannot be estimated, or will be refused.
    """

    name: str
    model: str | None
    estimate: Estimate | None = None
    hours: float | None = None
    note: str = ""


def cost_of(
    name: str,
    model: str,
    num_frames: int | None,
    frames_and_texts: tuple[int, int],
    tflops: float,
    *,
    aim_text: str | None = None,
    device: torch.device | str = "cpu",
    trust_remote_code: bool = False,
) -> Cost:
    """The cost of one row.

    Args:
        name: of the row.
        model: a folder or a name on the Hub.
        num_frames: the most frames that it reads of a clip; None: as many as the model was made for.
        frames_and_texts: how many frames and how many texts the row encodes.
        tflops: 10^12 operations per second that the machine sustains.
        aim_text: the CLIP of an AIM.
        device: where it shall run; a GPU that is too small is noted.
        trust_remote_code: as of `load_encoder`.
    """
    try:
        config = read_config(base_of(model) if is_adapter(model) else model, trust_remote_code=trust_remote_code)
        # A number that the model does not take is said later.
        frames_of_one = num_frames if config is None or is_aim(model) else None
        found = estimate(model, frames_of_one, trust_remote_code=trust_remote_code, aim_text=aim_text)
        tokens = tokens_per_frame(config)
    except (ValueError, OSError, ImportError) as error:
        return Cost(name, model, note=" ".join(str(error).split())[:200])
    frames, texts = frames_and_texts
    operations = OPERATIONS * found.parameters * (frames * tokens + texts * TOKENS_OF_TEXT)
    return Cost(name, model, found, operations / (tflops * 1e12) / 3600, too_small(found, device))


def tokens_per_frame(config: object) -> int:
    """The most tokens that a part of a model sees for one frame."""
    image_tokens = TOKENS_OF_IMAGE.get(getattr(config, "model_type", ""))
    if config is None or image_tokens is not None:
        return (image_tokens or max(TOKENS_OF_IMAGE.values())) + TOKENS_OF_TEXT
    return max((tokens_of_frame(part, None) for part in (config, *parts_of(config)) if has_patches(part)), default=1)


def has_patches(part: object) -> bool:
    return isinstance(getattr(part, "patch_size", None), int)


def too_small(found: Estimate, device: torch.device | str) -> str:
    """Why a GPU will be refused, or nothing."""
    if torch.device(device).type != "cuda":
        return ""
    free, _ = torch.cuda.mem_get_info(device)
    if found.memory_bytes <= FREE_SHARE * free:
        return ""
    return f"refused: {device} has {free / 1e9:.1f} GB free"


def show_costs(costs: Sequence[Cost], tflops: float) -> None:
    """Print the costs, one line for each row, and their sum: a model that several rows share is downloaded once."""
    head = ("row", "model", "parameters", "download, GB", "memory, GB", f"hours at {tflops:g} TFLOPS", "")
    table = Table(*head, title="Before anything is loaded", title_justify="left")
    for cost in costs:
        table.add_row(cost.name, short_name(cost.model) if cost.model else "not configured", *cells(cost), cost.note)
    table.add_row("all", "", "", f"{download_gigabytes(costs):.2f}", "", f"{sum(c.hours or 0 for c in costs):.2f}", "")
    Console(width=WIDTH).print(table)


def cells(cost: Cost) -> Iterable[str]:
    """Parameters, download, memory and hours of one row."""
    if cost.estimate is None or cost.hours is None:
        return ["", "", "", ""]
    found = cost.estimate
    return [
        f"{found.parameters / 1e6:,.0f}M",
        f"{found.download_bytes / 1e9:.2f}",
        f"{found.memory_bytes / 1e9:.2f}",
        f"{cost.hours:.2f}",
    ]


def download_gigabytes(costs: Sequence[Cost]) -> float:
    """Of all models together, each once."""
    sizes = {cost.model: cost.estimate.download_bytes for cost in costs if cost.estimate is not None}
    return sum(sizes.values()) / 1e9
