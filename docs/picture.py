"""Draw the picture of README.md: a query clip, a text, and the best three moments of the miniature's index.

    subtle index
    python docs/picture.py docs/search.png

The query is a clip of a test video, and only test videos are searched: the model that ships was trained on the others.
In gray are the labels in words, which the search does not know.
"""

import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
from datasets import load_dataset
from PIL import Image, ImageDraw, ImageFont

import hf_datasets  # noqa: F401 registers "tfcovr"
from hf_datasets.video import read_frames
from subtle.footage.options import SearchConfig
from subtle.footage.search import find

QUERY, TEXT, TEST_VIDEOS = "gymnastics_062_023", "show tucked", "video > 'gymnastics_062'"
MARGIN, SIDE, LINE = 16, 112, 31
LARGE, SMALL = ImageFont.load_default(26), ImageFont.load_default(22)


def strip(clip: dict[str, Any], columns: int, rows: int) -> Image.Image:
    """Evenly spaced frames of a clip, in reading order."""
    read = read_frames(clip["video"], columns * rows, clip["start_seconds"], clip["end_seconds"], spread="seconds")
    frames = read.frames.permute(0, 2, 3, 1).numpy()
    lines = [np.concatenate(list(frames[row * columns : (row + 1) * columns]), 1) for row in range(rows)]
    return Image.fromarray(np.concatenate(lines)).resize((columns * SIDE, rows * SIDE), Image.Resampling.LANCZOS)


def main(output: str) -> None:
    """Search and draw."""
    clips = {clip["clip_id"]: clip for clip in load_dataset("tfcovr", "mini-clips", split="test")}
    words = {clip["label"]: clip["description"].rpartition(") ")[2] for clip in clips.values()}
    query = clips[QUERY]
    span = {name: query[name] for name in ("start_seconds", "end_seconds")}
    found = find(SearchConfig(clip=query["video"], text=TEXT, where=TEST_VIDEOS, limit=3, **span))
    folder = Path(query["video"]).parent
    left, height = 2 * SIDE + 3 * MARGIN, SIDE + 2 * LINE + MARGIN
    picture = Image.new("RGB", (left + 5 * SIDE + MARGIN, MARGIN + len(found) * height), "white")
    draw = ImageDraw.Draw(picture)
    picture.paste(strip(query, 2, 3), (MARGIN, MARGIN))
    place = (MARGIN, MARGIN + 3 * SIDE + 2)
    draw.text(place, Path(query["video"]).stem, "black", LARGE)
    draw.text((MARGIN, place[1] + LINE), textwrap.fill(words[query["label"]], 20), "dimgray", SMALL)
    draw.text((MARGIN, place[1] + 4 * LINE), f"+ “{TEXT}”", "mediumblue", LARGE)
    for rank, row in enumerate(found):
        top = MARGIN + rank * height
        picture.paste(strip({**row, "video": folder / row["video"]}, 5, 1), (left, top))
        seconds = f"{row['start_seconds']:.1f}-{row['end_seconds']:.1f} s"
        facts = f"{rank + 1}. {row['video']}  {seconds}  score {row['score']:.2f}"
        draw.text((left, top + SIDE + 2), facts, "black", LARGE)
        draw.text((left, top + SIDE + 2 + LINE), words[row["label"]], "dimgray", SMALL)
    picture.save(output, optimize=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
