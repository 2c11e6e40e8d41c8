"""MM-Embed: images as in LLaVA-NeXT, a Mistral that attends both ways, and pooling over learned latents (NV-Embed)."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import LlavaNextModel
from transformers.masking_utils import create_bidirectional_mask

from .configuration_mmembed import MMEmbedConfig


class LatentAttention(nn.Module):
    """Let each token look at learned latents, and average the tokens (NV-Embed, arXiv:2405.17428, section 3.1)."""

    def __init__(self, config: MMEmbedConfig, width: int) -> None:
        super().__init__()
        inner = config.num_latent_heads * config.latent_head_size
        self.heads = config.num_latent_heads
        self.latents = nn.Parameter(torch.zeros(config.num_latents, width))
        self.norm, self.latent_norm, self.feed_norm = (nn.LayerNorm(width) for _ in range(3))
        self.query = nn.Linear(width, inner, bias=False)
        self.key_value = nn.Linear(width, 2 * inner, bias=False)
        self.out = nn.Linear(inner, width, bias=False)
        self.up, self.down = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

    def forward(self, states: Tensor, pool_mask: Tensor) -> Tensor:
        """Unit-norm `(B, D)` of states `(B, L, D)`, of which `pool_mask` `(B, L)` says which count."""
        keys, values = self.key_value(self.latent_norm(self.latents)).chunk(2, dim=-1)
        queries = self.query(self.norm(states))
        parts = (part.unflatten(-1, (self.heads, -1)).transpose(-2, -3) for part in (queries, keys, values))
        query, key, value = parts
        size = (len(states), -1, -1, -1)
        seen = F.scaled_dot_product_attention(query, key.expand(size), value.expand(size))
        states = self.out(seen.transpose(1, 2).flatten(2)) + states
        content, gates = self.up(self.feed_norm(states)).chunk(2, dim=-1)
        states = self.down(content * F.gelu(gates)) + states
        mask = pool_mask[..., None].float()
        return F.normalize((states.float() * mask).sum(1) / mask.sum(1), dim=-1)


class MMEmbedModel(LlavaNextModel):
    """MM-Embed: embeddings of texts, images and both."""

    config_class = MMEmbedConfig

    def __init__(self, config: MMEmbedConfig) -> None:
        super().__init__(config)
        self.latent_attention = LatentAttention(config, self.image_newline.shape[0])
        self.post_init()

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, pool_mask: Tensor, pixel_values: Tensor | None = None
    ) -> Tensor:
        """Unit-norm `(B, D)`.

        Args:
            input_ids: `(B, L)`, with `image_length` image tokens for each image.
            attention_mask: `(B, L)`, 1 for tokens and 0 for padding.
            pool_mask: `(B, L)`, 1 for tokens that the embedding is the mean of.
            pixel_values: `(images, 3, H, W)`, each a whole image.
        """
        is_image = input_ids == self.config.image_token_id
        embeds = self.get_input_embeddings()(input_ids.masked_fill(is_image, 0))  # it may have no embedding of its own
        if pixel_values is not None:
            layers = self.vision_tower(pixel_values, output_hidden_states=True).hidden_states
            seen = self.multi_modal_projector(layers[self.config.vision_feature_layer][:, 1:])
            seen = torch.cat([seen, self.image_newline.expand(len(seen), 1, -1)], dim=1)
            embeds = embeds.masked_scatter(is_image[..., None], seen.to(embeds.dtype))
        mask = create_bidirectional_mask(
            self.language_model.config, embeds, attention_mask, allow_is_bidirectional_skip=False
        )
        states = self.language_model(inputs_embeds=embeds, attention_mask=mask, use_cache=False).last_hidden_state
        pooled: Tensor = self.latent_attention(states, pool_mask)
        return pooled

    @property
    def image_length(self) -> int:
        """Tokens of an image: its patches, and one for the end of the line."""
        vision: Any = self.config.vision_config
        return int((vision.image_size // vision.patch_size) ** 2 + 1)


MMEmbedConfig.register_for_auto_class()
MMEmbedModel.register_for_auto_class("AutoModel")
