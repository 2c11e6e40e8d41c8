"""Vary options of TF-CoVR's two stages, each with several seeds: Table 5 (beta), Table D3 (text encoder), your own.

    python recipes/ablate.py
    python recipes/ablate.py --variations '{multi-positive: {}, InfoNCE: {loss: infonce}}' --shuffled
    python recipes/ablate.py recipes/configs/ablate_table5.yaml --dry_run
    python recipes/ablate.py recipes/configs/ablate_tableD3.yaml --seeds 0 1

`--variations` has a name for each row of the table, and the options of stage2.py that it changes. Options of stage1.py
stand under `stage1`, which is then trained for this row; `shuffle_frames: true` trains and measures without the order
of frames. Everything else is as in `--stage1_config` and `--stage2_config`. A row is compared with the first one, or
with that which it names as `against`: the difference of mAP, query by query and seed by seed, with a 95 % interval over
the queries' long videos and the seeds. Nothing is tuned here; the protocol is that of evaluate_tfcovr.py, a query's own
clip excluded. `--shuffled` also measures every model on clips with shuffled frames.

A killed run started again goes on where it was, also in the middle of a training; `--merge` takes rows that other
machines measured. It writes to `OUTPUT_DIR`:

    results.json   `figures`: variation -> mAP in [0, 1] with its deviation; `differences`: of each variation to another
    table.md       the table, also as table.csv
    groups.csv     mAP@50 by kind of change, and on rendered data by what labels differ in
    rows/          each variation with each seed: results.json, and each query's results in queries.parquet
    stage1/, embeddings/, stage2/   what was trained; variations that share it train it once
"""

import sys

from subtle.options import parse_config, run_recipe
from subtle.table.options import AblateConfig

if __name__ == "__main__":
    CONFIG = parse_config(AblateConfig, __doc__)
    # After the options are read: what follows takes seconds.
    from subtle.table.ablate import main

    sys.exit(run_recipe(main, CONFIG))
