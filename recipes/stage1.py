"""Train AIM, the video encoder, to classify clips by fine-grained action (TF-CoVR, stage 1).

    python recipes/stage1.py
    python recipes/stage1.py recipes/configs/stage1_miniature_from_clip.yaml
    python recipes/stage1.py --base openai/clip-vit-base-patch16 --full
    accelerate launch --config_file recipes/accelerate/4xa100.yaml recipes/stage1.py recipes/configs/stage1_4xa100.yaml

By default a CLIP is frozen and AIM's adapters on it are trained as a PEFT method; `--full` trains all weights, as the
released code does. On the miniature, adapters that ship are trained on for two epochs, because starting from CLIP
(second line, or `--init_from none`) takes a quarter of an hour. Frames are chosen and augmented once per clip. The
weights with the best validation accuracy become `OUTPUT_DIR/model` (a full AIM and its processor), `OUTPUT_DIR/adapter`
(the PEFT form; not with `--full`) and `OUTPUT_DIR/results.json` with top-1 and mean-class accuracy on validation and
test. A killed run started again with the same configuration goes on from its last checkpoint and ends with the weights
of one that was never killed.
"""

import sys

from subtle.options import parse_config, run_recipe
from subtle.train.options import Stage1Config

if __name__ == "__main__":
    CONFIG = parse_config(Stage1Config, __doc__)
    # After the options are read: what follows takes seconds.
    if CONFIG.dry_run:
        from subtle.train.estimates import main
    else:
        from subtle.train.stage1 import main

    sys.exit(run_recipe(main, CONFIG))
