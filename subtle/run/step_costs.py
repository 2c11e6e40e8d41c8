"""What a training step holds in memory and computes, counted on tensors that have shapes and no values."""

import weakref
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.flop_counter import flop_registry

PRECISIONS = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp8": torch.bfloat16}
IN_32_BITS = {F.layer_norm, F.group_norm, F.softmax, F.log_softmax, F.cross_entropy, F.softplus, F.normalize}
IN_32_BITS |= {torch.softmax, Tensor.softmax, torch.logsumexp, Tensor.logsumexp}
"""What takes memory and autocast computes in 32 bits on CUDA, and in 16 on the processor, where this is counted."""


@dataclass(frozen=True)
class StepCost:
    """What one process needs for a training step.

    Attributes:
        parameters, trained_parameters: Of the model.
        weight_bytes: Of all parameters and buffers.
        saved_bytes: Kept for the backward pass.
        peak_bytes: The most that lives at once beside weights and optimizer: inputs, activations and gradients.
        forward_flops: Operations of the forward pass, a multiplication and an addition being two.
        flops: Of both passes.
    """

    parameters: int
    trained_parameters: int
    weight_bytes: int
    saved_bytes: int
    peak_bytes: int
    forward_flops: int
    flops: int

    @property
    def gradient_bytes(self) -> int:
        """Of the gradients, in 32 bits."""
        return 4 * self.trained_parameters

    @property
    def optimizer_bytes(self) -> int:
        """Of Adam's or AdamW's two moments, in 32 bits."""
        return 8 * self.trained_parameters

    def memory_bytes(self, num_processes: int = 1, *, sharded: bool = False) -> dict[str, int]:
        """Of a GPU, by what it is for.

        Args:
            num_processes: With several, each keeps its gradients a second time, to exchange them.
            sharded: FSDP: each keeps its part of weights, gradients and moments.
        """
        parts = num_processes if sharded else 1
        copies = 2 if num_processes > 1 and not sharded else 1
        # AdamW computes on copies of what it updates, after the activations are gone.
        working = max(self.peak_bytes - self.gradient_bytes, self.gradient_bytes)
        return {
            "weights": self.weight_bytes // parts,
            "gradients": copies * self.gradient_bytes // parts,
            "optimizer": self.optimizer_bytes // parts,
            "activations": working,
        }


class Counted(TorchDispatchMode):
    """Counts the bytes of the storages that operations make and that still live, and floating-point operations.

    `FlopCounterMode` would follow the modules too, and so keep alive what activation checkpointing frees.
    """

    def __init__(self, known: set[int]) -> None:
        super().__init__()
        self.alive = self.peak = self.flops = 0
        self.known = known

    def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        packet = getattr(func, "_overloadpacket", None)
        if packet in flop_registry:
            self.flops += flop_registry[packet](*args, **kwargs, out_val=out)
        for value in tree_leaves(out):
            if isinstance(value, Tensor):
                self.count(value.untyped_storage())
        return out

    def count(self, storage: Any) -> None:
        """Count a storage until it is freed."""
        key = storage._cdata
        if key not in self.known:
            size = storage.nbytes()
            self.known.add(key)
            self.alive += size
            self.peak = max(self.peak, self.alive)
            weakref.finalize(storage, self.forget, key, size)

    def forget(self, key: int, size: int) -> None:
        """A storage is freed."""
        self.known.discard(key)
        self.alive -= size


class AsOnCUDA(TorchFunctionMode):
    """What differs there from a processor: some functions in 32 bits; and no condition on values holds."""

    def __torch_function__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in {Tensor.__bool__, Tensor.__float__}:
            return 0.0 if func is Tensor.__float__ else False
        if func is Tensor.__getitem__ and isinstance(args[1], Tensor) and args[1].dtype == torch.bool:
            return args[0].flatten(0, args[1].ndim - 1)  # at most, all
        if func is Tensor.nonzero:  # as of the pairs that fit: each row's own
            return (torch.arange(min(args[0].shape)),) * args[0].ndim
        if func in IN_32_BITS:
            args, kwargs = tree_map(in_32_bits, (args, kwargs))
        return func(*args, **kwargs)


def in_32_bits(value: Any) -> Any:
    is_half = isinstance(value, Tensor) and value.dtype in {torch.bfloat16, torch.float16}
    return value.float() if is_half else value


def count_step(
    model: nn.Module,
    loss_of: Callable[[nn.Module], Tensor],
    *,
    precision: str | None = None,
    fake: bool = True,
) -> StepCost:
    """Count a training step without data, weights or a GPU.

    Args:
        model: Of the sizes that it trains with, on the `meta` device; in training mode or as its recipe has it.
        loss_of: Its loss on one batch, which it makes of tensors without values.
        precision: bf16 or fp16 of autocast; another: 32 bits.
        fake: Without values. Otherwise the model and the batch have some, and are really computed: for tests.

    Example:
        >>> with torch.device("meta"):
        ...     model = nn.Linear(1000, 10)
        >>> cost = count_step(model, lambda model: model(torch.ones(8, 1000)).sum())
        >>> cost.parameters, cost.saved_bytes, cost.flops == 2 * 2 * 8 * 1000 * 10
        (10010, 32000, True)
    """
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    numbers = {"parameters": sum(weight.numel() for weight in model.parameters())}
    numbers["trained_parameters"] = sum(weight.numel() for weight in trained)
    with ExitStack() as modes:
        if fake:
            modes.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
            model.to_empty(device="cpu")
        own = [part.untyped_storage() for part in (*model.parameters(), *model.buffers())]
        weights = {storage._cdata: storage.nbytes() for storage in own}
        kept: dict[int, Any] = {}

        def keep(value: Tensor) -> Tensor:
            storage = value.untyped_storage()
            if storage._cdata not in weights:
                kept[storage._cdata] = storage.nbytes()
            return value

        if fake:
            modes.enter_context(AsOnCUDA())
        dtype = PRECISIONS.get(precision or "no")
        if dtype is not None:
            modes.enter_context(torch.autocast("cpu", dtype=dtype))
        counted = modes.enter_context(Counted(set(weights)))
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda value: value):
            loss = loss_of(model)
        forward_flops = counted.flops
        loss.backward()
        del loss
    return StepCost(
        **numbers,
        weight_bytes=sum(weights.values()),
        saved_bytes=sum(kept.values()),
        peak_bytes=counted.peak,
        forward_flops=forward_flops,
        flops=counted.flops,
    )
