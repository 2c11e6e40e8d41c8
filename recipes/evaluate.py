r"""Measure models: composed retrieval, compositionality, moment retrieval, or tasks of mteb.

tfcovr: Measure composed retrieval by mAP@5/10/25/50: one model, several seeds, or all baselines.

    python recipes/evaluate.py tfcovr
    python recipes/evaluate.py tfcovr --models outputs/seeds/0/model outputs/seeds/1/model
    python recipes/evaluate.py tfcovr --compare --seeds 0 1 2 3 4
    python recipes/evaluate.py tfcovr --protocol tfcovr-official

The gallery holds every clip of the split once, and a query's own clip is left out of its ranking. Under `--protocol
tfcovr-official` it holds the first target of every query, repeated as often as it occurs, the query's own clip comes
last, and the metrics are what the released script would print, for comparisons with it only. Several models give mean
and standard deviation (over n - 1). `--compare` measures the systems of `tfcovr/systems.py`: it trains what is missing
with `--stage2_config`, or else as the first of `--models` was trained, which is then one of them.

It writes to `OUTPUT_DIR`, for `report.py` and for you:

    results.json         `figures`: system -> {"map@5": ..., "map@5_std": ... (from two seeds on), ...} in [0, 1];
                         `gallery_size`, `signature` (the metric's line about the protocol), `coverage` (queries,
                         targets and gallery clips: how many there are and how many could be ranked), configuration,
                         versions
    predictions.parquet  the first system with its first seed, one row per ranked query: `query_id, query_clip_id,
                         query_label, modification_text, change_type, target_clip_ids, target_label` as in the
                         dataset, `ranked_clip_ids` (best first, up to 50) and `scores` (cosines, parallel to them)
    predictions/         the same for every system and seed, `<system>/<number>.parquet`

comp: Measure how well models tell true from disrupted paragraphs, and their retrieval.

    python recipes/evaluate.py comp
    python recipes/evaluate.py comp --models outputs/vidclip/comploss/model outputs/vidclip/negclip/model
    python recipes/evaluate.py comp --compare --seeds 0 1 2 3 4 --draws 6
    python recipes/evaluate.py comp --models openai/clip-vit-base-patch32 microsoft/xclip-base-patch32 \
        google/videoprism-lvt-base-f16r288 google/siglip2-base-patch16-224 facebook/pe-av-base
    python recipes/evaluate.py comp --compare --objectives captioning --score likelihood
    python recipes/evaluate.py comp --threshold_split validation
    python recipes/evaluate.py comp --pairs pairs.csv --video_dir videos
    python recipes/evaluate.py comp --retrieval msrvtt_1ka --data_dir data/msrvtt --video_dir data/msrvtt_videos

VideoComp, section 3.4. Without an argument it measures what `vidclip.py` made of the miniature, beside what it started
from. `--compare` trains what is missing of `--objectives` (`vidclip.py`; "comppretrain" is CompLoss after CompPretrain,
"captioning" InfoNCE with CoCa's captioning loss: VidCLIP + captioning loss, VideoCoCa-like) and measures that; several
seeds give mean and standard deviation (over n - 1). `--score likelihood` compares a video with a text by how likely the
text decoder of such a model finds it, instead of by embeddings, and leaves R@1 out, which would take a pass of the
decoder for every video with every text. A model is VidCLIP, X-CLIP, VideoPrism, Perception Encoder, or an image model
(CLIP, SigLIP 2) averaged over frames as CLIP4Clip does.

A segment mismatch is also a pair of videos with a pair of texts: what is shown, and what the negative text describes.
Text, video and group score are over these (chance 25, 25 and 16.7 %). `--pairs` measures pairs of your own instead: a
table with `video_0,text_0,video_1,text_1` and, if need be, `kind` and times. StrictVLE asks that the text that fits is
above a threshold and the other one below it; cosines have none, so `--threshold_split` fits each model's on that split.

`--retrieval` ranks the videos of a public split for each of its texts, and the texts for each video, instead: R@1, 5,
10 and the median rank, both ways. `--data_dir` holds `MSRVTT_JSFUSION_test.csv` (`msrvtt_1ka`), `MSRVTT_data.json` or
`test_videodatainfo.json` (`msrvtt`), `val_1.json` of ActivityNet Captions (`activitynet`, its sentences one paragraph).

`OUTPUT_DIR` gets `results.json` (`figures`: model -> accuracy per disruption, comprehensive accuracy, scores of pairs,
R@K both ways, all in [0, 1], and median ranks; `by_seed`; `coverage`; `intervals` of the scores of pairs;
`thresholds`), `similarities.parquet` (for every row and model the similarities with both texts), `pairs.parquet` (for
every pair and model the similarities of both videos with both texts) and `confidence.png` (VideoComp's Figure 4).

vcmr: Measure moment retrieval in a corpus (VCMR), within a video (SVMR) and of whole videos (VR).

    python recipes/evaluate.py vcmr
    python recipes/evaluate.py vcmr --models outputs/vcmr/model --queries fine coarse
    python recipes/evaluate.py vcmr --compare --seeds 0 1 2 3 4
    python recipes/evaluate.py vcmr --compare --seeds 0 1 2 3 4 --train_on fine --two_step
    python recipes/evaluate.py vcmr --without_moment 0.3

The corpus is every video of the split. `--compare` trains what is missing of XML, ReLoCLNet and HERO on coarse and on
fine captions (`vcmr.py`) and measures each on the captions of `--queries`, as Tables 4 to 6 of VERIFIED; several seeds
give mean and standard deviation (over n - 1). Moments pass temporal NMS with the preset's threshold; results without it
are in `results.json` too.

`--without_moment` takes the video of some queries out of the corpus for them, chooses on `--calibration_split` the
score below which a query is told that it has no moment, and measures that. The words may fit another video, too; such a
query counts as one without a moment.

It writes to `OUTPUT_DIR`:

    results.json        `figures`: system -> {"vcmr_recall@1_iou@0.5": ..., "..._std": ...} in [0, 1], where a system is
                        "xml, fine -> fine" (trained on -> queried with); `figures_without_nms`, `by_seed`, `coverage`,
                        `intervals` over videos and seeds, also of `differences` to the first system with the same
                        queries; `without_moment`, configuration, versions
    submissions/        the predictions of every model in the TVR submission form, `<system>/<number>.json`

mteb: Measure models on our benchmarks as tasks of mteb 2, with a query's own clip left out and with it kept.

    python recipes/evaluate.py mteb
    python recipes/evaluate.py mteb --tasks ActivityNetComp DiDeMoFIGMoments --models recipes/weights/miniature-vidclip
    python recipes/evaluate.py mteb --tasks ComposedBenchmark --data_dir covr-r --models recipes/weights/miniature-clip

Needs the extra `mteb`: `pip install "subtle-video[mteb]"`. A model is a folder of ours (TF-CoVR; VidCLIP or an image
model such as CLIP, whose mean of clip and text is a composed query), a folder of sentence-transformers, or a name that
mteb knows. `random` is chance; `text-only` and `video-only` are the first of our models with half of each composed
query. Tasks: TFCoVR, ComposedBenchmark (any composed benchmark in mteb's layout, from `--data_dir`), ActivityNetComp,
YouCook2Comp, and CharadesFIG, DiDeMoFIG and ActivityNetFIG with Videos or Moments at the end. They are on the miniature
unless `--dataset_config` says otherwise, and a folder has its `composed`. Published results of composed retrieval leave
the query's own clip out of its ranking (TF-CoVR) or keep it (mteb's other tasks), rarely say so, and cannot be
compared; this reports both.

It writes to `OUTPUT_DIR`:

    results.json  `figures`: model -> {"TFCoVRMini/map_at_50_own_clip_left_out": ..., ...} in [0, 1]; `revisions` of the
                  data of each task and of each model, configuration, versions
    mteb/         mteb's own result of each model and task; what is there is not measured again, unless the model's
                  weights or the task's rows have changed
"""

import sys

from subtle.commands import take_second_word
from subtle.evaluate.options import EvaluateCompConfig, EvaluateConfig, EvaluateMTEBConfig, EvaluateVCMRConfig
from subtle.options import parse_config, run_recipe

CONFIGS = {"tfcovr": EvaluateConfig, "comp": EvaluateCompConfig, "vcmr": EvaluateVCMRConfig, "mteb": EvaluateMTEBConfig}

if __name__ == "__main__":
    WORD, TEXT = take_second_word(__doc__)
    CONFIG = parse_config(CONFIGS[WORD], TEXT)
    # After the options are read: what follows takes seconds.
    match WORD:
        case "tfcovr":
            from subtle.evaluate.evaluate_tfcovr import main
        case "comp":
            from subtle.evaluate.evaluate_comp import main
        case "vcmr":
            from subtle.evaluate.evaluate_vcmr import main
        case "mteb":
            from subtle.evaluate.evaluate_mteb import main

    sys.exit(run_recipe(main, CONFIG))
