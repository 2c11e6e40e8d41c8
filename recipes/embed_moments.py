"""Encode videos by second and captions by token, so that moment retrieval reads no videos.

    python recipes/embed_moments.py
    python recipes/embed_moments.py --dataset didemo_fig --dataset_config release --data_dir annotations \
        --video_dir videos --vision_model microsoft/resnet-152 --text_model FacebookAI/roberta-base

Writes `OUTPUT_DIR/video` (one vector per `clip_seconds`, the maximum over its frames), `OUTPUT_DIR/query-fine` and
`OUTPUT_DIR/query-coarse` (one vector per token), which `hf_models.feature_store` reads, and `results.json` with the
coverage. Any image or video model that `AutoModel` opens will do, and any text model. A second run encodes what is
missing; another model in the same folder is refused, and so are other videos or captions under the same ids. With the
authors' HDF5 files none of this is needed: put them into a folder as `video.h5` and `query-fine.h5`, and give that
folder to `vcmr.py`.
"""

import sys

from subtle.embedding.options import EmbedMomentsConfig
from subtle.options import parse_config, run_recipe

if __name__ == "__main__":
    CONFIG = parse_config(EmbedMomentsConfig, __doc__)
    # After the options are read: what follows takes seconds.
    from subtle.embedding.embed_moments import main

    sys.exit(run_recipe(main, CONFIG))
