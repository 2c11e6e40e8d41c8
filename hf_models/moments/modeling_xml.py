"""XML: shallow clip features find the video, deep ones the moment in it."""

import torch
from torch import Tensor, nn

from .configuration_xml import XMLConfig
from .layers_moments import (
    AttentionBlock,
    CrossAttentionBlock,
    EncodedVideos,
    InputProjection,
    PositionEmbedding,
    QueryEncoder,
    SpanHead,
    check_mask,
    check_sequence,
    readable_clips,
)
from .modeling_moments import MomentRetrievalModel


class XMLStream(nn.Module):
    """The layers of one stream."""

    def __init__(self, feature_size: int, config: XMLConfig) -> None:
        super().__init__()
        self.projection = InputProjection(feature_size, config)
        self.shallow = AttentionBlock(config)
        self.cross = CrossAttentionBlock(config) if config.num_streams == 2 else None
        self.deep = nn.ModuleList(AttentionBlock(config) for _ in range(3 - config.num_streams))


class XMLForMomentRetrieval(MomentRetrievalModel):
    """Find moments in a corpus with XML (Lei et al., ECCV 2020), of video only or of video and subtitles.

    Example:
        >>> config = XMLConfig(video_feature_size=6, query_feature_size=5, hidden_size=8, num_attention_heads=2)
        >>> model = XMLForMomentRetrieval(config).eval()
        >>> output = model(torch.rand(3, 4, 5), torch.ones(3, 4), torch.rand(2, 7, 6), torch.ones(2, 7))
        >>> output.video_scores.shape, output.start_logits.shape
        (torch.Size([3, 2]), torch.Size([3, 2, 7]))
    """

    config: XMLConfig

    def __init__(self, config: XMLConfig) -> None:
        super().__init__(config)
        self.query_encoder = QueryEncoder(config, feature_size=config.query_feature_size, num_layers=1)
        self.positions = PositionEmbedding(config.max_video_clips, config)
        self.video = XMLStream(config.video_feature_size, config)
        if config.subtitle_feature_size is not None:
            self.subtitle = XMLStream(config.subtitle_feature_size, config)
        self.span_head = SpanHead(config)
        self.post_init()

    def encode_query(self, query_features: Tensor, query_mask: Tensor) -> Tensor:
        """Encode queries; see `MomentRetrievalModel.encode_query`."""
        check_sequence("query_features", query_features, self.config.query_feature_size, self.config.max_query_tokens)
        check_mask("query_mask", query_mask, "query_features", query_features)
        vectors: Tensor = self.query_encoder(query_features.to(self.dtype), query_mask.bool())
        return vectors

    def encode_video(
        self, video_features: Tensor, video_mask: Tensor, *, subtitle_features: Tensor | None = None
    ) -> EncodedVideos:
        """Encode videos; see `MomentRetrievalModel.encode_video`."""
        self._check_streams(video_features, video_mask, subtitle_features)
        mask = video_mask.bool()
        streams = [(self.video, video_features)]
        if subtitle_features is not None:
            streams.append((self.subtitle, subtitle_features))
        shallow = [
            stream.shallow(self.positions(stream.projection(features.to(self.dtype))), mask)
            for stream, features in streams
        ]
        deep = []
        for index, (stream, _) in enumerate(streams):
            hidden_states = shallow[index]
            if stream.cross is not None:
                readable = readable_clips(mask, self.config)
                hidden_states = stream.cross(hidden_states, shallow[1 - index], readable)
            for layer in stream.deep:
                hidden_states = layer(hidden_states, mask)
            deep.append(hidden_states)
        return EncodedVideos(torch.stack(shallow, 1), torch.stack(deep, 1), mask)
