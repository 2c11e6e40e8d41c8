"""Encode all clips and modification texts once, so that stage 2 reads no videos.

    python recipes/embed.py
    accelerate launch recipes/embed.py recipes/configs/embed_4xa100.yaml
    RAY_ADDRESS=auto python recipes/embed.py --engine ray
    python recipes/embed.py --moments

Writes `OUTPUT_DIR/video` and `OUTPUT_DIR/text` (see `hf_models.feature_store`) and `results.json` with the coverage:
how many clips were encoded, and why the others were not. A second run encodes what is missing, so a kill costs at most
one shard; another model in the same folder is refused. The miniature takes under a minute. With `--moments` as the
first argument it is `embed_moments.py`: features second by second and token by token.
"""

import runpy
import sys
from pathlib import Path

from subtle.options import parse_config, run_recipe
from subtle.run.shared_config import EmbedConfig

if __name__ == "__main__":
    if sys.argv[1:2] == ["--moments"]:
        del sys.argv[1]
        sys.exit(runpy.run_path(str(Path(__file__).with_name("embed_moments.py")), run_name="__main__"))
    CONFIG = parse_config(EmbedConfig, __doc__)
    # After the options are read: what follows takes seconds.
    from subtle.embedding.embed import main

    sys.exit(run_recipe(main, CONFIG))
