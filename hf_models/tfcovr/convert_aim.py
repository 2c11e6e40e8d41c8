"""Turn an AIM checkpoint of mmaction, or of the TF-CoVR release, into a model folder.

    python -m hf_models.tfcovr.convert_aim CHECKPOINT OUTPUT_DIR --adapter_scale 0.5

Frames, sizes, adapters and classes are read from the weights. What weights do not show must be given: the scale of the
adapter beside the MLP (0.5 in AIM's configurations with one temporal adapter, 1.0 with two), and the number of heads
where the width is not that of CLIP's ViT-B or ViT-L.
"""

import argparse
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from torch import Tensor

from hf_models.atomic_files import new_folder
from hf_models.checkpoints import load_weights, make_config, read_checkpoint, size_of

from .configuration_aim import AIMConfig
from .modeling_aim import AIMForVideoClassification, AIMModel
from .video_processing_aim import AIMVideoProcessor

HEADS_OF_CLIP = {768: 12, 1024: 16}
RENAMES = (
    (r"^class_embedding$", "embeddings.class_embedding"),
    (r"^temporal_embedding$", "embeddings.temporal_embedding"),
    (r"^positional_embedding$", "embeddings.position_embedding.weight"),
    (r"^conv1\.weight$", "embeddings.patch_embedding.weight"),
    (r"^ln_pre\.", "pre_layrnorm."),
    (r"^ln_post\.", "post_layernorm."),
    (r"^transformer\.resblocks\.", "encoder.layers."),
    (r"\.attn\.", ".self_attn."),
    (r"\.ln_([12])\.", r".layer_norm\1."),
    (r"\.mlp\.c_fc\.", ".mlp.fc1."),
    (r"\.mlp\.c_proj\.", ".mlp.fc2."),
    (r"\.T_Adapter_in\.", ".adapters.temporal_input."),
    (r"\.T_Adapter\.", ".adapters.temporal."),
    (r"\.S_Adapter\.", ".adapters.spatial."),
    (r"\.MLP_Adapter\.", ".adapters.joint."),
    (r"\.D_fc1\.", ".down."),
    (r"\.D_fc2\.", ".up."),
)


def rename(name: str, weight: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Give a weight of the reference backbone the name that it has in `AIMModel`.

    Args:
        name: In the reference.
        weight: Its value.

    Yields:
        The name and the value; three of them for the reference's fused query, key and value.

    Raises:
        ValueError: If a fused weight does not consist of three.
    """
    for pattern, replacement in RENAMES:
        name = re.sub(pattern, replacement, name)
    if not (fused := re.fullmatch(r"(.+\.self_attn\.)in_proj_(weight|bias)", name)):
        yield name, weight
        return
    if not weight.ndim or len(weight) % 3:
        raise ValueError(f"{name} of shape {tuple(weight.shape)} does not consist of query, key and value")
    for projection, part in zip("qkv", weight.chunk(3), strict=True):
        yield f"{fused[1]}{projection}_proj.{fused[2]}", part.clone()


def split_head(weights: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Separate the backbone from the classifier, whatever they are called in the checkpoint.

    The temporal embedding, which only AIM has, tells the prefix of the backbone.

    Args:
        weights: Of the checkpoint.

    Returns:
        The backbone without its prefix, and `weight` and `bias` of the classifier; empty where there is none.

    Raises:
        ValueError: If this is not an AIM, or holds more than a backbone and one linear layer.
    """
    ends = [name.removesuffix("temporal_embedding") for name in weights if name.endswith("temporal_embedding")]
    if len(ends) != 1:
        raise ValueError(f"this is not an AIM checkpoint: it has {len(ends)} temporal embeddings, not 1")
    known = re.compile(re.escape(ends[0]) + r"(?:\w+_embedding|conv1\.|ln_(?:pre|post)\.|transformer\.resblocks\.).*")
    backbone = {name.removeprefix(ends[0]): value for name, value in weights.items() if known.match(name)}
    others = {name: value for name, value in weights.items() if not known.match(name)}
    head = {name.rpartition(".")[2]: value for name, value in others.items()}
    is_linear = len(others) == 2 and head.keys() == {"weight", "bias"} and head["weight"].ndim == 2
    if others and not is_linear:
        raise ValueError(f"the checkpoint has weights that AIM has no place for: {', '.join(sorted(others)[:8])[:300]}")
    return backbone, head


def infer_aim_config(
    backbone: dict[str, Tensor],
    head: dict[str, Tensor],
    *,
    num_attention_heads: int | None,
    adapter_scale: float,
) -> AIMConfig:
    """Read the architecture from the shapes of the weights.

    Args:
        backbone: Names as in the reference.
        head: `weight` and `bias`, or nothing.
        num_attention_heads: Needed where the width is not one of CLIP's.
        adapter_scale: Factor on the adapter beside the MLP.

    Returns:
        The configuration.

    Raises:
        ValueError: If a weight that shows a size is missing, or the number of heads is not known.
    """
    first = "transformer.resblocks.0."
    hidden_size = size_of(backbone, "class_embedding", 0, 1)
    patch_size = size_of(backbone, "conv1.weight", 3, 4)
    num_patches = size_of(backbone, "positional_embedding", 0, 2) - 1
    side = math.isqrt(num_patches)
    if not num_patches or side**2 != num_patches:
        raise ValueError(f"positional_embedding is of {num_patches} patches, which make no square")
    intermediate_size = size_of(backbone, f"{first}mlp.c_fc.bias", 0, 1)
    adapter_size = size_of(backbone, f"{first}T_Adapter.D_fc1.bias", 0, 1)
    num_frames = size_of(backbone, "temporal_embedding", 1, 3)
    heads = num_attention_heads or HEADS_OF_CLIP.get(hidden_size)
    if heads is None:
        raise ValueError(f"the weights do not show the number of heads at width {hidden_size}: --num_attention_heads")
    blocks = {name.split(".")[2] for name in backbone if name.startswith("transformer.resblocks.")}
    if blocks != {str(number) for number in range(len(blocks))}:
        raise ValueError(f"the blocks of the checkpoint are not numbered from 0: {', '.join(sorted(blocks))[:80]}")
    return make_config(
        AIMConfig,
        hidden_size=hidden_size,
        intermediate_size=intermediate_size,
        num_hidden_layers=len(blocks),
        num_attention_heads=heads,
        image_size=side * patch_size,
        patch_size=patch_size,
        num_frames=num_frames,
        num_temporal_adapters=2 if f"{first}T_Adapter_in.D_fc1.bias" in backbone else 1,
        adapter_ratio=adapter_size / hidden_size,
        adapter_scale=adapter_scale,
        **({"num_labels": size_of(head, "bias", 0, 1)} if head else {}),
    )


def convert(
    checkpoint: Path, *, adapter_scale: float, num_attention_heads: int | None = None
) -> AIMModel | AIMForVideoClassification:
    """Build the model of a checkpoint.

    Args:
        checkpoint: File of torch or safetensors.
        adapter_scale: Factor on the adapter beside the MLP.
        num_attention_heads: Needed where the width is not that of CLIP's ViT-B or ViT-L.

    Returns:
        The model, float32, in evaluation mode; with a head where the checkpoint has one.

    Raises:
        ValueError: If the checkpoint cannot be read, is not an AIM, or a weight is missing, too many or of another
            shape.
    """
    backbone, head = split_head(read_checkpoint(checkpoint))
    config = infer_aim_config(backbone, head, num_attention_heads=num_attention_heads, adapter_scale=adapter_scale)
    weights = dict(pair for name, value in backbone.items() for pair in rename(name, value))
    if head:
        weights = {f"aim.{name}": value for name, value in weights.items()}
        weights |= {f"classifier.{name}": value for name, value in head.items()}
    model_class: type[AIMModel] | type[AIMForVideoClassification] = AIMForVideoClassification if head else AIMModel
    return load_weights(model_class, config, weights)


def save(model: AIMModel | AIMForVideoClassification, output_dir: Path) -> None:
    """Write a model and its video processor into a new folder, which appears complete or not at all.

    Args:
        model: To save.
        output_dir: Must not exist, or be empty.

    Raises:
        ValueError: If something is there.
    """
    size = {"height": model.config.image_size, "width": model.config.image_size}
    with new_folder(output_dir) as scratch:
        model.save_pretrained(scratch)
        AIMVideoProcessor(num_frames=model.config.num_frames, size=size, crop_size=size).save_pretrained(scratch)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("output_dir", type=Path)
    parser.add_argument("--adapter_scale", "--adapter-scale", type=float, required=True)
    parser.add_argument("--num_attention_heads", "--num-attention-heads", type=int)
    arguments = parser.parse_args()
    try:
        model = convert(
            arguments.checkpoint,
            adapter_scale=arguments.adapter_scale,
            num_attention_heads=arguments.num_attention_heads,
        )
        save(model, arguments.output_dir)
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    config = model.config
    print(  # noqa: T201 (a command says what it did)
        f"{type(model).__name__}: {config.num_hidden_layers} blocks of width {config.hidden_size}, {config.num_frames} "
        f"frames of {config.image_size} px, {config.num_temporal_adapters} temporal adapter(s) -> "
        f"{arguments.output_dir}"
    )


if __name__ == "__main__":
    main()
