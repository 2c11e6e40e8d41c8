"""Build TF-CoVR's triplets and queries from published annotations or your own clips.

    python recipes/build_tfcovr.py
    python recipes/build_tfcovr.py --source annotations --model gpt-4o --dry_run
    python recipes/build_tfcovr.py --source annotations --model gpt-4o --max_usd 20
    python recipes/build_tfcovr.py --data_dir myclips --video_dir myclips/videos --model gpt-4o

Pairs of labels get modification texts, and from these follow triplets and queries. `--source` is a folder with the
annotations of FineGym, FineDiving or both; without it the labels and clips of the miniature are used. `--data_dir` is a
folder with a table of your own clips instead (hf_datasets/tfcovr/README.md has its columns), whose labels may be any
words. Without `--model` the rule-based generator writes, so no key is needed. A killed run started again goes on where
it was and pays for nothing twice. `load_dataset("tfcovr", "source", data_dir=OUTPUT_DIR)` opens the result, for own
clips the configuration `own` with `video_dir`.
"""

import sys
from functools import partial

from subtle.building.options import BuildTFCoVRConfig
from subtle.options import parse_config, run_recipe

if __name__ == "__main__":
    CONFIG = parse_config(BuildTFCoVRConfig, __doc__)
    # After the options are read: what follows takes seconds.
    from subtle.building.build_tfcovr import main
    from subtle.run.build import run

    sys.exit(run_recipe(partial(run, main), CONFIG))
