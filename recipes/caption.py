"""Caption: write captions of clips and score them, rewrite them as queries ask, or select the best of moments.

write: Caption clips of TF-CoVR with a video-language model, and score the captions by the labels (Tables C1 and C2).

    python recipes/caption.py write
    python recipes/caption.py write --model gpt-4o --dry_run
    python recipes/caption.py write --model Qwen/Qwen2.5-VL-7B-Instruct --base_url http://localhost:8000/v1
    python recipes/caption.py write --model gpt-4o --dataset_config release --data_dir DIR --video_dir DIR --max_usd 20
    python recipes/caption.py write --captions a/captions.parquet b/captions.parquet video_xl.csv

Frames go as JPEG images with the paper's two prompts, one for each sport. The grammar of the labels says which
attributes (apparatus, skill, direction, turns, position; take-off, somersaults, twists, ...) a caption has right, has
wrong, or does not say. `majority` says of every clip what most labels have, `chance` is the label caption of a clip
drawn at random: a model that does not beat them has not seen the clip. Answers are kept as they arrive, so a killed run
started again pays nothing twice; answers that are no caption count in no score and are in rejections.parquet with the
reason. Without `--model` a rule writes the captions from the labels ("label captions"): an upper bound, not a model.
With captions.parquet, `caption.py rewrite` goes on.

rewrite: Rewrite captions of query clips as the modification texts ask, with a language model (TF-CVR, Table 2).

    python recipes/caption.py rewrite
    python recipes/caption.py rewrite --captions outputs/captions/captions.parquet --model gpt-4o --dry_run
    python recipes/caption.py rewrite --captions outputs/captions/captions.parquet --model gpt-4o --max_usd 20

The model gets the caption of a query's clip (captions.parquet of `caption.py write`, or any table with clip_id and
caption) and the modification text, and writes the caption of what the query asks for. The result, rewritten.parquet, is
what TF-CVR searches with, by text alone. The grammar of the labels scores it against the target's label. Queries whose
clip has no caption, and answers that are no caption, are in rejections.parquet with the reason. Answers are kept as
they arrive, so a killed run started again pays nothing twice. Without `--captions` they are made from the clips'
labels, and without `--model` a rule writes those of the targets' labels ("label captions"): upper bounds, not models.

select: Choose the best of each moment's built captions with a trained noise evaluator.

    python recipes/caption.py select --build outputs/build_fig --video_dir videos
    python recipes/caption.py select --build outputs/build_fig --video_dir videos --model Salesforce/blip-itm-base-coco

Scores the candidates of each moment in a folder of `build.py fig`, and writes a new folder with the best candidate and
its score; `load_dataset("charades_fig", "source", data_dir=OUTPUT_DIR)` opens it. A moment whose video cannot be read
keeps its caption, without a score, and is named in `rejections.parquet`.
"""

import sys
from functools import partial

from subtle.building.options import CaptionRewriteConfig, CaptionSelectConfig, CaptionWriteConfig
from subtle.commands import take_second_word
from subtle.options import parse_config, run_recipe

CONFIGS = {"write": CaptionWriteConfig, "rewrite": CaptionRewriteConfig, "select": CaptionSelectConfig}

if __name__ == "__main__":
    WORD, TEXT = take_second_word(__doc__)
    CONFIG = parse_config(CONFIGS[WORD], TEXT)
    # After the options are read: what follows takes seconds.
    match WORD:
        case "write":
            from subtle.building.caption_write import main
        case "rewrite":
            from subtle.building.caption_rewrite import main
        case "select":
            from subtle.building.caption_select import main
    from subtle.run.build import run_build

    sys.exit(run_recipe(main if WORD == "select" else partial(run_build, main), CONFIG))
