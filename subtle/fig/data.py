"""The moments of a split with the features and the preset that a recipe's configuration names, and what made these."""

from pathlib import Path
from typing import Any, Literal

import polars as pl

from hf_models.feature_store import open_features
from hf_models.moments.dataset import QUERY_FIELDS, MomentSplit
from hf_models.moments.presets import MINIATURE, PRESETS, SpanPreset
from subtle.run.data import open_dataset
from subtle.run.encoded_data import check_encoded, digests_of_moments
from subtle.run.results import read_json
from subtle.run.shared_config import Granularity, MomentDataConfig

FEATURES_FILE = "moment_features.json"
"""What made the features that a model was trained on, kept beside it, so that others can be made."""


def span_preset(config: MomentDataConfig) -> SpanPreset:
    """The preset of the configuration, with the values that the configuration overrides."""
    known = {"miniature": MINIATURE, **PRESETS}
    name = config.preset or ("miniature" if config.dataset_config == "mini" else config.dataset)
    if name not in known:
        raise SystemExit(f"there is no preset {name!r}; --preset names one of {', '.join(known)}")
    fields = ("min_clips", "max_clips", "max_video_clips", "nms_threshold")
    chosen = {field: getattr(config, field) for field in fields if getattr(config, field) is not None}
    return SpanPreset(**{**vars(known[name]), **chosen})


def load_moments(
    config: MomentDataConfig,
    split: str,
    *,
    granularity: Granularity,
    long_videos: Literal["pool", "truncate"],
) -> MomentSplit:
    """The usable queries of a split and its corpus; an error names what is missing."""
    try:
        videos, queries = (open_features(config.features, name) for name in ("video", f"query-{granularity}"))
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"{error}; `python recipes/embed.py moments` writes such a folder, and --features names the folder that "
            "holds it"
        ) from error
    rows = read_moment_rows(config, split, granularity)
    check_encoded(
        config.features,
        digests_of_moments(rows.rename({"caption": f"{granularity}_caption"}).iter_rows(named=True)),
        "name another folder with --features: those of the miniature are made where there are none, others by "
        "embed.py moments",
    )
    return MomentSplit(
        rows,
        videos,
        queries,
        span_preset(config),
        long_videos=long_videos,
        clip_seconds=config.clip_seconds,
    )


def read_moment_rows(config: MomentDataConfig, split: str, granularity: Granularity) -> pl.DataFrame:
    """The rows of a split with `caption`; an error tells why they cannot be used."""
    data = open_dataset(config, split)
    missing = {*QUERY_FIELDS[:-1], f"{granularity}_caption"} - set(data.column_names)
    if missing or not len(data):
        what = f"has no column {', '.join(sorted(missing))}" if missing else "is empty"
        raise SystemExit(f"the split {split!r} of {config.dataset!r} {what}; is it a dataset of moments?")
    rows: pl.DataFrame = data.to_polars()
    return rows.select(*QUERY_FIELDS[:-1], caption=pl.col(f"{granularity}_caption"))


def feature_origins(config: MomentDataConfig, granularity: Granularity) -> dict[str, Any]:
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
