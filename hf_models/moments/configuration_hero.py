"""Configuration of HERO, a hierarchical encoder over frames and text."""

from typing import Any, Literal

from huggingface_hub.dataclasses import strict
from transformers import RobertaConfig

from .configuration_moments import MomentRetrievalConfig


@strict
class HEROConfig(MomentRetrievalConfig):
    """Describe a HERO (Li et al., EMNLP 2020), with the settings of its released fine-tuning.

    A released checkpoint computes as it did with `positions_from_zero=True`, `end_convention="hero_legacy"` and
    `mask_similarity=False`.

    The fields are those of `MomentRetrievalConfig` and those below.

    Args:
        query_feature_size: Size of a token's vector; None where queries are token ids of RoBERTa.
        num_cross_modal_layers: Layers of the encoder over frames and text; 6, every other one of RoBERTa base.
        num_temporal_layers: Layers of the encoder over time.
        intermediate_size: Width inside the layers.
        vocab_size: Of the token ids.
        max_position_embeddings: Positions of text.
        positions_from_zero: Count positions of text from 0, as the released code does and its checkpoints need. The
            default is RoBERTa's own count, which starts behind `pad_token_id`, at 2: a HERO that starts from RoBERTa
            then reads texts as RoBERTa learned to.
        bos_token_id: Token that stands for the subtitles of a video without any.
        pad_token_id: Token of the padding.
        layer_norm_eps: Of all layers of RoBERTa.
        hard_negative_weight: Weight of the hardest negatives once `hard_negatives` is on.
        easy_negative_weight: Weight of the others then.

    Example:
        >>> HEROConfig().cross_modal_config().num_hidden_layers
        6
    """

    model_type = "hero_moment_retrieval"

    query_feature_size: int | None = None  # type: ignore[assignment]  # None is for HERO alone: it can read token ids
    hidden_size: int = 768
    num_attention_heads: int = 12
    ranking_negatives: Literal["sampled", "all"] = "all"
    video_ranking_weight: float | int = 8.0
    query_ranking_weight: float | int = 8.0
    span_loss_probability: float | int = 0.2
    num_cross_modal_layers: int = 6
    num_temporal_layers: int = 3
    intermediate_size: int = 3072
    vocab_size: int = 50265
    max_position_embeddings: int = 514
    positions_from_zero: bool = False
    bos_token_id: int | None = 0
    pad_token_id: int | None = 1
    layer_norm_eps: float = 1e-5
    hard_negative_weight: float | int = 10.0
    easy_negative_weight: float | int = 0.1

    def __post_init__(self, **kwargs: Any) -> None:
        """Name the files that travel with a saved model."""
        self.name_code(kwargs, "HERO")
        super().__post_init__(**kwargs)

    @property
    def num_streams(self) -> int:
        """1: subtitles are read together with the video."""
        return 1

    def cross_modal_config(self) -> RobertaConfig:
        """The encoder over frames and text, as a RoBERTa."""
        return self._roberta(self.num_cross_modal_layers)

    def temporal_config(self) -> RobertaConfig:
        """The encoder over time, as a RoBERTa."""
        return self._roberta(self.num_temporal_layers)

    def _roberta(self, num_hidden_layers: int) -> RobertaConfig:
        config = RobertaConfig(
            num_hidden_layers=num_hidden_layers,
            hidden_size=self.hidden_size,
            num_attention_heads=self.num_attention_heads,
            intermediate_size=self.intermediate_size,
            vocab_size=self.vocab_size,
            max_position_embeddings=self.max_position_embeddings,
            type_vocab_size=1,
            pad_token_id=self.pad_token_id,
            bos_token_id=self.bos_token_id,
            layer_norm_eps=self.layer_norm_eps,
            hidden_dropout_prob=self.hidden_dropout,
            attention_probs_dropout_prob=self.hidden_dropout,
        )
        config._attn_implementation = self._attn_implementation
        return config
