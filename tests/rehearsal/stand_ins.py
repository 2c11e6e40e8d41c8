"""Small random models of the architectures that commands and configuration files name, in folders of these names.

A library that is given `openai/clip-vit-base-patch16` takes the folder of that name in the working directory before it
asks the Hub, so that nothing of a command has to be replaced.
"""

from pathlib import Path

import torch
from small_encoders import (
    SIDES,
    blip,
    blip_2,
    clip,
    e5_v,
    gme,
    languagebind,
    mm_embed,
    save_small,
    text_fields,
    videoprism,
    word_tokenizer,
)
from small_moment_models import small as small_moments
from transformers import (
    BitImageProcessor,
    CLIPImageProcessor,
    CLIPProcessor,
    ResNetConfig,
    ResNetModel,
    RobertaConfig,
    RobertaModel,
)

from hf_models import AIMModel, AIMVideoProcessor
from hf_models.encoders.configuration_clip_resnet import CLIPResNetConfig
from hf_models.encoders.modeling_clip_resnet import CLIPResNetModel


def clip_resnet():
    sizes = {"architecture": "test_byobnet", "image_size": 64, "hidden_size": 16}
    config = CLIPResNetConfig(text_config=text_fields(), vision_config=sizes, projection_dim=16)
    images = CLIPImageProcessor(size={"shortest_edge": 64}, crop_size={"height": 64, "width": 64})
    return CLIPResNetModel(config), CLIPProcessor(images, word_tokenizer())


def save_resnet(folder: Path) -> None:
    sizes = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"}
    ResNetModel(ResNetConfig(**sizes)).save_pretrained(folder)
    BitImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}).save_pretrained(folder)


def save_roberta(folder: Path) -> None:
    RobertaModel(RobertaConfig(**text_fields() | {"max_position_embeddings": 64})).save_pretrained(folder)
    word_tokenizer().save_pretrained(folder)


def save_sentence_model(folder: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer

    save_roberta(folder.with_name(f"{folder.name}-words"))
    words = Transformer(str(folder.with_name(f"{folder.name}-words")))
    SentenceTransformer(modules=[words, Pooling(words.get_word_embedding_dimension())]).save(str(folder))


def save_aim(folder: Path, clip: Path, num_frames: int) -> None:
    AIMModel.from_clip(str(clip), num_frames=num_frames).save_pretrained(folder)
    AIMVideoProcessor(size=SIDES, num_frames=num_frames, do_center_crop=False).save_pretrained(folder)


SMALL_MODELS = {
    **dict.fromkeys(
        (
            "openai/clip-vit-base-patch16",
            "openai/clip-vit-base-patch32",
            "openai/clip-vit-large-patch14",
            "laion/CLIP-ViT-L-14-DataComp.XL-s13B-b90K",
        ),
        clip,
    ),
    "Salesforce/blip2-itm-vit-g-coco": blip_2,
    **dict.fromkeys(("Salesforce/blip-itm-large-coco", "models/covr", "models/covr-ecde"), blip),
    "Alibaba-NLP/gme-Qwen2-VL-2B-Instruct": gme,
    "royokong/e5-v": e5_v,
    "google/videoprism-lvt-base-f16r288": videoprism,
    "models/clip-rn50": clip_resnet,
    "models/mmembed": mm_embed,
    "models/languagebind": languagebind,
}
AIMS = {"models/aim-k400-8f": 8, "models/aim-k400-16f": 16, "models/aim-k400-32f": 32, "models/aim-diving48-32f": 32}
AIMS["outputs/tfcovr/aim-k400-8"] = 8
OTHERS = {
    "outputs/hero/hero-tv-ht100": lambda folder: small_moments("hero").save_pretrained(folder),
    "microsoft/resnet-152": save_resnet,
    "FacebookAI/roberta-base": save_roberta,
    "sentence-transformers/all-MiniLM-L6-v2": save_sentence_model,
}


def make_models(root: Path) -> None:
    """All of them below a folder."""
    for name, make in SMALL_MODELS.items():
        save_small(make, root / name)
    torch.manual_seed(0)
    for name, num_frames in AIMS.items():
        save_aim(root / name, root / "openai/clip-vit-base-patch16", num_frames)
    for name, save in OTHERS.items():
        save(root / name)
