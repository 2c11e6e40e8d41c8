"""Measure moment retrieval in a corpus (VCMR), within a video (SVMR) and of whole videos (VR).

    python recipes/evaluate_vcmr.py
    python recipes/evaluate_vcmr.py --models outputs/vcmr/model --queries fine coarse
    python recipes/evaluate_vcmr.py --compare --seeds 0 1 2 3 4
    python recipes/evaluate_vcmr.py --compare --seeds 0 1 2 3 4 --train_on fine --two_step
    python recipes/evaluate_vcmr.py --without_moment 0.3

The corpus is every video of the split. `--compare` trains what is missing of XML, ReLoCLNet and HERO on coarse and on
fine captions (`vcmr.py`) and measures each on the captions of `--queries`, as Tables 4 to 6 of VERIFIED; several seeds
give mean and standard deviation (over n - 1). Moments pass temporal NMS with the preset's threshold; results without it
are in `results.json` too.

`--without_moment` takes the video of some queries out of the corpus for them, chooses on `--calibration_split` the
score below which a query is told that it has no moment, and measures that. The words may fit another video, too; such a
query counts as one without a moment.

It writes to `OUTPUT_DIR`:

    results.json        `figures`: system -> {"vcmr_recall@1_iou@0.5": ..., "..._std": ...} in [0, 1], where a system is
                        "xml, fine -> fine" (trained on -> queried with); `figures_without_nms`, `by_seed`, `coverage`,
                        `intervals` over videos and seeds, also of `differences` to the first system with the same
                        queries; `without_moment`, configuration, versions
    submissions/        the predictions of every model in the TVR submission form, `<system>/<number>.json`
"""

import sys

from subtle.evaluate.options import EvaluateVCMRConfig
from subtle.options import parse_config, run_recipe

if __name__ == "__main__":
    CONFIG = parse_config(EvaluateVCMRConfig, __doc__)
    # After the options are read: what follows takes seconds.
    from subtle.evaluate.evaluate_vcmr import main

    sys.exit(run_recipe(main, CONFIG))
