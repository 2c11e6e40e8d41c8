"""Measure models on our benchmarks as tasks of mteb 2, with a query's own clip left out and with it kept.

    python recipes/evaluate_mteb.py
    python recipes/evaluate_mteb.py --tasks ActivityNetComp DiDeMoFIGMoments --models recipes/weights/miniature-vidclip
    python recipes/evaluate_mteb.py --tasks ComposedBenchmark --data_dir covr-r --models recipes/weights/miniature-clip

Needs the extra `mteb`: `pip install "subtle-video[mteb]"`. A model is a folder of ours (TF-CoVR; VidCLIP or an image
model such as CLIP, whose mean of clip and text is a composed query), a folder of sentence-transformers, or a name that
mteb knows. `random` is chance; `text-only` and `video-only` are the first of our models with half of each composed
query. Tasks: TFCoVR, ComposedBenchmark (any composed benchmark in mteb's layout, from `--data_dir`), ActivityNetComp,
YouCook2Comp, and CharadesFIG, DiDeMoFIG and ActivityNetFIG with Videos or Moments at the end. They are on the miniature
unless `--dataset_config` says otherwise. Published results of composed retrieval leave the query's own clip out of its
ranking (TF-CoVR) or keep it (mteb's other tasks), rarely say so, and cannot be compared; this reports both.

It writes to `OUTPUT_DIR`:

    results.json  `figures`: model -> {"TFCoVRMini/map_at_50_own_clip_left_out": ..., ...} in [0, 1]; `revisions` of the
                  data of each task and of each model, configuration, versions
    mteb/         mteb's own result of each model and task; what is there is not measured again, unless the model's
                  weights or the task's rows have changed
"""

import sys

from subtle.evaluate.options import EvaluateMTEBConfig
from subtle.options import parse_config, run_recipe

if __name__ == "__main__":
    CONFIG = parse_config(EvaluateMTEBConfig, __doc__)
    # After the options are read: what follows takes seconds.
    from subtle.evaluate.evaluate_mteb import main

    sys.exit(run_recipe(main, CONFIG))
