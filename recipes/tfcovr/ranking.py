"""Rank the gallery for each composed query and measure it: what validation and evaluation share."""

from typing import Any

import evaluate
import torch
from torch import Tensor

import metrics
from harness.shared_config import Protocol, QueryParts
from hf_models import TFCoVRForComposedRetrieval
from hf_models.retrieval import ranked_ids, search
from tfcovr.queries import Queries

CUTOFFS = (5, 10, 25, 50)
QUERY_BATCH = 4096


def query_inputs(parts: QueryParts, video_embeds: Tensor, text_embeds: Tensor) -> dict[str, Tensor]:
    """The halves of a query that a baseline sees."""
    inputs = {"video_embeds": video_embeds, "text_embeds": text_embeds}
    return inputs if parts == "both" else {f"{parts}_embeds": inputs[f"{parts}_embeds"]}


@torch.inference_mode()
def rank(
    model: TFCoVRForComposedRetrieval,
    queries: Queries,
    video_embeds: Tensor,
    text_embeds: Tensor,
    *,
    parts: QueryParts = "both",
    gallery_embeds: Tensor | None = None,
    protocol: Protocol = "standard",
) -> tuple[list[list[str]], list[list[float]]]:
    """The first 50 gallery ids of each query and their similarities.

    The reference clip of a query is left out of its ranking; under the official protocol it comes last instead, as the
    released script subtracts 100 from its similarity.

    Args:
        model: in evaluation mode, on the device of the embeddings.
        queries: what to rank.
        video_embeds: `(N, D)` embeddings of clips by position.
        text_embeds: `(M, E)` embeddings of texts by position.
        parts: the halves of the query to use.
        gallery_embeds: other embeddings of the same clips for the gallery, such as of shuffled frames.
        protocol: "standard" or "tfcovr-official".
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
    rows, scores = search(torch.cat(composed).float(), corpus.float(), CUTOFFS[-1], exclude=queries.exclude)
    ranked = ranked_ids(rows.cpu(), queries.gallery_ids)
    kept = [values[: len(ids)] for values, ids in zip(scores.tolist(), ranked, strict=True)]
    if protocol == "tfcovr-official":
        size = rows.shape[1]
        ranked = [
            ids + [row["query_clip_id"]] * (size - len(ids)) for ids, row in zip(ranked, queries.rows, strict=True)
        ]
    return ranked, kept


class Measure:
    """mAP@K of rankings by the project's metric, which is loaded once."""

    def __init__(self) -> None:
        evaluate.logging.set_verbosity_error()  # it warns that the installed metric is the one it uses
        self.metric = evaluate.load(metrics.space("map_at_k"))

    def __call__(self, ranked: list[list[str]], queries: Queries, protocol: Protocol = "standard") -> dict[str, Any]:
        """Figures `map@K` in [0, 1] and the `signature` of the protocol."""
        references = [row["target_clip_ids"] for row in queries.rows]
        own = None if protocol == "tfcovr-official" else [row["query_clip_id"] for row in queries.rows]
        return self.metric.compute(
            predictions=ranked, references=references, k=list(CUTOFFS), protocol=protocol, exclude=own
        )
