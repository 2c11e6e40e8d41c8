"""Turn OpenAI's CLIP RN50, or another of its ResNets, into a folder that `load_encoder` and stage 2 read.

    hf download timm/resnet50_clip.openai open_clip_model.safetensors --local-dir RELEASED
    python -m hf_models.encoders.convert_clip_resnet RELEASED/open_clip_model.safetensors OUTPUT_DIR

A file in OpenAI's layout, which open_clip shares: of safetensors, or a state_dict of torch. OpenAI's own `RN50.pt` is a
program; `torch.jit.load("RN50.pt").state_dict()`, saved with `torch.save`, is one. It needs timm.
"""

import argparse
import re
import sys
from pathlib import Path
from typing import Any, cast

import torch
from transformers import AutoProcessor, CLIPImageProcessor, CLIPProcessor, CLIPTextConfig

from hf_models.atomic_files import new_folder
from hf_models.checkpoints import load_weights, make_config, read_checkpoint, size_of
from hf_models.tfcovr.convert_aim import rename

from .configuration_clip_resnet import CLIPResNetConfig, CLIPResNetVisionConfig
from .modeling_clip_resnet import CLIPResNetModel, CLIPResNetVisionModel

NOT_READ = r".*\.num_batches_tracked|input_resolution|context_length|vocab_size|attn_mask"
CLIP_HEAD_WIDTH = 64
REDUCTION = 32
"""Pixels of a side that become one."""


def convert(checkpoint: Path, architecture: str = "resnet50_clip") -> CLIPResNetModel:
    """Build the model of a checkpoint.

    Args:
        checkpoint: File of safetensors or torch.
        architecture: Of the image tower, by its name in timm.

    Returns:
        The model, float32, in evaluation mode.

    Raises:
        ValueError: The checkpoint cannot be read, is of another model, or a weight is missing, too many or of another
            shape.
        ImportError: timm is missing.
    """
    try:
        from timm.models.byobnet import checkpoint_filter_fn
    except ImportError as error:
        raise ImportError("CLIP's ResNets need timm: pip install 'subtle-video[perception]'") from error
    given = {name: weight.float() for name, weight in read_checkpoint(checkpoint, skip=NOT_READ).items()}
    width, side = size_of(given, "ln_final.bias", 0, 1), size_of(given, "visual.attnpool.positional_embedding", 0, 2)
    size, vocab_size = size_of(given, "text_projection", 1, 2), size_of(given, "token_embedding.weight", 0, 2)
    numbers = {name.split(".")[2] for name in given if name.startswith("transformer.resblocks.")}
    text = make_config(
        CLIPTextConfig,
        vocab_size=vocab_size,
        max_position_embeddings=size_of(given, "positional_embedding", 0, 2),
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=len(numbers),
        num_attention_heads=max(1, width // CLIP_HEAD_WIDTH),
        projection_dim=size,
        bos_token_id=vocab_size - 2,
        eos_token_id=vocab_size - 1,
    )
    vision = {"architecture": architecture, "image_size": round((side - 1) ** 0.5) * REDUCTION, "hidden_size": size}
    config = CLIPResNetConfig(text_config=text, vision_config=vision, projection_dim=size)
    images = {name: weight for name, weight in given.items() if name.startswith("visual.")}
    with torch.device("meta"):
        tower: Any = CLIPResNetVisionModel(cast("CLIPResNetVisionConfig", config.vision_config)).tower
    weights = {f"vision_model.tower.{name}": weight for name, weight in checkpoint_filter_fn(images, tower).items()}
    for name in [name for name in weights if name.endswith(".running_mean")]:
        weights[name.replace("running_mean", "num_batches_tracked")] = torch.tensor(0)
    weights |= {"text_projection.weight": given["text_projection"].T.contiguous(), "logit_scale": given["logit_scale"]}
    for name in given.keys() - images.keys() - {"text_projection", "logit_scale"}:
        named = re.sub(r"^token_embedding\.", "embeddings.token_embedding.", name)
        named = re.sub(r"^ln_final\.", "final_layer_norm.", named)
        weights |= {f"text_model.{new}": part for new, part in rename(named, given[name])}
    return load_weights(CLIPResNetModel, config, weights)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("output_dir", type=Path)
    parser.add_argument("--architecture", default="resnet50_clip", help="of the image tower, by its name in timm")
    parser.add_argument(
        "--processor", default="openai/clip-vit-base-patch32", help="a CLIP with the same tokenizer: folder or name"
    )
    arguments = parser.parse_args()
    try:
        model = convert(arguments.checkpoint, arguments.architecture)
        side = model.vision_model.config.image_size
        images = CLIPImageProcessor(size={"shortest_edge": side}, crop_size={"height": side, "width": side})
        processor = CLIPProcessor(images, AutoProcessor.from_pretrained(arguments.processor).tokenizer)
        with new_folder(arguments.output_dir) as scratch:
            model.save_pretrained(scratch)
            processor.save_pretrained(scratch)
    except (ValueError, OSError, ImportError) as error:
        sys.exit(f"error: {error}")
    print(  # noqa: T201 (a command says what it did)
        f"CLIP: {arguments.architecture} of {side} px, embeddings of size {model.config.projection_dim} -> "
        f"{arguments.output_dir}"
    )


if __name__ == "__main__":
    main()
