"""The base of XML, ReLoCLNet and HERO: comparing queries with videos, losses, initial values."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.models.roberta.modeling_roberta import RobertaLayer, RobertaSelfAttention
from transformers.utils import ModelOutput, can_return_tuple

from .configuration_moments import MomentRetrievalConfig
from .distributed_gather import world_size
from .labels import Labels, collect_labels
from .layers_moments import (
    Attention,
    AttentionBlock,
    CrossAttentionBlock,
    EncodedVideos,
    PositionEmbedding,
    QueryEncoder,
    SpanHead,
    Stream,
    best_clips,
    check_mask,
    check_sequence,
    clip_scores,
    in_single,
)
from .losses import ranking_loss, span_loss

LAYERS = (AttentionBlock, CrossAttentionBlock, RobertaLayer)
ATTENTIONS = (Attention, RobertaSelfAttention)


@dataclass
class MomentRetrievalOutput(ModelOutput):
    """What the models return.

    Args:
        loss: Scalar, where positions were given.
        video_scores: `(Q, V)`, the cosine of each query with the best clip of each video, averaged over streams.
        start_logits: `(Q, V, L)`; -1e10 behind the end of a video. None in a training step, whose loss asks only for
            the logits of each query in its own video.
        end_logits: `(Q, V, L)`, or None.
        loss_parts: The weighted terms that `loss` adds, by name, detached.
        hidden_states: On request, of the videos: the input of the first layer and the output of each, `(V, L, D)`, in
            the order they run. With subtitles, XML and ReLoCLNet have layers for both streams, HERO's first ones read
            both one after the other.
        attentions: On request, the attention maps of the videos, `(V, heads, L, L)`, in the same order.
        query_hidden_states: On request, of the queries, `(Q, Lq, D)`.
        query_attentions: On request, of the queries, `(Q, heads, Lq, Lq)`.
    """

    loss: Tensor | None = None
    video_scores: Tensor | None = None
    start_logits: Tensor | None = None
    end_logits: Tensor | None = None
    loss_parts: dict[str, Tensor] | None = None
    hidden_states: tuple[Tensor | None, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None
    query_hidden_states: tuple[Tensor | None, ...] | None = None
    query_attentions: tuple[Tensor, ...] | None = None


@dataclass
class LayerOutputs:
    """What was requested; None for the rest.

    Args:
        hidden_states: The input of the first layer, then the output of each in the order they ran.
        attentions: The weights of each attention in the order they ran, `(N, heads, L, K)`.
    """

    hidden_states: tuple[Tensor | None, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


@contextmanager
def recording(
    model: PreTrainedModel, *, hidden_states: bool | list[int] | None, attentions: bool | None
) -> Iterator[LayerOutputs]:
    """Record what the layers of a model return while the block runs.

    Attention runs in its plain form while its weights are recorded: other implementations do not return them.

    Args:
        model: Whose layers run in the block.
        hidden_states: Record them; a list says which, counted as in the full record, and leaves None for the others.
        attentions: Record them.

    Yields:
        The record, filled when the block ends.
    """
    record, states, maps, hooks = LayerOutputs(), [], [], []
    implementation = model.config._attn_implementation
    for module in model.modules() if hidden_states or attentions else ():
        if hidden_states and isinstance(module, LAYERS):
            hooks.append(
                module.register_forward_hook(
                    lambda _, given, output: states.extend([output] if states else [given[0], output])
                )
            )
        if attentions and isinstance(module, ATTENTIONS):
            hooks.append(module.register_forward_hook(lambda _, __, output: maps.append(output[1])))
    try:
        if attentions:
            model.config._attn_implementation = "eager"
        yield record
    finally:
        if attentions:
            model.config._attn_implementation = implementation
        for hook in hooks:
            hook.remove()
    if isinstance(hidden_states, list):
        kept = {range(len(states))[index] for index in hidden_states}
        states = [state if index in kept else None for index, state in enumerate(states)]
    record.hidden_states = tuple(states) if hidden_states else None
    record.attentions = tuple(maps) if attentions else None


class MomentRetrievalModel(PreTrainedModel):
    """The base of the three models, which differ in how they encode and in their losses."""

    config: MomentRetrievalConfig
    base_model_prefix = "model"
    main_input_name = "query_features"
    input_modalities = ("video", "text")  # type: ignore[assignment]  # transformers' own models give tuples, too
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _no_split_modules: tuple[str, ...] = (  # type: ignore[assignment]  # transformers only reads it
        "InputProjection",
        "PositionEmbedding",
        "AttentionBlock",
        "CrossAttentionBlock",
        "SpanHead",
    )

    span_head: SpanHead

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, nn.Conv1d):  # the references leave PyTorch's own values
            init.kaiming_uniform_(module.weight, a=math.sqrt(5))

    @property
    def execution_device(self) -> torch.device:
        """Where inputs belong: the model's device, or where accelerate brings offloaded weights."""
        hooks = (getattr(module, "_hf_hook", None) for module in self.modules())
        devices = (getattr(hook, "execution_device", None) for hook in hooks)
        return next((torch.device(device) for device in devices if device is not None), self.device)

    def get_input_embeddings(self) -> nn.Module:
        """Refuse: queries and videos come as features.

        Raises:
            NotImplementedError: Always, but in HERO, which reads tokens.
        """
        raise NotImplementedError(
            f"{type(self).__name__} reads features, not tokens: it has no embeddings to give or to replace"
        )

    def set_input_embeddings(self, value: nn.Module) -> None:  # noqa: ARG002
        """Refuse, as `get_input_embeddings` does."""
        self.get_input_embeddings()

    def encode_query(self, query_features: Tensor, query_mask: Tensor) -> Tensor:
        """Encode queries.

        Args:
            query_features: `(Q, Lq, query_feature_size)`, float.
            query_mask: `(Q, Lq)`, 1 for tokens, 0 for padding.

        Returns:
            One vector for each stream, `(Q, M, D)`.
        """
        raise NotImplementedError

    def encode_video(
        self, video_features: Tensor, video_mask: Tensor, *, subtitle_features: Tensor | None = None
    ) -> EncodedVideos:
        """Encode videos.

        Args:
            video_features: `(V, L, video_feature_size)`, float.
            video_mask: `(V, L)`, 1 for clips, 0 for padding.
            subtitle_features: `(V, L, subtitle_feature_size)`, one vector for each clip, zeros where nothing is said.

        Returns:
            What queries are compared with.
        """
        raise NotImplementedError

    @can_return_tuple  # type: ignore[untyped-decorator]  # of transformers
    def forward(  # noqa: PLR0913 (what a model may take)
        self,
        query_features: Tensor,
        query_mask: Tensor,
        video_features: Tensor,
        video_mask: Tensor,
        subtitle_features: Tensor | None = None,
        *,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        target_indices: Tensor | None = None,
        video_indices: Tensor | None = None,
        hard_negatives: bool = False,
        return_loss: bool = True,
        output_hidden_states: bool | list[int] | None = None,
        output_attentions: bool | None = None,
    ) -> MomentRetrievalOutput:
        """Compare every query with every video; with positions, also the loss.

        In training mode under several processes the loss is over the queries and videos of all of them, with gradient,
        and the same on each; every process must then call this together. Scores and logits are always of this process's
        rows.

        Args:
            query_features: `(Q, Lq, query_feature_size)`, float.
            query_mask: `(Q, Lq)`, 1 for tokens, 0 for padding.
            video_features: `(V, L, video_feature_size)`, float.
            video_mask: `(V, L)`, 1 for clips, 0 for padding.
            subtitle_features: `(V, L, subtitle_feature_size)`, for a model with subtitles.
            start_positions: `(Q,)` integers, the first clip of each moment, from `spans.clip_labels`.
            end_positions: `(Q,)` integers, by the `end_convention` of the configuration.
            target_indices: `(Q,)` integers, which video each query belongs to; default: query i to video i. Queries
                of one video are no negatives of each other.
            video_indices: `(V,)` integers, which video of the dataset each row is: rows of one video are no negatives
                of each other, on whichever process they are. Default: every row is another video.
            hard_negatives: Take the hardest negatives instead of any (from epoch 20 in XML and ReLoCLNet, from step
                2000 in HERO).
            return_loss: Compute the loss where positions are given.
            output_hidden_states: Give what the layers compute, or the states with these numbers and None for the
                others; default `config.output_hidden_states`.
            output_attentions: Give the attention maps, for which attention runs in its plain form; default
                `config.output_attentions`.

        Returns:
            Scores and logits; `loss` and its parts where positions were given; and what was requested.

        Raises:
            ValueError: If inputs do not fit the configuration or each other, or a position lies outside its video.
        """
        config = self.config
        want_states = config.output_hidden_states if output_hidden_states is None else output_hidden_states
        want_maps = config.output_attentions if output_attentions is None else output_attentions
        with recording(self, hidden_states=want_states, attentions=want_maps) as of_queries:
            queries = self.encode_query(query_features, query_mask)
        with recording(self, hidden_states=want_states, attentions=want_maps) as of_videos:
            videos = self.encode_video(video_features, video_mask, subtitle_features=subtitle_features)
        labels = None
        if return_loss:
            labels = collect_labels(
                (start_positions, end_positions),
                target_indices,
                video_indices,
                num_queries=len(queries),
                mask=videos.mask,
                shared=self.training and world_size() > 1,
            )
        all_queries = queries if labels is None else labels.gather(queries)
        scores = self.video_scores(all_queries, videos)
        start_logits, end_logits, parts = None, None, None
        if labels is None or not self.training:
            start_logits, end_logits = self.span_head(queries, videos)
        if labels is not None:
            parts = self._losses(all_queries, videos, scores, labels, hard_negatives)
        return MomentRetrievalOutput(
            loss=None if parts is None else cast("Tensor", sum(parts.values())),
            video_scores=scores if labels is None else scores[labels.rows],
            start_logits=start_logits,
            end_logits=end_logits,
            loss_parts=parts and {name: part.detach() for name, part in parts.items()},
            hidden_states=of_videos.hidden_states,
            attentions=of_videos.attentions,
            query_hidden_states=of_queries.hidden_states,
            query_attentions=of_queries.attentions,
        )

    def video_scores(self, queries: Tensor, videos: EncodedVideos) -> Tensor:
        """The cosine of `queries (Q, M, D)` with the best clip of each video, averaged over streams: `(Q, V)`."""
        unit = (F.normalize(in_single(vectors), dim=-1) for vectors in (queries, videos.retrieval))
        return best_clips(clip_scores(*unit), videos.mask)

    def _losses(
        self,
        all_queries: Tensor,
        videos: EncodedVideos,
        scores: Tensor,
        labels: Labels,
        hard_negatives: bool,
    ) -> dict[str, Tensor]:
        """The weighted terms of the loss by name.

        Args:
            all_queries: `(N, M, D)`, those of all processes.
            videos: Of this process.
            scores: `(N, V)` of these.
            labels: See `Labels`.
            hard_negatives: See `forward`.
        """
        config = self.config
        # A step without it has it with weight 0: distributed training requires every weight to be used in every step.
        skipped = self.training and float(labels.draw(torch.rand(()))) >= config.span_loss_probability
        own = self.span_head.of_pairs(all_queries[labels.rows], videos, labels.targets)
        weight = 0.0 if skipped else config.span_loss_weight
        loss = span_loss(*own, labels.start_positions, labels.end_positions)
        parts = {"span": weight * labels.mean(loss)}
        pairs = labels.pairs(scores)
        for name, one_way, weight in (
            ("video_ranking", pairs, config.video_ranking_weight),
            ("query_ranking", pairs.T, config.query_ranking_weight),
        ):
            # The released XML and ReLoCLNet know pairs alone, HERO the videos that several queries share.
            shown = labels.videos if name == "video_ranking" and config.ranking_negatives == "all" else None
            parts[name] = weight * self._ranking_loss(one_way, labels, hard_negatives, shown)
        return parts

    def _ranking_loss(
        self, scores: Tensor, labels: Labels, hard_negatives: bool, videos: Tensor | None, **weights: float
    ) -> Tensor:
        config, random_scores = self.config, None
        if config.ranking_negatives == "sampled":
            random_scores = labels.draw(torch.rand_like(scores))
        return ranking_loss(
            scores,
            labels.is_negative,
            margin=config.margin,
            kind=config.ranking_loss,
            negatives=config.ranking_negatives,
            hard_pool_size=config.hard_pool_size if hard_negatives else None,
            videos=videos,
            random_scores=random_scores,
            **weights,
        )

    def _check_streams(self, video_features: Tensor, video_mask: Tensor, subtitle_features: Tensor | None) -> None:
        config = self.config
        check_sequence("video_features", video_features, config.video_feature_size, config.max_video_clips)
        check_mask("video_mask", video_mask, "video_features", video_features)
        subtitle_size = config.subtitle_feature_size
        if (subtitle_features is None) != (subtitle_size is None):
            has = "needs" if subtitle_features is None else "has no"
            raise ValueError(f"this model {has} subtitle_features: its subtitle_feature_size is {subtitle_size}")
        if subtitle_features is not None and subtitle_size is not None:
            check_sequence("subtitle_features", subtitle_features, subtitle_size, config.max_video_clips)
            if subtitle_features.shape[:2] != video_features.shape[:2]:
                raise ValueError(
                    f"subtitle_features has shape {tuple(subtitle_features.shape)}, video_features "
                    f"{tuple(video_features.shape)}: there must be one subtitle for each clip, "
                    "zeros where nothing is said"
                )


class StreamedRetrievalModel(MomentRetrievalModel):
    """The base of XML and ReLoCLNet, which read features in one stream of layers for video and one for subtitles."""

    stream_class: ClassVar[type[Stream]]
    num_query_layers: ClassVar[int]

    def __init__(self, config: MomentRetrievalConfig) -> None:
        super().__init__(config)
        size = config.query_feature_size
        self.query_encoder = QueryEncoder(config, feature_size=size, num_layers=self.num_query_layers)
        self.positions = PositionEmbedding(config.max_video_clips, config)
        self.video = self.stream_class(config.video_feature_size, config)
        if config.subtitle_feature_size is not None:
            self.subtitle = self.stream_class(config.subtitle_feature_size, config)
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
        streams, mask = [(self.video, video_features)], video_mask.bool()
        if subtitle_features is not None:
            streams.append((self.subtitle, subtitle_features))
        shallow = [
            stream.shallow(self.positions(stream.projection(features.to(self.dtype))), mask)
            for stream, features in streams
        ]
        return self._encode_streams([stream for stream, _ in streams], shallow, mask)

    def _encode_streams(self, streams: list[Any], shallow: list[Tensor], mask: Tensor) -> EncodedVideos:
        """What follows the shallow layers, of M streams of `stream_class`, each `(V, L, D)`."""
        raise NotImplementedError
