"""LanguageBind for video: CLIP, with attention over time before that over space in each layer of its vision tower."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import CLIPModel, CLIPVisionConfig
from transformers.models.clip.modeling_clip import CLIPAttention, CLIPEncoderLayer

from .configuration_languagebind import LanguageBindConfig


class LanguageBindLayer(CLIPEncoderLayer):
    """A layer of CLIP that first lets each patch look at the same patch of all frames."""

    def __init__(self, config: CLIPVisionConfig, num_frames: int) -> None:
        super().__init__(config)
        self.num_frames = num_frames
        self.temporal_embedding = nn.Parameter(torch.zeros(1, num_frames, config.hidden_size))
        self.temporal_attn = CLIPAttention(config)
        self.temporal_layer_norm1 = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, hidden_states: Tensor, attention_mask: Any = None, **kwargs: Any) -> Tensor:
        """Tokens `(B * T, N, D)`."""
        frames = hidden_states.unflatten(0, (-1, self.num_frames)).transpose(1, 2)  # (B, N, T, D)
        if self.num_frames > 1:  # as in the release
            frames = frames + self.temporal_embedding
        normed = self.temporal_layer_norm1(frames).flatten(0, 1)
        frames = frames + self.temporal_attn(normed, attention_mask=None)[0].unflatten(0, frames.shape[:2])
        spatial: Tensor = super().forward(frames.transpose(1, 2).flatten(0, 1), attention_mask, **kwargs)
        return spatial


class LanguageBindModel(CLIPModel):
    """LanguageBind for video.

    Example:
        >>> small = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
        >>> config = LanguageBindConfig(text_config=small, vision_config={**small, "image_size": 16, "patch_size": 8})
        >>> LanguageBindModel(config).get_video_features(torch.zeros(2, 8, 3, 16, 16)).shape
        torch.Size([2, 512])
    """

    config_class = LanguageBindConfig

    def __init__(self, config: LanguageBindConfig) -> None:
        super().__init__(config)
        tower = self.vision_model
        layers = [LanguageBindLayer(tower.config, config.num_frames) for _ in tower.encoder.layers]
        tower.encoder.layers = nn.ModuleList(layers)
        self.post_init()

    def get_video_features(self, pixel_values: Tensor) -> Tensor:
        """Embeddings `(B, projection_dim)` of videos `(B, num_frames, 3, H, W)`, of any length."""
        each = self.vision_model(pixel_values=pixel_values.flatten(0, 1)).pooler_output
        embeds: Tensor = self.visual_projection(each.unflatten(0, (-1, self.config.num_frames)).mean(1))
        return embeds


LanguageBindConfig.register_for_auto_class()
LanguageBindModel.register_for_auto_class("AutoModel")
