"""Encoders: each against its model's own forward pass, and what they make of texts."""

from types import SimpleNamespace

import pytest
import torch
from small_encoders import random_videos
from small_vidclip import FRAMES, make_processor, small_vidclip
from torch.nn import functional as F
from transformers import (
    CLIPTextConfig,
    ModernBertConfig,
    PeVideoConfig,
    PeVideoModel,
    Siglip2Config,
    Siglip2ImageProcessor,
    Siglip2Model,
    SiglipConfig,
    SiglipModel,
    ViTConfig,
)
from transformers.models.pe_video import PeVideoEncoderConfig

from hf_models.encoders import ImageEncoder, PerceptionEncoder, load_encoder

SMALL = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}


class Parts:
    """A processor of made-up tokens and untouched pixels."""

    class tokenizer:  # noqa: N801
        model_max_length = 8

        def __new__(cls, texts, **_):
            ids = torch.tensor([[*(1 + ord(letter) % 90 for letter in f"{text:5.5}"), 98] for text in texts])
            return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    def image_processor(self, images, **_):
        from transformers import BatchFeature

        stacked = [torch.stack(list(one)) if isinstance(one, list) else one for one in images]
        return BatchFeature({"pixel_values": torch.stack(stacked).float() / 255})


def test_an_image_model_is_averaged_over_its_unit_norm_frames():
    torch.manual_seed(0)
    text = {**SMALL, "vocab_size": 100, "max_position_embeddings": 8}
    vision = {**SMALL, "image_size": 8, "patch_size": 4}
    model = SiglipModel(SiglipConfig(text_config=text, vision_config=vision)).eval()
    shown = random_videos(2, 5, 8)
    encoder = ImageEncoder(model, Parts(), 5)
    for video, embeds in zip(shown, encoder.encode_video(shown), strict=True):
        frames = model.get_image_features(pixel_values=video.float() / 255).pooler_output
        torch.testing.assert_close(embeds, F.normalize(F.normalize(frames, dim=-1).mean(0), dim=0))
    assert encoder.encode_text(["a dog"]).shape == (1, 16)


def test_vidclip_reads_the_whole_of_a_long_text(tmp_path):
    small_vidclip().save_pretrained(tmp_path)
    processor = make_processor()
    processor.tokenizer.model_max_length = 40
    processor.save_pretrained(tmp_path)
    encoder = load_encoder(str(tmp_path))
    assert encoder.processor.tokenizer.model_max_length == 40
    assert encoder.num_frames == FRAMES
    assert encoder.tokens(["dog " * 100])["input_ids"].shape[1] > 100


def test_a_model_without_videos_and_texts_is_refused(tmp_path):
    CLIPTextConfig(**SMALL).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="'clip_text_model' model, which does not compare videos"):
        load_encoder(str(tmp_path))


def test_perception_encoder_compares_as_its_own_forward_pass():
    torch.manual_seed(0)
    image = ViTConfig(**SMALL, image_size=8, patch_size=4, num_labels=16)  # in place of timm's tower
    video = PeVideoEncoderConfig(vision_config=image, **SMALL, head_dim=8)
    marks = {"pad_token_id": 0, "eos_token_id": 98, "bos_token_id": 97, "cls_token_id": 97, "sep_token_id": 98}
    text = ModernBertConfig(**SMALL, **marks, vocab_size=100)
    model = PeVideoModel(PeVideoConfig(text_config=text, video_config=video)).eval()
    torch.nn.init.ones_(model.text_video_logit_scale)  # it starts at zero
    parts = Parts()
    parts.video_processor = lambda frames, **_: {"pixel_values_videos": torch.stack(frames)[..., :8, :8].float() / 255}
    encoder, shown, texts = PerceptionEncoder(model, parts, 4), random_videos(2, 4, 8), ["a dog", "a cat", "birds"]
    similarity = encoder.compare(encoder.encode_video(shown), encoder.encode_text(texts))
    whole = model(pixel_values_videos=torch.stack(shown).float() / 255, **Parts.tokenizer(texts))
    torch.testing.assert_close(similarity, whole.logits_video_text)


def test_siglip_2_sees_frames_of_any_shape_as_its_own_forward_pass():
    torch.manual_seed(0)
    text = {**SMALL, "vocab_size": 100, "max_position_embeddings": 8, "projection_size": 16}
    vision = {**SMALL, "patch_size": 4, "num_patches": 16}
    model = Siglip2Model(Siglip2Config(text_config=text, vision_config=vision)).eval()
    images = Siglip2ImageProcessor(patch_size=4, max_num_patches=16)
    parts = SimpleNamespace(image_processor=images, tokenizer=Parts.tokenizer)
    (shown,), texts = random_videos(1, 1, 12), ["a dog", "a cat"]
    encoder = ImageEncoder(model, parts, 1)
    similarity = encoder.compare(encoder.encode_video([shown]), encoder.encode_text(texts))
    frames = images(list(shown), return_tensors="pt")
    whole = model(**frames, **Parts.tokenizer(texts)).logits_per_image
    torch.testing.assert_close(similarity, (whole - model.logit_bias) / model.logit_scale.exp())
