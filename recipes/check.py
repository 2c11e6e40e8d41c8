r"""Check a folder of data before hours of GPU: what is there, missing or damaged, and what it is enough for.

It reads annotations and finds videos as `load_dataset` does, compares counts with the paper's, opens the header of each
video and decodes none. It prints which tables can be filled and by which command, and estimates of disk, hours of GPU
and the price of language models.

tfcovr: Check the data of TF-CoVR: its csv files, FineGym, FineDiving, long videos, clips and folders of frames.

    python recipes/check.py tfcovr --data_dir data/tfcovr --video_dir data/videos

comp: Check the data of VideoComp: its JSON files, ActivityNet-Captions, YouCook2 and their videos.

    python recipes/check.py comp --data_dir data/video_comp --video_dir data/activitynet_videos

fig: Check the data of VERIFIED: Charades-FIG, DiDeMo-FIG and ActivityNet-FIG with their videos.

    python recipes/check.py fig --data_dir data/charades_fig --video_dir data/charades_videos

`OUTPUT_DIR/PAPER` gets `missing_videos.txt`, the ids of videos without a file, one per line, and `results.json`. The
exit status is 1 where no table can be filled.
"""

import sys
from functools import partial

from subtle.checking.options import CheckConfig
from subtle.commands import take_second_word
from subtle.options import parse_config, run_recipe

CONFIGS = {"tfcovr": CheckConfig, "comp": CheckConfig, "fig": CheckConfig}

if __name__ == "__main__":
    WORD, TEXT = take_second_word(__doc__)
    CONFIG = parse_config(CONFIGS[WORD], TEXT)
    # After the options are read: what follows takes seconds.
    from subtle.checking.check import main

    sys.exit(run_recipe(partial(main, WORD), CONFIG))
