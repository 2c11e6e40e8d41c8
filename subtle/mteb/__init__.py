"""Tasks of mteb 2 on our datasets, out of tree, and our models and baselines as its encoders.

    import mteb
    from subtle.mteb import TFCoVR      # from `pip install 'subtle-video[mteb]'`
    mteb.evaluate(model, TFCoVR())                    # the miniature; TFCoVR("release", video_dir=...) is TF-CoVR

No part of mteb is changed; the classes are given to `mteb.evaluate` as they are.
"""

try:
    import mteb  # noqa: F401
except ImportError as error:
    raise ImportError("mteb: not installed; run: pip install 'subtle-video[mteb]'") from error

from .composed import ComposedBenchmark, ComposedRetrieval, TFCoVR, export_composed
from .contrasts import ActivityNetComp, ContrastClassification, YouCook2Comp
from .moments import (
    ActivityNetFIGMoments,
    ActivityNetFIGVideos,
    CharadesFIGMoments,
    CharadesFIGVideos,
    DiDeMoFIGMoments,
    DiDeMoFIGVideos,
)

TASKS = {
    task.__name__: task
    for task in (
        TFCoVR,
        ComposedBenchmark,
        ActivityNetComp,
        YouCook2Comp,
        CharadesFIGVideos,
        CharadesFIGMoments,
        DiDeMoFIGVideos,
        DiDeMoFIGMoments,
        ActivityNetFIGVideos,
        ActivityNetFIGMoments,
    )
}
"""The tasks by the name of their class; each takes `dataset_config`, `data_dir`, `video_dir` and `split`."""

__all__ = [
    "TASKS",
    "ActivityNetComp",
    "ActivityNetFIGMoments",
    "ActivityNetFIGVideos",
    "CharadesFIGMoments",
    "CharadesFIGVideos",
    "ComposedBenchmark",
    "ComposedRetrieval",
    "ContrastClassification",
    "DiDeMoFIGMoments",
    "DiDeMoFIGVideos",
    "TFCoVR",
    "YouCook2Comp",
    "export_composed",
]
