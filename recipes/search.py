"""Search an index by a clip, by a text, or by a clip and how the wanted moment differs from it.

    python recipes/search.py INDEX --text "show with 2 turns"
    python recipes/search.py INDEX --clip query.mp4 --start_seconds 3.2 --end_seconds 5.0 --text "show with 2 turns"
    python recipes/search.py INDEX --clip query.mp4 --exclude_same_video --format json
    python recipes/search.py INDEX --text "a vault" --export found --exact
    python recipes/search.py INDEX --text "a vault" --where "label = 'vault' AND end_seconds - start_seconds < 8"
    python recipes/search.py INDEX --text "a vault" --shortlist 50 --refine outputs/vcmr/model --rerank gpt-4o --dry_run

Prints the best moments: `video, start_seconds, end_seconds, score, label`. The search is exact, or `--approximate`.
`--where` is a condition in SQL on `video, start_seconds, end_seconds, label, text, moment_id, modified`, such as
"modified > timestamp '2026-01-01'". The query is embedded by the model that made the index.

A second step looks again at the best `--shortlist` moments. `--refine` gives them the start and end that a model of
vcmr.py prefers, by the text alone. `--rerank` orders them by a cross-encoder, by the text alone, or by a chat model
that sees frames of each moment, of the query clip and the text. `score` is that of the last step; every step's own, and
where the moment was before, stand beside it. A moment that a step cannot judge keeps its place, which is said.
"""

import sys

from subtle.footage.options import SearchConfig
from subtle.options import first_words_as, parse_config, run_recipe

if __name__ == "__main__":
    sys.argv[1:] = first_words_as(["index"], sys.argv[1:])
    CONFIG = parse_config(SearchConfig, __doc__)
    # After the options are read: what follows takes seconds.
    from subtle.footage.search import main

    sys.exit(run_recipe(main, CONFIG))
