"""Which of two texts goes with which of two videos? Text, video and group score of a CLIP on pairs of your own.

    python examples/counterfactual_pairs.py pairs.csv [openai/clip-vit-base-patch32]

`pairs.csv` has the columns `video_0,text_0,video_1,text_1`, where text i fits video i, and perhaps `kind`; the videos
are in the folder `videos` beside it. Without a table, videos of a lamp are drawn whose colors come in another order.
"""

import sys
import tempfile
from pathlib import Path

import evaluate
import torch
from drawn_videos import draw
from transformers import CLIPModel, CLIPProcessor

import metrics  # noqa: F401 (registers "counterfactual_accuracy")
from hf_datasets.comp.counterfactuals import read_counterfactuals
from hf_datasets.video import read_frames

MODEL = Path(__file__).parents[1] / "recipes/weights/miniature-clip"
TABLE = """video_0,text_0,video_1,text_1
lamp0,"red, then green, then blue",lamp1,"green, then blue, then red"
lamp2,"blue, then red, then green",lamp3,"red, then green, then blue"
"""


@torch.inference_mode()
def main(table: str, name: str = str(MODEL), num_frames: int = 12) -> None:
    """Print the scores; the mean over frames knows no order, so it cannot tell such videos apart."""
    model, processor = CLIPModel.from_pretrained(name), CLIPProcessor.from_pretrained(name)
    pairs, rejections = read_counterfactuals(Path(table))
    similarities = []
    for pair in pairs:
        frames = [read_frames(video.path, num_frames, video.start_seconds, video.end_seconds) for video in pair.videos]
        images = [image for read in frames for image in read.frames]  # (C, H, W) uint8
        inputs = processor(text=list(pair.texts), images=images, padding=True, truncation=True, return_tensors="pt")
        output = model(**inputs)
        videos = output.image_embeds.unflatten(0, (2, num_frames)).mean(1)  # embeddings are unit-norm
        similarities.append((videos @ output.text_embeds.T).tolist())  # a row per video
    result = evaluate.load("counterfactual_accuracy").compute(predictions=similarities)
    print(*(f"{key}: {value}" for key, value in result.items()), f"{len(rejections)} rows left out", sep="\n")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(*sys.argv[1:])
    else:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "videos").mkdir()
            draw(Path(folder) / "videos")
            (Path(folder) / "pairs.csv").write_text(TABLE, encoding="utf-8")
            main(f"{folder}/pairs.csv")
