"""Measure composed retrieval by mAP@5/10/25/50: one model, several seeds, or all baselines.

    python recipes/evaluate_tfcovr.py
    python recipes/evaluate_tfcovr.py --models outputs/seeds/0/model outputs/seeds/1/model
    python recipes/evaluate_tfcovr.py --compare --seeds 0 1 2 3 4
    python recipes/evaluate_tfcovr.py --protocol tfcovr-official

The gallery holds every clip of the split once, and a query's own clip is left out of its ranking. Under
`--protocol tfcovr-official` it holds the first target of every query, repeated as often as it occurs, the query's own
clip comes last, and the metrics are what the released script would print, for comparisons with it only. Several models
give mean and standard deviation (over n - 1). `--compare` measures the systems of `tfcovr/systems.py`: it trains what
is missing with `--stage2_config`, or else as the first of `--models` was trained, which is then one of them.

It writes to `OUTPUT_DIR`, for `report.py` and for you:

    results.json         `figures`: system -> {"map@5": ..., "map@5_std": ... (from two seeds on), ...} in [0, 1];
                         `gallery_size`, `signature` (the metric's line about the protocol), `coverage` (queries,
                         targets and gallery clips: how many there are and how many could be ranked), configuration,
                         versions
    predictions.parquet  the first system with its first seed, one row per ranked query: `query_id, query_clip_id,
                         query_label, modification_text, change_type, target_clip_ids, target_label` as in the
                         dataset, `ranked_clip_ids` (best first, up to 50) and `scores` (cosines, parallel to them)
    predictions/         the same for every system and seed, `<system>/<number>.parquet`
"""

import sys

from subtle.evaluate.options import EvaluateConfig
from subtle.options import parse_config, run_recipe

if __name__ == "__main__":
    CONFIG = parse_config(EvaluateConfig, __doc__)
    # After the options are read: what follows takes seconds.
    from subtle.evaluate.evaluate_tfcovr import main

    sys.exit(run_recipe(main, CONFIG))
