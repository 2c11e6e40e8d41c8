"""Hidden states and attention maps, taken from the layers while they run."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from torch import Tensor
from transformers import PreTrainedModel
from transformers.models.roberta.modeling_roberta import RobertaLayer, RobertaSelfAttention

from .layers_moments import Attention, AttentionBlock, CrossAttentionBlock

LAYERS = (AttentionBlock, CrossAttentionBlock, RobertaLayer)
ATTENTIONS = (Attention, RobertaSelfAttention)


@dataclass
class Record:
    """What was requested; None for the rest.

    Args:
        hidden_states: The input of the first layer, then the output of each in the order they ran.
        attentions: The weights of each attention in the order they ran, `(N, heads, L, K)`.
    """

    hidden_states: tuple[Tensor | None, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


@contextmanager
def recording(
    model: PreTrainedModel, *, hidden_states: bool | list[int] | None, attentions: bool | None
) -> Iterator[Record]:
    """Record what the layers of a model return while the block runs.

    Attention runs in its plain form while its weights are recorded: other implementations do not return them.

    Args:
        model: Whose layers run in the block.
        hidden_states: Record them; a list says which, counted as in the full record, and leaves None for the others.
        attentions: Record them.

    Yields:
        The record, filled when the block ends.
    """
    record, states, maps, hooks = Record(), [], [], []
    implementation = model.config._attn_implementation
    for module in model.modules() if hidden_states or attentions else ():
        if hidden_states and isinstance(module, LAYERS):
            hooks.append(
                module.register_forward_hook(
                    lambda _, given, output: states.extend([output] if states else [given[0], output])
                )
            )
        if attentions and isinstance(module, ATTENTIONS):
            hooks.append(module.register_forward_hook(lambda _, __, output: maps.append(output[1])))
    try:
        if attentions:
            model.config._attn_implementation = "eager"
        yield record
    finally:
        if attentions:
            model.config._attn_implementation = implementation
        for hook in hooks:
            hook.remove()
    if isinstance(hidden_states, list):
        kept = {range(len(states))[index] for index in hidden_states}
        states = [state if index in kept else None for index, state in enumerate(states)]
    record.hidden_states = tuple(states) if hidden_states else None
    record.attentions = tuple(maps) if attentions else None
