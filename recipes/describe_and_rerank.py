"""Describe the target of each composed query, retrieve by the description, re-rank the first clips (as for CoVR-R).

    python recipes/describe_and_rerank.py
    python recipes/describe_and_rerank.py --model gpt-4o --max_queries 50 --dry_run
    python recipes/describe_and_rerank.py --model gpt-4o --max_queries 50 --max_usd 20
    python recipes/describe_and_rerank.py --model Qwen/Qwen2.5-VL-7B-Instruct --base_url http://localhost:8000/v1
    python recipes/describe_and_rerank.py --model gpt-4o --describe captions --matcher outputs/noise_evaluator/model

1. Describe: a video-language model sees the frames of the query clip and the modification text, and writes what the
   target shows: one request for each query. With `--describe captions` it captions the query clip, then edits the
   caption (`caption_clips.py`, `rewrite_captions.py`). `--rewritten` takes descriptions that there are.
2. Retrieve: `--encoder`, any model of videos and texts, ranks the gallery by the description.
3. Re-rank: the same model, or `--reranker`, scores the first `--shortlist` clips of each query from 0 to 10 against
   query clip and modification text: one request for each pair. Or `--matcher`, a local cross-encoder, scores them
   against the description. Equal scores keep their order, and clips without a usable answer keep their place.

mAP@K is measured after steps 2 and 3 by the protocol of `zero_shot.py`. Answers are kept as they arrive, so a killed
run started again pays nothing twice. `--dry_run` gives requests and price of each step. Without `--model` rules write
the descriptions from the labels ("label captions") and score by the attributes that agree ("label attributes"): upper
bounds, not models.

`OUTPUT_DIR` gets `rows/`, `table.md`, `table.csv`, `results.json`, `predictions.parquet` (the rankings of each query
and its scores), `embeddings/`, and `answers/`: `rewritten.parquet` (the descriptions, for `--rewritten`),
`rejections.parquet` (answers that cannot be used, with the reason) and `results.json` (requests and cost).
"""

import sys
from functools import partial

from subtle.options import parse_config, run_recipe
from subtle.table.options import DescribeAndRerankConfig

if __name__ == "__main__":
    CONFIG = parse_config(DescribeAndRerankConfig, __doc__)
    # After the options are read: what follows takes seconds.
    from subtle.run.build import run
    from subtle.table.describe_and_rerank import main

    sys.exit(run_recipe(partial(run, main), CONFIG))
