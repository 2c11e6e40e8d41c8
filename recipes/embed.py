r"""Encode a dataset once, so that training reads no videos: clips and texts, or moments second by second.

A second run encodes what is missing, so a kill costs at most one shard. Another model in the same folder is refused,
and so are other data under the same ids.

clips: Encode all clips and modification texts once, so that stage 2 reads no videos.

    python recipes/embed.py clips
    accelerate launch recipes/embed.py clips recipes/configs/embed_4xa100.yaml
    RAY_ADDRESS=auto python recipes/embed.py clips --engine ray

Writes `OUTPUT_DIR/video` and `OUTPUT_DIR/text` (see `hf_models.feature_store`) and `results.json` with the coverage:
how many clips were encoded, and why the others were not. The miniature takes under a minute.

moments: Encode videos by second and captions by token, so that moment retrieval reads no videos.

    python recipes/embed.py moments
    python recipes/embed.py moments --dataset didemo_fig --dataset_config release --data_dir annotations \
        --video_dir videos --vision_model microsoft/resnet-152 --text_model FacebookAI/roberta-base

Writes `OUTPUT_DIR/video` (one vector per `clip_seconds`, the maximum over its frames), `OUTPUT_DIR/query-fine` and
`OUTPUT_DIR/query-coarse` (one vector per token), which `hf_models.feature_store` reads, and `results.json` with the
coverage; `OUTPUT_DIR` is outputs/features/DATASET unless it is given. Any image or video model that `AutoModel` opens
will do, and any text model. With the authors' HDF5 files none of this is needed: put them into a folder as `video.h5`
and `query-fine.h5`, and give that folder to `vcmr.py`.
"""

import sys

from subtle.commands import take_second_word
from subtle.embedding.options import EmbedMomentsConfig
from subtle.options import parse_config, run_recipe
from subtle.run.shared_config import EmbedConfig

CONFIGS = {"clips": EmbedConfig, "moments": EmbedMomentsConfig}

if __name__ == "__main__":
    WORD, TEXT = take_second_word(__doc__)
    CONFIG = parse_config(CONFIGS[WORD], TEXT)
    # After the options are read: what follows takes seconds.
    match WORD:
        case "clips":
            from subtle.embedding.embed_clips import main
        case "moments":
            from subtle.embedding.embed_moments import main

    sys.exit(run_recipe(main, CONFIG))
