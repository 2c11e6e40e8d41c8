"""How a video and a text become one query: the paper's perceptron, the released gated combiner, or an average."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .configuration_tfcovr import TFCoVRConfig


class ConcatenationFusion(nn.Module):
    """The paper's composer: a perceptron with two hidden ReLU layers on the concatenated embeddings."""

    def __init__(self, config: TFCoVRConfig) -> None:
        super().__init__()
        size, hidden = config.fused_dim, config.fusion_hidden_dim
        self.layers = nn.Sequential(
            nn.Linear(config.video_embed_dim + size, hidden),
            nn.ReLU(),
            nn.Dropout(config.fusion_dropout),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Dropout(config.fusion_dropout),
            nn.Linear(hidden, size),
        )

    def forward(self, video_embeds: Tensor, text_embeds: Tensor) -> Tensor:
        """Compose row by row.

        Args:
            video_embeds: `(B, video_embed_dim)` as the encoder gives them, not normalized.
            text_embeds: `(B, fused_dim)`, unit norm.

        Returns:
            `(B, fused_dim)`, not normalized.
        """
        query: Tensor = self.layers(torch.cat([video_embeds, text_embeds], dim=-1))
        return query


class GatedFusion(nn.Module):
    """The released composer, a combiner with a learned gate between the two embeddings and a fused residual."""

    def __init__(self, config: TFCoVRConfig) -> None:
        super().__init__()
        size, hidden = config.fused_dim, config.fusion_hidden_dim
        self.text_projection = nn.Linear(size, config.fusion_projection_dim)
        self.video_projection = nn.Linear(size, config.fusion_projection_dim)
        self.fused_projection = nn.Linear(2 * config.fusion_projection_dim, hidden)
        self.output_projection = nn.Linear(hidden, size)
        self.gate_projection = nn.Linear(2 * config.fusion_projection_dim, hidden)
        self.gate = nn.Linear(hidden, 1)
        self.dropout = nn.Dropout(config.fusion_dropout)

    def _hidden(self, layer: nn.Linear, embeds: Tensor) -> Tensor:
        hidden: Tensor = self.dropout(F.relu(layer(embeds)))
        return hidden

    def forward(self, video_embeds: Tensor, text_embeds: Tensor) -> Tensor:
        """Compose row by row.

        Args:
            video_embeds: `(B, video_embed_dim)` as the encoder gives them, not normalized.
            text_embeds: `(B, fused_dim)`, unit norm.

        Returns:
            `(B, fused_dim)`, not normalized.
        """
        text, video = (
            self._hidden(self.text_projection, text_embeds),
            self._hidden(self.video_projection, video_embeds),
        )
        both = torch.cat([text, video], dim=-1)
        gate = torch.sigmoid(self.gate(self._hidden(self.gate_projection, both)))
        fused: Tensor = self.output_projection(self._hidden(self.fused_projection, both))
        return fused + gate * text_embeds + (1 - gate) * video_embeds


class AverageFusion(nn.Module):
    """The mean of the two unit vectors: zero-shot, without parameters."""

    def __init__(self, config: TFCoVRConfig) -> None:  # noqa: ARG002 - made like its siblings
        super().__init__()

    def forward(self, video_embeds: Tensor, text_embeds: Tensor) -> Tensor:
        """Compose row by row.

        Args:
            video_embeds: `(B, video_embed_dim)` as the encoder gives them, not normalized.
            text_embeds: `(B, fused_dim)`, unit norm.

        Returns:
            `(B, fused_dim)`, not normalized.
        """
        return (F.normalize(video_embeds, dim=-1) + text_embeds) / 2


FUSIONS = {"mlp": ConcatenationFusion, "gated": GatedFusion, "average": AverageFusion}
