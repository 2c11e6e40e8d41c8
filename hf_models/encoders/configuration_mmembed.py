"""Configuration of MM-Embed: LLaVA-NeXT with a Mistral that attends both ways, and pooling over learned latents."""

from huggingface_hub.dataclasses import strict
from transformers import LlavaNextConfig


@strict
class MMEmbedConfig(LlavaNextConfig):
    """Describe an MM-Embed (arXiv:2411.02571); the fields are those of `LlavaNextConfig` and three more.

    Args:
        num_latents: Latents that the pooling looks at.
        num_latent_heads: Heads with which it looks.
        latent_head_size: Width of such a head.

    Example:
        >>> MMEmbedConfig(text_config={"model_type": "mistral"}, vision_config={}).num_latents
        512
    """

    model_type = "mm_embed"

    num_latents: int = 512
    num_latent_heads: int = 8
    latent_head_size: int = 4096
