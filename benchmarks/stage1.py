"""Stage 1: AIM at ViT-B/16 against the reference's order of operations with `nn.MultiheadAttention`, written afresh.

On CPU with 8 frames: time, saved activations, memory, and how far results are apart. With a GPU also clips per second
at 12 frames in bfloat16.
"""

import itertools
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.timing import Ratio, interleave
from hf_models import AIMConfig, AIMModel
from hf_models.tfcovr.convert_aim import rename

REFERENCE = "reference order, nn.MultiheadAttention"
ROUNDS = 3
VIT_B_16 = {"num_frames": 8, "drop_path_rate": 0.0}


class Adapter(nn.Module):
    """Bottleneck of the reference."""

    def __init__(self, width: int, skip: bool) -> None:
        super().__init__()
        self.skip = skip
        self.D_fc1 = nn.Linear(width, width // 4)
        self.D_fc2 = nn.Linear(width // 4, width)

    def forward(self, x: Tensor) -> Tensor:
        """Change `x`, or replace it."""
        change = self.D_fc2(F.gelu(self.D_fc1(x)))
        return x + change if self.skip else change


class QuickGELU(nn.Module):
    """CLIP's activation."""

    def forward(self, x: Tensor) -> Tensor:
        """Apply it."""
        return x * torch.sigmoid(1.702 * x)


class Block(nn.Module):
    """Time, space, MLP on `(tokens, batch * frames, width)`, as the reference lays it out."""

    def __init__(self, config: AIMConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.frames, self.scale = config.num_frames, config.adapter_scale
        self.attn = nn.MultiheadAttention(width, config.num_attention_heads)
        self.ln_1 = nn.LayerNorm(width)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential()
        self.mlp.add_module("c_fc", nn.Linear(width, config.intermediate_size))
        self.mlp.add_module("gelu", QuickGELU())
        self.mlp.add_module("c_proj", nn.Linear(config.intermediate_size, width))
        self.T_Adapter = Adapter(width, skip=False)
        self.S_Adapter = Adapter(width, skip=True)
        self.MLP_Adapter = Adapter(width, skip=False)

    def attention(self, x: Tensor) -> Tensor:
        """Attend over the first axis."""
        return self.attn(x, x, x, need_weights=False)[0]

    def forward(self, x: Tensor) -> Tensor:
        """Run the block."""
        tokens, _, width = x.shape
        by_time = x.reshape(tokens, -1, self.frames, width).permute(2, 1, 0, 3).reshape(self.frames, -1, width)
        change = self.T_Adapter(self.attention(self.ln_1(by_time)))
        x = x + change.reshape(self.frames, -1, tokens, width).permute(2, 1, 0, 3).reshape(x.shape)
        x = x + self.S_Adapter(self.attention(self.ln_1(x)))
        normed = self.ln_2(x)
        return x + self.mlp(normed) + self.scale * self.MLP_Adapter(normed)


class Reference(nn.Module):
    """The reference's encoder, with its names of weights."""

    def __init__(self, config: AIMConfig) -> None:
        super().__init__()
        width, patch = config.hidden_size, config.patch_size
        self.frames = config.num_frames
        self.conv1 = nn.Conv2d(3, width, patch, patch, bias=False)
        self.class_embedding = nn.Parameter(torch.randn(width))
        self.positional_embedding = nn.Parameter(torch.randn((config.image_size // patch) ** 2 + 1, width))
        self.temporal_embedding = nn.Parameter(torch.randn(1, config.num_frames, width) * 0.1)
        self.ln_pre = nn.LayerNorm(width)
        self.transformer = nn.Module()
        self.transformer.resblocks = nn.ModuleList(Block(config) for _ in range(config.num_hidden_layers))
        self.ln_post = nn.LayerNorm(width)

    def forward(self, pixel_values: Tensor) -> Tensor:
        """Encode clips as `(batch, width)`."""
        patches = self.conv1(pixel_values.flatten(0, 1)).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_embedding.expand(len(patches), 1, -1), patches], 1) + self.positional_embedding
        x = x.unflatten(0, (-1, self.frames)) + self.temporal_embedding.unsqueeze(2)
        x = self.ln_pre(x).flatten(0, 1).transpose(0, 1)
        for block in self.transformer.resblocks:
            x = block(x)
        return self.ln_post(x)[0].unflatten(0, (-1, self.frames)).mean(1)


def make_pair(**changes: float) -> tuple[Reference, AIMModel]:
    """Build both models with the same random weights, adapters trainable as in the paper."""
    config = AIMConfig(**{**VIT_B_16, **changes})
    torch.manual_seed(0)
    reference, aim = Reference(config), AIMModel(config)
    weights = dict(pair for name, value in reference.state_dict().items() for pair in rename(name, value))
    aim.load_state_dict(weights)
    aim.freeze_backbone()
    for name, parameter in reference.named_parameters():
        parameter.requires_grad_(any(part in name for part in ("Adapter", "temporal_embedding", "ln_post")))
    return reference, aim


def make_clips(count: int, config: AIMConfig) -> Tensor:
    """Random clips."""
    shape = (count, config.num_frames, 3, config.image_size, config.image_size)
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def pooled(model: nn.Module, clips: Tensor) -> Tensor:
    """Run either model."""
    output = model(clips)
    return output if isinstance(output, Tensor) else output.pooler_output


def forward(model: nn.Module, clips: Tensor, *, bf16: bool = False) -> Callable[[], Tensor]:
    """Make a call that encodes without gradients."""

    def run() -> Tensor:
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            return pooled(model, clips)

    return run


def training_step(model: nn.Module, clips: Tensor, *, bf16: bool = False) -> Callable[[], None]:
    """Make a call that goes forward and backward."""

    def run() -> None:
        model.zero_grad()
        with torch.autocast(clips.device.type, torch.bfloat16, enabled=bf16):
            loss = pooled(model, clips).float().square().mean()
        loss.backward()

    return run


def saved_megabytes(model: nn.Module, clips: Tensor) -> float:
    """Size of what autograd keeps for the backward pass, without parameters, each storage once."""
    parameters = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    storages: dict[int, int] = {}
    kept = []

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            storages[storage.data_ptr()] = storage.nbytes()
            kept.append(tensor)  # a storage that is freed would give its address to another
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        pooled(model, clips)
    return sum(storages.values()) / 1e6


def allocated_megabytes(run: Callable[[], object]) -> float:
    """The most memory that tensors made by a call held at one time.

    The profiler tells of every allocation and release, so this is the same on every machine. The peak of a process is
    not: it depends on what its allocator keeps and on the scratch memory of its matrix products.
    """
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        run()
    changes = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    changes.sort(key=lambda event: event.start_ns())
    return max(itertools.accumulate(event.nbytes() for event in changes)) / 1e6


def megabytes_per_clip(model: nn.Module, config: AIMConfig) -> float:
    """What one more clip adds to the memory of a training step."""
    steps = [training_step(model, make_clips(count, config)) for count in (1, 2)]
    steps[0]()  # what is allocated once and kept
    peaks = []
    for step in steps:
        model.zero_grad()
        peaks.append(allocated_megabytes(step))
    return peaks[1] - peaks[0]


def relative_error(found: Tensor, expected: Tensor) -> float:
    """Largest difference over the largest value."""
    return ((found - expected).abs().max() / expected.abs().max()).item()


def gradient_error(reference: Reference, aim: AIMModel) -> float:
    """Largest distance between the gradients of one weight in both models, over the gradient's length."""
    gradients = {name: parameter.grad for name, parameter in reference.named_parameters() if parameter.requires_grad}
    renamed = dict(pair for name, gradient in gradients.items() for pair in rename(name, gradient))
    trained = {name: parameter.grad for name, parameter in aim.named_parameters() if parameter.requires_grad}
    if renamed.keys() != trained.keys():
        raise RuntimeError("the two models train different weights")
    return max(((trained[name] - gradient).norm() / gradient.norm()).item() for name, gradient in renamed.items())


def seconds_ratio(seconds: dict[str, float], ours: str, base: str = "reference") -> tuple[float, str]:
    """Speed of ours over the baseline, and both times in words."""
    return seconds[base] / seconds[ours], f"{seconds[ours] * 1e3:.0f} ms against {seconds[base] * 1e3:.0f} ms"


def measure_forward(reference: Reference, aim: AIMModel, clips: Tensor, has_amx: bool) -> Iterator[Ratio]:
    """Encoding: eager, compiled, and in bfloat16 where the processor has the instructions for it."""
    ways = {
        "reference": forward(reference, clips),
        "eager": forward(aim, clips),
        "compiled": forward(torch.compile(aim, fullgraph=True), clips),
    }
    if has_amx:
        ways["bf16"] = forward(aim, clips, bf16=True)
    seconds = interleave(ways, ROUNDS)
    goals = {"eager": 1.04, "compiled": 1.15, "bf16": 2.6}
    for name, goal in goals.items():
        if name in ways:
            value, detail = seconds_ratio(seconds, name)
            yield Ratio(f"forward, {name}", REFERENCE, value, goal, detail=detail)
    error = relative_error(ways["eager"](), ways["reference"]())
    yield Ratio("outputs, largest difference", REFERENCE, error, 5e-6, at_most=True)


def measure_training(reference: Reference, aim: AIMModel, clips: Tensor, has_amx: bool) -> Iterator[Ratio]:
    """Training of adapters: time, what is kept for the backward pass, and equality of gradients."""
    reference.train()
    aim.train()
    ways = {"reference": training_step(reference, clips), "fp32": training_step(aim, clips)}
    if has_amx:
        ways["bf16"] = training_step(aim, clips, bf16=True)
    seconds = interleave(ways, ROUNDS)
    for name, goal in (("fp32", 1.12), ("bf16", 2.2)):
        if name in ways:
            value, detail = seconds_ratio(seconds, name)
            yield Ratio(f"adapter training step, {name}", REFERENCE, value, goal, detail=detail)
    if has_amx:
        ways["fp32"]()  # its gradients, not those of bfloat16, are compared
    yield Ratio("gradients, largest difference", REFERENCE, gradient_error(reference, aim), 1e-5, at_most=True)
    saved = [saved_megabytes(model, clips) for model in (aim, reference)]
    detail = f"{saved[0]:.0f} MB against {saved[1]:.0f} MB"
    yield Ratio("saved activations", REFERENCE, saved[0] / saved[1], 0.80, at_most=True, detail=detail)


def measure_memory(reference: Reference, aim: AIMModel) -> Iterator[Ratio]:
    """Memory that one more clip takes in training with checkpointing."""
    aim.activation_checkpointing_enable()
    ours, theirs = (megabytes_per_clip(model.train(), aim.config) for model in (aim, reference))
    detail = f"{ours:.0f} MB against {theirs:.0f} MB"
    yield Ratio("memory per clip, checkpointed", REFERENCE, ours / theirs, 0.35, at_most=True, detail=detail)


def measure_gpu(device: str = "cuda", num_clips: int = 32, **changes: float) -> Iterator[Ratio]:
    """Clips per second of adapter training in bfloat16 on a GPU, and the share of its measured matrix-product rate."""
    _, aim = make_pair(**{"num_frames": 12, **changes})
    aim = aim.to(device).train()
    clips = make_clips(num_clips, aim.config).to(device)
    square = torch.randn(8192, 8192, device=device, dtype=torch.bfloat16)

    def wait(run: Callable[[], object]) -> Callable[[], None]:
        return lambda: (run(), torch.accelerator.synchronize() if device != "cpu" else None)

    with FlopCounterMode(display=False) as counter:
        training_step(aim, clips, bf16=True)()
    product = interleave({"product": wait(lambda: square @ square)}, 10)["product"]
    rate = 2 * len(square) ** 3 / product
    for checkpointing in (False, True):
        if checkpointing:
            aim.activation_checkpointing_enable()
        for name, model in (("eager", aim), ("compiled", torch.compile(aim))):
            seconds = interleave({name: wait(training_step(model, clips, bf16=True))}, 10)[name]
            utilisation = counter.get_total_flops() / seconds / rate
            what = f"GPU training step, {name}{', checkpointed' if checkpointing else ''}"
            yield Ratio(what, "measured bf16 product", utilisation, detail=f"{num_clips / seconds:.0f} clips/s")


def measure() -> Iterator[Ratio]:
    """Give all ratios of stage 1."""
    has_amx = torch.cpu._is_amx_tile_supported()  # torch has no public question for it
    reference, aim = make_pair()
    clips = make_clips(1, aim.config)
    yield from measure_forward(reference.eval(), aim.eval(), clips, has_amx)
    yield from measure_training(reference, aim, clips, has_amx)
    yield from measure_memory(reference, aim)
    if torch.cuda.is_available():
        yield from measure_gpu()
