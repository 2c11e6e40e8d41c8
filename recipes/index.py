"""Index your own videos: cut them into moments, embed these, and keep the vectors for `search.py`.

    python recipes/index.py FOLDER --output INDEX
    python recipes/index.py FOLDER --output INDEX --cut shots
    python recipes/index.py moments.csv --video_dir FOLDER --output INDEX
    python recipes/index.py FOLDER --output INDEX --model OTHER
    python recipes/index.py --output INDEX --activate OTHER
    RAY_ADDRESS=auto python recipes/index.py FOLDER --output INDEX --engine ray

A FOLDER, at any depth, is cut into windows or shots; a table (CSV, TSV, JSON, JSON lines, Parquet, or OpenSportsLib's
JSON) names the moments: `video, start_seconds, end_seconds[, label, text, moment_id]`. Without either it indexes the
miniature's clips. Run it again after videos were added, changed, moved or deleted: only what is new is read. A run
that was killed goes on where it was. Videos that cannot be read are named, and tried again when they change. Vectors of
several models live side by side; searches use the active one, and `--activate` changes it, back too.
"""

import sys

from subtle.footage.options import IndexConfig
from subtle.options import first_words_as, parse_config, run_recipe
from subtle.running import check_first

if __name__ == "__main__":
    sys.argv[1:] = first_words_as(["source"], sys.argv[1:])
    CONFIG = parse_config(IndexConfig, __doc__)
    from subtle.footage.sources import check_source

    check_first(check_source, CONFIG)
    # After the options are read: what follows takes seconds.
    from subtle.footage.index import main

    sys.exit(run_recipe(main, CONFIG))
