"""Train VERIFIED's noise evaluator, which scores how well a text describes a clip.

    python recipes/noise_evaluator.py
    python recipes/noise_evaluator.py --build outputs/build_fig --video_dir videos --model Salesforce/blip-itm-base-coco

Trains with a contrastive and a matching objective on captions that fit a moment, and on negative captions: those of the
miniature, made from its motions, or the negative captions that `build.py fig` wrote. Writes `OUTPUT_DIR/model` and
`results.json`: how often a caption that fits is scored above the negative ones. `caption.py select` lets the model
choose the captions of a built dataset. A killed training goes on after its last epoch. The miniature takes a few
minutes.
"""

import sys

from subtle.options import parse_config, run_recipe
from subtle.train.options import NoiseEvaluatorConfig

if __name__ == "__main__":
    CONFIG = parse_config(NoiseEvaluatorConfig, __doc__)
    # After the options are read: what follows takes seconds.
    if CONFIG.dry_run:
        from subtle.train.estimates import main
    else:
        from subtle.train.noise_evaluator import main

    sys.exit(run_recipe(main, CONFIG))
