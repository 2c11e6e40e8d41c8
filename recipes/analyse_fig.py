"""Analyze captions of moments as VERIFIED does: scores, duplicates, clusters, and a user study.

    python recipes/analyse_fig.py
    python recipes/analyse_fig.py --release annotations/charades_fig
    python recipes/analyse_fig.py --release annotations/charades_fig --encoder sentence-transformers/all-MiniLM-L6-v2
    python recipes/analyse_fig.py --dataset_config source --data_dir outputs/build_fig --video_dir videos --user_study
    python recipes/analyse_fig.py --answers outputs/analysis/user-study

Writes `scores.png` (Figure 4), `captions.png` (Figure 5) and `results.json` with Tables 1 and 2 to `OUTPUT_DIR`, and
with `--user_study` the forms; with `--answers` it only adds up what the forms exported (Table 3). The clusters of the
default encoder, word statistics that need no download, are those of the wording; the paper's are of Sentence-BERT.
"""

import sys

from subtle.evaluate.options import AnalyzeFIGConfig
from subtle.options import parse_config, run_recipe

if __name__ == "__main__":
    CONFIG = parse_config(AnalyzeFIGConfig, __doc__)
    # After the options are read: what follows takes seconds.
    from subtle.evaluate.analyse_fig import main

    sys.exit(run_recipe(main, CONFIG))
