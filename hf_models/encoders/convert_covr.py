"""Turn a checkpoint of CoVR, or another of BLIP for retrieval in its original layout, into a folder of transformers.

    python -m hf_models.encoders.convert_covr webvid-covr.ckpt OUTPUT_DIR --processor Salesforce/blip-itm-large-coco

Sizes are read from the weights. CoVR has no head for matching, which is zero in the folder: `encode_query` does not
use it. What only training needs (a momentum copy, queues, the temperature) is left out; any other weight that BLIP has
no place for is refused.
"""

import argparse
import math
import sys
from pathlib import Path
from typing import cast

import torch
from torch import Tensor
from transformers import AutoProcessor, BlipConfig, BlipForImageTextRetrieval, BlipVisionConfig

from hf_models.atomic_files import new_folder
from hf_models.checkpoints import load_weights, make_config, read_checkpoint, renamed, size_of

BLIP_HEAD_WIDTH = 64  # in both towers of BLIP's base and large
ONLY_FOR_TRAINING = (
    r"(module\.)?((visual_encoder|text_encoder|vision_proj|text_proj)_m\..*|(image|text|idx)_queue|(queue_)?ptr(_queue)?"
    r"|temp|text_encoder\.embeddings\.position_ids)"
)
RENAMES = (
    (r"^module\.", ""),
    (r"^visual_encoder\.cls_token$", "vision_model.embeddings.class_embedding"),
    (r"^visual_encoder\.pos_embed$", "vision_model.embeddings.position_embedding"),
    (r"^visual_encoder\.patch_embed\.proj\.", "vision_model.embeddings.patch_embedding."),
    (r"^visual_encoder\.norm\.", "vision_model.post_layernorm."),
    (r"^visual_encoder\.blocks\.", "vision_model.encoder.layers."),
    (r"^(vision_model\.encoder\.layers\.\d+\.)attn\.qkv\.", r"\1self_attn.qkv."),
    (r"^(vision_model\.encoder\.layers\.\d+\.)attn\.proj\.", r"\1self_attn.projection."),
    (r"^(vision_model\.encoder\.layers\.\d+\.)norm([12])\.", r"\1layer_norm\2."),
)


def count_layers(weights: dict[str, Tensor], start: str) -> int:
    """How many layers there are below a prefix.

    Raises:
        ValueError: They are not numbered from 0.
    """
    numbers = {name.removeprefix(start).split(".")[0] for name in weights if name.startswith(start)}
    if not numbers or numbers != {str(number) for number in range(len(numbers))}:
        raise ValueError(f"the layers below {start!r} are not numbered from 0: {', '.join(sorted(numbers))[:80]}")
    return len(numbers)


def infer_blip_config(weights: dict[str, Tensor]) -> BlipConfig:
    """Read the architecture from the shapes of weights that have the names of transformers.

    Raises:
        ValueError: A weight that shows a size is missing.
    """
    vision, text = "vision_model.encoder.layers.", "text_encoder.encoder.layer."
    width = size_of(weights, "vision_model.embeddings.class_embedding", 2, 3)
    patches = size_of(weights, "vision_model.embeddings.position_embedding", 1, 3) - 1
    patch_size = size_of(weights, "vision_model.embeddings.patch_embedding.weight", 3, 4)
    hidden = size_of(weights, "text_encoder.embeddings.word_embeddings.weight", 1, 2)
    if width % BLIP_HEAD_WIDTH or hidden % BLIP_HEAD_WIDTH:
        raise ValueError(f"BLIP's heads are {BLIP_HEAD_WIDTH} wide, which {width} and {hidden} are no multiples of")
    if math.isqrt(patches) ** 2 != patches or not patches:
        raise ValueError(f"the image has {patches} patches, which make no square")
    return make_config(
        BlipConfig,
        vision_config={
            "hidden_size": width,
            "intermediate_size": size_of(weights, f"{vision}0.mlp.fc1.bias", 0, 1),
            "num_hidden_layers": count_layers(weights, vision),
            "num_attention_heads": width // BLIP_HEAD_WIDTH,
            "image_size": math.isqrt(patches) * patch_size,
            "patch_size": patch_size,
            "layer_norm_eps": 1e-6,
        },
        text_config={
            "vocab_size": size_of(weights, "text_encoder.embeddings.word_embeddings.weight", 0, 2),
            "hidden_size": hidden,
            "encoder_hidden_size": width,
            "intermediate_size": size_of(weights, f"{text}0.intermediate.dense.bias", 0, 1),
            "num_hidden_layers": count_layers(weights, text),
            "num_attention_heads": hidden // BLIP_HEAD_WIDTH,
            "max_position_embeddings": size_of(weights, "text_encoder.embeddings.position_embeddings.weight", 0, 2),
            "is_decoder": True,
        },
        image_text_hidden_size=size_of(weights, "text_proj.weight", 0, 2),
    )


def convert(checkpoint: Path) -> BlipForImageTextRetrieval:
    """Build the model of a checkpoint.

    Args:
        checkpoint: File of torch or safetensors.

    Returns:
        The model, float32, in evaluation mode.

    Raises:
        ValueError: It is not a BLIP for retrieval in its original layout, or a weight is missing, too many or of
            another shape.
    """
    given = read_checkpoint(checkpoint, skip=ONLY_FOR_TRAINING)
    weights = {renamed(name, RENAMES): value for name, value in given.items()}
    config = infer_blip_config(weights)
    if not any(name.startswith("itm_head.") for name in weights):
        weights |= {
            "itm_head.weight": torch.zeros(2, size_of(weights, "text_proj.weight", 1, 2)),
            "itm_head.bias": torch.zeros(2),
        }
    return load_weights(BlipForImageTextRetrieval, config, weights)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("output_dir", type=Path)
    parser.add_argument("--processor", default="Salesforce/blip-itm-large-coco", help="a folder or name on the Hub")
    arguments = parser.parse_args()
    try:
        model = convert(arguments.checkpoint)
        processor = AutoProcessor.from_pretrained(arguments.processor)
        side = cast("BlipVisionConfig", model.config.vision_config).image_size
        processor.image_processor.size = {"height": side, "width": side}
        with new_folder(arguments.output_dir) as scratch:
            model.save_pretrained(scratch)
            processor.save_pretrained(scratch)
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    print(f"BLIP: {side} px -> {arguments.output_dir}")  # noqa: T201 (a command says what it did)


if __name__ == "__main__":
    main()
