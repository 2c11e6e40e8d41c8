"""Turn a stage-2 checkpoint of the TF-CoVR release (its model `aim`) into a folder of `TFCoVRForComposedRetrieval`.

    python -m hf_models.tfcovr.convert_stage2 CHECKPOINT OUTPUT_DIR --video outputs/tfcovr/embeddings/stage1

The release composes a clip's stored AIM embedding with a text by CLIP4CIR's combiner (`fusion="gated"`). Its text tower
is BERT's in the layout of a Q-Former; what a text alone does not pass through (cross attention, layers of query tokens,
the language-model head, `vision_proj`) is left out. The checkpoint has no video encoder: `--video` names the folder
into which the embeddings of clips were imported, or an AIM that makes them. Sizes are read from the weights.
"""

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoTokenizer, AutoVideoProcessor, BertConfig

from hf_models.atomic_files import new_folder
from hf_models.checkpoints import load_weights, make_config, opening, read_checkpoint, size_of
from hf_models.feature_store import VECTORS

from .configuration_tfcovr import TFCoVRConfig
from .encoders import build_encoder, encoder_fields, load_encoder_weights
from .modeling_tfcovr import TFCoVRForComposedRetrieval
from .processing_tfcovr import TFCoVRProcessor
from .video_processing_aim import AIMVideoProcessor

BERT_HEAD_WIDTH = 64  # of BERT
NOT_READ = (
    r"query_tokens|vision_proj\..*|Qformer\.cls\..*|Qformer\.bert\.embeddings\.position_ids"
    r"|Qformer\.bert\.encoder\.layer\.\d+\.(crossattention|intermediate_query|output_query)\..*"
)
RENAMES = (
    (r"^Qformer\.bert\.", "text_model."),
    (r"^text_proj\.", "text_projection."),
    (r"^combiner\.text_projection_layer\.", "fusion.text_projection."),
    (r"^combiner\.image_projection_layer\.", "fusion.video_projection."),
    (r"^combiner\.combiner_layer\.", "fusion.fused_projection."),
    (r"^combiner\.output_layer\.", "fusion.output_projection."),
    (r"^combiner\.dynamic_scalar\.0\.", "fusion.gate_projection."),
    (r"^combiner\.dynamic_scalar\.3\.", "fusion.gate."),
)


class _Schedule:
    """Stands in for the schedule of the learning rate that the release saves beside the weights."""


def read_weights(checkpoint: Path) -> dict[str, Tensor]:
    """The weights of a checkpoint under the names that they have in `TFCoVRForComposedRetrieval`.

    Raises:
        ValueError: It cannot be read without running code, or is not of stage 2.
    """
    with torch.serialization.safe_globals([(_Schedule, "src.tools.scheduler.CosineSchedule")]):
        found = read_checkpoint(checkpoint, skip=NOT_READ)
    weights: dict[str, Tensor] = {}
    unknown: list[str] = []
    for name, weight in found.items():
        new = [re.sub(pattern, replacement, name) for pattern, replacement in RENAMES if re.search(pattern, name)]
        unknown += [] if new else [name]
        weights |= {one: weight.float() for one in new}
    if unknown:
        raise ValueError(
            f"{len(unknown)} weights have no place in TF-CoVR's stage 2 with BERT, such as {', '.join(unknown[:3])}; "
            "AIM is converted by hf_models.tfcovr.convert_aim"
        )
    return weights


def video_source(folder: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Where video embeddings come from, as fields of a configuration, and the weights of the video encoder, if any.

    Raises:
        ValueError: The folder has embeddings that were not imported, or the AIM cannot be opened.
    """
    path = Path(folder) / "video" / VECTORS
    if path.is_file():
        made = json.loads(path.read_text(encoding="utf-8"))["made_by"]
        if "imported_from" not in made:
            raise ValueError(f"the embeddings in {folder} were not imported; name the AIM that made them")
        return {"imported_video": made}, {}
    with opening(folder):
        fields = encoder_fields(AutoConfig.from_pretrained(folder), "vision", None)
        encoder = load_encoder_weights(folder, build_encoder(fields["vision_config"], None, "vision"), "vision")
    return fields, {f"vision_model.{name}": weight for name, weight in encoder.state_dict().items()}


def convert(checkpoint: Path, video: str) -> TFCoVRForComposedRetrieval:
    """Build the model of a checkpoint.

    Args:
        checkpoint: File of torch or safetensors.
        video: The folder into which `subtle embed clips` imported the embeddings of clips; or an AIM, its folder or
            name on the Hub.

    Returns:
        The model, float32, in evaluation mode.

    Raises:
        ValueError: The checkpoint cannot be read, is of another model, or a weight is missing, too many or of another
            shape; or the video embeddings are others.
    """
    weights = read_weights(checkpoint)
    fields, encoder = video_source(video)
    hidden = size_of(weights, "text_model.embeddings.word_embeddings.weight", 1, 2)
    text_config = make_config(
        BertConfig,
        vocab_size=size_of(weights, "text_model.embeddings.word_embeddings.weight", 0, 2),
        hidden_size=hidden,
        num_hidden_layers=len({name.split(".")[3] for name in weights if name.startswith("text_model.encoder.")}),
        num_attention_heads=max(1, hidden // BERT_HEAD_WIDTH),
        intermediate_size=size_of(weights, "text_model.encoder.layer.0.intermediate.dense.bias", 0, 1),
        max_position_embeddings=size_of(weights, "text_model.embeddings.position_embeddings.weight", 0, 2),
        type_vocab_size=1,
    )
    config = TFCoVRConfig(
        text_config=text_config,
        fusion="gated",
        fusion_projection_dim=size_of(weights, "fusion.text_projection.bias", 0, 1),
        fusion_hidden_dim=size_of(weights, "fusion.fused_projection.bias", 0, 1),
        **fields,
    )
    size = size_of(weights, "fusion.output_projection.bias", 0, 1)
    if config.video_embed_dim != size:
        raise ValueError(
            f"the checkpoint takes video embeddings of size {size}, and {video} has {config.video_embed_dim}; name "
            "those that it was trained on"
        )
    # BERT has what a Q-Former leaves out: types of tokens, of which a text has one, and a pooler that nothing reads.
    weights["text_model.embeddings.token_type_embeddings.weight"] = torch.zeros(1, hidden)
    weights["text_model.pooler.dense.weight"] = torch.zeros(hidden, hidden)
    weights["text_model.pooler.dense.bias"] = torch.zeros(hidden)
    return load_weights(TFCoVRForComposedRetrieval, config, weights | encoder)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("output_dir", type=Path)
    parser.add_argument("--video", required=True, help="the folder of imported embeddings of clips, or an AIM")
    parser.add_argument("--tokenizer", default="google-bert/bert-base-uncased", help="a folder or a name on the Hub")
    arguments = parser.parse_args()
    try:
        model = convert(arguments.checkpoint, arguments.video)
        tokenizer = AutoTokenizer.from_pretrained(arguments.tokenizer)
        has_own = model.vision_model is not None
        videos = AutoVideoProcessor.from_pretrained(arguments.video) if has_own else AIMVideoProcessor()
        with new_folder(arguments.output_dir) as scratch:
            model.save_pretrained(scratch)
            TFCoVRProcessor(videos, tokenizer, number_words=True).save_pretrained(scratch)
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    fusion = sum(weight.numel() for weight in model.fusion.parameters())
    print(  # noqa: T201 (a command says what it did)
        f"TF-CoVR: a combiner of {fusion:,} weights for videos of size {model.config.video_embed_dim} -> "
        f"{arguments.output_dir}"
    )


if __name__ == "__main__":
    main()
