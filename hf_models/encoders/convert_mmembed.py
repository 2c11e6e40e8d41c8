"""Turn the released folder of MM-Embed into one that `load_encoder` reads. Its weights are CC-BY-NC-4.0.

    hf download nvidia/MM-Embed --local-dir RELEASED
    python -m hf_models.encoders.convert_mmembed RELEASED OUTPUT_DIR

Sizes are read from its `config.json`, from that of NV-Embed-v1, whose text model it tuned (not from its own text
configuration, which is LLaVA's), and from the weights, which keep their precision. None of its code is run.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import LlavaNextConfig, LlavaNextProcessor, PreTrainedConfig

from hf_models.atomic_files import new_folder
from hf_models.checkpoints import make_config, read_checkpoint, renamed, size_of

from .configuration_mmembed import MMEmbedConfig
from .modeling_mmembed import MMEmbedModel

COMPUTED_BUFFERS = r".*\.position_ids|.*\.inv_freq"
RENAMES = (
    (r"^vision_tower\.vision_model\.", "vision_tower."),
    (r"^latent_attention_model\.", "latent_attention."),
    (r"\.cross_attend_blocks\.0\.fn\.to_q\.", ".query."),
    (r"\.cross_attend_blocks\.0\.fn\.to_kv\.", ".key_value."),
    (r"\.cross_attend_blocks\.0\.fn\.to_out\.", ".out."),
    (r"\.cross_attend_blocks\.0\.norm\.", ".norm."),
    (r"\.cross_attend_blocks\.0\.norm_context\.", ".latent_norm."),
    (r"\.cross_attend_blocks\.1\.norm\.", ".feed_norm."),
    (r"\.cross_attend_blocks\.1\.fn\.net\.0\.", ".up."),
    (r"\.cross_attend_blocks\.1\.fn\.net\.2\.", ".down."),
)
IMAGES = ("vision_config", "image_token_index", "vision_feature_layer", "image_grid_pinpoints")
LLM_FIELDS = {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"}
LLM_FIELDS |= {"max_position_embeddings", "rms_norm_eps", "hidden_act"}
RETRIEVER = "nvidia/NV-Embed-v1"


def read_mmembed_config(folder: Path, retriever: str, weights: dict[str, Tensor]) -> MMEmbedConfig:
    """The configuration of a released folder and of the text embedder that it was built from.

    Raises:
        ValueError: One is missing, or of another model.
    """
    try:
        released: Any = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        if "NVMMEmbedModel" not in released["architectures"]:
            raise ValueError(f"{str(folder)!r} is not MM-Embed; name the downloaded folder of nvidia/MM-Embed")
        fields = LlavaNextConfig.from_dict(released).to_dict()
        embedder: Any = PreTrainedConfig.get_config_dict(retriever)[0]
        text, pooling = embedder["text_config"], embedder["latent_attention_config"]
        rope = {"rope_type": "default", "rope_theta": float(text["rope_theta"])}
        sizes = {name: text[name] for name in LLM_FIELDS} | {"rope_parameters": rope, "model_type": "mistral"}
        heads = int(pooling["num_cross_heads"])
    except (OSError, KeyError, TypeError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{str(folder)!r} and {retriever!r} do not describe an MM-Embed: {error!r}") from None
    return make_config(
        MMEmbedConfig,
        **{name: fields[name] for name in IMAGES},
        text_config=sizes | {"vocab_size": size_of(weights, "language_model.embed_tokens.weight", 0, 2)},
        num_latents=size_of(weights, "latent_attention.latents", 0, 2),
        num_latent_heads=heads,
        latent_head_size=size_of(weights, "latent_attention.query.weight", 0, 2) // heads,
    )


def convert(folder: Path, retriever: str = RETRIEVER) -> MMEmbedModel:
    """Build the model of a released folder, to be saved: without what a model needs to run besides its weights.

    Args:
        folder: With `config.json` and safetensors.
        retriever: A folder or name on the Hub with the `config.json` of NV-Embed, whose text model MM-Embed tuned.

    Raises:
        ValueError: It is not MM-Embed, or a weight is missing, too many or of another shape.
    """
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ValueError(f"there are no safetensors in {str(folder)!r}; name the downloaded folder of nvidia/MM-Embed")
    read = [read_checkpoint(path, skip=COMPUTED_BUFFERS) for path in files]
    weights = {renamed(name, RENAMES): weight for part in read for name, weight in part.items()}
    config = read_mmembed_config(folder, retriever, weights)
    config.dtype = weights["latent_attention.latents"].dtype
    with torch.device("meta"):  # half of what a second copy in memory would need
        model = MMEmbedModel(config)
    try:
        model.load_state_dict(weights, assign=True)
    except RuntimeError as error:
        raise ValueError(f"the checkpoint does not fit: {str(error)[:2000]}") from None
    return model


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("output_dir", type=Path)
    parser.add_argument("--retriever", default=RETRIEVER, help="a folder or name on the Hub: NV-Embed's config.json")
    arguments = parser.parse_args()
    try:
        model = convert(arguments.folder, arguments.retriever)
        with new_folder(arguments.output_dir) as scratch:
            model.save_pretrained(scratch)
            LlavaNextProcessor.from_pretrained(arguments.folder).save_pretrained(scratch)
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    print(f"MM-Embed: {model.config.num_latents} latents -> {arguments.output_dir}")  # noqa: T201 (what it did)


if __name__ == "__main__":
    main()
