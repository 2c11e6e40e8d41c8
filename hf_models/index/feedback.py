"""Relevance feedback: a query moved by moments that were judged, after Rocchio (1971), and moments that are alike."""

import numpy as np

ROCCHIO = (1.0, 0.5, 0.15)
"""Of the query, of the moments that fit and of those that do not; chosen by benchmarks/feedback.py."""


def rocchio(
    query: np.ndarray | None,
    more_like: np.ndarray,
    less_like: np.ndarray,
    weights: tuple[float, float, float] = ROCCHIO,
) -> np.ndarray:
    """A query nearer to some vectors and further from others.

    Example:
        >>> rocchio(np.array([2.0, 0.0]), np.array([[0.0, 1.0]]), np.empty((0, 2)), (1.0, 1.0, 1.0)).round(3)
        array([0.707, 0.707], dtype=float32)

    Args:
        query: `(D,)`; None: there are judged moments alone.
        more_like: `(P, D)`, vectors of moments that fit.
        less_like: `(N, D)`, vectors of moments that do not.
        weights: Of the query, of the mean of `more_like` and of the mean of `less_like`.

    Returns:
        `(D,)` float32 of length 1. All vectors count by their direction, whatever their lengths.

    Raises:
        ValueError: The parts cancel each other.
    """
    moved = np.zeros(more_like.shape[1], np.float64)
    for weight, vectors in ((weights[1], more_like), (-weights[2], less_like)):
        if len(vectors):
            moved += weight * unit_vectors(vectors).mean(0)
    if query is not None:
        moved += weights[0] * unit_vectors(query)
    length = float(np.linalg.norm(moved))
    if length < 1e-6:
        raise ValueError("the marks cancel each other and the query: nothing is left to look for; mark other moments")
    return (moved / length).astype(np.float32)


def grouped(vectors: np.ndarray, threshold: float) -> list[list[int]]:
    """Rows that are nearly equal, each in the group of the first row that it is nearly equal to.

    Example:
        >>> grouped(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.01]]), 0.9)
        [[0, 2], [1]]

    Args:
        vectors: `(N, D)`, best first.
        threshold: The least cosine to the first of a group, in (0, 1].

    Returns:
        The rows of each group, in order; groups in the order of their first.
    """
    directions = unit_vectors(vectors)
    cosines = directions @ directions.T
    groups: list[list[int]] = []
    for row in range(len(vectors)):
        near = [group for group in groups if cosines[row, group[0]] >= threshold]
        if near:
            near[0].append(row)
        else:
            groups.append([row])
    return groups


def unit_vectors(vectors: np.ndarray) -> np.ndarray:
    """The same directions, of length 1; zeros stay."""
    wide = np.asarray(vectors, np.float64)
    lengths = np.linalg.norm(wide, axis=-1, keepdims=True)
    directions: np.ndarray = np.divide(wide, lengths, out=np.zeros_like(wide), where=lengths > 0)
    return directions
