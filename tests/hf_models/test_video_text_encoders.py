"""Encoders: each against its model's own forward pass, and saved models of every family."""

from types import SimpleNamespace

import pytest
import torch
from small_vidclip import FRAMES, make_processor, small_vidclip
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch.nn import functional as F
from transformers import (
    CLIPImageProcessor,
    CLIPTextConfig,
    LlavaOnevisionVideoProcessor,
    ModernBertConfig,
    PeVideoConfig,
    PeVideoModel,
    PeVideoProcessor,
    PeVideoVideoProcessor,
    PreTrainedTokenizerFast,
    Siglip2Config,
    Siglip2ImageProcessor,
    Siglip2Model,
    Siglip2Processor,
    SiglipConfig,
    SiglipImageProcessor,
    SiglipModel,
    SiglipProcessor,
    VideoPrismClipModel,
    VideoPrismConfig,
    VideoPrismProcessor,
    ViTConfig,
    XCLIPConfig,
    XCLIPModel,
    XCLIPProcessor,
    XCLIPTextConfig,
    XCLIPVisionConfig,
)
from transformers.models.pe_video import PeVideoEncoderConfig

from hf_models.encoders import (
    DotProductEncoder,
    ImageEncoder,
    PerceptionEncoder,
    XCLIPEncoder,
    load_encoder,
)

SMALL = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
IMAGES = {"image_size": 16, "patch_size": 8}
SIDES = {"height": 16, "width": 16}


WORDS = ["<pad>", "<unk>", "</s>", "a", "dog", "runs", "sits", "then"]


def word_tokenizer():
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
    marks = {"pad_token": "<pad>", "unk_token": "<unk>", "eos_token": "</s>"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **marks, model_max_length=40)


def text_fields():
    marks = {f"{name}_token_id": 1 for name in ("bos", "cls", "sep")} | {"eos_token_id": 2, "pad_token_id": 0}
    return {**SMALL, **marks, "vocab_size": len(WORDS), "max_position_embeddings": 40}


def x_clip(tokenizer):
    vision = {**SMALL, **IMAGES, "num_frames": 4, "mit_hidden_size": 16, "mit_intermediate_size": 32}
    vision |= {"mit_num_attention_heads": 2, "mit_num_hidden_layers": 1}
    prompts = {"prompt_layers": 1, "prompt_num_attention_heads": 2, "projection_dim": 16}
    config = XCLIPConfig(text_config=text_fields(), vision_config=vision, **prompts)
    return XCLIPModel(config), XCLIPProcessor(CLIPImageProcessor(size=SIDES, crop_size=SIDES), tokenizer)


def videoprism(tokenizer):
    layers = {f"num_{kind}_layers": 1 for kind in ("spatial", "temporal", "auxiliary")}
    vision = {**SMALL, **IMAGES, **layers, "tubelet_size": [1, 8, 8], "num_frames": 4}
    config = VideoPrismConfig(text_config=text_fields(), vision_config=vision)
    return VideoPrismClipModel(config), VideoPrismProcessor(LlavaOnevisionVideoProcessor(size=SIDES), tokenizer)


def siglip(tokenizer):
    config = SiglipConfig(text_config=text_fields(), vision_config={**SMALL, **IMAGES})
    return SiglipModel(config), SiglipProcessor(SiglipImageProcessor(size=SIDES), tokenizer)


def siglip_2(tokenizer):
    vision = {**SMALL, "patch_size": 8, "num_patches": 4}
    config = Siglip2Config(text_config={**text_fields(), "projection_size": 16}, vision_config=vision)
    images = Siglip2ImageProcessor(patch_size=8, max_num_patches=4)
    return Siglip2Model(config), Siglip2Processor(images, tokenizer)


def perception_encoder(tokenizer):
    tower = {
        "model_type": "timm_wrapper",
        "architecture": "test_vit",
        "num_classes": 16,
        "global_pool": "avg",
    }
    video = PeVideoEncoderConfig(vision_config=tower, **SMALL, head_dim=8)
    config = PeVideoConfig(text_config=ModernBertConfig(**text_fields()), video_config=video)
    sides = {"height": 160, "width": 160}
    return PeVideoModel(config), PeVideoProcessor(PeVideoVideoProcessor(size=sides), tokenizer)


@torch.inference_mode()
@pytest.mark.parametrize("make", [x_clip, videoprism, siglip, siglip_2, perception_encoder])
def test_a_saved_model_of_another_family_is_loaded_and_tells_texts_apart(make, tmp_path):
    torch.manual_seed(0)
    model, processor = make(word_tokenizer())
    for scale in ("text_video_logit_scale", "prompts_visual_projection"):
        if hasattr(model, scale):  # they start at zero, and so would every similarity
            torch.nn.init.normal_(getattr(model, scale))
    model.save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    encoder = load_encoder(str(tmp_path), "cpu", num_frames=4)
    texts = ["a dog runs", "then a dog sits", "dog"]
    similarity = encoder.compare(encoder.encode_video(videos(2, 4, 32)), encoder.encode_text(texts))
    assert similarity.shape == (2, 3)
    assert similarity.isfinite().all()
    assert all(len(row.unique()) == 3 for row in similarity)


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


def videos(count, frames, size):
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(256, (frames, 3, size, size), generator=generator).byte() for _ in range(count)]


@torch.inference_mode()
def test_x_clip_compares_as_its_own_forward_pass():
    torch.manual_seed(0)
    text = XCLIPTextConfig(**SMALL, vocab_size=100, max_position_embeddings=8, eos_token_id=98)
    vision = {**SMALL, "mit_hidden_size": 16, "mit_intermediate_size": 32, "mit_num_attention_heads": 2}
    vision |= {"mit_num_hidden_layers": 1, "image_size": 8, "patch_size": 4, "num_frames": 4}
    prompts = {"prompt_layers": 1, "prompt_num_attention_heads": 2, "projection_dim": 16}
    config = XCLIPConfig(text_config=text, vision_config=XCLIPVisionConfig(**vision), **prompts)
    model = XCLIPModel(config).eval()
    torch.nn.init.normal_(model.prompts_visual_projection)
    torch.nn.init.constant_(model.prompts_generator.alpha, 0.5)
    encoder, shown, texts = (
        XCLIPEncoder(model, Parts(), 4),
        videos(3, 4, 8),
        ["a dog", "a cat", "birds", "fish."],
    )
    similarity = encoder.compare(encoder.encode_video(shown), encoder.encode_text(texts))
    whole = model(input_ids=Parts.tokenizer(texts)["input_ids"], pixel_values=torch.stack(shown).float() / 255)
    torch.testing.assert_close(similarity, whole.logits_per_video / model.logit_scale.exp(), atol=1e-5, rtol=1e-4)


@torch.inference_mode()
def test_an_image_model_is_averaged_over_its_unit_norm_frames():
    torch.manual_seed(0)
    text, vision = (
        {**SMALL, "vocab_size": 100, "max_position_embeddings": 8},
        {**SMALL, "image_size": 8, "patch_size": 4},
    )
    model = SiglipModel(SiglipConfig(text_config=text, vision_config=vision)).eval()
    shown = videos(2, 5, 8)
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


@torch.inference_mode()
def test_videoprism_compares_as_its_own_forward_pass():
    torch.manual_seed(0)
    text = {**SMALL, "vocab_size": 100, "max_position_embeddings": 8}
    vision = {**SMALL, "image_size": 8, "patch_size": 4, "tubelet_size": [1, 4, 4], "num_frames": 4}
    vision |= {"num_spatial_layers": 1, "num_temporal_layers": 1, "num_auxiliary_layers": 1}
    model = VideoPrismClipModel(VideoPrismConfig(text_config=text, vision_config=vision)).eval()
    shown, texts = videos(2, 4, 8), ["a dog", "a cat", "birds"]
    pixels = torch.stack(shown).float() / 255
    parts = Parts()
    parts.video_processor = lambda frames, **_: {"pixel_values_videos": torch.stack(frames).float() / 255}
    encoder = DotProductEncoder(model, parts, 4)
    similarity = encoder.compare(encoder.encode_video(shown), encoder.encode_text(texts))
    whole = model(pixel_values_videos=pixels, **Parts.tokenizer(texts), temperature=1.0)
    # Its own logits are a softmax over videos of these cosines.
    torch.testing.assert_close(similarity.softmax(0), whole.logits_per_video, atol=1e-5, rtol=1e-4)


@torch.inference_mode()
def test_perception_encoder_compares_as_its_own_forward_pass():
    torch.manual_seed(0)
    image = ViTConfig(**SMALL, image_size=8, patch_size=4, num_labels=16)  # in place of timm's tower
    video = PeVideoEncoderConfig(vision_config=image, **SMALL, head_dim=8)
    marks = {
        "pad_token_id": 0,
        "eos_token_id": 98,
        "bos_token_id": 97,
        "cls_token_id": 97,
        "sep_token_id": 98,
    }
    text = ModernBertConfig(**SMALL, **marks, vocab_size=100)
    model = PeVideoModel(PeVideoConfig(text_config=text, video_config=video)).eval()
    torch.nn.init.ones_(model.text_video_logit_scale)  # it starts at zero
    parts = Parts()
    parts.video_processor = lambda frames, **_: {"pixel_values_videos": torch.stack(frames)[..., :8, :8].float() / 255}
    encoder, shown, texts = PerceptionEncoder(model, parts, 4), videos(2, 4, 8), ["a dog", "a cat", "birds"]
    similarity = encoder.compare(encoder.encode_video(shown), encoder.encode_text(texts))
    whole = model(pixel_values_videos=torch.stack(shown).float() / 255, **Parts.tokenizer(texts))
    torch.testing.assert_close(similarity, whole.logits_video_text)


@torch.inference_mode()
def test_siglip_2_sees_frames_of_any_shape_as_its_own_forward_pass():
    torch.manual_seed(0)
    text = {**SMALL, "vocab_size": 100, "max_position_embeddings": 8, "projection_size": 16}
    vision = {**SMALL, "patch_size": 4, "num_patches": 16}
    model = Siglip2Model(Siglip2Config(text_config=text, vision_config=vision)).eval()
    images = Siglip2ImageProcessor(patch_size=4, max_num_patches=16)
    parts = SimpleNamespace(image_processor=images, tokenizer=Parts.tokenizer)
    (shown,), texts = videos(1, 1, 12), ["a dog", "a cat"]
    encoder = ImageEncoder(model, parts, 1)
    similarity = encoder.compare(encoder.encode_video([shown]), encoder.encode_text(texts))
    frames = images(list(shown), return_tensors="pt")
    whole = model(**frames, **Parts.tokenizer(texts)).logits_per_image
    torch.testing.assert_close(similarity, (whole - model.logit_bias) / model.logit_scale.exp())
