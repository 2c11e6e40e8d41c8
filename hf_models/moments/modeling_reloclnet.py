"""ReLoCLNet: one kind of clip features for both tasks, trained with contrasts over frames and over videos."""

from typing import cast

import torch
from torch import Tensor

from .configuration_reloclnet import ReLoCLNetConfig
from .labels import Labels
from .layers_moments import (
    AttentionBlock,
    CrossAttentionBlock,
    EncodedVideos,
    Stream,
    best_clips,
    clip_scores,
    readable_clip_mask,
)
from .losses import frame_contrastive_loss, video_contrastive_loss
from .modeling_moments import StreamedRetrievalModel


class ReLoCLNetStream(Stream):
    """The layers of one stream; without another stream the cross-attention is to itself."""

    def __init__(self, feature_size: int, config: ReLoCLNetConfig) -> None:
        super().__init__(feature_size, config)
        self.cross = CrossAttentionBlock(config)
        self.middle = AttentionBlock(config)
        self.deep = AttentionBlock(config)


class ReLoCLNetForMomentRetrieval(StreamedRetrievalModel):
    """Find moments in a corpus with ReLoCLNet (Zhang et al., SIGIR 2021).

    With video only the cross-attention to the subtitles becomes self-attention (VERIFIED, section 4.1).

    Example:
        >>> config = ReLoCLNetConfig(video_feature_size=6, query_feature_size=5, hidden_size=8, num_attention_heads=2)
        >>> model = ReLoCLNetForMomentRetrieval(config).eval()
        >>> output = model(torch.rand(3, 4, 5), torch.ones(3, 4), torch.rand(2, 7, 6), torch.ones(2, 7))
        >>> output.video_scores.shape, output.start_logits.shape
        (torch.Size([3, 2]), torch.Size([3, 2, 7]))
    """

    config: ReLoCLNetConfig
    stream_class = ReLoCLNetStream
    num_query_layers = 2

    def _encode_streams(self, streams: list[ReLoCLNetStream], shallow: list[Tensor], mask: Tensor) -> EncodedVideos:
        middle, deep = [], []
        for index, stream in enumerate(streams):
            other = len(streams) - 1 - index  # itself where it is alone
            crossed = stream.cross(shallow[index], shallow[other], readable_clip_mask(mask, self.config))
            middle.append(stream.middle(crossed, mask))
            deep.append(stream.deep(middle[-1], mask))
        final = torch.stack(deep, 1)
        return EncodedVideos(final, final, mask, contrast=torch.stack(middle, 1))

    def _losses(
        self,
        all_queries: Tensor,
        videos: EncodedVideos,
        scores: Tensor,
        labels: Labels,
        hard_negatives: bool,
    ) -> dict[str, Tensor]:
        parts = super()._losses(all_queries, videos, scores, labels, hard_negatives)
        similarities = clip_scores(all_queries, cast("Tensor", videos.contrast))  # (N, V, M, L)
        targets = labels.targets
        own = similarities[labels.rows][torch.arange(len(targets), device=targets.device), targets]
        clips = torch.arange(own.shape[-1], device=targets.device)
        inside = (clips >= labels.start_positions[:, None]) & (clips <= labels.end_positions[:, None])
        by_stream = [
            frame_contrastive_loss(own[:, stream], inside, videos.mask[targets]) for stream in range(own.shape[1])
        ]
        frames = labels.mean(torch.stack(by_stream).mean())
        parts["frame_contrast"] = self.config.frame_contrast_weight * frames
        pairs = labels.pairs(best_clips(similarities, videos.mask))
        contrast = video_contrastive_loss(pairs, labels.is_negative)
        return parts | {"video_contrast": self.config.video_contrast_weight * contrast}
