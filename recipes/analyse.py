"""Count, plot and compare what a dataset holds.

tfcovr: Count and plot what a TF-CoVR dataset holds: labels, targets, texts and durations.

    python recipes/analyse.py tfcovr
    python recipes/analyse.py tfcovr --dataset_config release --data_dir annotations/tfcovr
    python recipes/analyse.py tfcovr --dataset_config own --data_dir myclips --video_dir myclips/videos
    python recipes/analyse.py tfcovr --similarity_model sentence-transformers/all-MiniLM-L6-v2

Prints the rows and clips of each split and writes to `OUTPUT_DIR` the histograms of clips per label (Figures A1 and
A2), targets per query, words per modification text and seconds per clip, the most frequent words of the texts, and
`results.json` with all of these numbers. With `--similarity_model` it also chooses pairs of the 306 labels by the
cosines of their texts, as many as `build.py tfcovr` chooses by their attributes, prints in which kinds of change the
two differ, and writes `label_pairs.csv`.

comp: Count the pairs of ActivityNet-Comp or YouCook2-Comp per disruption, beside Table 1 of the paper.

    python recipes/analyse.py comp
    python recipes/analyse.py comp --dataset youcook2_comp --dataset_config release --data_dir annotations/youcook2_comp

fig: Analyze captions of moments as VERIFIED does: scores, duplicates, clusters, and a user study.

    python recipes/analyse.py fig
    python recipes/analyse.py fig --release annotations/charades_fig
    python recipes/analyse.py fig --release annotations/charades_fig --encoder sentence-transformers/all-MiniLM-L6-v2
    python recipes/analyse.py fig --dataset_config source --data_dir outputs/build_fig --video_dir videos --user_study
    python recipes/analyse.py fig --answers outputs/analysis/user-study

Writes `scores.png` (Figure 4), `captions.png` (Figure 5) and `results.json` with Tables 1 and 2 to `OUTPUT_DIR`, and
with `--user_study` the forms; with `--answers` it only adds up what the forms exported (Table 3). The clusters of the
default encoder, word statistics that need no download, are those of the wording; the paper's are of Sentence-BERT.

Of `release` and `source` each also writes `statistics.json`: the paper's counts, those found here, and the differences.
"""

import sys

from subtle.commands import take_second_word
from subtle.evaluate.options import AnalyzeCompConfig, AnalyzeFIGConfig, AnalyzeTFCoVRConfig
from subtle.options import parse_config, run_recipe

CONFIGS = {"tfcovr": AnalyzeTFCoVRConfig, "comp": AnalyzeCompConfig, "fig": AnalyzeFIGConfig}

if __name__ == "__main__":
    WORD, TEXT = take_second_word(__doc__)
    CONFIG = parse_config(CONFIGS[WORD], TEXT)
    # After the options are read: what follows takes seconds.
    match WORD:
        case "tfcovr":
            from subtle.evaluate.analyse_tfcovr import main
        case "comp":
            from subtle.evaluate.analyse_comp import main
        case "fig":
            from subtle.evaluate.analyse_fig import main

    sys.exit(run_recipe(main, CONFIG))
