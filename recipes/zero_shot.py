"""Measure models that were not trained on the dataset: TF-CoVR's Table 2, and any further model, by one command.

    python recipes/zero_shot.py
    python recipes/zero_shot.py recipes/configs/zero_shot_paper.yaml --dry_run
    python recipes/zero_shot.py recipes/configs/zero_shot_paper.yaml --rows BLIP-CoVR LanguageBind
    python recipes/zero_shot.py --models openai/clip-vit-base-patch32 --ways average text video

Each row is a model, a way to make the query (`queries.py`) and two numbers of frames. Which model a row takes
is an option of its own, in the paper's file its name on the Hub or the folder of its converted weights; a row without
one says so. `--models` adds rows. Gallery, own clip and metric are those of `evaluate_tfcovr.py`. Without an argument
it measures on the miniature what ships for it.

ECDE takes descriptions of the query clips (`--captions`), TF-CVR rewritten captions of what to find (`--rewritten`);
`caption_clips.py` and `rewrite_captions.py` write them. Without a file the rule-based generator writes them from the
labels, an upper bound that the table calls "label captions". How a text entered the paper's rows of AIM is not known;
here it is the text tower of the CLIP that AIM was built on, `--aim_text`, which is inferred.

`OUTPUT_DIR` gets `rows/` (a folder for each row; what is there is not measured again), `embeddings/` (a second run
encodes what is missing), `table.md`, `table.csv` and `results.json` (`figures`: row -> mAP@K in [0, 1]; `failed`: row
-> reason). `--merge` adds the rows of other machines. The exit status is 1 where a row failed.
"""

import sys

from subtle.options import parse_config, run_recipe
from subtle.table.options import ZeroShotConfig

if __name__ == "__main__":
    CONFIG = parse_config(ZeroShotConfig, __doc__)
    # After the options are read: what follows takes seconds.
    from subtle.table.zero_shot import main

    sys.exit(run_recipe(main, CONFIG))
