"""Build ActivityNet-Comp or YouCook2-Comp: true and disrupted paragraphs about videos.

    python recipes/build_comp.py --source annotations/activitynet_captions
    python recipes/build_comp.py --source annotations/youcook2 --model gpt-4o --dry_run
    python recipes/build_comp.py --source annotations/youcook2 --model gpt-4o --max_usd 20

Captioned events become paragraphs, and disruptions of these the contrast pairs. `--source` is a folder with
`train*.json` and `val*.json` of ActivityNet-Captions or YouCook2. Without `--model` the rule-based generator writes, so
no key is needed. A killed run started again goes on where it was and pays for nothing twice. The counts per disruption
are printed beside those of the paper's Table 1. `load_dataset("youcook2_comp", "source", data_dir=OUTPUT_DIR)` opens
the result.
"""

import sys
from functools import partial

from subtle.building.options import BuildCompConfig
from subtle.options import parse_config, run_recipe

if __name__ == "__main__":
    CONFIG = parse_config(BuildCompConfig, __doc__)
    # After the options are read: what follows takes seconds.
    from subtle.building.build_comp import main
    from subtle.run.build import run

    sys.exit(run_recipe(partial(run, main), CONFIG))
