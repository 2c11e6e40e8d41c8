r"""Measure how well models tell true from disrupted paragraphs, and their retrieval.

    python recipes/evaluate_comp.py
    python recipes/evaluate_comp.py --models outputs/vidclip/comploss/model outputs/vidclip/negclip/model
    python recipes/evaluate_comp.py --compare --seeds 0 1 2 3 4 --draws 6
    python recipes/evaluate_comp.py --models openai/clip-vit-base-patch32 microsoft/xclip-base-patch32 \
        google/videoprism-lvt-base-f16r288 google/siglip2-base-patch16-224 facebook/pe-av-base
    python recipes/evaluate_comp.py --compare --objectives captioning --score likelihood
    python recipes/evaluate_comp.py --threshold_split validation
    python recipes/evaluate_comp.py --pairs pairs.csv --video_dir videos

VideoComp, section 3.4. Without an argument it measures what `vidclip.py` made of the miniature, beside what it started
from. `--compare` trains what is missing of `--objectives` (`vidclip.py`; "comppretrain" is CompLoss after CompPretrain,
"captioning" InfoNCE with CoCa's captioning loss: VidCLIP + captioning loss, VideoCoCa-like) and measures that; several
seeds give mean and standard deviation (over n - 1). `--score likelihood` compares a video with a text by how likely
the text decoder of such a model finds it, instead of by embeddings, and leaves R@1 out, which would take a pass of the
decoder for every video with every text. A model is VidCLIP, X-CLIP, VideoPrism, Perception Encoder, or an image model
(CLIP, SigLIP 2) averaged over frames as CLIP4Clip does.

A segment mismatch is also a pair of videos with a pair of texts: what is shown, and what the negative text describes.
Text, video and group score are over these (chance 25, 25 and 16.7 %). `--pairs` measures pairs of your own instead: a
table with `video_0,text_0,video_1,text_1` and, if need be, `kind` and times. StrictVLE asks that the text that fits is
above a threshold and the other one below it; cosines have none, so `--threshold_split` fits each model's on that split.

`OUTPUT_DIR` gets `results.json` (`figures`: model -> accuracy per disruption, comprehensive accuracy, scores of pairs,
R@1 both ways, all in [0, 1]; `by_seed`; `coverage`; `intervals` of the scores of pairs; `thresholds`),
`similarities.parquet` (for every row and model the similarities with both texts) and `pairs.parquet` (for every pair
and model the similarities of both videos with both texts).
"""

import sys

from subtle.evaluate.options import EvaluateCompConfig
from subtle.options import parse_config, run_recipe

if __name__ == "__main__":
    CONFIG = parse_config(EvaluateCompConfig, __doc__)
    # After the options are read: what follows takes seconds.
    from subtle.evaluate.evaluate_comp import main

    sys.exit(run_recipe(main, CONFIG))
