"""Marked moments move a query as Rocchio's formula says, and moments that are alike come together."""

import math

import numpy as np
import pytest

from hf_models.index.feedback import grouped, rocchio

NONE = np.empty((0, 2))


def by_hand(query, more_like, less_like, weights):
    """A second implementation, in numbers of Python."""

    def direction(vector):
        length = math.sqrt(sum(value**2 for value in vector))
        return [value / length for value in vector]

    total = [weights[0] * value for value in direction(query)]
    for weight, rows in ((weights[1], more_like), (-weights[2], less_like)):
        for row in rows:
            total = [value + weight * part / len(rows) for value, part in zip(total, direction(row), strict=True)]
    return direction(total)


def test_a_query_moves_by_the_weights():
    query, east, north = np.array([1.0, 0.0]), np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])
    assert rocchio(query, north, NONE, (4.0, 3.0, 1.0)) == pytest.approx([0.8, 0.6])
    assert rocchio(query, NONE, north, (4.0, 1.0, 3.0)) == pytest.approx([0.8, -0.6])
    assert rocchio(query, np.concatenate([east, north]), NONE, (1.0, 2.0, 0.0)) == pytest.approx(
        [2 / 5**0.5, 1 / 5**0.5]
    )
    assert rocchio(None, north, NONE) == pytest.approx([0.0, 1.0])


@pytest.mark.parametrize("seed", range(5))
def test_a_second_implementation_agrees(seed):
    generator = np.random.default_rng(seed)
    rows = generator.normal(size=(1 + 2 + 3, 7))
    weights = tuple(generator.uniform(0, 2, 3))
    expected = by_hand(rows[0].tolist(), rows[1:3].tolist(), rows[3:].tolist(), weights)
    assert rocchio(rows[0], rows[1:3], rows[3:], weights) == pytest.approx(expected, abs=1e-6)


def test_marks_that_cancel_the_query_are_refused():
    query = np.array([1.0, 0.0])
    with pytest.raises(ValueError, match="cancel each other"):
        rocchio(query, NONE, query[None], (1.0, 1.0, 1.0))


@pytest.mark.parametrize("seed", range(5))
def test_a_group_holds_what_is_near_its_first_and_near_no_earlier_first(seed):
    vectors = np.random.default_rng(seed).normal(size=(30, 3))
    groups = grouped(vectors, 0.8)
    assert sorted(row for group in groups for row in group) == list(range(30))
    directions = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    for group in groups:
        for row in group:
            near = [first for first, *_ in groups if first <= row and directions[row] @ directions[first] >= 0.8]
            assert near[0] == group[0]
