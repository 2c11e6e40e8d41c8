"""What a run leaves: an adapter of PEFT or a head over layers, with a card."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCardData
from safetensors.torch import load_file

from hf_models.cards import Measurement, options_table, results_table, write_card
from hf_models.encoders import LanguageModelEncoder
from subtle.run.results import replacing

LOSSES = {
    "multi_positive": "multi-positive InfoNCE: what says the same as the target is a positive",
    "infonce": "InfoNCE, in-batch negatives",
    "hn_nce": "HN-NCE: hard negatives weigh more",
}
LOADING = {
    "lora": """\
```python
from peft import AutoPeftModel
from hf_models.encoders import load_encoder

encoder = load_encoder("{base}", adapter="{folder}")  # encode_video, encode_text, encode_query
model = AutoPeftModel.from_pretrained("{folder}")  # the bare {model_class} with its adapter
```
""",
    "frozen_layers": """\
```python
from hf_models.encoders import load_encoder

encoder = load_encoder("{base}", adapter="{folder}")  # encode_video, encode_text, encode_query
```
""",
}


def save_adapter(
    folder: Path, trained: Any, best_weights: Path, encoder: LanguageModelEncoder, config: Any, details: dict[str, Any]
) -> None:
    """Write the adapter or head with its best weights, and its card.

    Args:
        folder: Where to; it appears whole.
        trained: The `PeftModel`, or the head.
        best_weights: The file of the best weights.
        encoder: With the model.
        config: Of the recipe.
        details: `metrics`, `signature`, `measured_on` and `coverage` of the run.
    """
    weights = dict(trained.named_parameters())
    for name, value in load_file(best_weights).items():
        weights[name.replace("/", ".")].data.copy_(value)
    with replacing(folder) as unfinished:
        trained.save_pretrained(unfinished, **({"save_embedding_layers": False} if config.method == "lora" else {}))
        write_adapter_card(unfinished, folder, encoder, config, details)


def write_adapter_card(
    folder: Path, published_as: Path, encoder: LanguageModelEncoder, config: Any, details: dict[str, Any]
) -> None:
    """Write README.md."""
    data = ModelCardData(
        base_model=config.model,
        library_name="peft" if config.method == "lora" else "transformers",
        license=encoder.usage.license.split(",")[0].lower() if encoder.usage.license.startswith("Apache") else "other",
        tags=["video-retrieval", "composed-video-retrieval", *(["lora"] if config.method == "lora" else [])],
    )
    measured = [
        Measurement(
            name,
            value,
            "map_at_k",
            config=config.dataset_config,
            split=details["measured_on"],
            signature=details["signature"],
        )
        for name, value in details["metrics"].items()
    ]
    what = "LoRA" if config.method == "lora" else "A head over the last token's states of several layers"
    on = "texts alone; no video was seen" if config.train_on == "texts" else "clips and modification texts"
    code = LOADING[config.method].format(
        base=config.model, folder=published_as, model_class=type(encoder.model).__name__
    )
    sections = [
        f"# {what} for {config.model}",
        f"Trained for composed retrieval by `subtle finetune_vlm` on {on}: {details['coverage']['usable']:,} triplets "
        f"of `{config.dataset}`, `{config.dataset_config}`. Loss: {LOSSES[config.loss]}; at most "
        f"{config.hard_negatives} hard negatives a query ({', '.join(config.negatives)}).",
        "## Use",
        code,
        "## Results",
        results_table(measured),
        "## Options",
        options_table(asdict(config)),
    ]
    if "tiny-random" in config.model:
        sections.insert(1, "**The base has random weights: this is for trying the recipe out and of no other use.**")
    write_card(folder, data, "\n\n".join(sections))
