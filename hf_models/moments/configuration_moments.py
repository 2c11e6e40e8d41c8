"""What the configurations of XML, ReLoCLNet and HERO share."""

from typing import Any, ClassVar, Literal

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig

from .own_architecture import OwnArchitecture

EndConvention = Literal["inclusive", "exclusive", "xml_legacy", "hero_legacy"]


@strict
class MomentRetrievalConfig(OwnArchitecture, PreTrainedConfig):
    """Describe a model that finds the moment that a sentence describes, in one of many videos.

    Args:
        video_feature_size: Size of a clip's vector; 2048 for ResNet-152.
        query_feature_size: Size of a token's vector; 768 for RoBERTa base.
        subtitle_feature_size: Size of a subtitle's vector; None for a model of video only.
        hidden_size: Width of the model.
        num_attention_heads: Heads of each attention.
        max_query_tokens: Longest query.
        max_video_clips: Longest video, in clips.
        hidden_dropout: Dropout of attention blocks.
        input_dropout: Dropout before the input projections and after the positions.
        conv_kernel_size: Clips that the start and end predictors see; odd.
        initializer_range: Standard deviation of new weights.
        score_scale: Factor alpha on the video score where it is combined with the span's probabilities.
        margin: Of the ranking loss.
        ranking_loss: "hinge", max(0, margin + negative - positive), or "lse", log(1 + exp(negative - positive)).
        ranking_negatives: "sampled", one negative for each positive; "all", their mean.
        hard_pool_size: How many of the hardest negatives count as hard once `hard_negatives` is on.
        video_ranking_weight: Weight of the loss against other videos of a query.
        query_ranking_weight: Weight of the loss against other queries of a video.
        span_loss_weight: Weight of the cross-entropies of start and end.
        span_loss_probability: How often a training step has the span loss at all; 0.2 in HERO.
        end_convention: "inclusive": the end is the last clip of the moment, and a span of clips i to j lasts from
            the start of i to the end of j. "exclusive" (the released ReLoCLNet): the end is the clip after it, or the
            last of the video, and a span stops where j begins. "xml_legacy" (the released XML): trained as
            "exclusive", read as "inclusive", so that spans are one clip too long. "hero_legacy" (the released HERO):
            as "inclusive", but a moment within one clip is trained to end with the next one, if there is one.
        long_videos: What becomes of clips beyond `max_video_clips`: "pool" averages the video into that many equal
            bins, "truncate" cuts it.
        mask_similarity: Keep the predictors from reading what stands in the padding behind a video; the released
            models do not, so that their logits depend on how much padding a batch has. Without it, cross-attention to
            subtitles treats padding as they do, too.
    """

    video_feature_size: int = 2048
    query_feature_size: int = 768
    subtitle_feature_size: int | None = None
    hidden_size: int = 256
    num_attention_heads: int = 4
    max_query_tokens: int = 30
    max_video_clips: int = 100
    hidden_dropout: float | int = 0.1
    input_dropout: float | int = 0.1
    conv_kernel_size: int = 5
    initializer_range: float = 0.02
    score_scale: float | int = 20.0
    margin: float | int = 0.1
    ranking_loss: Literal["hinge", "lse"] = "hinge"
    ranking_negatives: Literal["sampled", "all"] = "sampled"
    hard_pool_size: int = 20
    video_ranking_weight: float | int = 1.0
    query_ranking_weight: float | int = 1.0
    span_loss_weight: float | int = 0.01
    span_loss_probability: float | int = 1.0
    end_convention: EndConvention = "inclusive"
    long_videos: Literal["pool", "truncate"] = "truncate"
    mask_similarity: bool = True

    how_to_make: ClassVar[str] = "AutoModel.from_pretrained finds the class that fits"
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["loss_parts"]

    @property
    def num_streams(self) -> int:
        """1 for video only, 2 with subtitles."""
        return 1 + (self.subtitle_feature_size is not None)

    def name_code(self, kwargs: dict[str, Any], architecture: str) -> None:
        """Name the files that travel with a saved model, so that every Auto class finds its own in them.

        Args:
            kwargs: Of `__post_init__`, from which an earlier one is removed.
            architecture: "XML", "ReLoCLNet" or "HERO".
        """
        kwargs.pop("auto_map", None)
        self.auto_map = {
            "AutoConfig": f"configuration_{architecture.lower()}.{architecture}Config",
            "AutoModel": f"modeling_{architecture.lower()}.{architecture}ForMomentRetrieval",
        }

    def validate_architecture(self) -> None:
        """Refuse fields that contradict each other or lie outside what they may be.

        Raises:
            ValueError: Naming the field.
        """
        super().validate_architecture()
        sizes = ("video_feature_size", "query_feature_size", "subtitle_feature_size", "hidden_size")
        for name in (*sizes, "num_attention_heads", "max_query_tokens", "max_video_clips", "hard_pool_size"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size {self.hidden_size} is not a multiple of num_attention_heads {self.num_attention_heads}"
            )
        if self.conv_kernel_size < 1 or self.conv_kernel_size % 2 == 0:
            raise ValueError(f"conv_kernel_size is {self.conv_kernel_size}; it must be odd")
        for name in ("hidden_dropout", "input_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must lie in [0, 1)")
        if not 0 <= self.span_loss_probability <= 1:
            raise ValueError(f"span_loss_probability is {self.span_loss_probability}; it must lie in [0, 1]")
