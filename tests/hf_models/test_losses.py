"""Losses against hand-derived values, the golden table, and one process against two."""

import math
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from hf_models.tfcovr.losses import hn_nce, infonce, multi_positive

COSINES = torch.tensor([[0.9, 0.1, 0.2], [0.3, 0.8, -0.1], [0.0, 0.4, 0.7]], dtype=torch.float64)
IDENTITY = torch.eye(3, dtype=torch.float64)

GOLDEN = [  # temperature, alpha, beta, as the formula says, as the released code computes
    (0.07, 1.0, 0.0, 0.006298, 0.006298),
    (0.07, 1.0, 0.3, 0.010397, 0.014476),
    (0.07, 1.0, 0.5, 0.011640, 0.020556),
    (0.07, 1.0, 0.7, 0.012145, 0.027401),
    (0.07, 0.5, 0.0, -1.373764, -1.373764),
    (0.07, 0.5, 0.5, -1.363243, -1.346047),
    (1.0, 1.0, 0.0, 1.445101, 1.445101),
    (1.0, 1.0, 0.5, 1.457902, 1.459768),
    (1.0, 0.5, 0.5, 0.904657, 0.906719),
]


@pytest.mark.parametrize(("temperature", "alpha", "beta", "correct", "official"), GOLDEN)
def test_hn_nce_gives_the_golden_values(temperature, alpha, beta, correct, official):
    assert hn_nce(COSINES, IDENTITY, temperature, alpha, beta).item() == pytest.approx(correct, abs=1e-5)
    slip = hn_nce(COSINES, IDENTITY, temperature, alpha, beta, row_normalization="official")
    assert slip.item() == pytest.approx(official, abs=1e-5)


def test_hn_nce_equals_its_formula_written_out():
    generator = torch.Generator().manual_seed(0)
    query, target = (F.normalize(torch.randn(5, 4, generator=generator, dtype=torch.float64), dim=1) for _ in range(2))
    logits, alpha, beta, n = query @ target.T / 0.3, 0.7, 1.3, 5
    total = 0.0
    for rows in (logits.tolist(), logits.T.tolist()):
        for i in range(n):
            others = [rows[i][k] for k in range(n) if k != i]
            hardness = sum(math.exp(beta * other) for other in others)
            negatives = sum((n - 1) * math.exp(beta * other) / hardness * math.exp(other) for other in others)
            total += math.log(alpha * math.exp(rows[i][i]) + negatives) - rows[i][i]
    assert hn_nce(query, target, 0.3, alpha, beta).item() == pytest.approx(total / n, rel=1e-12)


def test_infonce_is_the_sum_of_two_cross_entropies_and_hn_nce_without_hardness():
    logits, labels = COSINES / 0.07, torch.arange(3)
    expected = F.cross_entropy(logits, labels) + F.cross_entropy(logits.T, labels)
    torch.testing.assert_close(infonce(COSINES, IDENTITY, 0.07), expected)
    torch.testing.assert_close(hn_nce(COSINES, IDENTITY, 0.07), expected)


@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0])
def test_a_saturated_matrix_gives_a_finite_loss_and_gradient(beta):
    saturated = (2 * torch.eye(4) - 1).requires_grad_()
    loss = hn_nce(saturated, torch.eye(4), 0.07, beta=beta)
    loss.backward()
    assert loss.item() == pytest.approx(0, abs=1e-5)
    assert saturated.grad.isfinite().all()


@pytest.mark.parametrize("loss", [hn_nce, infonce, lambda q, t, tau: multi_positive(q, t, tau, torch.zeros(1))])
def test_one_pair_is_refused(loss):
    with pytest.raises(ValueError, match="at least 2 pairs, there are 1"):
        loss(torch.ones(1, 3), torch.ones(1, 3), 0.07)


def test_different_shapes_are_refused():
    with pytest.raises(ValueError, match=r"one shape \(n, D\), not \(3, 4\) and \(2, 4\)"):
        infonce(torch.ones(3, 4), torch.ones(2, 4), 0.07)


@pytest.mark.parametrize(("alpha", "beta"), [(0.0, 0.0), (1.5, 0.0), (1.0, -0.1)])
def test_weights_out_of_range_are_refused(alpha, beta):
    with pytest.raises(ValueError, match="alpha must lie in"):
        hn_nce(COSINES, IDENTITY, 0.07, alpha, beta)


def test_multi_positive_with_distinct_labels_is_infonce():
    loss = multi_positive(COSINES, IDENTITY, 0.07, torch.tensor([5, 1, 9]))
    torch.testing.assert_close(loss, infonce(COSINES, IDENTITY, 0.07))


def test_multi_positive_equals_the_value_derived_by_hand():
    # Labels a, a, b with temperature 1: rows 0 and 1 have columns 0 and 1 as positives and column 2 as negative.
    s = [[math.exp(value) for value in row] for row in COSINES.tolist()]

    def term(positive, negatives):
        return math.log((positive + sum(negatives)) / positive)

    rows = [
        (term(s[0][0], [s[0][2]]) + term(s[0][1], [s[0][2]])) / 2,
        (term(s[1][0], [s[1][2]]) + term(s[1][1], [s[1][2]])) / 2,
        term(s[2][2], [s[2][0], s[2][1]]),
    ]
    columns = [
        (term(s[0][0], [s[2][0]]) + term(s[1][0], [s[2][0]])) / 2,
        (term(s[0][1], [s[2][1]]) + term(s[1][1], [s[2][1]])) / 2,
        term(s[2][2], [s[0][2], s[1][2]]),
    ]
    loss = multi_positive(COSINES, IDENTITY, 1.0, torch.tensor([0, 0, 1]))
    assert loss.item() == pytest.approx(sum(rows) / 3 + sum(columns) / 3, rel=1e-12)


def test_multi_positive_of_equal_labels_has_a_gradient_without_nan():
    query = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    loss = multi_positive(query, torch.ones(4, 3), 0.07, torch.zeros(4))
    loss.backward()
    assert loss.item() == 0
    assert torch.equal(query.grad, torch.zeros(4, 3))


def test_autocast_does_not_coarsen_the_loss():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = hn_nce(COSINES.float(), IDENTITY.float(), 0.07, beta=0.5)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(0.011640, abs=1e-5)


def test_two_processes_with_uneven_batches_equal_one_also_when_sharded_or_end_to_end(tmp_path, warm_python):
    script = Path(__file__).parents[1] / "fixtures" / "two_process_losses.py"
    for done in warm_python.run_ranks(2, [script, tmp_path], timeout=120):
        assert done.returncode == 0, done.stderr
    results = [torch.load(tmp_path / f"rank{rank}.pt", weights_only=True) for rank in (0, 1)]
    alone = torch.load(tmp_path / "alone.pt", weights_only=True)
    for name in ("hn_nce", "infonce", "multi_positive", "sharded", "end_to_end", "cross_attention"):
        for result in results:
            torch.testing.assert_close(result[name]["loss"], alone[name]["loss"])
            for one, other in zip(result[name]["gradients"], alone[name]["gradients"], strict=True):
                torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
