"""Contrastive negatives from all processes: a gather through which gradients flow back to where they belong."""

import torch
import torch.distributed as dist
from torch import Tensor


def world_size() -> int:
    """How many processes train together; 1 where `torch.distributed` is not running.

    Example:
        >>> world_size()
        1
    """
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def _lengths(tensor: Tensor) -> list[int]:
    length = torch.tensor([len(tensor)], device=tensor.device)
    lengths = [torch.empty_like(length) for _ in range(dist.get_world_size())]
    dist.all_gather(lengths, length)
    return [int(n) for n in lengths]


class _Rows(torch.autograd.function.FunctionCtx):
    """Which of the gathered rows are those of this process."""

    start: int
    length: int


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: _Rows, tensor: Tensor) -> Tensor:
        lengths, rank = _lengths(tensor), dist.get_rank()
        padded = tensor.new_zeros(max(lengths), *tensor.shape[1:])
        padded[: len(tensor)] = tensor
        parts = [torch.empty_like(padded) for _ in lengths]
        dist.all_gather(parts, padded)
        ctx.start, ctx.length = sum(lengths[:rank]), lengths[rank]
        return torch.cat([part[:length] for part, length in zip(parts, lengths, strict=True)])

    @staticmethod
    def backward(ctx: _Rows, gradient: Tensor) -> Tensor:
        gradient = gradient.clone(memory_format=torch.contiguous_format)  # others may read this gradient too
        dist.all_reduce(gradient)
        return gradient[ctx.start : ctx.start + ctx.length]


def gather_with_gradient(tensor: Tensor) -> Tensor:
    """The rows of all processes in order of rank, `(sum of n_rank, ...)`; lengths may differ between processes.

    The backward pass adds up what every process asks of a row and hands it to the process that owns it. When each
    process computes the same loss over all gathered rows, and gradients are averaged over processes as DDP and FSDP
    do, parameters move exactly as in one process with the whole batch. All processes must call this together. With
    one process the tensor comes back as it is.

    Args:
        tensor: `(n_rank, ...)`; everything but the first size must agree between processes. Integers carry no gradient.

    Example:
        >>> gather_with_gradient(torch.ones(2, 3)).shape
        torch.Size([2, 3])
    """
    return tensor if world_size() == 1 else _Gather.apply(tensor)


def rows_before(tensor: Tensor) -> int:
    """How many rows the processes of lower rank have: where those of this one begin among the gathered.

    Args:
        tensor: `(n_rank, ...)`.

    Example:
        >>> rows_before(torch.ones(2, 3))
        0
    """
    return 0 if world_size() == 1 else sum(_lengths(tensor)[: dist.get_rank()])


def from_first_process(tensor: Tensor) -> Tensor:
    """The tensor of the first process, so that all draw the same random numbers.

    Args:
        tensor: Of the same shape and dtype in all processes.

    Example:
        >>> from_first_process(torch.ones(2))
        tensor([1., 1.])
    """
    if world_size() > 1:
        tensor = tensor.contiguous()
        dist.broadcast(tensor, 0)
    return tensor
