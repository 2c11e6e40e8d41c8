"""Does a CLIP see what happens when? Measure one, averaged over frames, on pairs of true and disrupted paragraphs.

    python examples/measure_clip.py openai/clip-vit-base-patch32
    python examples/measure_clip.py MODEL DATA_DIR

The default model is the small CLIP that ships here. The data are the miniature, rendered on this machine at first use;
`DATA_DIR` is another folder of it, as `python -m hf_datasets render` makes them.
"""

import sys
from pathlib import Path

import evaluate
import torch
from datasets import load_dataset
from transformers import CLIPModel, CLIPProcessor

import hf_datasets  # noqa: F401 (registers "activitynet_comp")
import metrics  # noqa: F401 (registers "comprehensive_accuracy")
from hf_datasets.video import read_frames

MODEL = Path(__file__).parents[1] / "recipes/weights/miniature-clip"


@torch.inference_mode()
def main(name: str = str(MODEL), data_dir: str | None = None, num_frames: int = 12) -> None:
    """Print the accuracy for each kind of disruption, and their product."""
    model, processor = CLIPModel.from_pretrained(name), CLIPProcessor.from_pretrained(name)
    rows = load_dataset("activitynet_comp", data_dir=data_dir, split="test")
    similarities = []
    for row in rows:
        span = row["query_start_seconds"], row["query_end_seconds"]
        frames = read_frames(row["video"], num_frames, *span).frames  # (T, C, H, W) uint8
        texts = [row["positive_text"], row["negative_text"]]
        inputs = processor(text=texts, images=list(frames), padding=True, truncation=True, return_tensors="pt")
        output = model(**inputs)
        cosines = output.text_embeds @ output.image_embeds.mean(0)  # embeddings are unit-norm
        similarities.append({"positive": cosines[0].item(), "negative": cosines[1].item()})
    metric = evaluate.load("comprehensive_accuracy")
    kinds = rows.features["disruption_type"].int2str(rows["disruption_type"])
    result = metric.compute(predictions=similarities, references=kinds)
    for key, value in result.items():
        print(f"{key}: {value:.3f}" if isinstance(value, float) else f"{key}: {value}")


if __name__ == "__main__":
    main(*sys.argv[1:])
