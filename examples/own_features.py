"""Encode a folder of videos once, then find those that look most like one of them: exact search, best first.

    python examples/own_features.py myvideos match1 [MODEL]

`match1` is the file's name without its ending. Without arguments the script makes six videos with the same three colors
in three orders. The default model is the small VidCLIP that ships here, which has only seen drawn athletes: give your
own for real footage.
"""

import sys
import tempfile
from pathlib import Path

from drawn_videos import draw
from transformers import AutoModel, AutoProcessor

import hf_models  # noqa: F401 (registers VidCLIP with AutoModel)
from hf_datasets.video import VIDEO_EXTENSIONS, read_frames
from hf_models.retrieval import encode, ranked_ids, search

MODEL = Path(__file__).parents[1] / "recipes/weights/miniature-vidclip"


def main(folder: str, query: str, name: str = str(MODEL)) -> None:
    """Print the three nearest videos and their cosines."""
    model, processor = AutoModel.from_pretrained(name), AutoProcessor.from_pretrained(name)
    files = sorted(path for path in Path(folder).iterdir() if path.suffix.lower() in VIDEO_EXTENSIONS)
    videos = ((path.stem, read_frames(path, model.config.num_frames).frames) for path in files)  # (T, C, H, W) uint8
    loader = ({"clip_id": [stem], **processor(videos=[frames], do_sample_frames=False)} for stem, frames in videos)
    ids, corpus = encode(model, loader, features="get_video_features")  # unit-norm (N, D)
    row = ids.index(query)
    rows, scores = search(corpus[row : row + 1], corpus, k=3, exclude=[row])
    for found, score in zip(ranked_ids(rows, ids)[0], scores[0].tolist(), strict=False):
        print(f"{score:.3f}  {found}")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        main(*sys.argv[1:])
    else:
        with tempfile.TemporaryDirectory() as made:
            draw(Path(made))
            main(made, "lamp0")
