"""Train on a dataset where it lies, on the Hub or in a folder, without downloading it whole: TF-CoVR's stage 1.

    python examples/stream_from_hub.py --repo ORG/tfcovr

The workers of a DataLoader share the videos. `AIMForVideoClassification.from_clip` makes a larger model.
"""

import argparse
from itertools import islice

import torch
from datasets import load_dataset
from torch.utils.data import DataLoader

from hf_datasets.video.streaming import stream_clips
from hf_models import AIMConfig, AIMForVideoClassification, AIMVideoProcessor

FRAMES, SIZE = 4, 32
SMALL = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "patch_size": 8}
SMALL |= {"drop_path_rate": 0.0, "classifier_dropout": 0.0}


def main(repo: str, steps: int, workers: int) -> None:
    """Print the loss of each step."""
    torch.manual_seed(0)
    clips = load_dataset(repo, "mini-clips", split="train")
    videos = load_dataset(repo, "mini-videos", split="train", streaming=True)
    stream = stream_clips(clips, videos, num_frames=FRAMES, size=(SIZE, SIZE))
    # One video after another, again and again, and the clips of a batch drawn from the last 256.
    stream = stream.repeat(None).shuffle(seed=0, buffer_size=256, max_buffer_input_shards=1)
    labels = sorted(set(clips["label"]))
    processor = AIMVideoProcessor(do_resize=False, do_sample_frames=False)

    def collate(rows: list[dict]) -> dict[str, torch.Tensor]:
        pixels = processor([row["frames"] for row in rows], return_tensors="pt").pixel_values
        return {"pixel_values": pixels, "labels": torch.tensor([labels.index(row["label"]) for row in rows])}

    loader = DataLoader(stream, batch_size=8, collate_fn=collate, num_workers=min(workers, stream.num_shards))
    model = AIMForVideoClassification(AIMConfig(**SMALL, num_frames=FRAMES, image_size=SIZE, num_labels=len(labels)))
    optimizer = torch.optim.AdamW(model.train().parameters(), lr=1e-3)
    for step, batch in enumerate(islice(loader, steps)):
        loss = model(**batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--repo", required=True)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--workers", type=int, default=2)
    main(**vars(parser.parse_args()))
