"""Count and plot what a TF-CoVR dataset holds: labels, targets, texts and durations.

    python recipes/analyse_tfcovr.py
    python recipes/analyse_tfcovr.py --dataset_config release --data_dir annotations/tfcovr
    python recipes/analyse_tfcovr.py --dataset_config own --data_dir myclips --video_dir myclips/videos
    python recipes/analyse_tfcovr.py --similarity_model sentence-transformers/all-MiniLM-L6-v2

Prints the rows and clips of each split and writes to `OUTPUT_DIR` the histograms of clips per label (Figures A1 and
A2), targets per query, words per modification text and seconds per clip, the most frequent words of the texts, and
`results.json` with all of these numbers. With `--similarity_model` it also chooses pairs of the 306 labels by the
cosines of their texts, as many as `build_tfcovr.py` chooses by their attributes, prints in which kinds of change the
two differ, and writes `label_pairs.csv`.
"""

import sys

from subtle.evaluate.options import AnalyzeTFCoVRConfig
from subtle.options import parse_config, run_recipe

if __name__ == "__main__":
    CONFIG = parse_config(AnalyzeTFCoVRConfig, __doc__)
    # After the options are read: what follows takes seconds.
    from subtle.evaluate.analyse_tfcovr import main

    sys.exit(run_recipe(main, CONFIG))
