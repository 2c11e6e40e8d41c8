"""What the rows of a table will cost, from the models' configurations alone: download, memory, hours.

Hours are a rule of thumb: 2 operations for each parameter and token in a forward pass, three times as many in training,
at `UTILIZATION` of the machine's speed, and the decoding of clips.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from hf_models.encoders import Estimate, estimate, short_name
from hf_models.encoders.adapters import base_of, is_adapter
from hf_models.encoders.aim import is_aim
from hf_models.encoders.estimates import FREE_SHARE, TOKENS_OF_IMAGE, TOKENS_OF_TEXT, parts_of, tokens_of_frame
from hf_models.encoders.loading import read_config
from subtle.run.gpus import UTILIZATION

OVERHEAD_SECONDS = 0.02
"""Of a step, however small."""
FRAME_SECONDS = 0.0098
"""Of one core, to decode and resize a frame that a model sees, of 720p: docs/scale.md, "Decoding" ((97 + 15) ms for a
clip of which 12 frames are wanted, and 0.5 ms each)."""
DECODING_SECONDS = 12 * FRAME_SECONDS
"""Of a clip of 12 frames."""
OPERATIONS = 2
"""For each parameter and token: one multiplication and one addition."""
PASSES = 3
"""Of a training step, forward and backward, in units of a forward pass."""


@dataclass(frozen=True)
class Cost:
    """What a row will cost.

    Attributes:
        name: of the row.
        models: folders or names on the Hub, each with its estimate; None where it cannot be estimated.
        hours: of computing and decoding; None where they cannot be estimated.
        note: what is left to do, why it cannot be estimated, or why it will be refused.
    """

    name: str
    models: Mapping[str, Estimate | None] = field(default_factory=dict)
    hours: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Machine:
    """What the rows are computed with.

    Attributes:
        device: where; a GPU that is too small is noted.
        speed: operations per second that a run reaches.
        num_workers: processes that decode.
    """

    device: torch.device
    speed: float
    num_workers: int

    @classmethod
    def of(cls, device: str, num_workers: int) -> "Machine":
        """A machine by the options of a recipe; its speed is measured."""
        where = torch.device("cuda" if device != "cpu" and torch.cuda.is_available() else "cpu")
        return cls(where, UTILIZATION * flops_per_second(where), max(num_workers, 1))

    def hours(self, operations: float, clips: int = 0) -> float:
        """Of computing, and of decoding so many clips."""
        return (operations / self.speed + clips * DECODING_SECONDS / self.num_workers) / 3600

    def too_small(self, found: Estimate) -> str:
        """Why a GPU will be refused, or nothing."""
        if self.device.type != "cuda":
            return ""
        free, _ = torch.cuda.mem_get_info(self.device)
        if found.memory_bytes <= FREE_SHARE * free:
            return ""
        return f"refused: {self.device} has {free / 1e9:.1f} GB free"


@dataclass(frozen=True)
class Forward:
    """A model with the operations of a forward pass over one frame, and over one text; or why they are not known."""

    model: str
    estimate: Estimate | None = None
    frame: float = 0.0
    text: float = 0.0
    note: str = ""

    @classmethod
    def of(
        cls, model: str, num_frames: int | None, *, aim_text: str | None = None, trust_remote_code: bool = False
    ) -> "Forward":
        """Estimate; no weight is read.

        Args:
            model: a folder or a name on the Hub.
            num_frames: the most frames that it reads of a clip; None: as many as the model was made for.
            aim_text: the CLIP of an AIM.
            trust_remote_code: as of `load_encoder`.
        """
        try:
            config = read_config(base_of(model) if is_adapter(model) else model, trust_remote_code=trust_remote_code)
            # A number that the model does not take is said later.
            fixed = num_frames if config is None or is_aim(model) else None
            found = estimate(model, fixed, trust_remote_code=trust_remote_code, aim_text=aim_text)
            tokens = tokens_per_frame(config)
        except (ValueError, OSError, ImportError) as error:
            return cls(model, note=" ".join(str(error).split())[:200])
        operations = OPERATIONS * found.parameters
        return cls(model, found, operations * tokens, operations * TOKENS_OF_TEXT)

    def cost(self, name: str, machine: Machine, *, frames: int, texts: float, clips: int) -> Cost:
        """Of a row that encodes so many frames and texts, and decodes so many clips."""
        if self.estimate is None:
            return Cost(name, {self.model: None}, note=self.note)
        hours = machine.hours(self.frame * frames + self.text * texts, clips)
        return Cost(name, {self.model: self.estimate}, hours, machine.too_small(self.estimate))


def flops_per_second(where: torch.device) -> float:
    """How fast a device multiplies large matrices; takes a fraction of a second."""
    size = 4096 if where.type == "cuda" else 768
    matrix = torch.rand(size, size, device=where)
    for times in (1, 4):  # the first product also loads the library
        if where.type == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(times):
            product = matrix @ matrix
        product[0, 0].item()
        seconds = time.perf_counter() - start
    return 4 * 2 * size**3 / seconds


def tokens_per_frame(config: object) -> int:
    """The most tokens that a part of a model sees for one frame."""
    image_tokens = TOKENS_OF_IMAGE.get(getattr(config, "model_type", ""))
    if config is None or image_tokens is not None:
        return (image_tokens or max(TOKENS_OF_IMAGE.values())) + TOKENS_OF_TEXT
    seen = (part for part in (config, *parts_of(config)) if isinstance(getattr(part, "patch_size", None), int))
    return max((tokens_of_frame(part, None) for part in seen), default=1)


def costs_as_cells(costs: Sequence[Cost]) -> tuple[list[str], list[list[str]]]:
    """The headings and cells of a table of costs, and their sum: a model that rows share is downloaded once."""
    head = ["row", "models", "parameters", "download, GB", "memory, GB", "hours", "note"]
    cells = []
    for cost in costs:
        known = [found for found in cost.models.values() if found]
        sizes = [
            f"{sum(found.parameters for found in known) / 1e6:,.0f}M",
            f"{sum(found.download_bytes for found in known) / 1e9:.2f}",
            f"{max((found.memory_bytes for found in known), default=0) / 1e9:.2f}",
        ]
        models = ", ".join(map(short_name, cost.models)) or "not configured"
        hours = "" if cost.hours is None else f"{cost.hours:.2f}"
        cells.append([cost.name, models, *(sizes if known else ["", "", ""]), hours, cost.note])
    every = {model: found.download_bytes for cost in costs for model, found in cost.models.items() if found}
    total = sum(cost.hours or 0 for cost in costs)
    return head, [*cells, ["all", "", "", f"{sum(every.values()) / 1e9:.2f}", "", f"{total:.2f}", ""]]
