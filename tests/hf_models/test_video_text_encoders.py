"""Models of other families, as folders with their own processors, measured by the recipe."""

import pytest
import torch
from evaluate_comp import EvaluateCompConfig, run
from transformers import (
    AutoTokenizer,
    CLIPImageProcessor,
    LlavaOnevisionVideoProcessor,
    ModernBertConfig,
    PeVideoConfig,
    PeVideoModel,
    PeVideoProcessor,
    PeVideoVideoProcessor,
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
    XCLIPConfig,
    XCLIPModel,
    XCLIPProcessor,
)
from transformers.models.pe_video import PeVideoEncoderConfig

SMALL = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
IMAGES = {"image_size": 16, "patch_size": 8}
SIDES = {"height": 16, "width": 16}


def text_fields(tokenizer):
    marks = {f"{name}_token_id": 1 for name in ("bos", "cls", "sep")} | {"eos_token_id": 2, "pad_token_id": 0}
    return {**SMALL, **marks, "vocab_size": len(tokenizer), "max_position_embeddings": 40}


def x_clip(tokenizer):
    vision = {**SMALL, **IMAGES, "num_frames": 4, "mit_hidden_size": 16, "mit_intermediate_size": 32}
    vision |= {"mit_num_attention_heads": 2, "mit_num_hidden_layers": 1}
    prompts = {"prompt_layers": 1, "prompt_num_attention_heads": 2, "projection_dim": 16}
    config = XCLIPConfig(text_config=text_fields(tokenizer), vision_config=vision, **prompts)
    return XCLIPModel(config), XCLIPProcessor(CLIPImageProcessor(size=SIDES, crop_size=SIDES), tokenizer)


def videoprism(tokenizer):
    layers = {f"num_{kind}_layers": 1 for kind in ("spatial", "temporal", "auxiliary")}
    vision = {**SMALL, **IMAGES, **layers, "tubelet_size": [1, 8, 8], "num_frames": 4}
    config = VideoPrismConfig(text_config=text_fields(tokenizer), vision_config=vision)
    return VideoPrismClipModel(config), VideoPrismProcessor(LlavaOnevisionVideoProcessor(size=SIDES), tokenizer)


def siglip(tokenizer):
    config = SiglipConfig(text_config=text_fields(tokenizer), vision_config={**SMALL, **IMAGES})
    return SiglipModel(config), SiglipProcessor(SiglipImageProcessor(size=SIDES), tokenizer)


def siglip_2(tokenizer):
    vision = {**SMALL, "patch_size": 8, "num_patches": 4}
    config = Siglip2Config(text_config={**text_fields(tokenizer), "projection_size": 16}, vision_config=vision)
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
    config = PeVideoConfig(text_config=ModernBertConfig(**text_fields(tokenizer)), video_config=video)
    sides = {"height": 160, "width": 160}
    return PeVideoModel(config), PeVideoProcessor(PeVideoVideoProcessor(size=sides), tokenizer)


@pytest.mark.parametrize("make", [x_clip, videoprism, siglip, siglip_2, perception_encoder])
def test_a_saved_model_of_another_family_is_loaded_and_measured(make, tiny_comp, tmp_path):
    torch.manual_seed(0)
    model, processor = make(AutoTokenizer.from_pretrained(tiny_comp["model"]))
    for scale in ("text_video_logit_scale", "prompts_visual_projection"):
        if hasattr(model, scale):  # they start at zero, and so would every similarity
            torch.nn.init.normal_(getattr(model, scale))
    model.save_pretrained(tmp_path / make.__name__)
    processor.save_pretrained(tmp_path / make.__name__)
    config = EvaluateCompConfig(
        models=[str(tmp_path / make.__name__)],
        data_dir=tiny_comp["data_dir"],
        split="validation",
        num_frames=4,
        output_dir=str(tmp_path / "out"),
        device="cpu",
    )
    (figures,) = run(config).values()
    kinds = [figures[name] for name in figures if name.startswith("accuracy/")]
    assert len(kinds) == 3
    assert any(0 < value < 1 for value in kinds)  # similarities differ from text to text
