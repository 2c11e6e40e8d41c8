"""Train XML, ReLoCLNet or HERO to find moments in a corpus of videos.

    python recipes/vcmr.py
    accelerate launch recipes/vcmr.py --model reloclnet --granularity coarse
    accelerate launch recipes/vcmr.py recipes/configs/vcmr_charades_fig.yaml

Reads moments and features (see `hf_models.feature_store`; those of the miniature are made where they are missing,
others by `embed.py moments`), trains on fine or coarse captions, and chooses the epoch with the highest VCMR recall@1
at IoU 0.5 plus 0.7 on the validation split; it stops early when that has not risen for `patience` epochs. Negatives
come from the batches of all processes. `OUTPUT_DIR/model` and `OUTPUT_DIR/results.json` are left behind. A killed run
started again goes on from its last checkpoint and ends with the same weights as one that was never killed.
"""

import sys

from subtle.options import parse_config, run_recipe
from subtle.train.options import VCMRConfig

if __name__ == "__main__":
    CONFIG = parse_config(VCMRConfig, __doc__)
    # After the options are read: what follows takes seconds.
    if CONFIG.dry_run:
        from subtle.train.estimates import main
    else:
        from subtle.train.vcmr import main

    sys.exit(run_recipe(main, CONFIG))
