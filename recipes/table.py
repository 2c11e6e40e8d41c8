"""Measure a table of composed retrieval row by row: Tables 2, 3, 5 and D3 of TF-CoVR, and rows of your own.

    python recipes/table.py zero_shot_paper.yaml --dry_run
    python recipes/table.py --models openai/clip-vit-base-patch32 --ways average text video
    python recipes/table.py finetune_baseline_paper.yaml --rows clip-mlp-1 clip-mlp-15 --merge other/finetune_baseline
    python recipes/table.py ablate_table5.yaml --seeds 0 1
    python recipes/table.py --kind ablate --variations '{multi-positive: {}, InfoNCE: {loss: infonce}}' --shuffled
    python recipes/table.py --kind describe_and_rerank --model gpt-4o --max_queries 50 --dry_run

A table is a YAML file whose `kind` says what its rows are; `--kind KIND --help` lists the options of a kind, and
without a file a kind measures on the miniature.

`zero_shot`, as in Table 2: a row is a model that was not trained on the dataset, a way to make the query
(`subtle/table/queries.py`) and two numbers of frames. An option names the model of each row, its name on the Hub or the
folder of its converted weights; `--models` adds rows. ECDE takes descriptions of the query clips (`--captions`), TF-CVR
rewritten captions of what to find (`--rewritten`); `caption.py write` and `caption.py rewrite` write them, without a
file they are made of the labels, an upper bound called "label captions". How a text entered the paper's rows of AIM is
not known; here it is the text tower of the CLIP that AIM was built on, `--aim_text`, which is inferred.

`finetune_baseline`, as in Table 3: models trained on the triplets, all alike, by the same options; in the paper's order
`blip2-text`, `blip2-video`, `clip-mlp-1`, `blip2-mlp-1`, `clip-mlp-15`, `blip2-mlp-15` (CLIP4CIR's gated combiner on
frozen encoders, 1 or 15 frames of the query and 15 of the target), `blip-covr` and `blip-covr-ecde` (cross attention),
`stage-2-only` and `tf-covr-base` (`stage2.py` without and with `stage1.py`). On the miniature BLIP and BLIP-2 are small
and random.

`ablate`, as in Tables 5 and D3: `--variations` has a name for each row and the options of stage2.py that it changes,
under `stage1` those of stage1.py; `shuffle_frames: true` trains and measures without the order of frames, `--shuffled`
measures every model so, too. A row is compared with the first one, or with that which it names as `against`: the
difference of mAP, query by query and seed by seed, with a 95 % interval over the queries' long videos and the seeds.
`groups.csv` has mAP@50 by kind of change; variations that share a training train it once.

`describe_and_rerank`, as for CoVR-R: a video-language model sees the query clip and the text and describes the target
(`--describe captions`: it captions the clip, then edits the caption), `--encoder` retrieves by the description, and the
model, `--reranker` or a local `--matcher` scores the first `--shortlist` clips of each query (0: none). `--dry_run`
gives requests and price. Answers are kept, so nothing is paid twice. Without `--model` labels write and score: upper
bounds. `predictions.parquet` has the rankings and scores of each query, `answers/` the descriptions and what was left
out.

`OUTPUT_DIR` gets `rows/` (a folder for each row; what is there is not measured again, also not in the middle of a
training), `table.md`, `table.csv` and `results.json` (`figures`: row -> mAP@K in [0, 1]; `failed`: row -> reason).
`--merge` adds the rows of other machines; the exit status is 1 where a row failed.
"""

import sys

from subtle.options import parse_config, run_recipe
from subtle.table.options import options_of_kind

if __name__ == "__main__":
    CONFIG = parse_config(options_of_kind(sys.argv[1:]), __doc__)
    # After the options are read: what follows takes seconds.
    from subtle.table.table import main

    sys.exit(run_recipe(main, CONFIG))
