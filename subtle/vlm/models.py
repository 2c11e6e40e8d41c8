"""The model to fine-tune: loaded whole or made at random to try the recipe out, and what of it trains."""

from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import nn
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    Qwen2VLImageProcessor,
    Qwen2VLProcessor,
    Qwen2VLVideoProcessor,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
)
from transformers.utils.logging import disable_progress_bar

from hf_datasets.drafts import replacing
from hf_datasets.tfcovr.labels import load_labels
from hf_models.encoders import ENCODERS, LanguageModelEncoder, load_encoder
from hf_models.encoders.adapters import check_base_name, read_adapter, with_adapter
from hf_models.encoders.estimates import target_pattern
from hf_models.encoders.loading import read_config
from hf_models.encoders.modeling_layer_head import LayerHead, LayerHeadConfig

LORA_ALPHA = 16
LORA_TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj"]
HEAD_LAYERS, HEAD_SIZE = 2, 256
QWEN_MARKS = ("<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
END = "<|endoftext|>"
WIDTH = 64
TINY = ("tiny-random-qwen2-vl", "tiny-random-qwen3-vl")
"""Models of random weights that `make_tiny` makes."""
FAMILIES = {name: kind for name, kind in ENCODERS.items() if issubclass(kind, LanguageModelEncoder) and kind.has_layers}
"""The `model_type`s that the recipe fine-tunes."""


def read_checked_config(name_or_path: str) -> Any:
    """The configuration of a model that the recipe can fine-tune.

    Raises:
        ValueError: It has no text tower, or is no multimodal language model that embeds by a token.
        OSError: There is no such model.
    """
    config: Any = read_config(name_or_path)
    kind = None if config is None else ENCODERS[config.model_type]
    if kind is not None and config.model_type in FAMILIES:
        return config
    what = "is a model of sentence-transformers"
    if kind is not None:
        what = f"is a {config.model_type!r} model" + ("" if kind.reads_texts else ", which has no text tower")
    raise ValueError(
        f"{name_or_path} {what}; this recipe fine-tunes multimodal language models "
        f"({', '.join(sorted(FAMILIES))}): give --model Qwen/Qwen3-VL-Embedding-2B or "
        "Alibaba-NLP/gme-Qwen2-VL-2B-Instruct; stage1.py, tune.py and vidclip.py train models of the CLIP kind"
    )


def add_lora(encoder: LanguageModelEncoder, config: Any) -> PeftModel:
    """Put LoRA into the language model of an encoder, new or from `config.adapter`; everything else is frozen.

    Raises:
        ValueError: The adapter was trained on another model, or its weights are not all there.
    """
    if config.adapter is not None:
        check_base_name(read_adapter(config.adapter).base_model_name_or_path, config.adapter, config.model)
        try:
            return with_adapter(encoder.model, config.adapter, is_trainable=True)
        except (RuntimeError, ValueError) as error:
            raise ValueError(f"the adapter {config.adapter} does not fit {config.model}: {str(error)[:600]}") from None
    lora = LoraConfig(
        r=config.rank,
        lora_alpha=LORA_ALPHA,
        lora_dropout=config.lora_dropout,
        target_modules=target_pattern(LORA_TARGETS),
        base_model_name_or_path=config.model,
    )
    adapted = get_peft_model(encoder.model, lora)
    adapted.peft_config["default"].base_model_name_or_path = config.model
    return adapted


def new_head(model_config: Any, config: Any) -> LayerHead:
    """A head over the layers that the recipe's configuration names; None: all but the token embeddings."""
    text = model_config.get_text_config()
    layers = config.layers or list(range(1, text.num_hidden_layers + 1))
    return LayerHead(
        LayerHeadConfig(
            base_model_name_or_path=config.model,
            layers=layers,
            input_size=text.hidden_size,
            hidden_size=HEAD_SIZE,
            num_hidden_layers=HEAD_LAYERS,
            dropout=config.lora_dropout,
        )
    )


class TrainedWeights(nn.Module):
    """The weights that train, and nothing else, as a module that is saved and restored; the model shares them."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        for name, weight in model.named_parameters():
            if weight.requires_grad:
                self.register_parameter(name.replace(".", "/"), weight)


def load_frozen(config: Any, device: torch.device) -> LanguageModelEncoder:
    """The encoder with its weights as they were saved, none of which trains."""
    disable_progress_bar()
    encoder = load_encoder(config.model, device, config.num_frames)
    assert isinstance(encoder, LanguageModelEncoder)  # `read_checked_config` refused the others
    encoder.model.requires_grad_(False)
    return encoder


def make_tiny(name: str, folder: Path, *, seed: int = 0) -> str:
    """Make a small Qwen2-VL or Qwen3-VL of random weights with a tokenizer of its own, unless it is there.

    Args:
        name: One of `TINY`.
        folder: Where to save it.
        seed: Of the weights.

    Returns:
        The folder.
    """
    if not (folder / "config.json").is_file():
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model, processor = (tiny_qwen2_vl if "qwen2" in name else tiny_qwen3_vl)()
            for weight in model.parameters():  # larger than usual, so that frames and words make a difference
                if weight.ndim > 1:
                    nn.init.normal_(weight, std=0.1)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with replacing(folder) as unfinished:
            model.save_pretrained(unfinished)
            processor.save_pretrained(unfinished)
    return str(folder)


def label_tokenizer() -> PreTrainedTokenizerFast:
    """Pieces of the words of TF-CoVR's labels, single bytes for everything else, and Qwen's marks."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=1024, special_tokens=[END], initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([label.description for label in load_labels()], trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=END, eos_token="<|im_end|>", model_max_length=100_000
    )
    fast.add_special_tokens({"additional_special_tokens": list(QWEN_MARKS)})
    return fast


def text_fields(tokenizer: Any, **rope: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "hidden_size": WIDTH,
        "intermediate_size": 2 * WIDTH,
        "num_hidden_layers": 2,
        "head_dim": 16,
    }
    fields |= {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": len(tokenizer)}
    fields |= {"max_position_embeddings": 32_768, "bos_token_id": None, "eos_token_id": 0, "pad_token_id": 0}
    return {**fields, "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0, **rope}}


def token_ids(tokenizer: Any) -> dict[str, Any]:
    names = {"image_token_id": "<|image_pad|>", "video_token_id": "<|video_pad|>"}
    names |= {"vision_start_token_id": "<|vision_start|>", "vision_end_token_id": "<|vision_end|>"}
    return {field: tokenizer.convert_tokens_to_ids(mark) for field, mark in names.items()}


def tiny_qwen2_vl() -> tuple[PreTrainedModel, Any]:
    """Frames of 16 x 16 patches, each a token."""
    tokenizer = label_tokenizer()
    vision = {"depth": 1, "embed_dim": 32, "hidden_size": WIDTH, "num_heads": 2, "mlp_ratio": 2, "patch_size": 4}
    vision |= {"spatial_merge_size": 1}
    text = text_fields(tokenizer, mrope_section=[2, 3, 3])
    config = Qwen2VLConfig(text_config=text, vision_config=vision, **token_ids(tokenizer))
    sizes: dict[str, Any] = {"patch_size": 4, "merge_size": 1, "size": {"shortest_edge": 64, "longest_edge": 256}}
    parts = Qwen2VLImageProcessor(**sizes), tokenizer, Qwen2VLVideoProcessor(**sizes)
    return Qwen2VLForConditionalGeneration(config), Qwen2VLProcessor(*parts)


def tiny_qwen3_vl() -> tuple[PreTrainedModel, Any]:
    """At most 1024 pixels a frame, four patches of 4 x 4 to a token."""
    tokenizer = label_tokenizer()
    vision: dict[str, Any] = {"depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "patch_size": 4}
    vision |= {"out_hidden_size": WIDTH, "num_position_embeddings": 16, "deepstack_visual_indexes": [0]}
    text = text_fields(tokenizer, mrope_section=[4, 2, 2], mrope_interleaved=True)
    config = Qwen3VLConfig(text_config=text, vision_config=vision, **token_ids(tokenizer))
    sizes: dict[str, Any] = {"patch_size": 4, "size": {"shortest_edge": 64, "longest_edge": 1024}}
    parts = Qwen2VLImageProcessor(**sizes), tokenizer, Qwen3VLVideoProcessor(**sizes)
    return Qwen3VLForConditionalGeneration(config), Qwen3VLProcessor(*parts)
