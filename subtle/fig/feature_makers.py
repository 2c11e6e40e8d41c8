"""What made the features that a model of moments was trained on, kept beside the model, so that others can be made."""

from pathlib import Path
from typing import Any

from hf_models.feature_store import open_features
from subtle.fig.data import span_preset
from subtle.run.results import read_json
from subtle.run.shared_config import Granularity, MomentDataConfig

FEATURES_FILE = "moment_features.json"


def features_of(config: MomentDataConfig, granularity: Granularity) -> dict[str, Any]:
    """What made the features that a configuration names, and how moments are looked for in them.

    Gives `video` and `query`, what the features depend on (empty where that is unknown, as of the authors' files),
    `vision_model`, `text_model` and `frames_per_clip` as `embed.py moments` had them, and the spans to look for.
    """
    video, query = (open_features(config.features, name) for name in ("video", f"query-{granularity}"))
    preset = span_preset(config)
    results = Path(config.features) / "results.json"
    made = read_json(results, config=dict)["config"] if results.is_file() else {}
    return {
        "video": video.details,
        "query": query.details,
        **{name: made.get(name) for name in ("vision_model", "text_model", "frames_per_clip")},
        "clip_seconds": config.clip_seconds or video.details.get("clip_seconds", 1.0),
        "min_clips": preset.min_clips,
        "max_clips": preset.max_clips,
        "nms_threshold": preset.nms_threshold,
    }
