"""Run composed retrieval from data to report on the miniature, in a few minutes.

    python recipes/quickstart.py

Each step is a command that you could type yourself, and is printed as such; here they run in one process, so that
libraries are imported once. A second run goes on where the first was stopped and repeats nothing that is done. On two
cores it takes a few minutes, because stage 1 goes on from adapters that ship (`weights/miniature-aim`) for one epoch;
the table at the end shows the seconds of each step.
"""

import os
import sys

from subtle.options import parse_config, run_recipe
from subtle.train.options import QuickstartConfig

if __name__ == "__main__":
    CONFIG = parse_config(QuickstartConfig, __doc__)
    # Threads that wait for each other spin for some microseconds, the time between two operations, and then sleep.
    # Without a limit they make a machine that others use, too, several times slower; asleep at once, they are a third
    # slower alone.
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")
    # After the options are read: what follows takes seconds.
    from subtle.train.quickstart import main

    sys.exit(run_recipe(main, CONFIG))
