"""Choose the best of each moment's built captions with a trained noise evaluator.

    python recipes/select_captions.py --build outputs/build_fig --video_dir videos
    python recipes/select_captions.py --build outputs/build_fig --video_dir videos --model Salesforce/blip-itm-base-coco

Scores the candidates of each moment in a folder of `build_fig.py`, and writes a new folder with the best candidate and
its score; `load_dataset("charades_fig", "source", data_dir=OUTPUT_DIR)` opens it. A moment whose video cannot be read
keeps its caption, without a score, and is named in `rejections.parquet`.
"""

import sys

from subtle.building.options import SelectCaptionsConfig
from subtle.options import parse_config, run_recipe

if __name__ == "__main__":
    CONFIG = parse_config(SelectCaptionsConfig, __doc__)
    # After the options are read: what follows takes seconds.
    from subtle.building.select_captions import main

    sys.exit(run_recipe(main, CONFIG))
