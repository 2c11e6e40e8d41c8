"""A small BLIP and BLIP-2 with random weights, where no small trained ones exist: they show that a row runs."""

from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from transformers import (
    AutoImageProcessor,
    AutoTokenizer,
    Blip2Config,
    Blip2ForImageTextRetrieval,
    Blip2Processor,
    BlipConfig,
    BlipForImageTextRetrieval,
    BlipImageProcessor,
    BlipProcessor,
)

from hf_datasets.drafts import replacing

RANDOM = "random"
"""In place of a model's name: the one that is made here."""
VISION = {"hidden_size": 96, "intermediate_size": 192, "num_hidden_layers": 2, "num_attention_heads": 3}
TEXT = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 2}
EMBEDDING_SIZE = 64
QUERY_TOKENS = 32
GAIN = 3.0
"""Of random weights over those that keep the scale; it tells clips apart, whose frames share most of their pixels."""


def random_model(kind: str, folder: Path, like: str) -> str:
    """The folder of a random model, which is made where it is missing; the same weights on every machine.

    Args:
        kind: "blip" or "blip-2".
        folder: where it is or goes.
        like: a CLIP whose tokenizer and image size it takes.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_name(f"{folder.name}.lock")):
        if not (folder / "config.json").is_file():
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                model, processor = {"blip": make_blip, "blip-2": make_blip2}[kind](like)
                enlarge_frozen_weights(model)
            with replacing(folder) as unfinished:
                model.eval().save_pretrained(unfinished)
                processor.save_pretrained(unfinished)
    return str(folder)


def parts_like(like: str) -> tuple[Any, Any, dict[str, int]]:
    """The tokenizer of a CLIP, an image processor for its size, and the size as a vision model takes it."""
    images, tokenizer = AutoImageProcessor.from_pretrained(like), AutoTokenizer.from_pretrained(like)
    side = images.size["height"]
    return tokenizer, BlipImageProcessor(size={"height": side, "width": side}), {"image_size": side, "patch_size": 16}


def token_fields(tokenizer: Any, more_tokens: int) -> dict[str, int]:
    """What a text encoder takes from its tokenizer."""
    ids = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    ids |= {"sep_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    return {"vocab_size": len(tokenizer) + more_tokens, "max_position_embeddings": tokenizer.model_max_length, **ids}


def make_blip(like: str) -> tuple[Any, Any]:
    tokenizer, images, sizes = parts_like(like)
    text = {**TEXT, **token_fields(tokenizer, 2), "encoder_hidden_size": VISION["hidden_size"], "is_decoder": True}
    config = BlipConfig(text_config=text, vision_config={**VISION, **sizes}, image_text_hidden_size=EMBEDDING_SIZE)
    return BlipForImageTextRetrieval(config), BlipProcessor(images, tokenizer)


def make_blip2(like: str) -> tuple[Any, Any]:
    tokenizer, images, sizes = parts_like(like)
    queries = {**TEXT, **token_fields(tokenizer, 0), "encoder_hidden_size": VISION["hidden_size"]}
    queries |= {"cross_attention_frequency": 1, "use_qformer_text_input": True}
    config = Blip2Config(
        vision_config={**VISION, **sizes},
        qformer_config=queries,
        text_config={"model_type": "opt"},
        num_query_tokens=QUERY_TOKENS,
        image_text_hidden_size=EMBEDDING_SIZE,
    )
    model = Blip2ForImageTextRetrieval(config)
    torch.nn.init.normal_(model.query_tokens)  # they start at zero
    return model, Blip2Processor(images, tokenizer)


@torch.no_grad()
def enlarge_frozen_weights(model: torch.nn.Module) -> None:
    """Give what stays frozen larger weights than usual, with which random models tell inputs apart."""
    for name, weight in model.named_parameters():
        if weight.ndim > 1 and not name.startswith(("text_encoder.", "text_proj.", "query_tokens")):
            torch.nn.init.normal_(weight, std=GAIN * weight[0].numel() ** -0.5)
