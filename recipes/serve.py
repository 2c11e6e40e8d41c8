"""Search your own videos on a page of your browser: choose or upload a clip, trim it, write what is different.

    python recipes/serve.py INDEX
    python recipes/serve.py INDEX --port 8000 --limit 24
    python recipes/serve.py

INDEX is what index.py made; without one the miniature is indexed first. The moments that fit best play side by side,
can be marked as right or wrong (a CSV file that tune.py takes) and exported. The page is at an address that only this
machine reaches, and sends nothing anywhere. `python recipes/publish.py demo` publishes the page as a Space, over the
miniature alone and without marks and export.
"""

import sys

from subtle.options import first_words_as, parse_config, run_recipe
from subtle.service.options import ServeConfig

if __name__ == "__main__":
    sys.argv[1:] = first_words_as(["index"], sys.argv[1:])
    CONFIG = parse_config(ServeConfig, __doc__)
    # After the options are read: what follows takes seconds.
    from subtle.service.serve import main

    sys.exit(run_recipe(main, CONFIG))
