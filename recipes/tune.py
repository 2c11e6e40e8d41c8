"""Tune a search model to your own sport: from a table of clips with labels to a model folder that `index.py` takes.

    python recipes/tune.py
    python recipes/tune.py clips.csv --video_dir FOLDER --output_dir outputs/tune
    python recipes/tune.py clips.csv --video_dir FOLDER --base openai/clip-vit-base-patch16 --dry_run
    python recipes/tune.py clips.csv --video_dir FOLDER --marks marks.csv
    python recipes/tune.py clips.csv --video_dir FOLDER --writer chat --chat_model gpt-4o --dry_run

The table (CSV, TSV, JSON, JSON lines, Parquet) has `video, label[, start_seconds, end_seconds, description, split]`;
labels are any words in any language. Videos are divided into training, validation and test, a rule (or a chat model)
writes the texts that lead from one label to another, AIM's adapters and then the composition of clip and text are
trained, and the result is measured on the held-out videos beside the untrained base model and models that see the text
or the clip alone. Without a table it draws sixty clips of tricking. It says when there is too little, and how much of
what. A killed run started again goes on where it was. `OUTPUT/model` is what `index.py --model` takes, `OUTPUT/report`
has the results.
"""

import sys

from subtle.footage.options import TuneConfig
from subtle.options import first_words_as, parse_config, run_recipe
from subtle.running import check_first

if __name__ == "__main__":
    sys.argv[1:] = first_words_as(["clips"], sys.argv[1:])
    CONFIG = parse_config(TuneConfig, __doc__)
    from subtle.tuning.clips import check_clip_table

    check_first(check_clip_table, CONFIG)
    # After the options are read: what follows takes seconds.
    from subtle.footage.tune import main

    sys.exit(run_recipe(main, CONFIG))
