"""Encode a corpus and search it: exact top-k in bounded memory, or FAISS where a user asks for it."""

import math
import operator
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from hf_models.best_rows import BestRows

Embeddings = Tensor | NDArray[np.floating]

QUERY_BLOCK = 1024
CORPUS_BLOCK = 16384
CACHED_BLOCK = 2048  # rows of the corpus of which a CPU's cache keeps the scores; for larger k blocks grow with it
CACHED_SCORES = 2**20
BLOCK_ELEMENTS = 2**24  # scores and corpus of one block together: 64 MB


@torch.inference_mode()
def encode(
    model: PreTrainedModel,
    loader: Iterable[Mapping[str, Any]],
    *,
    features: str = "get_target_features",
    id_key: str = "clip_id",
) -> tuple[list[str], Tensor]:
    """Embed everything a loader gives.

    Args:
        model: the model; it is put into evaluation mode for the duration and back, also after an error.
        loader: batches: ids under `id_key`, everything else is an argument of the method `features` and moved to the
            model's device.
        features: name of the method that gives the embeddings, such as "get_query_features" or "encode_video".
        id_key: where a batch holds its ids.

    Returns:
        The ids in the loader's order and their embeddings `(N, D)` on the CPU.

    Raises:
        ValueError: The loader gave no batch, or a batch has another number of ids than of embeddings.
    """
    ids: list[str] = []
    parts: list[Tensor] = []
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        for batch in loader:
            inputs = {
                name: value.to(model.device, non_blocking=True) if isinstance(value, Tensor) else value
                for name, value in batch.items()
                if name != id_key
            }
            embeds = getattr(model, features)(**inputs)
            batch_ids = batch[id_key].tolist() if hasattr(batch[id_key], "tolist") else batch[id_key]
            if len(batch_ids) != len(embeds):
                raise ValueError(f"a batch has {len(batch_ids)} ids and {len(embeds)} embeddings")
            ids.extend(batch_ids)
            parts.append(embeds.float().cpu())
    finally:
        for module in training:
            module.training = True
    if not parts:
        raise ValueError("there is nothing to encode: the loader gave no batch")
    return ids, torch.cat(parts)


@torch.inference_mode()
def search(
    query_embeds: Embeddings,
    corpus_embeds: Embeddings,
    k: int,
    *,
    exclude: Sequence[Any] | Tensor | None = None,
    keep: NDArray[np.bool_] | None = None,
) -> tuple[Tensor, Tensor]:
    """The k rows of the corpus with the largest dot product for each query: exact, best first.

    Equal scores (as float32 numbers) come in the order of the corpus. Neither the score matrix nor the corpus is ever
    copied whole: the extra memory stays under 100 MB, so the corpus may be a memory-mapped array. The work is done on
    the device of the queries.

    Args:
        query_embeds: `(Q, D)`; unit-norm rows make scores cosines.
        corpus_embeds: `(N, D)`.
        k: how many rows to return; no more than N are.
        exclude: corpus rows that must not be returned, for each query one row or a list of them, -1 for none: the
            reference clip of a composed query, for instance. Whole numbers of any kind.
        keep: `(N,)`, which corpus rows may be returned, the same for all queries; None: all.

    Returns:
        Corpus rows `(Q, min(k, N))`, int64, and their scores, float32. Where exclusion leaves fewer than k rows, the
        rest are -1 with score -inf; see `ranked_ids`.

    Raises:
        ValueError: The sizes do not fit, k is below 1, the corpus is empty, an embedding is not finite, or what is
            excluded is no row of the corpus.

    Example:
        >>> corpus = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
        >>> search(torch.tensor([[1.0, 0.0]]), corpus, 2)[0]
        tensor([[0, 2]])
        >>> search(torch.tensor([[1.0, 0.0]]), corpus, 2, exclude=[0])[0]
        tensor([[2, 1]])
    """
    queries = _as_tensor(query_embeds)
    _check_search(queries, corpus_embeds, k, exclude)
    excluded = _excluded_rows(exclude, len(queries), len(corpus_embeds)).to(queries.device)
    k = min(k, len(corpus_embeds))
    rows = torch.full((len(queries), k), -1, dtype=torch.int64, device=queries.device)
    scores = torch.full((len(queries), k), -torch.inf, device=queries.device)
    block = _block_size(queries, len(corpus_embeds), k)
    buffer = torch.empty(min(QUERY_BLOCK, len(queries)) * block, device=queries.device)
    for start in range(0, len(queries), QUERY_BLOCK):
        part = slice(start, start + QUERY_BLOCK)
        of_part = queries[part].float()
        _check_finite(of_part, "queries", start)
        rows[part], scores[part] = _search_block(of_part, corpus_embeds, k, excluded[part], keep, block, buffer)
    rows[scores.isneginf()] = -1
    return rows, scores


def ranked_ids(rows: Tensor, corpus_ids: Sequence[str]) -> list[list[str]]:
    """The ids behind the rows that `search` gives, best first, without the places that exclusion left empty.

    Example:
        >>> ranked_ids(torch.tensor([[2, 0], [1, -1]]), ["a", "b", "c"])
        [['c', 'a'], ['b']]
    """
    return [[corpus_ids[row] for row in ranking if row >= 0] for ranking in rows.tolist()]


def recall_both_ways(
    compare: Callable[[Tensor, Tensor], Tensor],
    videos: Tensor,
    texts: Tensor,
    pairs: Sequence[tuple[int, int]],
    *,
    cutoffs: Sequence[int] = (1, 5, 10),
    dual_softmax: float | None = None,
    batch_size: int = 32,
) -> dict[str, float]:
    """How high the texts of a video are ranked for it, and the videos of a text.

    Of several right ones the first counts; a text that two videos share is right for both, and a tie goes to the first
    video or text.

    Args:
        compare: Similarities `(B, N)` of rows of videos and of texts, as `Encoder.compare`.
        videos: One row per video.
        texts: Rows of texts; those that belong to no video are not ranked.
        pairs: A row of `videos` and one of `texts` that belong together; each is a query for a video.
        cutoffs: The K of R@K.
        dual_softmax: Multiply each similarity by its softmax over all queries, times this number before (Cheng et al.,
            2021, arXiv:2109.04290); 100 is usual for cosines. It looks at all queries at once, which a search cannot.
        batch_size: Videos at a time.

    Returns:
        `v2t_recall@K` and `t2v_recall@K` in [0, 1], `v2t_median_rank` and `t2v_median_rank` from 1 on, and
        `retrieval_corpus`, the number of videos.

    Example:
        >>> videos = torch.tensor([[1.0, 0.0], [0.6, 0.8]])
        >>> found = recall_both_ways(lambda one, other: one @ other.T, videos, torch.eye(2), [(0, 0), (1, 0)])
        >>> found["t2v_recall@1"], found["v2t_median_rank"]
        (1.0, 1.0)
    """
    rows, columns = torch.tensor(pairs).T
    distinct, columns = columns.unique(return_inverse=True)
    ranked = texts[distinct]
    similarity = torch.cat([compare(block, ranked).cpu() for block in videos.split(batch_size)])
    right = torch.zeros_like(similarity, dtype=torch.bool)
    right[rows, columns] = True
    found: dict[str, float] = {}
    for direction, scores, fits, queries in (
        ("v2t", similarity, right, rows.unique()),
        ("t2v", similarity.T, right.T, columns),
    ):
        if dual_softmax is not None:
            scores = scores * (dual_softmax * scores).softmax(0)
        ranks = torch.cat([_first_ranks(scores[block], fits[block]) for block in queries.split(QUERY_BLOCK)]).double()
        found |= {f"{direction}_recall@{k}": (ranks <= k).double().mean().item() for k in cutoffs}
        found[f"{direction}_median_rank"] = ranks.quantile(0.5).item()
    return found | {"retrieval_corpus": len(videos)}


def _first_ranks(scores: Tensor, fits: Tensor) -> Tensor:
    """For each query, a row of scores, the place from 1 of the first of its columns that fit."""
    best = scores.masked_fill(~fits, -torch.inf).amax(1, keepdim=True)
    first = (fits & (scores == best)).int().argmax(1, keepdim=True)
    tied_before = (scores == best) & (torch.arange(scores.shape[1]) < first)
    return 1 + ((scores > best) | tied_before).sum(1)


def _block_size(queries: Tensor, corpus_size: int, k: int) -> int:
    """How many rows of the corpus are scored at a time."""
    num_queries = max(1, min(QUERY_BLOCK, len(queries)))
    most = min(BLOCK_ELEMENTS // (num_queries + queries.shape[1]), CORPUS_BLOCK, corpus_size)
    if queries.is_cpu:
        most = min(most, max(CACHED_BLOCK, 8 * k, CACHED_SCORES // num_queries // 128 * 128))
    return max(1, most)


def _search_block(
    queries: Tensor,
    corpus_embeds: Embeddings,
    k: int,
    excluded: Tensor,
    keep: NDArray[np.bool_] | None,
    block_size: int,
    buffer: Tensor,
) -> tuple[Tensor, Tensor]:
    best = BestRows(len(queries), k, queries.device)
    banned, order = excluded.flatten().sort()  # those of a block stand together
    banned_query = order // max(1, excluded.shape[1])
    starts = torch.arange(0, len(corpus_embeds) + block_size, block_size, device=queries.device)
    bounds = torch.searchsorted(banned, starts).tolist()
    for number, start in enumerate(range(0, len(corpus_embeds), block_size)):
        block = _as_tensor(corpus_embeds[start : start + block_size]).to(queries.device).float()
        if not math.isfinite(block.sum().item()):  # or the sum alone overflows; far faster than a look at each value
            _check_finite(block, "corpus", start)
        scores = torch.mm(queries, block.T, out=buffer[: len(queries) * len(block)].view(len(queries), len(block)))
        inside = slice(bounds[number], bounds[number + 1])
        scores[banned_query[inside], banned[inside] - start] = -torch.inf
        if keep is not None:
            scores[:, torch.from_numpy(~keep[start : start + block_size]).to(scores.device)] = -torch.inf
        best.add(scores, start)
    best.sort_in()
    return best.rows, best.scores


def _as_tensor(embeds: Embeddings) -> Tensor:
    if isinstance(embeds, Tensor):
        return embeds
    with warnings.catch_warnings():  # a memory-mapped array may be read-only; nothing here writes to it
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(np.ascontiguousarray(embeds))


def _excluded_rows(exclude: Sequence[Any] | Tensor | None, num_queries: int, corpus_size: int) -> Tensor:
    """Any form of `exclude` as `(Q, M)`, padded with -1.

    Raises:
        ValueError: It is no row of the corpus.
    """
    if exclude is None:
        return torch.full((num_queries, 1), -1)
    given = exclude.tolist() if isinstance(exclude, Tensor | np.ndarray) else exclude
    lists = [_whole_numbers(excluded) for excluded in given]
    width = max(map(len, lists), default=0)
    rows = torch.tensor([row + [-1] * (width - len(row)) for row in lists], dtype=torch.int64)
    rows = rows.reshape(num_queries, width)
    outside = rows[(rows < -1) | (rows >= corpus_size)]
    if len(outside):
        raise ValueError(f"exclude names row {outside[0].item()} of a corpus of {corpus_size} rows; -1 stands for none")
    return rows


def _whole_numbers(one: Any) -> list[int]:
    # One row or several of them, of any type of whole number.
    several = isinstance(one, Iterable) and not isinstance(one, str) and getattr(one, "ndim", 1) > 0
    try:
        return [operator.index(row) for row in (one if several else [one])]
    except TypeError:
        raise ValueError(
            f"exclude must give each query a row of the corpus, a whole number, or a list of them, not {one!r}"
        ) from None


def _check_finite(embeds: Tensor, name: str, start: int = 0) -> None:
    finite = embeds.isfinite().all(1)
    if not finite.all():
        row = start + int(finite.logical_not().nonzero()[0])
        raise ValueError(f"row {row} of the {name} is not finite (NaN or infinity) and cannot be ranked")


def _check_search(queries: Tensor, corpus_embeds: Embeddings, k: int, exclude: Sequence[Any] | Tensor | None) -> None:
    if queries.ndim != 2 or corpus_embeds.ndim != 2 or queries.shape[1] != corpus_embeds.shape[1]:
        shapes = f"{tuple(queries.shape)} and {tuple(corpus_embeds.shape)}"
        raise ValueError(f"queries (Q, D) and corpus (N, D) must have one D, not shapes {shapes}")
    if k < 1:
        raise ValueError(f"k must be at least 1, not {k}")
    if not len(corpus_embeds):
        raise ValueError("the corpus is empty, so there is nothing to search")
    if exclude is not None and len(exclude) != len(queries):
        raise ValueError(f"exclude has {len(exclude)} entries for {len(queries)} queries")
