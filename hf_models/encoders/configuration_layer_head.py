"""Configuration of the head over several layers of a frozen language model."""

from typing import Any

from transformers import PreTrainedConfig


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
