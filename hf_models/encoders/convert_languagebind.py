"""Turn the released folder of LanguageBind for video into one that `load_encoder` reads.

    hf download LanguageBind/LanguageBind_Video_FT --local-dir RELEASED
    python -m hf_models.encoders.convert_languagebind RELEASED OUTPUT_DIR

Sizes are read from its `config.json`, weights from its `model.safetensors` or `pytorch_model.bin` without running any
code. It appears complete or not at all.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any, cast

from transformers import CLIPImageProcessor, CLIPProcessor, CLIPTokenizer, CLIPVisionConfig
from transformers.image_utils import PILImageResampling

from hf_models.atomic_files import new_folder
from hf_models.checkpoints import load_weights, make_config, read_checkpoint

from .configuration_languagebind import LanguageBindConfig
from .modeling_languagebind import LanguageBindModel

WEIGHTS_FILES = ("model.safetensors", "pytorch_model.bin")
COUNTERS = r".*\.position_ids"
"""Positions 0, 1, 2, ..., which older versions of transformers saved."""
BOTH = {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "hidden_act", "layer_norm_eps"}
VISION_CONFIG_FIELDS = BOTH | {"image_size", "patch_size"}
TEXT_CONFIG_FIELDS = BOTH | {"vocab_size", "max_position_embeddings", "bos_token_id", "eos_token_id", "pad_token_id"}


def read_released_config(folder: Path) -> LanguageBindConfig:
    """The configuration of a released folder.

    Raises:
        ValueError: It is missing, or of another model.
    """
    path = folder / "config.json"
    if not path.is_file():
        raise ValueError(f"there is no {str(path)!r}; name the downloaded folder of LanguageBind_Video_FT")
    try:
        released: Any = json.loads(path.read_text(encoding="utf-8"))
        vision, text = released["vision_config"], released["text_config"]
        if released["model_type"] != "LanguageBindVideo" or not vision["add_time_attn"]:
            raise ValueError(f"{str(path)!r} is not of LanguageBind for video with attention over time")
        if vision.get("lora_r"):
            raise ValueError(f"{str(path)!r} describes a model with LoRA; take LanguageBind_Video_FT, tuned as a whole")
        return make_config(
            LanguageBindConfig,
            vision_config={name: vision[name] for name in VISION_CONFIG_FIELDS & vision.keys()},
            text_config={name: text[name] for name in TEXT_CONFIG_FIELDS & text.keys()},
            projection_dim=released["projection_dim"],
            num_frames=vision["num_frames"],
        )
    except (KeyError, TypeError, AttributeError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{str(path)!r} is not a configuration of LanguageBind: {error!r}") from None


def convert(folder: Path) -> LanguageBindModel:
    """Build the model of a released folder.

    Args:
        folder: With `config.json` and the weights.

    Returns:
        The model, float32, in evaluation mode.

    Raises:
        ValueError: It is not LanguageBind for video, or a weight is missing, too many or of another shape.
    """
    config = read_released_config(folder)
    path = next((folder / name for name in WEIGHTS_FILES if (folder / name).is_file()), folder / WEIGHTS_FILES[-1])
    return load_weights(LanguageBindModel, config, read_checkpoint(path, skip=COUNTERS))


def released_processor(folder: Path, image_size: int) -> CLIPProcessor:
    """The processor of a released folder: its tokenizer, and its frames without their random crop and mirror."""
    side = {"height": image_size, "width": image_size}
    images = CLIPImageProcessor(
        size={"shortest_edge": image_size}, crop_size=side, resample=PILImageResampling.BILINEAR
    )
    return CLIPProcessor(images, CLIPTokenizer.from_pretrained(folder))


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("output_dir", type=Path)
    arguments = parser.parse_args()
    try:
        model = convert(arguments.folder)
        processor = released_processor(
            arguments.folder, cast("int", cast("CLIPVisionConfig", model.config.vision_config).image_size)
        )
        with new_folder(arguments.output_dir) as scratch:
            model.save_pretrained(scratch)
            processor.save_pretrained(scratch)
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    print(f"LanguageBind: {model.config.num_frames} frames -> {arguments.output_dir}")  # noqa: T201 (what it did)


if __name__ == "__main__":
    main()
