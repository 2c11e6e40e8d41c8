"""The former name of `select_captions.py`, kept until version 0.2."""

import runpy
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.stderr.write("judge_captions is now called select_captions; the old name goes with version 0.2\n")
    runpy.run_path(str(Path(__file__).with_name("select_captions.py")), run_name="__main__")
