"""HERO: one transformer over frames and text, then a second one over time."""

from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import AutoConfig, RobertaModel
from transformers.masking_utils import create_bidirectional_mask
from transformers.models.roberta.modeling_roberta import RobertaEncoder
from transformers.utils import logging

from .configuration_hero import HEROConfig
from .labels import Labels
from .layers_moments import (
    EncodedVideos,
    InputProjection,
    PositionEmbedding,
    QueryEncoder,
    SpanHead,
    check_mask,
    check_sequence,
)
from .modeling_moments import MomentRetrievalModel

logger = logging.get_logger(__name__)
ROBERTA_TYPES = ("roberta", "xlm-roberta", "camembert")  # of one architecture


class FrameEmbeddings(nn.Module):
    """Clip features as tokens of the cross-modal transformer: norm, linear layer, positions and type, norm, dropout."""

    def __init__(self, config: HEROConfig) -> None:
        super().__init__()
        self.input_norm = nn.LayerNorm(config.video_feature_size)
        self.dense = nn.Linear(config.video_feature_size, config.hidden_size)
        self.positions = nn.Embedding(config.max_video_clips, config.hidden_size)
        self.layer_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout)

    def forward(self, features: Tensor, token_type: Tensor) -> Tensor:
        """Embed `(V, L, video_feature_size)`, adding `token_type (D,)`."""
        positions = self.positions(torch.arange(features.shape[1], device=features.device))
        embedded: Tensor = self.dropout(self.layer_norm(self.dense(self.input_norm(features)) + positions + token_type))
        return embedded


class HEROForMomentRetrieval(MomentRetrievalModel):
    """Find moments in a corpus with HERO (Li et al., EMNLP 2020), of video only or of video and subtitles.

    Queries are token ids of RoBERTa (`<s>` first, no `</s>`), or features where the configuration has a
    `query_feature_size`.

    Example:
        >>> config = HEROConfig(video_feature_size=6, hidden_size=8, num_attention_heads=2, intermediate_size=16,
        ...                     vocab_size=20, num_cross_modal_layers=1, num_temporal_layers=1)
        >>> model = HEROForMomentRetrieval(config).eval()
        >>> queries = torch.tensor([[0, 5, 6], [0, 7, 1]])
        >>> output = model(queries, queries != 1, torch.rand(2, 7, 6), torch.ones(2, 7))
        >>> output.video_scores.shape, output.start_logits.shape
        (torch.Size([2, 2]), torch.Size([2, 2, 7]))
    """

    config: HEROConfig
    _no_split_modules = (
        *MomentRetrievalModel._no_split_modules,
        "RobertaEmbeddings",
        "RobertaLayer",
        "FrameEmbeddings",
    )

    def __init__(self, config: HEROConfig) -> None:
        super().__init__(config)
        self.cross_modal = RobertaModel(config.cross_modal_config(), add_pooling_layer=False)
        if config.positions_from_zero:  # RoBERTa's place 1 is that of padding and never learns
            self.cross_modal.embeddings.position_embeddings.padding_idx = None
        self.frame_embeddings = FrameEmbeddings(config)
        self.frame_projection = InputProjection(config.video_feature_size, config)
        if config.query_feature_size is not None:
            self.query_embedding = nn.Linear(config.query_feature_size, config.hidden_size)
        if config.subtitle_feature_size is not None:
            self.subtitle_embedding = nn.Linear(config.subtitle_feature_size, config.hidden_size)
        self.positions = PositionEmbedding(config.max_video_clips, config)
        self.temporal = RobertaEncoder(config.temporal_config())
        self.query_encoder = QueryEncoder(config, feature_size=config.hidden_size, num_layers=1)
        self.span_head = SpanHead(config)
        self.post_init()
        self.train()

    def train(self, mode: bool = True) -> "HEROForMomentRetrieval":
        """Set training or evaluation mode; where neither queries nor subtitles are tokens, their embedding is frozen.

        Distributed training stops at weights that never get a gradient. Loading a model unfreezes it, but ends here.
        """
        if self.config.query_feature_size is not None and self.config.subtitle_feature_size is not None:
            self.get_input_embeddings().requires_grad_(False)
        super().train(mode)
        return self

    @classmethod
    def from_roberta(cls, name_or_path: str, *, revision: str = "main", **config: Any) -> "HEROForMomentRetrieval":
        """Build a HERO whose cross-modal transformer is every n-th layer of a RoBERTa, the last among them.

        As its authors did: of 12 layers 6 are those numbered 1, 3, 5, 7, 9 and 11 from 0.

        Args:
            name_or_path: A RoBERTa checkpoint, a folder or a name on the Hub.
            revision: Branch, tag or commit on the Hub.
            **config: Fields of `HEROConfig` other than RoBERTa's sizes.

        Returns:
            The model in evaluation mode; the rest of its weights is new.

        Raises:
            ValueError: If this is not a RoBERTa, weights of it are missing, or it has too few layers.
        """
        found = AutoConfig.from_pretrained(name_or_path, revision=revision).model_type
        if found not in ROBERTA_TYPES:
            raise ValueError(
                f"{str(name_or_path)!r} is a {found!r} model; HERO starts from one of {', '.join(ROBERTA_TYPES)}"
            )
        loaded = RobertaModel.from_pretrained(
            name_or_path, revision=revision, add_pooling_layer=False, output_loading_info=True
        )
        roberta, info = cast("tuple[RobertaModel, dict[str, Any]]", loaded)
        if info["missing_keys"]:
            raise ValueError(f"{name_or_path!r} lacks {len(info['missing_keys'])} weights of a RoBERTa")
        shared = (
            *("hidden_size", "num_attention_heads", "intermediate_size", "layer_norm_eps"),
            *("vocab_size", "max_position_embeddings", "bos_token_id", "pad_token_id"),
        )
        model = cls(HEROConfig(**{name: getattr(roberta.config, name) for name in shared} | config))
        layers, wanted = roberta.encoder.layer, model.config.num_cross_modal_layers
        if len(layers) < wanted:
            raise ValueError(f"{name_or_path!r} has {len(layers)} layers, fewer than {wanted}")
        roberta.encoder.layer = nn.ModuleList(layers[(i + 1) * len(layers) // wanted - 1] for i in range(wanted))
        model.cross_modal.load_state_dict(roberta.state_dict())
        model.eval()
        return model

    @classmethod
    def from_hero(cls, name_or_path: str, **config: Any) -> "HEROForMomentRetrieval":
        """Build a HERO with the weights of another one, such as a pretrained one that `convert_tvr` made.

        Tables of positions are cut, or go on with new rows; what reads features of another size is new.

        Args:
            name_or_path: A HERO, a folder or a name on the Hub.
            **config: Fields of `HEROConfig` that differ: sizes of the features, most clips and tokens.

        Returns:
            The model in evaluation mode.
        """
        start = cls.from_pretrained(name_or_path)
        model = cls(HEROConfig.from_dict(start.config.to_dict() | config))
        own = model.state_dict()
        for name, value in start.state_dict().items():
            if name in own and (own[name].shape == value.shape or "positions." in name):
                rows = min(len(own[name]), len(value))
                own[name][:rows] = value[:rows]
            else:
                logger.warning("%s of %s has another size and starts from random weights", name, name_or_path)
        model.eval()
        return model

    def get_input_embeddings(self) -> nn.Module:
        """The embedding of tokens."""
        embedding: nn.Module = self.cross_modal.get_input_embeddings()
        return embedding

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the embedding of tokens."""
        self.cross_modal.set_input_embeddings(value)

    def encode_query(self, query_features: Tensor, query_mask: Tensor) -> Tensor:
        """Encode queries.

        Args:
            query_features: `(Q, Lq)` token ids, or `(Q, Lq, query_feature_size)` float features.
            query_mask: `(Q, Lq)`, 1 for tokens, 0 for padding.

        Returns:
            One vector each, `(Q, 1, D)`.

        Raises:
            ValueError: If the queries are not of the kind that the configuration says.
        """
        config, mask = self.config, query_mask.bool()
        if config.query_feature_size is not None:
            check_sequence("query_features", query_features, config.query_feature_size, config.max_query_tokens)
            features = self.query_embedding(query_features.to(self.dtype))
            embedded = self._embed_text(inputs_embeds=features)
        elif query_features.ndim == 2 and query_features.shape[1] <= config.max_query_tokens:
            embedded = self._embed_text(input_ids=query_features)
        else:
            raise ValueError(
                f"query_features has shape {tuple(query_features.shape)}; this model reads token ids (batch, length) "
                f"of at most {config.max_query_tokens} tokens, or features where query_feature_size is configured"
            )
        check_mask("query_mask", query_mask, "query_features", query_features)
        vectors: Tensor = self.query_encoder(self._transform(self.cross_modal.encoder, embedded, mask), mask)
        return vectors

    def encode_video(
        self, video_features: Tensor, video_mask: Tensor, *, subtitle_features: Tensor | None = None
    ) -> EncodedVideos:
        """Encode videos; see `MomentRetrievalModel.encode_video`."""
        self._check_streams(video_features, video_mask, subtitle_features)
        mask, embeddings = video_mask.bool(), self.cross_modal.embeddings
        video_features = video_features.to(self.dtype)
        if subtitle_features is None:
            start = torch.full_like(mask[:, :1], cast("int", self.config.bos_token_id), dtype=torch.long)
            text, text_mask = self._embed_text(input_ids=start), torch.ones_like(mask[:, :1])
        else:
            text = self._embed_text(inputs_embeds=self.subtitle_embedding(subtitle_features.to(self.dtype)))
            text_mask = mask
        # Called as a module, since an offloaded weight is there only then.
        token_type = embeddings.token_type_embeddings(torch.zeros_like(mask[0, :1], dtype=torch.long))
        frames = self.frame_embeddings(video_features, token_type)
        together = self._transform(
            self.cross_modal.encoder, torch.cat([frames, text], 1), torch.cat([mask, text_mask], 1)
        )
        # Nothing stands in the padding, as in the released code, where the predictors read on behind the end.
        read = together[:, : frames.shape[1]] * mask[..., None]
        fused = self.frame_projection(video_features) + read
        clips = self._transform(self.temporal, self.positions(fused), mask)[:, None]
        return EncodedVideos(clips, clips, mask)

    def _embed_text(self, **inputs: Tensor) -> Tensor:
        if self.config.positions_from_zero:
            (text,) = inputs.values()
            inputs["position_ids"] = torch.arange(text.shape[1], device=text.device)[None]
        embedded: Tensor = self.cross_modal.embeddings(**inputs)
        return embedded

    def _transform(self, encoder: RobertaEncoder, hidden_states: Tensor, mask: Tensor) -> Tensor:
        # Each encoder has a configuration of its own; what was chosen for the model holds for both.
        encoder.config._attn_implementation = self.config._attn_implementation
        attention_mask = create_bidirectional_mask(
            config=encoder.config, inputs_embeds=hidden_states, attention_mask=mask
        )
        states: Tensor = encoder(hidden_states, attention_mask).last_hidden_state
        return states

    def _ranking_loss(
        self, scores: Tensor, labels: Labels, hard_negatives: bool, videos: Tensor | None, **weights: float
    ) -> Tensor:
        weights |= {
            "hard_weight": self.config.hard_negative_weight,
            "easy_weight": self.config.easy_negative_weight,
        }
        return super()._ranking_loss(scores, labels, hard_negatives, videos, **weights)
