"""Train VidCLIP on contrast pairs, or pre-train it on stacked clips (VideoComp, section 3).

    python recipes/vidclip.py
    accelerate launch recipes/vidclip.py --objective negclip --output_dir outputs/vidclip/negclip
    python recipes/vidclip.py recipes/configs/vidclip_miniature_stacked.yaml     # CompPretrain
    python recipes/vidclip.py --model outputs/vidclip/stacked/model --output_dir outputs/vidclip/stacked_comploss
    python recipes/vidclip.py recipes/configs/vidclip_miniature_captioning.yaml  # VideoCoCa-like

`--model` is a CLIP, which becomes a VidCLIP, or a VidCLIP. The four trainings of the paper, each from the one before,
are `vidclip_paper_1_image.yaml` to `vidclip_paper_4_activitynet.yaml`; a model of images, trained with `--num_frames
1`, can go on with any number. Contrastive negatives come from all processes. A video that cannot be read is left out of
its batch and counted in `OUTPUT_DIR/rejections.parquet`.

`--captioning_weight` adds CoCa's captioning loss on the texts that fit, by a text decoder that is published with the
model; VideoComp's VidCLIP has none. Every epoch is measured on the validation split; the last weights become
`OUTPUT_DIR/model`, with `OUTPUT_DIR/results.json`. A killed run started again with the same configuration goes on from
its last checkpoint and ends with the same weights as one that was never killed.
"""

import sys

from subtle.options import parse_config, run_recipe
from subtle.train.options import VidCLIPRunConfig

if __name__ == "__main__":
    CONFIG = parse_config(VidCLIPRunConfig, __doc__)
    # After the options are read: what follows takes seconds.
    if CONFIG.dry_run:
        from subtle.train.estimates import main
    else:
        from subtle.train.vidclip import main

    sys.exit(run_recipe(main, CONFIG))
