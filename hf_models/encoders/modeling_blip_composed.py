"""BLIP whose text encoder looks at the query's frame, to train on composed retrieval: BLIP-CoVR and its variants."""

from typing import cast

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import BlipForImageTextRetrieval


class BlipForComposedRetrieval(BlipForImageTextRetrieval):
    """BLIP for retrieval whose text encoder, with cross attention to one frame, makes composed queries (CoVR).

    A query is the text encoder's first token, which reads [ENC], projected and scaled to length 1; a target the mean of
    its frames' class tokens, each projected and scaled to length 1. Weights have the names that transformers'
    `BlipForImageTextRetrieval` gives them, so a folder of one is a folder of the other, and `load_encoder` reads what
    was trained here. Only the text encoder and its projection train, as in CoVR: `freeze_vision` leaves out the rest.

    Example:
        >>> from transformers import BlipConfig
        >>> small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
        >>> text = {**small, "vocab_size": 9, "encoder_hidden_size": 16, "bos_token_id": 1, "sep_token_id": 2}
        >>> vision = {**small, "image_size": 8, "patch_size": 4}
        >>> config = BlipConfig(text_config=text, vision_config=vision, image_text_hidden_size=12)
        >>> model = BlipForComposedRetrieval(config).eval()
        >>> frames, tokens = torch.rand(2, 3, 8, 8), torch.tensor([[8, 3, 2], [8, 4, 2]])
        >>> model.get_query_features(frames, tokens).shape
        torch.Size([2, 12])
        >>> model.get_target_features(torch.rand(2, 5, 3, 8, 8)).shape
        torch.Size([2, 12])
    """

    def freeze_vision(self) -> None:
        """Leave only the text encoder and its projection to train, which are what queries depend on."""
        self.requires_grad_(False)
        self.text_encoder.requires_grad_(True)
        self.text_proj.requires_grad_(True)

    def get_query_features(
        self,
        pixel_values: Tensor | None = None,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        *,
        image_states: Tensor | None = None,
    ) -> Tensor:
        """Compose queries: unit-norm `(B, D)`, float32, with gradient.

        Args:
            pixel_values: `(B, C, H, W)`, one frame of each query's video, or give `image_states`.
            input_ids: `(B, L)` token ids, the first of each text [ENC].
            attention_mask: `(B, L)`, 1 for tokens and 0 for padding; None: all ones.
            image_states: `(B, P, width)`, the vision model's last hidden states of these frames, as
                `encode_image` gives them.

        Raises:
            ValueError: There is no text, or the frames are not given once.
        """
        if input_ids is None:
            raise ValueError("a composed query needs a text; give input_ids")
        if (pixel_values is None) == (image_states is None):
            raise ValueError("a composed query needs one frame: give either pixel_values or image_states")
        states = self.encode_image(cast("Tensor", pixel_values)) if image_states is None else image_states
        seen = torch.ones(states.shape[:2], dtype=torch.long, device=states.device)
        read = self.text_encoder(
            input_ids=input_ids,
            attention_mask=torch.ones_like(input_ids) if attention_mask is None else attention_mask,
            encoder_hidden_states=states,
            encoder_attention_mask=seen,
        ).last_hidden_state
        return F.normalize(self.text_proj(read[:, 0]).float(), dim=-1)

    def encode_image(self, pixel_values: Tensor) -> Tensor:
        """The vision model's last hidden states `(B, P, width)` of frames `(B, C, H, W)`."""
        states: Tensor = self.vision_model(pixel_values=pixel_values).last_hidden_state
        return states

    def get_target_features(self, pixel_values: Tensor) -> Tensor:
        """Embed videos that may answer a query: unit-norm `(B, D)`, float32.

        Args:
            pixel_values: `(B, T, C, H, W)`.
        """
        states = self.encode_image(pixel_values.flatten(0, 1))
        frames = F.normalize(self.vision_proj(states[:, 0]).float(), dim=-1).unflatten(0, pixel_values.shape[:2])
        return F.normalize(frames.mean(1), dim=-1)

    def forward(
        self,
        input_ids: Tensor,
        pixel_values: Tensor | None = None,
        attention_mask: Tensor | None = None,
        *,
        image_states: Tensor | None = None,
    ) -> Tensor:
        """Compose queries, see `get_query_features`."""
        return self.get_query_features(pixel_values, input_ids, attention_mask, image_states=image_states)
