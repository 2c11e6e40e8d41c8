"""Gradient caching: contrastive batches whose size does not depend on memory (GradCache; Gao et al. 2021).

Every item of a batch is a negative of every other, so a contrastive loss needs all embeddings at once, but it needs no
more than the embeddings. They are computed without gradient, chunk by chunk; the loss gives their gradients; then each
chunk is computed again, with gradient, and gets its part of them. The result is the plain gradient, for one forward
pass more.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


class RandomState:
    """The states of the random number generators that a model on `device` draws from.

    Args:
        device: Where the model runs.

    Example:
        >>> state = RandomState(torch.device("cpu"))
        >>> first = torch.rand(2)
        >>> state.restore()
        >>> torch.equal(torch.rand(2), first)
        True
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.cpu = torch.get_rng_state()
        self.cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None

    def restore(self) -> None:
        """Draw again what was drawn since."""
        torch.set_rng_state(self.cpu)
        if self.cuda is not None:
            torch.cuda.set_rng_state(self.cuda, self.device)


def backward_in_chunks(
    chunks: Sequence[Callable[[], Tensor]],
    loss_of: Callable[[Tensor], Tensor],
    device: torch.device | str = "cpu",
    *,
    backward: Callable[[Tensor], None] = Tensor.backward,
) -> Tensor:
    """Add the gradient of a loss over all embeddings to the weights, holding the activations of one chunk at a time.

    What drops out is the same in both passes over a chunk, and the random state afterwards is that of one pass.

    Args:
        chunks: Each computes the embeddings `(n_i, D)` of some items, as a function of the weights.
        loss_of: The loss, a scalar, of all embeddings `(sum of n_i, D)`, in the order of the chunks. It may gather the
            embeddings of other processes, with gradient.
        device: Where the chunks draw random numbers.
        backward: What takes the place of `Tensor.backward` in the second pass, such as an accelerator's.

    Returns:
        The loss, without gradient.

    Raises:
        ValueError: There is no chunk, or a chunk's embeddings are another number in the second pass.

    Example:
        >>> weights = torch.ones(2, requires_grad=True)
        >>> rows = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> chunks = [lambda row=row: (row * weights)[None] for row in rows]
        >>> backward_in_chunks(chunks, lambda embeds: embeds.sum()).item()
        10.0
        >>> weights.grad
        tensor([4., 6.])
    """
    if not chunks:
        raise ValueError("there is no chunk to embed; give at least one")
    states, parts = [], []
    with torch.no_grad():
        for embed in chunks:
            states.append(RandomState(torch.device(device)))
            parts.append(embed())
    embeds = torch.cat(parts).detach().requires_grad_()
    loss = loss_of(embeds)
    loss.backward()
    after = RandomState(torch.device(device))
    gradients = torch.zeros_like(embeds) if embeds.grad is None else embeds.grad
    for embed, state, part in zip(chunks, states, gradients.split([len(part) for part in parts]), strict=True):
        state.restore()
        again = embed()
        if len(again) != len(part):
            raise ValueError(f"a chunk gave {len(part)} embeddings, then {len(again)}; it must give the same twice")
        backward((again * part).sum())
    after.restore()
    return loss.detach()
