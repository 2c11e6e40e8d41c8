"""The sizes of the models that the configurations which ship name, for estimates without a download."""

from pathlib import Path
from typing import Any

from transformers import AutoConfig

VIT_L: dict[str, Any] = {
    "projection_dim": 768,
    "text_config": {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12},
    "vision_config": {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24}
    | {"num_attention_heads": 16, "patch_size": 14},
}
QWEN_TEXT = {"vocab_size": 151_936, "num_hidden_layers": 28, "tie_word_embeddings": True}
KNOWN: dict[str, tuple[str, dict[str, Any]]] = {
    "openai/clip-vit-base-patch32": ("clip", {}),
    "openai/clip-vit-base-patch16": ("clip", {"vision_config": {"patch_size": 16}}),
    "openai/clip-vit-large-patch14": ("clip", VIT_L),
    "laion/CLIP-ViT-L-14-DataComp.XL-s13B-b90K": (
        "clip",
        {
            **VIT_L,
            "text_config": {**VIT_L["text_config"], "hidden_act": "gelu"},
            "vision_config": {**VIT_L["vision_config"], "hidden_act": "gelu"},
        },
    ),
    "Salesforce/blip2-itm-vit-g-coco": (
        "blip-2",
        {
            "image_text_hidden_size": 256,
            "qformer_config": {"vocab_size": 30_523, "use_qformer_text_input": True},
            "text_config": {"model_type": "opt"},
        },
    ),
    "Qwen/Qwen3-VL-Embedding-2B": (
        "qwen3_vl",
        {
            "dtype": "bfloat16",
            "tie_word_embeddings": True,
            "text_config": QWEN_TEXT
            | {"hidden_size": 2048, "intermediate_size": 6144, "num_attention_heads": 16, "num_key_value_heads": 8},
            "vision_config": {"depth": 24, "hidden_size": 1024, "intermediate_size": 4096, "num_heads": 16}
            | {"out_hidden_size": 2048, "deepstack_visual_indexes": [5, 11, 17]},
        },
    ),
    "Alibaba-NLP/gme-Qwen2-VL-2B-Instruct": (
        "qwen2_vl",
        {
            "dtype": "bfloat16",
            "tie_word_embeddings": True,
            "text_config": QWEN_TEXT
            | {"hidden_size": 1536, "intermediate_size": 8960, "num_attention_heads": 12, "num_key_value_heads": 2},
            "vision_config": {"hidden_size": 1536},
        },
    ),
}
"""Name on the Hub -> type of model, and how its configuration differs from that type's default."""


def read_sizes(name_or_path: str, *, offline: bool = True) -> Any:
    """The configuration of a model: of its folder, of the Hub's cache, or as `KNOWN` has it.

    Returns:
        None where nothing on this machine tells it, and `offline` forbids to ask the Hub.

    Raises:
        OSError: There is no such model.
    """
    is_folder = Path(name_or_path).is_dir()
    try:
        return AutoConfig.from_pretrained(name_or_path, local_files_only=offline and not is_folder)
    except OSError:
        if offline and not is_folder:
            kind, fields = KNOWN.get(name_or_path, ("", {}))
            if kind:
                return AutoConfig.for_model(kind, **fields)
            if not Path(name_or_path).exists():
                return None
        raise
