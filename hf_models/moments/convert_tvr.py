"""Turn a checkpoint of the released XML, ReLoCLNet or HERO code into a model folder.

    python -m hf_models.moments.convert_tvr --arch xml CHECKPOINT OUTPUT_DIR

Sizes and streams are read from the weights; the number of heads must be given where the width is not that of the
released configuration. The models come out with what the released code does and this project does not by default: its
end convention, predictors that see the padding (`XMLConfig.mask_similarity`), and HERO's positions of text from 0. HERO
comes out for video only: subtitles as the words that are said during each frame, which it also reads, have no
counterpart here.
"""

import argparse
import re
import sys
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from hf_models.atomic_files import new_folder
from hf_models.checkpoints import load_weights, make_config, read_checkpoint, renamed, size_of

from .configuration_hero import HEROConfig
from .configuration_reloclnet import ReLoCLNetConfig
from .configuration_xml import XMLConfig
from .modeling_hero import HEROForMomentRetrieval
from .modeling_reloclnet import ReLoCLNetForMomentRetrieval
from .modeling_xml import XMLForMomentRetrieval

Architecture = Literal["xml", "reloclnet", "hero"]
MomentModel = XMLForMomentRetrieval | ReLoCLNetForMomentRetrieval | HEROForMomentRetrieval
TVR_MODELS: dict[
    Architecture, type[XMLForMomentRetrieval] | type[ReLoCLNetForMomentRetrieval] | type[HEROForMomentRetrieval]
] = {
    "xml": XMLForMomentRetrieval,
    "reloclnet": ReLoCLNetForMomentRetrieval,
    "hero": HEROForMomentRetrieval,
}
HEADS = {("xml", 256): 4, ("reloclnet", 384): 8, ("hero", 768): 12}
RELEASED: dict[Architecture, dict[str, Any]] = {
    "xml": {"end_convention": "xml_legacy"},
    "reloclnet": {"end_convention": "exclusive"},
    "hero": {"end_convention": "hero_legacy", "positions_from_zero": True},
}
# Field -> weight that shows it, dimension, and how many dimensions the weight has.
SIZES = {
    "video_feature_size": ("video.projection.dense.weight", 1, 2),
    "query_feature_size": ("query_encoder.projection.dense.weight", 1, 2),
    "hidden_size": ("query_encoder.projection.dense.weight", 0, 2),
    "max_query_tokens": ("query_encoder.positions.embedding.weight", 0, 2),
    "max_video_clips": ("positions.embedding.weight", 0, 2),
    "conv_kernel_size": ("span_head.start.weight", 2, 3),
}
SUBTITLES = "subtitle.projection.dense.weight"
HERO_SIZES = {
    "hidden_size": ("frame_projection.dense.weight", 0, 2),
    "video_feature_size": ("frame_projection.dense.weight", 1, 2),
    "vocab_size": ("cross_modal.embeddings.word_embeddings.weight", 0, 2),
    "max_position_embeddings": ("cross_modal.embeddings.position_embeddings.weight", 0, 2),
    "intermediate_size": ("cross_modal.encoder.layer.0.intermediate.dense.weight", 0, 2),
    "max_video_clips": ("frame_embeddings.positions.weight", 0, 2),
    "max_query_tokens": ("query_encoder.positions.embedding.weight", 0, 2),
    "conv_kernel_size": ("span_head.start.weight", 2, 3),
}
SHARED_RENAMES = (
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
HERO_RENAMES = (
    (r"^v_encoder\.f_encoder\.(encoder|embeddings)\.", r"cross_modal.\1."),
    (r"^v_encoder\.f_encoder\.img_embeddings\.img_LayerNorm\.", "frame_embeddings.input_norm."),
    (r"^v_encoder\.f_encoder\.img_embeddings\.img_linear\.", "frame_embeddings.dense."),
    (r"^v_encoder\.f_encoder\.img_embeddings\.position_embeddings\.", "frame_embeddings.positions."),
    (r"^v_encoder\.f_encoder\.img_embeddings\.LayerNorm\.", "frame_embeddings.layer_norm."),
    (r"^v_encoder\.frame_transform\.", "frame_projection."),
    (r"^v_encoder\.c_encoder\.embeddings\.position_embeddings\.", "positions.embedding."),
    (r"^v_encoder\.c_encoder\.embeddings\.LayerNorm\.", "positions.layer_norm."),
    (r"^v_encoder\.c_encoder\.encoder\.", "temporal."),
    (r"^q_feat_attn\.query_input_proj\.", "query_encoder.projection."),
    (r"^q_feat_attn\.query_pos_embed\.position_embeddings\.", "query_encoder.positions.embedding."),
    (r"^q_feat_attn\.query_pos_embed\.", "query_encoder.positions."),
    (r"^q_feat_attn\.query_self_attention\.self\.", "query_encoder.layers.0.attention."),
    (r"^q_feat_attn\.query_self_attention\.output\.", "query_encoder.layers.0."),
    (r"^q_feat_attn\.modular_vector_mapping\.", "query_encoder.pooling.weights."),
    (r"^video_query_linear\.", "span_head.queries.0."),
    (r"^video_st_predictor\.", "span_head.start."),
    (r"^video_ed_predictor\.", "span_head.end."),
    (r"^((?:frame_projection|query_encoder)\..*)net\.1\.", r"\1dense."),
    (r"^((?:frame_projection|query_encoder)\..*)LayerNorm\.", r"\1layer_norm."),
)
RENAMES: dict[Architecture, tuple[tuple[str, str], ...]] = {
    "xml": (
        *SHARED_RENAMES,
        (r"^(video|subtitle)_encoder1\.", r"\1.shallow."),
        (r"^(video|subtitle)_encoder2\.", r"\1.deep.0."),
        (r"^(video|subtitle)_encoder3\.", r"\1.deep.1."),
    ),
    "reloclnet": (
        *SHARED_RENAMES,
        (r"^(video|subtitle)_encoder1\.", r"\1.shallow."),
        (r"^(video|subtitle)_encoder2\.", r"\1.middle."),
        (r"^(video|subtitle)_encoder3\.", r"\1.deep."),
    ),
    "hero": HERO_RENAMES,
}
PRETRAINING = re.compile(r"v_encoder\.(.*\.)?(pooler|lm_head|mask_embedding|feat_regress|fom_output|pad)(\.|$)")
"""What HERO's checkpoints hold beside: heads of its pretraining tasks."""


def infer_moment_config(
    weights: dict[str, Tensor], architecture: Architecture, num_attention_heads: int | None
) -> XMLConfig | ReLoCLNetConfig | HEROConfig:
    """Read the configuration from the shapes of the weights, with what the released code does.

    Args:
        weights: With the names here.
        architecture: "xml", "reloclnet" or "hero".
        num_attention_heads: Needed where the width is not that of the released configuration.

    Raises:
        ValueError: If weights that show the sizes are missing, or the heads are not known.
    """
    places = HERO_SIZES if architecture == "hero" else SIZES
    if missing := [name for name in dict.fromkeys(name for name, *_ in places.values()) if name not in weights]:
        raise ValueError(
            f"this is not a checkpoint of {architecture} with a video stream: it has nothing for {', '.join(missing)}"
        )
    sizes = {field: size_of(weights, *place) for field, place in places.items()}
    if architecture == "hero":
        for field, start in (("num_cross_modal_layers", "cross_modal.encoder"), ("num_temporal_layers", "temporal")):
            layers = {name.split(".layer.")[1].split(".")[0] for name in weights if f"{start}.layer." in name}
            sizes[field] = len(layers)
    elif SUBTITLES in weights:
        sizes["subtitle_feature_size"] = size_of(weights, SUBTITLES, 1, 2)
    heads = num_attention_heads or HEADS.get((architecture, sizes["hidden_size"]))
    if heads is None:
        raise ValueError(
            f"weights of width {sizes['hidden_size']} do not show how many heads they have; give --num_attention_heads"
        )
    config_class: Any = TVR_MODELS[architecture].config_class
    fields = {**sizes, **RELEASED[architecture], "mask_similarity": False}
    config: XMLConfig | ReLoCLNetConfig | HEROConfig = make_config(config_class, **fields, num_attention_heads=heads)
    return config


def convert(checkpoint: Path, architecture: Architecture, *, num_attention_heads: int | None = None) -> MomentModel:
    """Build the model of a checkpoint.

    Args:
        checkpoint: File of torch (plain weights, on their own or under `state_dict` or `model`) or safetensors.
        architecture: "xml", "reloclnet" or "hero".
        num_attention_heads: Needed where the width is not that of the released configuration.

    Returns:
        The model, float32, in evaluation mode.

    Raises:
        ValueError: If the checkpoint cannot be read, or a weight is missing, too many or of another shape.
    """
    weights = {
        renamed(name, RENAMES[architecture]): value
        for name, value in read_checkpoint(checkpoint).items()
        if not (architecture == "hero" and PRETRAINING.match(name))
    }
    config = infer_moment_config(weights, architecture, num_attention_heads)
    if architecture == "hero":
        # Text and frames alike have the type 1 of two, and there are more places in time than for frames.
        for name, rows in (
            ("cross_modal.embeddings.token_type_embeddings.weight", slice(1, 2)),
            ("positions.embedding.weight", slice(config.max_video_clips)),
        ):
            size_of(weights, name, 0, 2)  # refuses what is no table
            weights[name] = weights[name][rows]
    return load_weights(TVR_MODELS[architecture], config, weights)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("output_dir", type=Path)
    parser.add_argument("--arch", choices=sorted(TVR_MODELS), required=True)
    parser.add_argument("--num_attention_heads", "--num-attention-heads", type=int)
    arguments = parser.parse_args()
    try:
        model = convert(arguments.checkpoint, arguments.arch, num_attention_heads=arguments.num_attention_heads)
        with new_folder(arguments.output_dir) as scratch:
            model.save_pretrained(scratch)
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
