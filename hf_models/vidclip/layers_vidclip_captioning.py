"""CoCa's multimodal text decoder: what VidCLIP with the captioning loss adds to its text tower."""

from typing import cast

from torch import Tensor, nn
from transformers import CLIPTextConfig, CLIPVisionConfig
from transformers.masking_utils import create_causal_mask
from transformers.models.clip.modeling_clip import CLIPEncoderLayer

from .configuration_vidclip import VidCLIPConfig
from .layers_vidclip import attend


class CrossAttention(nn.Module):
    """Tokens of a text attend to tokens of a video."""

    def __init__(self, config: CLIPTextConfig, video_width: int) -> None:
        super().__init__()
        width = config.hidden_size
        self.config = config
        self.num_heads = config.num_attention_heads
        self.is_causal = False  # read by some attention implementations
        self.q_proj = nn.Linear(width, width)
        self.k_proj = nn.Linear(video_width, width)
        self.v_proj = nn.Linear(video_width, width)
        self.out_proj = nn.Linear(width, width)

    def forward(self, states: Tensor, video_tokens: Tensor) -> Tensor:
        """Of `(N, L, width)` and `(N, Q, video width)` give `(N, L, width)`."""
        key, value = self.k_proj(video_tokens), self.v_proj(video_tokens)
        seen: Tensor = self.out_proj(attend(self, self.q_proj(states), key, value))
        return seen


class CaptioningLayer(CLIPEncoderLayer):
    """A layer of CLIP's text tower that also attends to a video, between its causal attention and its MLP."""

    def __init__(self, config: CLIPTextConfig, video_width: int) -> None:
        super().__init__(config)
        self.cross_attn = CrossAttention(config, video_width)
        self.cross_layer_norm = nn.LayerNorm(config.hidden_size, eps=cast("float", config.layer_norm_eps))

    def forward(  # type: ignore[override]  # it also takes the video
        self, states: Tensor, attention_mask: Tensor | None, video_tokens: Tensor
    ) -> Tensor:
        """Of `(N, L, width)` and `(N, Q, video width)` give `(N, L, width)`."""
        read, _ = self.self_attn(self.layer_norm1(states), attention_mask=attention_mask, is_causal=True)
        states = states + read
        states = states + self.cross_attn(self.cross_layer_norm(states), video_tokens)
        written: Tensor = states + self.mlp(self.layer_norm2(states))
        return written


class CaptionDecoder(nn.Module):
    """From the states of the text tower to the logits of each next token, given a video (CoCa, section 3.2).

    Args:
        config: The model's.
        text_config: That of the text tower itself, whose attention implementation it shares.
    """

    def __init__(self, config: VidCLIPConfig, text_config: CLIPTextConfig) -> None:
        super().__init__()
        width = text_config.hidden_size
        video_width = cast("CLIPVisionConfig", config.vision_config).hidden_size
        self.config = text_config
        self.layers = nn.ModuleList(
            CaptioningLayer(text_config, video_width) for _ in range(config.num_captioning_layers)
        )
        self.final_layer_norm = nn.LayerNorm(width, eps=cast("float", text_config.layer_norm_eps))
        self.head = nn.Linear(width, text_config.vocab_size, bias=False)

    def forward(self, states: Tensor, attention_mask: Tensor | None, video_tokens: Tensor) -> Tensor:
        """Give logits `(N, L, vocabulary)`; those at place t are of the token at t + 1.

        Args:
            states: `(N, L, width)` of the text tower.
            attention_mask: `(N, L)`, 1 for tokens and 0 for padding.
            video_tokens: `(N, Q, video width)`, text i with video i.
        """
        no_cache = None  # by position: transformers 5.24 named this argument anew
        mask = create_causal_mask(self.config, states, attention_mask, no_cache)
        for layer in self.layers:
            states = layer(states, mask, video_tokens)
        logits: Tensor = self.head(self.final_layer_norm(states))
        return logits


def text_lengths(input_ids: Tensor, eos_token_id: int) -> Tensor:
    """How many tokens each text has, with its first end-of-text token: `(N,)`, found as CLIP's text tower finds it.

    Args:
        input_ids: `(N, L)`, padding after the end.
        eos_token_id: Of the text tower's configuration; 2 in OpenAI's means the highest id of the text.

    Example:
        >>> import torch
        >>> text_lengths(torch.tensor([[5, 6, 9, 9], [5, 6, 7, 9]]), 9)
        tensor([3, 4])
    """
    if eos_token_id == 2:
        return input_ids.int().argmax(1) + 1
    return (input_ids == eos_token_id).int().argmax(1) + 1
