"""Train and measure every row of TF-CoVR's Table 3: baselines trained on its triplets beside TF-CoVR-Base.

    python recipes/finetune_baseline.py
    python recipes/finetune_baseline.py --seeds 0 1 2 3 4 --rows clip-mlp-1 clip-mlp-15
    python recipes/finetune_baseline.py finetune_baseline_paper.yaml --dry_run
    python recipes/finetune_baseline.py --rows clip-mlp-1 --merge other/finetune_baseline

Rows, in the paper's order: `blip2-text`, `blip2-video`, `clip-mlp-1`, `blip2-mlp-1`, `clip-mlp-15`, `blip2-mlp-15` (a
gated combiner as in CLIP4CIR on frozen encoders, 1 or 15 frames of the query and 15 of the target), `blip-covr` and
`blip-covr-ecde` (cross attention, see `cross_attention.py`), `stage-2-only` and `tf-covr-base` (`stage2.py`
with a pretrained video encoder, and with that of `stage1.py`). All are trained alike, by the same options. Where the
paper does not say what of a row is trained, it is the combiner: in `blip2-text` and `blip2-video` on one half of the
query, the other half being zero.

Of BLIP and BLIP-2 no small weights exist; on the miniature these rows run with random weights, and say so.
Descriptions for ECDE come from `--captions`; on the miniature they are made of the labels, which no captioning model
knows, so its row is an upper bound there.

A finished row is kept in `OUTPUT_DIR/rows`, a run in `OUTPUT_DIR/runs/ROW/seed-N`; a killed run goes on in its middle.
At the end `OUTPUT_DIR/results.json`, `table.md` and `table.csv` hold mean and standard deviation over the seeds of all
rows, those of `--merge` included; a row that is missing says why. The exit status is 1 where a row failed.
"""

import sys

from subtle.options import parse_config, run_recipe
from subtle.table.options import FinetuneConfig

if __name__ == "__main__":
    CONFIG = parse_config(FinetuneConfig, __doc__)
    # After the options are read: what follows takes seconds.
    from subtle.table.finetune_baseline import main

    sys.exit(run_recipe(main, CONFIG))
