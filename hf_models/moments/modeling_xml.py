"""XML: shallow clip features find the video, deep ones the moment in it."""

import torch
from torch import Tensor, nn

from .configuration_xml import XMLConfig
from .layers_moments import AttentionBlock, CrossAttentionBlock, EncodedVideos, Stream, readable_clip_mask
from .modeling_moments import StreamedRetrievalModel


class XMLStream(Stream):
    """The layers of one stream."""

    def __init__(self, feature_size: int, config: XMLConfig) -> None:
        super().__init__(feature_size, config)
        self.cross = CrossAttentionBlock(config) if config.num_streams == 2 else None
        self.deep = nn.ModuleList(AttentionBlock(config) for _ in range(3 - config.num_streams))


class XMLForMomentRetrieval(StreamedRetrievalModel):
    """Find moments in a corpus with XML (Lei et al., ECCV 2020), of video only or of video and subtitles.

    Example:
        >>> config = XMLConfig(video_feature_size=6, query_feature_size=5, hidden_size=8, num_attention_heads=2)
        >>> model = XMLForMomentRetrieval(config).eval()
        >>> output = model(torch.rand(3, 4, 5), torch.ones(3, 4), torch.rand(2, 7, 6), torch.ones(2, 7))
        >>> output.video_scores.shape, output.start_logits.shape
        (torch.Size([3, 2]), torch.Size([3, 2, 7]))
    """

    config: XMLConfig
    stream_class = XMLStream
    num_query_layers = 1

    def _encode_streams(self, streams: list[XMLStream], shallow: list[Tensor], mask: Tensor) -> EncodedVideos:
        deep = []
        for index, stream in enumerate(streams):
            hidden_states = shallow[index]
            if stream.cross is not None:
                hidden_states = stream.cross(hidden_states, shallow[1 - index], readable_clip_mask(mask, self.config))
            for layer in stream.deep:
                hidden_states = layer(hidden_states, mask)
            deep.append(hidden_states)
        return EncodedVideos(torch.stack(shallow, 1), torch.stack(deep, 1), mask)
