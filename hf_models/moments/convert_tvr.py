"""Turn a checkpoint of the released XML or ReLoCLNet code into a model folder.

    python -m hf_models.moments.convert_tvr --arch xml CHECKPOINT OUTPUT_DIR

Sizes and streams are read from the weights; the number of heads must be given where the width is not that of the
released configuration. The models come out with what the released code does and this project does not by default: its
end convention, and predictors that see the padding (`XMLConfig.mask_similarity`).
"""

import argparse
import re
import sys
from pathlib import Path
from typing import Literal, cast

from torch import Tensor

from hf_models.atomic_files import new_folder
from hf_models.checkpoints import load_weights, make_config, read_checkpoint, size_of

from .configuration_reloclnet import ReLoCLNetConfig
from .configuration_xml import XMLConfig
from .modeling_reloclnet import ReLoCLNetForMomentRetrieval
from .modeling_xml import XMLForMomentRetrieval

Architecture = Literal["xml", "reloclnet"]
MODELS: dict[Architecture, type[XMLForMomentRetrieval] | type[ReLoCLNetForMomentRetrieval]] = {
    "xml": XMLForMomentRetrieval,
    "reloclnet": ReLoCLNetForMomentRetrieval,
}
HEADS = {("xml", 256): 4, ("reloclnet", 384): 8}
STREAM_LAYERS = {
    "xml": {"1": "shallow", "2": "deep.0", "3": "deep.1"},
    "reloclnet": {"1": "shallow", "2": "middle", "3": "deep"},
}
RENAMES = (
    (r"^module\.", ""),
    (r"^query_pos_embed\.", "query_encoder.positions."),
    (r"^ctx_pos_embed\.", "positions."),
    (r"\.position_embeddings\.", ".embedding."),
    (r"^query_encoder\.(?=self|output)", "query_encoder.layers.0."),
    (r"^query_encoder1\.", "query_encoder.layers.1."),
    (r"^query_input_proj\.", "query_encoder.projection."),
    (r"^modular_vector_mapping\.", "query_encoder.pooling.weights."),
    (r"^video_query_linear\.", "span_head.queries.0."),
    (r"^sub_query_linear\.", "span_head.queries.1."),
    (r"^(?:merged|video)_st_predictor\.", "span_head.start."),
    (r"^(?:merged|video)_ed_predictor\.", "span_head.end."),
    (r"^sub_", "subtitle_"),
    (r"^(video|subtitle)_input_proj\.", r"\1.projection."),
    (r"^(video|subtitle)_cross_att\.", r"\1.cross.attention."),
    (r"^(video|subtitle)_cross_layernorm\.", r"\1.cross.layer_norm."),
    (r"\.self\.", ".attention."),
    (r"\.output\.", "."),
    (r"\.net\.1\.", ".dense."),
    (r"\.LayerNorm\.", ".layer_norm."),
)


def rename(name: str, architecture: Architecture) -> str:
    """Translate the name of a weight of the released code to that in the model here.

    Args:
        name: In the released code.
        architecture: "xml" or "reloclnet".

    Example:
        >>> rename("sub_encoder2.output.LayerNorm.bias", "reloclnet")
        'subtitle.middle.layer_norm.bias'
    """
    for pattern, replacement in RENAMES:
        name = re.sub(pattern, replacement, name)
    return re.sub(
        r"^(video|subtitle)_encoder([123])\.",
        lambda match: f"{match[1]}.{STREAM_LAYERS[architecture][match[2]]}.",
        name,
    )


def infer_config(
    weights: dict[str, Tensor], architecture: Architecture, num_attention_heads: int | None
) -> XMLConfig | ReLoCLNetConfig:
    """Read the configuration from the shapes of the weights.

    Args:
        weights: With the names here.
        architecture: "xml" or "reloclnet".
        num_attention_heads: Needed where the width is not that of the released configuration.

    Returns:
        The configuration.

    Raises:
        ValueError: If weights that show the sizes are missing, or the heads are not known.
    """
    needed = ("query_encoder.projection.dense.weight", "video.projection.dense.weight")
    positions = ("query_encoder.positions.embedding.weight", "positions.embedding.weight")
    missing = [name for name in (*needed, *positions, "span_head.start.weight") if name not in weights]
    if missing:
        raise ValueError(
            f"this is not a checkpoint of {architecture} with a video stream: it has nothing for {', '.join(missing)}"
        )
    hidden_size = size_of(weights, needed[0], 0, 2)
    subtitle = "subtitle.projection.dense.weight"
    heads = num_attention_heads or HEADS.get((architecture, hidden_size))
    if heads is None:
        raise ValueError(
            f"weights of width {hidden_size} do not show how many heads they have; give --num_attention_heads"
        )
    return make_config(
        cast("type[XMLConfig | ReLoCLNetConfig]", MODELS[architecture].config_class),
        video_feature_size=size_of(weights, needed[1], 1, 2),
        query_feature_size=size_of(weights, needed[0], 1, 2),
        subtitle_feature_size=size_of(weights, subtitle, 1, 2) if subtitle in weights else None,
        hidden_size=hidden_size,
        num_attention_heads=heads,
        max_query_tokens=size_of(weights, positions[0], 0, 2),
        max_video_clips=size_of(weights, positions[1], 0, 2),
        conv_kernel_size=size_of(weights, "span_head.start.weight", 2, 3),
        end_convention="xml_legacy" if architecture == "xml" else "exclusive",
        mask_similarity=False,
    )


def convert(
    checkpoint: Path, architecture: Architecture, *, num_attention_heads: int | None = None
) -> XMLForMomentRetrieval | ReLoCLNetForMomentRetrieval:
    """Build the model of a checkpoint.

    Args:
        checkpoint: File of torch (plain weights, on their own or under `state_dict` or `model`) or safetensors.
        architecture: "xml" or "reloclnet".
        num_attention_heads: Needed where the width is not that of the released configuration.

    Returns:
        The model, float32, in evaluation mode.

    Raises:
        ValueError: If the checkpoint cannot be read, or a weight is missing, too many or of another shape.
    """
    weights = {rename(name, architecture): value for name, value in read_checkpoint(checkpoint).items()}
    config = infer_config(weights, architecture, num_attention_heads)
    return load_weights(MODELS[architecture], config, weights)


def save(model: XMLForMomentRetrieval | ReLoCLNetForMomentRetrieval, output_dir: Path) -> None:
    """Write a model into a new folder, which appears complete or not at all.

    Args:
        model: To save.
        output_dir: Must not exist, or be empty.

    Raises:
        ValueError: If something is there.
    """
    with new_folder(output_dir) as scratch:
        model.save_pretrained(scratch)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("output_dir", type=Path)
    parser.add_argument("--arch", choices=sorted(MODELS), required=True)
    parser.add_argument("--num_attention_heads", "--num-attention-heads", type=int)
    arguments = parser.parse_args()
    try:
        model = convert(arguments.checkpoint, arguments.arch, num_attention_heads=arguments.num_attention_heads)
        save(model, arguments.output_dir)
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    config = model.config
    streams = "video and subtitles" if config.num_streams == 2 else "video only"
    print(  # noqa: T201 (a command says what it did)
        f"{type(model).__name__}: {streams}, width {config.hidden_size}, {config.num_attention_heads} heads, at most "
        f"{config.max_video_clips} clips and {config.max_query_tokens} tokens -> {arguments.output_dir}"
    )


if __name__ == "__main__":
    main()
