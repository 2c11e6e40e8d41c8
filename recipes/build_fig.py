"""Build fine captions of moments from coarse ones, by rules or a model that sees keyframes.

    python recipes/build_fig.py --source annotations/charades_fig
    python recipes/build_fig.py --source annotations/charades_fig --video_dir videos --model gpt-4o --dry_run
    python recipes/build_fig.py --source annotations/charades_fig --video_dir videos --model gpt-4o --max_usd 20

Keyframes of a moment lead to questions, their answers to an enriched caption. `--source` is a folder with the coarse
captions of one dataset: JSON lines as VERIFIED publishes them (`*_train.jsonl`, `*_val.jsonl`, `*_test.jsonl`),
Charades-STA (`charades_sta_*.txt` with `Charades_v1_*.csv`), DiDeMo (`*_data.json`) or ActivityNet-Captions
(`train.json`, `val_1.json`, `val_2.json`). Without `--model` the rule-based generator enriches a caption from other
captions of the same video; it needs no video and no key. A chat model looks at the frames, so it needs `--video_dir`. A
killed run started again goes on where it was.
"""

import sys
from functools import partial

from subtle.building.options import BuildFigConfig
from subtle.options import parse_config, run_recipe

if __name__ == "__main__":
    CONFIG = parse_config(BuildFigConfig, __doc__)
    # After the options are read: what follows takes seconds.
    from subtle.building.build_fig import main
    from subtle.run.build import run

    sys.exit(run_recipe(partial(run, main), CONFIG))
