"""What XML, ReLoCLNet and HERO share: comparing queries with videos, losses, initial values."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.utils import ModelOutput

from .configuration_moments import MomentRetrievalConfig
from .layers_moments import EncodedVideos, SpanHead, best_clips, check_sequence, clip_scores, in_single
from .losses import negative_pairs, ranking_loss, span_loss


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
    """

    loss: Tensor | None = None
    video_scores: Tensor | None = None
    start_logits: Tensor | None = None
    end_logits: Tensor | None = None
    loss_parts: dict[str, Tensor] | None = None


class MomentRetrievalModel(PreTrainedModel):
    """The base of the three models, which differ in how they encode and in their losses."""

    config: MomentRetrievalConfig
    base_model_prefix = "model"
    main_input_name = "query_features"
    input_modalities = ("video", "text")
    _supports_sdpa = True

    _no_split_modules = (
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

    def forward(
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
        hard_negatives: bool = False,
    ) -> MomentRetrievalOutput:
        """Compare every query with every video; with positions, also the loss.

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
            hard_negatives: Take the hardest negatives instead of any (from epoch 20 in XML and ReLoCLNet, from step
                2000 in HERO).

        Returns:
            Scores and logits; `loss` and its parts where positions were given.

        Raises:
            ValueError: If inputs do not fit the configuration or each other.
        """
        queries = self.encode_query(query_features, query_mask.bool())
        videos = self.encode_video(video_features, video_mask, subtitle_features=subtitle_features)
        scores = self.video_scores(queries, videos)
        output = MomentRetrievalOutput(video_scores=scores)
        if start_positions is None or not self.training:
            output.start_logits, output.end_logits = self.span_head(queries, videos)
        if start_positions is None:
            return output
        targets = self._targets(target_indices, scores)
        parts = self._losses(
            output, queries, videos, (start_positions, end_positions, targets), hard_negatives
        )
        output.loss = sum(parts.values())
        output.loss_parts = {name: part.detach() for name, part in parts.items()}
        return output

    def video_scores(self, queries: Tensor, videos: EncodedVideos) -> Tensor:
        """The cosine of `queries (Q, M, D)` with the best clip of each video, averaged over streams: `(Q, V)`."""
        unit = (F.normalize(in_single(one), dim=-1) for one in (queries, videos.retrieval))
        return best_clips(clip_scores(*unit), videos.mask)

    def _targets(self, target_indices: Tensor | None, scores: Tensor) -> Tensor:
        """Say which video each query belongs to.

        Raises:
            ValueError: If nothing says so, and they are no pairs.
        """
        num_queries, num_videos = scores.shape
        if target_indices is not None:
            return target_indices
        if num_queries != num_videos:
            raise ValueError(
                f"{num_queries} queries and {num_videos} videos are no pairs; say by target_indices which belongs to which"
            )
        return torch.arange(num_queries, device=scores.device)

    def _losses(
        self,
        output: MomentRetrievalOutput,
        queries: Tensor,
        videos: EncodedVideos,
        labels: tuple[Tensor, Tensor, Tensor],
        hard_negatives: bool,
    ) -> dict[str, Tensor]:
        """The weighted terms of the loss by name."""
        config, (start_positions, end_positions, targets) = self.config, labels
        # A step without it has it with weight 0: distributed training wants every weight used in every step.
        skipped = self.training and float(torch.rand(())) >= config.span_loss_probability
        own = self.span_head.of_pairs(queries, videos, targets)
        weight = 0.0 if skipped else config.span_loss_weight
        parts = {"span": weight * span_loss(*own, start_positions, end_positions)}
        pairs = output.video_scores[:, targets]
        is_negative = negative_pairs(targets)
        for name, scores, weight in (
            ("video_ranking", pairs, config.video_ranking_weight),
            ("query_ranking", pairs.T, config.query_ranking_weight),
        ):
            parts[name] = weight * self._ranking_loss(scores, is_negative, hard_negatives)
        return parts

    def _ranking_loss(self, scores: Tensor, is_negative: Tensor, hard_negatives: bool) -> Tensor:
        config = self.config
        return ranking_loss(
            scores,
            is_negative,
            margin=config.margin,
            kind=config.ranking_loss,
            negatives=config.ranking_negatives,
            hard_pool_size=config.hard_pool_size if hard_negatives else None,
        )

    def _check_streams(
        self, video_features: Tensor, video_mask: Tensor, subtitle_features: Tensor | None
    ) -> None:
        """Refuse videos or subtitles that do not fit the configuration.

        Raises:
            ValueError: Saying what they are and what they must be.
        """
        config = self.config
        check_sequence("video_features", video_features, config.video_feature_size, config.max_video_clips)
        if video_mask.shape != video_features.shape[:2]:
            raise ValueError(
                f"video_mask has shape {tuple(video_mask.shape)}, video_features {tuple(video_features.shape)}"
            )
        if (subtitle_features is None) != (config.subtitle_feature_size is None):
            has = "needs" if subtitle_features is None else "has no"
            raise ValueError(
                f"this model {has} subtitle_features: its subtitle_feature_size is {config.subtitle_feature_size}"
            )
        if subtitle_features is not None:
            check_sequence(
                "subtitle_features",
                subtitle_features,
                config.subtitle_feature_size,
                config.max_video_clips,
            )
