"""Rewrite captions of query clips as the modification texts ask, with a language model (TF-CVR, Table 2)."""

from pathlib import Path
from typing import Any

import polars as pl

from hf_datasets.records import ClipRow, Rejection
from hf_datasets.tfcovr.captions import caption_of, caption_rejection_reason
from hf_datasets.tfcovr.rewriting import CaptionedQuery, RewriteTask
from subtle.building.options import CaptionRewriteConfig
from subtle.run.build import Build
from subtle.run.data import load_split, with_split
from subtle.tfcovr.caption_scores import tallies, write_scored
from subtle.tfcovr.captions import (
    LABEL_CAPTIONS,
    Scored,
    clips_of,
    coverage_of,
    label_of,
    model_of,
    read_captions,
    scored,
    sport_of_clip,
)

REWRITTEN_COLUMNS: tuple[str, ...] = ("query_id", "query_clip_id", "modification_text", "caption", "target_caption")
REWRITTEN_COLUMNS += ("sport", "label", "model", "captions_by")


def captions_of(build: Build, config: CaptionRewriteConfig, clips: dict[str, ClipRow]) -> tuple[pl.DataFrame, str]:
    """The captions of the clips (`clip_id, caption` and perhaps `sport`), and who wrote them."""
    if config.captions is None:
        rows = [(clip_id, caption_of(clip["label"])) for clip_id, clip in clips.items() if clip["label"]]
        if not rows:
            raise ValueError(f"no clip of {config.split!r} has a label of TF-CoVR; give --captions of a model")
        return pl.DataFrame(rows, {"clip_id": pl.String, "caption": pl.String}, orient="row"), LABEL_CAPTIONS
    table, rejections = read_captions(config.captions)
    list(build.passed("captions", [*table.iter_rows(), *rejections]))
    if not set(table["clip_id"]) & clips.keys():
        raise ValueError(f"{config.captions} has no caption of a clip of {config.split!r}; name its split with --split")
    return table, model_of(table, Path(config.captions).name)


def ask_for_rewritings(build: Build, config: CaptionRewriteConfig, queries: dict[str, dict[str, Any]]) -> list[Scored]:
    assert config.split is not None  # `with_split` filled it
    clips = clips_of(config, config.split)
    labels = {clip["label"].label_id: clip["label"] for clip in clips.values() if clip["label"]}
    table, author = captions_of(build, config, clips)
    captions = dict(table.select("clip_id", "caption").iter_rows())
    sports = dict(table.select("clip_id", "sport").iter_rows()) if "sport" in table.columns else {}

    def to_rewrite(query: dict[str, Any]) -> CaptionedQuery | Rejection:
        clip_id, key, text = query["query_clip_id"], query["query_id"], query["modification_text"]
        label = clips[clip_id]["label"] if clip_id in clips else None
        sport = sports.get(clip_id) or sport_of_clip(clip_id, label, config)
        caption = captions.get(clip_id)
        if caption is None:
            return Rejection("its clip has no caption", text, key)
        if sport is None:
            return Rejection("no label of TF-CoVR says the sport; give --sport", text, key)
        if reason := caption_rejection_reason(caption, sport, any_form=config.any_form):
            cure = "" if config.any_form else " (--any_form takes captions without the form)"
            return Rejection(f"its clip's caption cannot be used{cure}: {reason}", caption, key)
        target = labels.get(query["target_label"]) or label_of(query["target_label"], None)
        return CaptionedQuery(key, sport, caption, text, target)

    asked = list(build.passed("queries", map(to_rewrite, build.limited(queries.values()))))
    found = []
    for row, rewritten in build.ask(RewriteTask(any_form=config.any_form), asked, name="rewritten captions"):
        texts = {name: queries[row.query_id][name] for name in ("query_id", "query_clip_id", "modification_text")}
        texts |= {
            "key": row.key,
            "caption": row.caption,
            "target_caption": rewritten.target_caption,
            "sport": row.sport,
        }
        by = {"label": row.target, "model": config.model or LABEL_CAPTIONS, "captions_by": author}
        found.append(texts | by | scored(rewritten.target_caption, row.target))
    return found


def main(config: CaptionRewriteConfig) -> int:
    config = with_split(config)
    assert config.split is not None
    build = Build(config)
    queries = {row["query_id"]: row for row in load_split(config, config.split)}
    found = ask_for_rewritings(build, config, queries)
    return write_scored(
        build,
        found,
        [row | {"caption": row["target_caption"]} for row in found],
        f"{config.dataset_config}, {config.split}, targets",
        file="rewritten.parquet",
        columns=REWRITTEN_COLUMNS,
        beside={"the query's caption": tallies(found)},
        captions_by=found[0]["captions_by"] if found else None,
        coverage=coverage_of(build, len(queries), found, ("queries", "rewritten captions")),
    )
