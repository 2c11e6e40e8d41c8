"""Caption the clips of TF-CoVR with a video-language model, and score the captions by the labels (Tables C1 and C2).

    python recipes/caption_clips.py
    python recipes/caption_clips.py --model gpt-4o --dry_run
    python recipes/caption_clips.py --model Qwen/Qwen2.5-VL-7B-Instruct --base_url http://localhost:8000/v1
    python recipes/caption_clips.py --model gpt-4o --dataset_config release --data_dir DIR --video_dir DIR --max_usd 20
    python recipes/caption_clips.py --captions a/captions.parquet b/captions.parquet video_xl.csv

Frames go as JPEG images with the paper's two prompts, one for each sport. The grammar of the labels says which
attributes (apparatus, skill, direction, turns, position; take-off, somersaults, twists, ...) a caption has right, has
wrong, or does not say. `majority` says of every clip what most labels have, `chance` is the label caption of a clip
drawn at random: a model that does not beat them has not seen the clip. Answers are kept as they arrive, so a killed run
started again pays nothing twice; answers that are no caption count in no score and are in rejections.parquet with the
reason. Without `--model` a rule writes the captions from the labels ("label captions"): an upper bound, not a model.
With captions.parquet, `rewrite_captions.py` goes on.
"""

import sys
from functools import partial

from subtle.building.options import CaptionClipsConfig
from subtle.options import parse_config, run_recipe

if __name__ == "__main__":
    CONFIG = parse_config(CaptionClipsConfig, __doc__)
    # After the options are read: what follows takes seconds.
    from subtle.building.caption_clips import main
    from subtle.run.build import run

    sys.exit(run_recipe(partial(run, main), CONFIG))
