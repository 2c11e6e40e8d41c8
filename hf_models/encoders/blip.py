"""BLIP and BLIP-2: image models whose text encoder can look at the image, frame by frame."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from hf_models.encoders.dual_encoders import AVERAGE
from hf_models.encoders.protocol import Encoder, Usage, check_videos, mean_over_frames, unit_rows

COVR_FRAMES = 15
"""Frames of a target in CoVR and TF-CoVR."""
COVR_TOKENS, COVR_TRAINING_TOKENS = 64, 35
"""Where CoVR cuts texts, in its tests and in training."""


class BlipEncoder(Encoder):
    """BLIP for retrieval; CoVR's query is its text encoder with cross attention to one frame."""

    usage = Usage(
        family="BLIP",
        frames="15, each an image; the mean of the unit-norm frames. Of a query the middle one (index F // 2)",
        prompt="the text alone, cut at 64 tokens as CoVR's tests do; in a query the token [ENC] stands first",
        pooling="the image's class token and the text's first token, projected, unit-norm",
        query="the text encoder's first token, with cross attention to the middle frame, projected, unit-norm (CoVR)",
        source="arXiv:2201.12086, CoVR 2308.14746; Salesforce/blip-itm-large-coco, lucas-ventura/CoVR (converted)",
        license="BSD-3-Clause; CoVR MIT",
    )
    model_class = "BlipForImageTextRetrieval"
    default_frames = COVR_FRAMES

    @property
    def depends_on(self) -> dict[str, str]:
        """See `Encoder`."""
        return {"most_tokens": str(COVR_TOKENS)}

    def tokens(self, texts: Sequence[str], most_tokens: int = COVR_TOKENS) -> dict[str, Tensor]:
        """Token ids of texts, padded on the right, cut as CoVR cuts them in its tests, or elsewhere."""
        return self.cut_tokens(texts, most_tokens)

    def encode_video(self, frames: Sequence[Tensor]) -> Tensor:
        """Unit-norm `(B, D)`."""
        states = self.model.vision_model(**self.images(frames)).last_hidden_state
        return mean_over_frames(self.model.vision_proj(states[:, 0]), frames)

    def encode_text(self, texts: Sequence[str]) -> Tensor:
        """Unit-norm `(N, D)`."""
        states = self.model.text_encoder(**self.tokens(texts)).last_hidden_state
        return unit_rows(self.model.text_proj(states[:, 0]))

    def compose(self, frames: Sequence[Tensor], texts: Sequence[str]) -> Tensor:
        """Unit-norm `(B, D)`, in the space of `encode_video`."""
        check_videos(frames)
        middle = [video[len(video) // 2][None] for video in frames]
        seen = self.model.vision_model(**self.images(middle)).last_hidden_state
        tokens = self.tokens(texts)
        tokens["input_ids"][:, 0] = self.enc_token_id  # in place of [CLS], which the tokenizer puts there
        mask = torch.ones(seen.shape[:2], dtype=torch.long, device=seen.device)
        states = self.model.text_encoder(
            **tokens, encoder_hidden_states=seen, encoder_attention_mask=mask
        ).last_hidden_state
        return unit_rows(self.model.text_proj(states[:, 0]))

    @property
    def enc_token_id(self) -> int:
        """The token [ENC]: the tokenizer's, or the last of the two that BLIP adds to BERT's.

        Raises:
            ValueError: The model has no such token.
        """
        vocabulary = self.processor.tokenizer.get_vocab()
        size: int = self.model.config.text_config.vocab_size
        if "[ENC]" in vocabulary:
            token: int = vocabulary["[ENC]"]
            return token
        if size != len(vocabulary) + 2:
            raise ValueError(
                f"BLIP adds [DEC] and [ENC] to the tokenizer's {len(vocabulary)} tokens, and this model reads {size}; "
                "take the processor that the model was saved with"
            )
        return size - 1


class Blip2Encoder(Encoder):
    """BLIP-2 for retrieval: 32 queries look at each frame.

    Args:
        model: A `Blip2ForImageTextRetrieval`, in evaluation mode.
        processor: Its own.
        num_frames: How many frames of a video it reads.
        pooling: "mean": a video is the mean over its queries and frames, one vector, as TF-CoVR pools; "max": a text
            is compared with each query and the best counts, as BLIP-2 was trained. Then videos are `(B, 32, D)`.
    """

    usage = Usage(
        family="BLIP-2",
        frames="15, each an image; the mean of the unit-norm frames",
        prompt="the text alone",
        pooling="the mean of the 32 unit-norm queries (TF-CoVR); option 'max': the query that fits the text best",
        query=AVERAGE,
        source="arXiv:2301.12597, TF-CoVR; Salesforce/blip2-itm-vit-g-coco",
        license="MIT",
        inferred="with 'max', frames are averaged query by query",
    )
    model_class = "Blip2ForImageTextRetrieval"
    default_frames = COVR_FRAMES

    def __init__(
        self, model: Any, processor: Any, num_frames: int, *, pooling: Literal["mean", "max"] = "mean"
    ) -> None:
        if pooling not in {"mean", "max"}:
            raise ValueError(f"pooling is 'mean' or 'max', not {pooling!r}")
        super().__init__(model, processor, num_frames)
        self.pooling = pooling

    @classmethod
    def text_config(cls, config: Any) -> Any:
        """Of the Q-Former; its language model writes texts and reads none."""
        return config.qformer_config

    @property
    def depends_on(self) -> dict[str, str]:
        """See `Encoder`."""
        return {"pooling": self.pooling}

    def encode_video(self, frames: Sequence[Tensor]) -> Tensor:
        """Unit-norm `(B, D)`, or `(B, queries, D)` where a text is compared with the best query."""
        model = self.model
        seen = model.vision_model(**self.images(frames)).last_hidden_state
        output = model.qformer(
            query_embeds=model.query_tokens.expand(len(seen), -1, -1),
            encoder_hidden_states=seen,
            encoder_attention_mask=torch.ones(seen.shape[:2], dtype=torch.long, device=seen.device),
        ).last_hidden_state
        embeds = unit_rows(model.vision_projection(output.to(model.vision_projection.weight.dtype)))
        return mean_over_frames(embeds if self.pooling == "max" else embeds.mean(1), frames)

    def encode_text(self, texts: Sequence[str]) -> Tensor:
        """Unit-norm `(N, D)`."""
        model, tokens = self.model, self.tokens(texts)
        embeds = model.embeddings(input_ids=tokens["input_ids"])
        output = model.qformer(query_embeds=embeds, query_length=0, attention_mask=tokens["attention_mask"])
        first = output.last_hidden_state[:, 0].to(model.text_projection.weight.dtype)
        return unit_rows(model.text_projection(first))

    def embeds(self, rows: Tensor) -> Tensor:
        """The rows, where they are single vectors.

        Raises:
            ValueError: They are not.
        """
        if self.pooling == "max":
            raise ValueError(
                "with pooling 'max' a video has 32 vectors, which neither a text can be added to nor a query compared "
                "with; take 'mean'"
            )
        return rows

    def compare(self, videos: Tensor, texts: Tensor) -> Tensor:
        """Cosines `(B, N)`, of the best query where there are several."""
        if videos.ndim == 2:
            return super().compare(videos, texts)
        return (videos @ texts.T).amax(1)
