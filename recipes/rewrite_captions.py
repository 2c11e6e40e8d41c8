"""Rewrite captions of query clips as the modification texts ask, with a language model (TF-CVR, Table 2).

    python recipes/rewrite_captions.py
    python recipes/rewrite_captions.py --captions outputs/captions/captions.parquet --model gpt-4o --dry_run
    python recipes/rewrite_captions.py --captions outputs/captions/captions.parquet --model gpt-4o --max_usd 20

The model gets the caption of a query's clip (captions.parquet of `caption_clips.py`, or any table with clip_id and
caption) and the modification text, and writes the caption of what the query asks for. The result, rewritten.parquet, is
what TF-CVR searches with, by text alone. The grammar of the labels scores it against the target's label. Queries whose
clip has no caption, and answers that are no caption, are in rejections.parquet with the reason. Answers are kept as
they arrive, so a killed run started again pays nothing twice. Without `--captions` they are made from the clips'
labels, and without `--model` a rule writes those of the targets' labels ("label captions"): upper bounds, not models.
"""

import sys
from functools import partial

from subtle.building.options import RewriteCaptionsConfig
from subtle.options import parse_config, run_recipe

if __name__ == "__main__":
    CONFIG = parse_config(RewriteCaptionsConfig, __doc__)
    # After the options are read: what follows takes seconds.
    from subtle.building.rewrite_captions import main
    from subtle.run.build import run

    sys.exit(run_recipe(partial(run, main), CONFIG))
