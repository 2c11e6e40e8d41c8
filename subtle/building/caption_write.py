"""Caption the clips of TF-CoVR with a video-language model, and score the captions by the labels (Tables C1 and C2)."""

from typing import Any

from hf_datasets.builders import write_rejections
from hf_datasets.drafts import write_text
from hf_datasets.generation.images import image_parts
from hf_datasets.records import ClipRow, Rejection
from hf_datasets.tfcovr.captions import CaptionTask, ClipToCaption
from hf_datasets.video.pool import NO_FILE
from subtle.building.options import CaptionWriteConfig
from subtle.run.build import Build
from subtle.run.data import load_split, with_split
from subtle.run.results import write_results
from subtle.tfcovr.caption_scores import baselines, figures_of, report_scores, tallies, write_scored
from subtle.tfcovr.captions import (
    LABEL_CAPTIONS,
    Scored,
    clips_of,
    coverage_of,
    model_of,
    read_captions,
    scored,
    sport_of_clip,
)

CAPTION_COLUMNS = ("clip_id", "caption", "place", "sport", "label", "description", "model")


def to_caption(config: CaptionWriteConfig, row: ClipRow) -> ClipToCaption | Rejection:
    """A clip as the task takes it, or why it cannot be captioned."""
    label, clip_id = row["label"], row["clip_id"]
    sport = sport_of_clip(clip_id, label, config)
    if not row["video"]:
        return Rejection(NO_FILE, row["description"] or "", clip_id)
    if sport is None:
        return Rejection("no label of TF-CoVR says the sport; give --sport", row["description"] or "", clip_id)
    return ClipToCaption(clip_id, sport, label)


def ask_for_captions(build: Build, config: CaptionWriteConfig, clips: dict[str, ClipRow]) -> list[Scored]:
    """The captions of clips, each with its score."""
    asked = list(build.passed("clips", (to_caption(config, row) for row in build.limited(clips.values()))))
    if not asked:
        reasons = ", ".join(dict.fromkeys(rejection.reason for _, rejection in build.rejections))
        raise SystemExit(f"none of the {len(clips):,} clips of {config.split!r} can be captioned ({reasons})")

    def frames_of(clip: ClipToCaption) -> list[dict[str, Any]]:
        row, options = clips[clip.clip_id], {"num_frames": config.num_frames, "max_side": config.max_side}
        return image_parts(str(row["video"]), row["start_seconds"], row["end_seconds"], **options)

    task = CaptionTask(frames_of, any_form=config.any_form, prompts=config.prompts)
    found = []
    for clip, caption in build.ask(task, asked, name="captions"):
        row: dict[str, Any] = {
            "key": clip.key,
            "clip_id": clip.clip_id,
            "caption": caption.caption,
            "place": caption.place,
            "sport": clip.sport,
        }
        row |= {"label": clip.label, "description": clips[clip.clip_id]["description"]}
        found.append(row | {"model": config.model or LABEL_CAPTIONS} | scored(caption.caption, clip.label))
    return found


def main(config: CaptionWriteConfig) -> int:
    config = with_split(config)
    assert config.split is not None  # `with_split` filled it
    build = Build(config)
    clips = clips_of(config, config.split)
    if config.only_queries:
        asked = set(load_split(config, config.split)["query_clip_id"])
        clips = {clip_id: clip for clip_id, clip in clips.items() if clip_id in asked}
    if config.captions:
        return score_tables(build, config, clips)
    found = ask_for_captions(build, config, clips)
    title = f"{config.dataset_config}, {config.split}"
    coverage = coverage_of(build, len(clips), found, ("clips", "captions"))
    return write_scored(build, found, found, title, file="captions.parquet", columns=CAPTION_COLUMNS, coverage=coverage)


def score_tables(build: Build, config: CaptionWriteConfig, clips: dict[str, ClipRow]) -> int:
    captions, systems, coverage = {}, {}, {}
    for path in config.captions or ():
        table, rejections = read_captions(path)
        rows, strange = [], []
        for clip_id, caption in table.select("clip_id", "caption").iter_rows():
            if clip_id in clips:
                label = clips[clip_id]["label"]
                rows.append({"key": clip_id, "caption": caption, "label": label} | scored(caption, label))
            else:
                strange.append(Rejection(f"no clip of {config.split!r} has this id", caption, clip_id))
        if not rows:
            raise ValueError(f"{path} has no caption of a clip of {config.split!r}; name its split with --split")
        name = model_of(table, path)
        name = f"{name} ({path})" if name in systems else name
        list(build.passed(name, [*rows, *rejections, *strange]))
        captions[name], systems[name] = rows, tallies(rows)
        coverage[name] = {"clips": len(clips), "captioned": len(rows), "rejected": len(rejections) + len(strange)}
    build.show()
    labels = [clip["label"] for clip in clips.values() if clip["label"]]
    lines = systems | baselines(labels)
    text = report_scores(lines, captions, number=config.examples, title=f"{config.dataset_config}, {config.split}")
    with build.draft() as draft:
        write_rejections(draft, build.rejections)
        write_text(draft / "table.md", text)
        figures = {name: figures_of(by_sport) for name, by_sport in lines.items()}
        write_results(draft, figures, config=config, seed=config.seed, coverage=coverage, complete=True)
    return 0
