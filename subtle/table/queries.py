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
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal

from torch import Tensor

from hf_datasets.records import ClipRow
from hf_models.encoders import (
    BlipEncoder,
    LanguageModelEncoder,
    SentenceTransformerEncoder,
    TFCoVREncoder,
    XCLIPEncoder,
)
from hf_models.encoders.protocol import mean_of, unit_rows
from subtle.table.embedding import NO_CAPTION, Embedded, Embedder, clips_of_queries

WayName = Literal["average", "text", "video", "prompt", "cross-attention", "ecde", "captions"]
COMPOSING = (TFCoVREncoder, XCLIPEncoder, SentenceTransformerEncoder)
"""Encoders for which the mean of two stored halves is not what they call the mean."""
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
    embedder: Embedder,
    rows: Iterable[Mapping[str, Any]],
    clips: Iterable[ClipRow],
    num_frames: int | None = None,
    extra_texts: Mapping[str, str] = MappingProxyType({}),
) -> Embedded:
    """A vector for each query, to be compared by cosine with those that `Embedder.clips` gives.

    Args:
        way: a name of `WAYS`.
        embedder: of the model, see there for numbers of frames.
        rows: queries with `query_id`, `query_clip_id` and `modification_text`.
        clips: their clips, and maybe others.
        num_frames: of a query's clip.
        extra_texts: query id -> description of its clip for "ecde", rewritten caption of its target for "captions";
            queries without one are failures.

    Returns:
        Unit-norm vectors `(N, D)` by query id, and why other queries have none.

    Raises:
        ValueError: the encoder cannot make such queries, or not one query can be made.

    Example:
        >>> WAYS["ecde"].fusion, WAYS["captions"].reads_video
        ('CA', False)
    """
    check_way(way, embedder.encoder)
    rows, clips = list(rows), list(clips)
    known = [row for row in rows if row["query_id"] in extra_texts] if WAYS[way].needs else rows
    if not known:
        raise ValueError(f"none of {len(rows):,} queries has a usable text; check the file of captions")
    if way in {"text", "captions"}:
        said = {row["query_id"]: row["modification_text"] for row in known}
        made = from_texts(embedder, said if way == "text" else {one: extra_texts[one] for one in said})
    elif way == "video" or (way == "average" and not isinstance(embedder.encoder, COMPOSING)):
        made = from_halves(way, embedder, known, clips, num_frames)
    else:
        made = embedder.queries(known, clips, num_frames)
    if way == "ecde":
        described = embedder.queries(known, clips, num_frames, extra_texts)
        vectors = blend(made.vectors, described.rows(made.ids))
        made = replace(made, vectors=vectors, num_encoded=made.num_encoded + described.num_encoded)
    known_ids = {row["query_id"] for row in known}
    failures = {row["query_id"]: NO_CAPTION for row in rows if row["query_id"] not in known_ids}
    return replace(made, vectors=unit_rows(made.vectors), failures=failures | made.failures)


def check_way(way: str, encoder: Any) -> None:
    """Refuse a way that an encoder does not have.

    Raises:
        ValueError: names the encoder, and what would do.
    """
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


def from_texts(embedder: Embedder, texts: Mapping[str, str]) -> Embedded:
    """Queries that are a text, by query id."""
    found = embedder.texts(texts.values())
    return Embedded(list(texts), found.rows(texts.values()), {}, found.num_encoded)


def from_halves(
    way: str, embedder: Embedder, rows: list[Mapping[str, Any]], clips: list[ClipRow], num_frames: int | None
) -> Embedded:
    """Queries that are the mean of a clip's and a text's embedding, or the clip's alone."""
    of_clips = embedder.clips(clips_of_queries(rows, clips), num_frames)
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
    said = from_texts(embedder, {row["query_id"]: row["modification_text"] for row in kept})
    return Embedded(ids, mean_of(seen, said.vectors), failures, of_clips.num_encoded + said.num_encoded)


def blend(modified: Tensor, described: Tensor, weight: float = DESCRIPTION_WEIGHT) -> Tensor:
    """The unit-norm sum of two queries of unit length, the second with `weight`, the first with the rest.

    Example:
        >>> import torch
        >>> blend(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]]), weight=0.5)
        tensor([[0.7071, 0.7071]])
    """
    return unit_rows((1 - weight) * modified + weight * described)
