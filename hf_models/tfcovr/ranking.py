"""Rank a gallery of clips for each composed query."""

from typing import Literal

import torch
from torch import Tensor

from hf_models.retrieval import ranked_ids, search

from .modeling_tfcovr import TFCoVRForComposedRetrieval
from .queries import Queries

QueryParts = Literal["both", "video", "text"]
Protocol = Literal["standard", "tfcovr-official"]
QUERY_BATCH = 4096


def query_inputs(parts: QueryParts, video_embeds: Tensor, text_embeds: Tensor) -> dict[str, Tensor]:
    """The halves of a query that a model is to see, as arguments of `get_query_features`: `{name: (n, D)}`."""
    inputs = {"video_embeds": video_embeds, "text_embeds": text_embeds}
    return inputs if parts == "both" else {f"{parts}_embeds": inputs[f"{parts}_embeds"]}


@torch.inference_mode()
def rank_clips(
    model: TFCoVRForComposedRetrieval,
    queries: Queries,
    video_embeds: Tensor,
    text_embeds: Tensor,
    *,
    parts: QueryParts = "both",
    gallery_embeds: Tensor | None = None,
    protocol: Protocol = "standard",
    k: int = 50,
) -> tuple[list[list[str]], list[list[float]]]:
    """The first `k` gallery ids of each query and their similarities.

    The reference clip of a query is left out of its ranking; under the official protocol it comes last instead, as the
    released script subtracts 100 from its similarity. Clips of equal similarity come here in the order of the gallery,
    there in whatever order numpy's unstable argsort leaves them, so ties of different ids may be ranked otherwise.

    Args:
        model: in evaluation mode, on the device of the embeddings.
        queries: what to rank.
        video_embeds: `(N, D)` embeddings of clips by position.
        text_embeds: `(M, E)` embeddings of texts by position.
        parts: the halves of the query to use.
        gallery_embeds: other embeddings of the same clips for the gallery, such as of shuffled frames.
        protocol: "standard" or "tfcovr-official".
        k: how many clips of the gallery to rank.

    Returns:
        For each query the gallery ids, best first, and their cosines, parallel to them (under the official protocol
        without that of the query's own clip).

    Raises:
        ValueError: The gallery is empty or an embedding is not finite.
    """
    device = video_embeds.device
    gallery_embeds = video_embeds if gallery_embeds is None else gallery_embeds
    composed = [
        model.get_query_features(**query_inputs(parts, video_embeds[clips], text_embeds[texts]))
        for clips, texts in zip(
            queries.query.to(device).split(QUERY_BATCH),
            queries.text.to(device).split(QUERY_BATCH),
            strict=True,
        )
    ]
    corpus = model.get_target_features(video_embeds=gallery_embeds[queries.gallery.to(device)])
    return rank_embeds(torch.cat(composed), corpus, queries, protocol=protocol, k=k)


@torch.inference_mode()
def rank_embeds(
    query_embeds: Tensor, gallery_embeds: Tensor, queries: Queries, *, protocol: Protocol = "standard", k: int = 50
) -> tuple[list[list[str]], list[list[float]]]:
    """The first `k` gallery ids of queries that are composed already, and their similarities; see `rank_clips`.

    Args:
        query_embeds: `(n, D)`, unit-norm, one for each of `queries`.
        gallery_embeds: `(m, D)`, unit-norm, one for each of `queries.gallery_ids`.
        queries: what to rank.
        protocol: "standard" or "tfcovr-official".
        k: how many clips of the gallery to rank.

    Raises:
        ValueError: The gallery is empty, an embedding is not finite, or the sizes do not fit.

    Example:
        >>> from hf_models.tfcovr.queries import place_queries
        >>> row = {"query_clip_id": "a", "modification_text": "slower", "target_clip_ids": ["b"]}
        >>> queries = place_queries([row], ["a", "b"], {"a": 0, "b": 1}, {"slower": 0})
        >>> rank_embeds(torch.tensor([[0.0, 1.0]]), torch.eye(2), queries)
        ([['b']], [[1.0]])
    """
    rows, scores = search(query_embeds.float(), gallery_embeds.float(), k, exclude=queries.exclude)
    ranked = ranked_ids(rows.cpu(), queries.gallery_ids)
    kept = [values[: len(ids)] for values, ids in zip(scores.tolist(), ranked, strict=True)]
    if protocol == "tfcovr-official":
        size = rows.shape[1]
        ranked = [
            ids + [row["query_clip_id"]] * (size - len(ids)) for ids, row in zip(ranked, queries.rows, strict=True)
        ]
    return ranked, kept
