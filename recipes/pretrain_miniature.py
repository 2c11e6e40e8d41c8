"""Train the miniature's CLIP on single rendered frames; its weights ship with the recipes.

    python recipes/pretrain_miniature.py
    python recipes/pretrain_miniature.py --output_dir recipes/weights/miniature-clip  # what ships

A real `CLIPModel` (48 px, 16 px patches) learns from single frames of the *training* competitions and their captions.
It also learns from values that only a renderer knows, so its features are better than from captions alone: the 3-D
joints of the athlete are regressed from the class token after every block but the first, the words of a text from its
embedding, and half of the stills carry a random position in time, added to all tokens as AIM's temporal embedding
will be, which it has to predict. It never sees more than one frame.
"""

import sys

from subtle.options import parse_config, run_recipe
from subtle.train.options import PretrainConfig

if __name__ == "__main__":
    CONFIG = parse_config(PretrainConfig, __doc__)
    # After the options are read: what follows takes seconds.
    from subtle.train.pretrain_miniature import main

    sys.exit(run_recipe(main, CONFIG))
