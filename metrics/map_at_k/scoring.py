"""mAP@K from rankings of ids: the protocol, its checks, and the line that states it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from .average_precision import NOTHING, Hits, average_precision_at, find_hits, recall_at
from .id_lists import IdLists, as_matrix, read_id_lists, read_ids, to_codes
from .inputs import check_choice, check_flag, check_lengths, read_cuts
from .significance import check_confidence, interval_of_means

VERSION = "1.0.0"
OFFICIAL_CUT = 50  # the released script keeps the first 50 rows of a ranking

Protocol = Literal["standard", "tfcovr-official"]
WhenEmpty = Literal["error", "skip"]


def mean_average_precision(
    predictions: Any,
    references: Any,
    *,
    k: int | Sequence[int] = (5, 10, 25, 50),
    exclude: Any = None,
    recall: bool = False,
    per_query: bool = False,
    protocol: Protocol = "standard",
    empty: WhenEmpty = "error",
    confidence: float | None = None,
) -> dict[str, Any]:
    """mAP@K of ranked ids against sets of relevant ids.

    Args:
        predictions: Ranked ids of each query, best first, strings or integers: lists of any length, or a 2-D
            integer array or tensor. Ties are as ranked: break them in the ranking.
        references: Relevant ids of each query, in any order; an id given twice counts once.
        k: Cut-offs.
        exclude: One id per query (its reference clip) that is taken out of the ranking before the cut.
        recall: Also give `recall@K`, the mean share of a query's relevant ids among the first K.
        per_query: Also give `per_query`, the results of every query in order (NaN for a skipped one).
        protocol: `tfcovr-official` reproduces the released TF-CoVR script for comparison: first 50 ranks only,
            duplicates counted on both sides, no checks, so a value can exceed 1 or be NaN. The script prints
            `round(100 * value, 2)`. It sorts by an argsort that is not stable: of different ids with equal
            similarities its order is arbitrary, so where there are such ties its figures may differ.
        empty: What to do with a query without relevant ids: refuse, or leave it out and count it in
            `skipped_queries`.
        confidence: Level of an interval over queries (95 % is 0.95), given as `confidence_interval`; of one query
            None.

    Returns:
        `map@K` for every K, fractions in [0, 1], `signature`, and the optional results.

    Raises:
        ValueError: Naming the query and the cure, for ids of mixed kinds, differing lengths, a duplicate in a
            ranking, an empty relevant set, or an option out of range.

    Example:
        >>> result = mean_average_precision([["a", "x", "b"]], [["a", "b"]], k=[1, 3])
        >>> round(result["map@1"], 6), round(result["map@3"], 6)
        (1.0, 0.833333)
    """
    cuts = read_cuts(k)
    check_choice(protocol, get_args(Protocol), "protocol")
    check_choice(empty, get_args(WhenEmpty), "empty")
    confidence = check_confidence(confidence)
    check_flag(recall, "recall")
    check_flag(per_query, "per_query")
    rankings = read_id_lists(predictions, "predictions")
    relevant = read_id_lists(references, "references")
    check_lengths(rankings, relevant)
    queries = _encode(rankings, relevant, exclude)
    hits = _official_hits(queries) if protocol == "tfcovr-official" else _checked_hits(queries, empty)
    metrics = {f"map@{cut}": average_precision_at(hits, cut) for cut in cuts}
    if recall:
        metrics |= {f"recall@{cut}": recall_at(hits, cut) for cut in cuts}
    values = np.column_stack(list(metrics.values()))
    kept = values if protocol == "tfcovr-official" else values[hits.num_relevant > 0]
    result: dict[str, Any] = dict(zip(metrics, kept.mean(axis=0).tolist(), strict=True))
    if empty == "skip":
        result["skipped_queries"] = len(values) - len(kept)
    if per_query:
        result["per_query"] = {name: column.tolist() for name, column in metrics.items()}
    if confidence is not None:
        result["confidence_interval"] = dict(zip(metrics, interval_of_means(kept, confidence), strict=True))
    result["signature"] = _signature(protocol, exclude is not None, empty, confidence)
    return result


@dataclass(frozen=True, eq=False)
class _Queries:
    rankings: np.ndarray  # codes (num_queries, longest ranking), short ones end in NOTHING
    relevant: np.ndarray  # codes, end to end
    num_relevant: np.ndarray  # (num_queries,)
    excluded: np.ndarray | None  # codes (num_queries,)


def _encode(rankings: IdLists, relevant: IdLists, exclude: Any) -> _Queries:
    columns = {"predictions": rankings, "references": relevant}
    if exclude is not None:
        columns["exclude"] = read_ids(exclude, "exclude")
        if len(columns["exclude"]) != len(rankings):
            raise ValueError(f"exclude has {len(columns['exclude'])} ids for {len(rankings)} queries; give one each")
    codes = to_codes(**columns)
    return _Queries(
        as_matrix(codes[0], rankings.lengths, NOTHING),
        codes[1],
        relevant.lengths,
        codes[2] if len(codes) > 2 else None,
    )


def _official_hits(queries: _Queries) -> Hits:
    return find_hits(
        queries.rankings[:, : OFFICIAL_CUT + (queries.excluded is not None)],
        queries.relevant,
        queries.num_relevant,
        excluded=queries.excluded,
        allow_duplicates=True,
    )


def _checked_hits(queries: _Queries, empty: WhenEmpty) -> Hits:
    num_queries = len(queries.num_relevant)
    without = np.flatnonzero(queries.num_relevant == 0)
    if len(without) and (empty == "error" or len(without) == num_queries):
        raise ValueError(
            f"{len(without)} of {num_queries} queries have no relevant id, the first is query {without[0]}; "
            'empty="skip" leaves such queries out and counts them, but at least one must have some'
        )
    query = np.repeat(np.arange(num_queries, dtype=np.int64), queries.num_relevant)
    if queries.excluded is not None:
        own = query[queries.relevant == queries.excluded[query]]
        if len(own):
            raise ValueError(
                f"the excluded id of query {own[0]} is among its relevant ids, so it could never be found; "
                "take it out of the references or do not exclude it"
            )
    relevant, num_relevant = queries.relevant, queries.num_relevant
    pairs = query << 32 | relevant
    if (pairs[1:] <= pairs[:-1]).any():  # out of order or given twice, which most references are not
        pairs = np.unique(pairs)
        relevant = (pairs & 0xFFFFFFFF).astype(np.int32)
        num_relevant = np.bincount(pairs >> 32, minlength=num_queries)
    return find_hits(queries.rankings, relevant, num_relevant, excluded=queries.excluded)


def _signature(protocol: str, excludes: bool, empty: str, confidence: float | None) -> str:
    official = protocol == "tfcovr-official"
    facts = {
        "protocol": protocol,
        "denominator": "min(relevant,k)",
        "exclude": "given" if excludes else "none",
        "ties": "as-ranked",
        "duplicates": "counted" if official else "error",
        "empty": "nan" if official else empty,
    }
    if confidence is not None:
        facts["interval"] = f"{confidence:g},jackknife-t"
    return "|".join(["map@k", *(f"{name}:{value}" for name, value in facts.items()), f"version:{VERSION}"])
