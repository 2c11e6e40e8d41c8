"""Fine-tune a vision-language model that embeds, such as Qwen3-VL-Embedding, for composed retrieval.

    python recipes/finetune_vlm.py --dry_run
    python recipes/finetune_vlm.py recipes/configs/finetune_vlm_qwen3_vl_2b.yaml
    python recipes/finetune_vlm.py --model Qwen/Qwen3-VL-Embedding-2B --train_on clips --mixed_precision bf16

Trains LoRA, or with `--method frozen_layers` a small head over the last token's states of several layers of the frozen
model (PREGEN's idea); from clips with modification texts, or from texts alone (TARA's idea), which opens no video.
Gradient caching makes the contrastive batch independent of memory. Download, memory and hours are printed before
anything loads, and a GPU that is too small is refused. Validated by mAP@50 every epoch; the best weights become
`OUTPUT_DIR/model`, a few MB that `load_encoder(MODEL, adapter="OUTPUT_DIR/model")` reads. A killed run started again
ends with the same weights. Without `--model` it makes one of random weights, to try the recipe out in a minute.
"""

import sys

from subtle.options import parse_config, run_recipe
from subtle.train.options import FinetuneVLMConfig

if __name__ == "__main__":
    CONFIG = parse_config(FinetuneVLMConfig, __doc__)
    # After the options are read: what follows takes seconds.
    from subtle.train.finetune_vlm import main

    sys.exit(run_recipe(main, CONFIG))
