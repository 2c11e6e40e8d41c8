"""Train the fusion of clip and text into one query, on embeddings or pixels (TF-CoVR, stage 2).

    python recipes/stage2.py
    accelerate launch recipes/stage2.py
    accelerate launch --config_file recipes/accelerate/4xa100.yaml recipes/stage2.py recipes/configs/stage2_4xa100.yaml

The embeddings of `embed.py clips` are made first where they are missing. They stay on the device, batches are index
lists, and each text was encoded once. Contrastive negatives come from all processes. Every epoch is validated by
mAP@50, and the best weights become `OUTPUT_DIR/model` with `OUTPUT_DIR/results.json`. A killed run started again with
the same configuration goes on from its last checkpoint and ends with the same weights as one that was never killed. The
miniature takes well under a minute.
"""

import sys

from subtle.options import parse_config, run_recipe
from subtle.train.options import Stage2Config

if __name__ == "__main__":
    CONFIG = parse_config(Stage2Config, __doc__)
    # After the options are read: what follows takes seconds.
    if CONFIG.dry_run:
        from subtle.train.estimates import main
    else:
        from subtle.train.stage2 import main

    sys.exit(run_recipe(main, CONFIG))
