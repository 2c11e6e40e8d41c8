"""A small head over the last token's states of several layers of a frozen language model (PREGEN's idea)."""

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedConfig, PreTrainedModel


class LayerHeadConfig(PreTrainedConfig):
    """What a `LayerHead` reads and how large it is.

    Args:
        base_model_name_or_path: The frozen model whose states it reads.
        layers: Which of its layers, of `hidden_states`: 0 is the embeddings, -1 the last layer.
        input_size: Width of the states.
        hidden_size: Width of the head's own blocks.
        num_hidden_layers: Number of blocks.
        num_attention_heads: Heads of each block; divides `hidden_size`.
        dropout: Probability (0 to 1) in the blocks.
    """

    model_type = "layer_head"

    def __init__(
        self,
        base_model_name_or_path: str | None = None,
        layers: list[int] | None = None,
        input_size: int = 1536,
        hidden_size: int = 256,
        num_hidden_layers: int = 2,
        num_attention_heads: int = 4,
        dropout: float = 0.1,
        **kwargs: Any,
    ) -> None:
        self.base_model_name_or_path = base_model_name_or_path
        self.layers = [-1] if layers is None else list(layers)
        self.input_size, self.hidden_size, self.dropout = input_size, hidden_size, dropout
        self.num_hidden_layers, self.num_attention_heads = num_hidden_layers, num_attention_heads
        if hidden_size % num_attention_heads:
            raise ValueError(f"hidden_size {hidden_size} is no multiple of num_attention_heads {num_attention_heads}")
        super().__init__(**kwargs)


class LayerHead(PreTrainedModel):
    """A transformer encoder over layers, whose mean is added to the state of the last one.

    Before training it changes nothing: the embedding is the state of the last of its layers.

    Example:
        >>> import torch
        >>> head = LayerHead(LayerHeadConfig(layers=[1, 2], input_size=8, hidden_size=8)).eval()
        >>> states = torch.nn.functional.normalize(torch.randn(3, 2, 8), dim=-1)
        >>> torch.allclose(head(states), states[:, -1])
        True
    """

    config_class = LayerHeadConfig
    base_model_prefix = "head"
    main_input_name = "states"

    def __init__(self, config: LayerHeadConfig) -> None:
        super().__init__(config)
        self.input_norm = nn.LayerNorm(config.input_size)
        self.input_projection = nn.Linear(config.input_size, config.hidden_size)
        self.layer_embedding = nn.Embedding(len(config.layers), config.hidden_size)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                config.hidden_size,
                config.num_attention_heads,
                4 * config.hidden_size,
                config.dropout,
                activation="gelu",
                batch_first=True,
                norm_first=True,
            )
            for _ in range(config.num_hidden_layers)
        )
        self.output_norm = nn.LayerNorm(config.hidden_size)
        self.output_projection = nn.Linear(config.hidden_size, config.input_size)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        if module is self.output_projection:
            nn.init.zeros_(self.output_projection.weight)
            nn.init.zeros_(self.output_projection.bias)

    def forward(self, states: Tensor) -> Tensor:
        """Embed stacked states.

        Args:
            states: `(N, layers, input_size)`, each of unit norm.

        Returns:
            Unit-norm `(N, input_size)`, float32.
        """
        states = states.float()
        hidden = self.input_projection(self.input_norm(states)) + self.layer_embedding.weight
        for block in self.blocks:
            hidden = block(hidden)
        added = self.output_projection(self.output_norm(hidden.mean(1)))
        return F.normalize(states[:, -1] + added.float(), dim=-1)


def check_layers(layers: list[int], num_hidden_layers: int) -> None:
    """Refuse layers that a model does not have.

    Args:
        layers: Of `hidden_states`, where 0 is the embeddings and -1 the last layer.
        num_hidden_layers: Of the model.

    Raises:
        ValueError: There is none, or one that the model does not have.
    """
    wrong = [layer for layer in layers if not -num_hidden_layers - 1 <= layer <= num_hidden_layers]
    if wrong or not layers:
        what = f"layer {wrong[0]}" if wrong else "no layer"
        raise ValueError(
            f"{what} was asked for, and the model has {num_hidden_layers}; give numbers from 0, the token embeddings, "
            f"to {num_hidden_layers}, or -1 for the last"
        )
