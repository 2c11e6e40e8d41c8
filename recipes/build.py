"""Build a dataset from annotations: triplets of clips, contrast pairs, or fine captions of moments.

Without `--model` a rule-based generator writes the texts, so no key is needed. A killed run started again goes on where
it was and pays for nothing twice. A dataset that is in OUTPUT_DIR is replaced.

tfcovr: Build TF-CoVR's triplets and queries from published annotations or your own clips.

    python recipes/build.py tfcovr
    python recipes/build.py tfcovr --source annotations --model gpt-4o --dry_run
    python recipes/build.py tfcovr --source annotations --model gpt-4o --max_usd 20
    python recipes/build.py tfcovr --data_dir myclips --video_dir myclips/videos --model gpt-4o

Pairs of labels get modification texts, and from these follow triplets and queries. `--source` is a folder with the
annotations of FineGym, FineDiving or both; without it the labels and clips of the miniature are used. `--data_dir` is a
folder with a table of your own clips instead (hf_datasets/tfcovr/README.md has its columns), whose labels may be any
words. `load_dataset("tfcovr", "source", data_dir=OUTPUT_DIR)` opens the result, for own clips the configuration `own`
with `video_dir`.

clips: Cut TF-CoVR's clips out of long videos and folders of frames into files of their own.

    python recipes/build.py clips --data_dir annotations --video_dir videos

Nothing else here needs it: clips are read where they are. Files are named by the ids of their clips; those that are
there stay, so a killed run goes on. Clips without a video are counted, and named in `results.json`.

comp: Build ActivityNet-Comp or YouCook2-Comp: true and disrupted paragraphs about videos.

    python recipes/build.py comp --source annotations/activitynet_captions
    python recipes/build.py comp --source annotations/youcook2 --model gpt-4o --dry_run
    python recipes/build.py comp --source annotations/youcook2 --model gpt-4o --max_usd 20

Captioned events become paragraphs, and disruptions of these the contrast pairs. `--source` is a folder with
`train*.json` and `val*.json` of ActivityNet-Captions or YouCook2. The counts per disruption are printed beside those of
the paper's Table 1. `load_dataset("youcook2_comp", "source", data_dir=OUTPUT_DIR)` opens the result.

fig: Build fine captions of moments from coarse ones, by rules or a model that sees keyframes.

    python recipes/build.py fig --source annotations/charades_fig
    python recipes/build.py fig --source annotations/charades_fig --video_dir videos --model gpt-4o --dry_run
    python recipes/build.py fig --source annotations/charades_fig --video_dir videos --model gpt-4o --max_usd 20

Keyframes of a moment lead to questions, their answers to an enriched caption. `--source` is a folder with the coarse
captions of one dataset: JSON lines as VERIFIED publishes them (`*_train.jsonl`, `*_val.jsonl`, `*_test.jsonl`),
Charades-STA (`charades_sta_*.txt` with `Charades_v1_*.csv`), DiDeMo (`*_data.json`) or ActivityNet-Captions
(`train.json`, `val_1.json`, `val_2.json`). Without `--model` the rule-based generator enriches a caption from other
captions of the same video; it needs no video and no key. A chat model looks at the frames, so it needs `--video_dir`.
"""

import sys
from functools import partial

from subtle.building.options import BuildClipsConfig, BuildCompConfig, BuildFigConfig, BuildTFCoVRConfig
from subtle.commands import take_second_word
from subtle.options import parse_config, run_recipe

CONFIGS = {"tfcovr": BuildTFCoVRConfig, "clips": BuildClipsConfig, "comp": BuildCompConfig, "fig": BuildFigConfig}

if __name__ == "__main__":
    WORD, TEXT = take_second_word(__doc__)
    CONFIG = parse_config(CONFIGS[WORD], TEXT)
    # After the options are read: what follows takes seconds.
    match WORD:
        case "tfcovr":
            from subtle.building.build_tfcovr import main
        case "comp":
            from subtle.building.build_comp import main
        case "fig":
            from subtle.building.build_fig import main
        case "clips":
            from subtle.building.build_clips import main
    from subtle.run.build import run_build

    sys.exit(run_recipe(partial(run_build, main), CONFIG))
