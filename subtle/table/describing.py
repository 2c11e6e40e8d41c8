"""Descriptions of what queries look for: from frames and text at once, or by captions that are rewritten."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from hf_datasets.generation.dry_run import DryRun
from hf_datasets.records import Rejection
from hf_datasets.tfcovr.captions import CaptionTask, ClipToCaption
from hf_datasets.tfcovr.describing import DescribeTargetTask, QueryToDescribe
from hf_datasets.tfcovr.rewriting import CaptionedQuery, RewriteTask
from subtle.embedding.loop import Clip
from subtle.run.build import Build
from subtle.table.caption_texts import Captions, caption_from
from subtle.table.reranking import ClipImages
from subtle.tfcovr.captions import LABEL_CAPTIONS, label_of, sport_of_clip

NO_FRAMES = [{"type": "text", "text": "(no frames: the rule-based generator reads the label)"}]


def describe(
    build: Build, config: Any, rows: Sequence[Mapping[str, Any]], clips: Mapping[str, Clip], images: ClipImages | None
) -> Captions:
    """A description of the target of each query; answers that cannot be used are among the build's rejections.

    Args:
        build: the run, whose chat is asked.
        config: with `describe`, `sport`, `any_form` and `model`.
        rows: the queries.
        clips: by id, with `label` and `description`.
        images: gives the frames of clips; None: the rule-based generator writes.
    """
    descriptions = {clip["label"]: clip["description"] for clip in clips.values()}
    first = len(build.rejections)
    ask = ask_captions if config.describe == "captions" else ask_frames
    texts = ask(build, config, rows, clips, images, descriptions)
    reasons = {one.key: one.reason for _, one in build.rejections[first:]}
    unusable = {
        row["query_id"]: reasons.get(row["query_id"], "not asked: the run was stopped")
        for row in rows
        if row["query_id"] not in texts
    }
    source = config.model or LABEL_CAPTIONS
    return Captions(texts, f"dry run of {source}" if isinstance(build.chat, DryRun) else source, unusable)


def ask_frames(
    build: Build,
    config: Any,  # noqa: ARG001 as of ask_captions
    rows: Sequence[Mapping[str, Any]],
    clips: Mapping[str, Clip],  # noqa: ARG001
    images: ClipImages | None,
    descriptions: Mapping[str, str],
) -> dict[str, str]:
    """Descriptions by query id, from frames and modification text."""
    asked = [
        QueryToDescribe(
            row["query_id"],
            row["modification_text"],
            partial(images.of, row["query_clip_id"]) if images else list,
            caption_from(row["target_label"], descriptions.get(row["target_label"])),
        )
        for row in rows
    ]
    answered = build.ask(DescribeTargetTask(), asked, name="descriptions")
    return {row.query_id: text for row, text in answered}


def ask_captions(
    build: Build,
    config: Any,
    rows: Sequence[Mapping[str, Any]],
    clips: Mapping[str, Clip],
    images: ClipImages | None,
    descriptions: Mapping[str, str],
) -> dict[str, str]:
    """Descriptions by query id, from captions of the query clips; see `caption write` and `caption rewrite`."""
    labels = {clip_id: label_of(clip["label"], clip["description"]) for clip_id, clip in clips.items()}

    def to_caption(clip_id: str) -> ClipToCaption | Rejection:
        label = labels.get(clip_id)
        sport = sport_of_clip(clip_id, label, config)
        if sport is None:
            return Rejection("no label of TF-CoVR says the sport; give --sport", "", clip_id)
        return ClipToCaption(clip_id, sport, label)

    asked = list(build.passed("clips", map(to_caption, dict.fromkeys(row["query_clip_id"] for row in rows))))
    task = CaptionTask(lambda clip: images.of(clip.clip_id) if images else NO_FRAMES, any_form=config.any_form)
    captions = {clip.clip_id: (clip.sport, found.caption) for clip, found in build.ask(task, asked, name="captions")}

    def to_rewrite(row: Mapping[str, Any]) -> CaptionedQuery | Rejection:
        text, label_id = row["modification_text"], row["target_label"]
        if row["query_clip_id"] not in captions:
            return Rejection("its clip has no caption", text, row["query_id"])
        target = label_of(label_id, descriptions.get(label_id))
        return CaptionedQuery(row["query_id"], *captions[row["query_clip_id"]], text, target)

    described = list(build.passed("queries", map(to_rewrite, rows)))
    rewriting = RewriteTask(any_form=config.any_form)
    answered = build.ask(rewriting, described, name="descriptions")
    return {row.query_id: found.target_caption for row, found in answered}
