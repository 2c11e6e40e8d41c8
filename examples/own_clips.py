"""From a folder of videos and a table of clips to composed retrieval: a clip and a text lead to other clips.

    python examples/own_clips.py myclips myclips/videos

The first folder holds `clips.csv` (`clip_id,video_id,start_seconds,end_seconds,label`), the second the videos. Without
arguments the script makes both: videos of a lamp that changes its color every second.
"""

import sys
import tempfile
from pathlib import Path

from datasets import load_dataset
from drawn_videos import draw

import hf_datasets  # noqa: F401 (registers "tfcovr")


def main(data_dir: str, video_dir: str) -> None:
    """Print how many clips and queries there are, and one query of each split."""
    clips = load_dataset("tfcovr", "own-clips", data_dir=data_dir, video_dir=video_dir)
    queries = load_dataset("tfcovr", "own", data_dir=data_dir, video_dir=video_dir)
    for split, rows in queries.items():
        row = rows[0]
        print(f"{split}: {len(clips[split])} clips, {len(rows)} queries, for example:")
        print(f"  {row['query_clip_id']} + {row['modification_text']!r} -> {', '.join(row['target_clip_ids'])}")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        main(*sys.argv[1:])
    else:
        with tempfile.TemporaryDirectory() as made:
            draw(Path(made))
            main(made, made)
