"""The ways to make a query of a clip and a text, named as in TF-CoVR's tables.

    average          the mean of the clip's and the text's unit-norm embeddings (Avg)
    text, video      one half of the query
    prompt           clip and text in one prompt of a multimodal language model (MLLM)
    cross-attention  BLIP's text encoder looks at the clip's middle frame (CA), as in CoVR
    ecde             0.8 x that with the modification, 0.2 x that with a description of the query clip
    captions         the rewritten caption of the target, as text (TF-CVR)

A query has its own number of frames, beside that of the targets: 1 is the middle frame of the clip.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from hf_models.encoders import (
    BlipEncoder,
    LanguageModelEncoder,
    SentenceTransformerEncoder,
    TFCoVREncoder,
    XCLIPEncoder,
)
from hf_models.encoders.protocol import mean_of, unit
from subtle.embedding.loop import Clip, Work
from subtle.table.embedding import (
    DEFAULT_WORK,
    NO_CAPTION,
    Embedded,
    clips_of,
    embed_clips,
    embed_queries,
    embed_texts,
)

WayName = Literal["average", "text", "video", "prompt", "cross-attention", "ecde", "captions"]
DESCRIPTION_WEIGHT = 0.2
"""Of the query that a description makes, beside that of the modification, in ECDE."""


@dataclass(frozen=True)
class Way:
    """A way to make a query.

    Attributes:
        fusion: as the paper's tables abbreviate it.
        reads_video: whether the query's clip counts.
        reads_text: whether a text counts.
        needs: which further texts it takes: "descriptions" of query clips, or "rewritten" captions of targets.
    """

    fusion: str
    reads_video: bool = True
    reads_text: bool = True
    needs: Literal["", "descriptions", "rewritten"] = ""


WAYS: dict[str, Way] = {
    "average": Way("Avg"),
    "text": Way("-", reads_video=False),
    "video": Way("-", reads_text=False),
    "prompt": Way("MLLM"),
    "cross-attention": Way("CA"),
    "ecde": Way("CA", needs="descriptions"),
    "captions": Way("-", reads_video=False, needs="rewritten"),
}


def compose_queries(
    way: WayName,
    encoder: Any,
    rows: Iterable[Mapping[str, Any]],
    clips: Iterable[Clip],
    folder: Path | str,
    num_frames: int | None = None,
    *,
    extra_texts: Mapping[str, str] | None = None,
    work: Work = DEFAULT_WORK,
) -> Embedded:
    """A vector for each query, to be compared with those that `embed_clips` gives by cosine.

    Args:
        way: a name of `WAYS`.
        encoder: of `hf_models.encoders`.
        rows: queries with `query_id`, `query_clip_id` and `modification_text`.
        clips: their clips, and maybe others.
        folder: of the stores, see `embed_clips`.
        num_frames: frames of a query's clip; 1: the middle one; None: as many as the encoder reads.
        extra_texts: query id -> description of its clip for "ecde", rewritten caption of its target for "captions";
            queries without one are failures.
        work: how much at a time.

    Returns:
        Unit-norm vectors `(N, D)` by query id, and why other queries have none.

    Raises:
        ValueError: the encoder cannot make such queries, or not one query can be made.

    Example:
        >>> WAYS["ecde"].fusion, WAYS["captions"].reads_video
        ('CA', False)
    """
    check_way(way, encoder)
    rows, clips = list(rows), list(clips)
    known, failures = split_by_text(rows, extra_texts if WAYS[way].needs else None)
    if not known:
        raise ValueError(f"none of {len(rows):,} queries has a usable text; check the file of captions")
    if way in {"text", "captions"}:
        made = from_texts(encoder, known, folder, extra_texts if way == "captions" else None, work)
    elif way in {"average", "video"} and not composes_itself(way, encoder):
        made = from_halves(way, encoder, known, clips, folder, num_frames, work)
    else:
        made = embed_queries(encoder, known, clips, folder, num_frames, work=work)
        if way == "ecde":
            described = embed_queries(encoder, known, clips, folder, num_frames, texts=extra_texts, work=work)
            made = Embedded(
                made.ids,
                blend(made.vectors, described.rows(made.ids)),
                made.failures,
                made.num_encoded + described.num_encoded,
            )
    return Embedded(made.ids, unit(made.vectors), failures | made.failures, made.num_encoded)


def check_way(way: str, encoder: Any) -> None:
    """Refuse a way that an encoder does not have.

    Raises:
        ValueError: names the encoder, and what would do.
    """
    if way not in WAYS:
        raise ValueError(f"there is no way {way!r} to make a query; there are {', '.join(WAYS)}")
    family = encoder.usage.family
    if WAYS[way].reads_text and not encoder.reads_texts:
        raise ValueError(f"{family} has no text tower, so it makes no query by {way!r}; its queries are 'video'")
    if way in {"cross-attention", "ecde"} and not isinstance(encoder, BlipEncoder):
        raise ValueError(
            f"{family} has no text encoder that looks at a frame, which {way!r} needs; take a BLIP, such as CoVR's"
        )
    if way == "prompt" and not isinstance(encoder, LanguageModelEncoder):
        raise ValueError(f"{family} is no multimodal language model, which 'prompt' needs; take 'average'")
    if way in {"text", "captions"} and isinstance(encoder, XCLIPEncoder):
        raise ValueError("X-CLIP's texts depend on the video that they are compared with; its queries are 'average'")


def composes_itself(way: str, encoder: Any) -> bool:
    """Whether the mean of two stored halves is not what this encoder calls the mean."""
    return way == "average" and isinstance(encoder, TFCoVREncoder | XCLIPEncoder | SentenceTransformerEncoder)


def split_by_text(
    rows: list[Mapping[str, Any]], extra_texts: Mapping[str, str] | None
) -> tuple[list[Mapping[str, Any]], dict[str, str]]:
    """The queries that have the further text that they need, and why the others have none."""
    if extra_texts is None:
        return rows, {}
    known = [row for row in rows if row["query_id"] in extra_texts]
    return known, {row["query_id"]: NO_CAPTION for row in rows if row["query_id"] not in extra_texts}


def from_texts(
    encoder: Any, rows: list[Mapping[str, Any]], folder: Path | str, texts: Mapping[str, str] | None, work: Work
) -> Embedded:
    """Queries that are a text."""
    said = {row["query_id"]: row["modification_text"] if texts is None else texts[row["query_id"]] for row in rows}
    found = embed_texts(encoder, said.values(), folder, work=work)
    return Embedded(list(said), found.rows(said.values()), {}, found.num_encoded)


def from_halves(
    way: str,
    encoder: Any,
    rows: list[Mapping[str, Any]],
    clips: list[Clip],
    folder: Path | str,
    num_frames: int | None,
    work: Work,
) -> Embedded:
    """Queries that are the mean of a clip's and a text's embedding, or the clip's alone."""
    of_clips = embed_clips(encoder, clips_of(rows, clips), folder, num_frames, work=work)
    readable = set(of_clips.ids)
    kept = [row for row in rows if row["query_clip_id"] in readable]
    failures = {
        row["query_id"]: of_clips.failures.get(row["query_clip_id"], "its clip is not in the dataset")
        for row in rows
        if row["query_clip_id"] not in readable
    }
    ids, seen = [row["query_id"] for row in kept], of_clips.rows(row["query_clip_id"] for row in kept)
    if way == "video":
        return Embedded(ids, seen, failures, of_clips.num_encoded)
    said = embed_texts(encoder, (row["modification_text"] for row in kept), folder, work=work)
    read = said.rows(row["modification_text"] for row in kept)
    return Embedded(ids, mean_of(seen, read), failures, of_clips.num_encoded + said.num_encoded)


def blend(modified: Tensor, described: Tensor, weight: float = DESCRIPTION_WEIGHT) -> Tensor:
    """The unit-norm sum of two queries of unit length, the second with `weight`, the first with the rest.

    Example:
        >>> import torch
        >>> blend(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]]), weight=0.5)
        tensor([[0.7071, 0.7071]])
    """
    return unit((1 - weight) * modified + weight * described)
