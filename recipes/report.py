"""Write an HTML page about an evaluation: tables, mistakes, worst queries with their clips.

    python recipes/report.py
    python recipes/report.py --evaluation_dir outputs/evaluation --output_dir outputs/report --num_queries 30
    python recipes/report.py --evaluation_dir outputs/evaluation --video_dir /where/the/videos/are/now

Reads what `evaluate.py tfcovr` wrote and the clips of the dataset that it was given, which `results.json` names; a flag
overrides it. Writes `index.html` and `per_label.csv`. The page carries its clips with it and needs no
network, so it opens from disk and can be sent on; where the videos must stay where they are, use `--num_queries 0`.
"""

import sys

from subtle.evaluate.options import ReportConfig
from subtle.options import parse_config, run_recipe

if __name__ == "__main__":
    CONFIG = parse_config(ReportConfig, __doc__)
    # After the options are read: what follows takes seconds.
    from subtle.evaluate.report import main

    sys.exit(run_recipe(main, CONFIG))
