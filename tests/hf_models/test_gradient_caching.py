"""Gradient caching gives the plain gradient, also where something drops out, and leaves one pass's random state."""

import torch
from torch import nn

from hf_models.gradient_caching import RandomState, backward_in_chunks
from hf_models.tfcovr.losses import hn_nce, infonce, multi_positive, negatives_of


def test_what_drops_out_is_the_same_in_both_passes():
    torch.manual_seed(0)
    model, rows = nn.Sequential(nn.Linear(6, 5), nn.Dropout(0.5)), torch.randn(8, 6)
    parts = rows.split(2)
    start = RandomState(torch.device("cpu"))
    embeds = torch.cat([model(part) for part in parts])
    expected = infonce(embeds[:4], embeds[4:], 0.5)
    expected.backward()
    plain, after = [weight.grad.clone() for weight in model.parameters()], torch.rand(3)
    model.zero_grad()
    start.restore()
    loss = backward_in_chunks([lambda part=part: model(part) for part in parts], lambda x: infonce(x[:4], x[4:], 0.5))
    torch.testing.assert_close(loss, expected.detach())
    for weight, gradient in zip(model.parameters(), plain, strict=True):
        torch.testing.assert_close(weight.grad, gradient, atol=1e-5, rtol=1e-5)
    assert torch.equal(torch.rand(3), after)


def test_further_negatives_stand_against_the_targets_of_their_row():
    torch.manual_seed(0)
    queries, targets, negatives = (nn.functional.normalize(torch.randn(n, 6).double(), dim=1) for n in (4, 4, 3))
    labels, of_negatives = torch.arange(4), torch.tensor([0, -1, 9])
    further = negatives_of(queries, negatives, 0.1, labels=labels, negative_labels=of_negatives)
    assert further.isneginf().tolist() == [[True, False, False], *[[False] * 3] * 3]
    logits = queries @ targets.T / 0.1
    rows = torch.cat([logits, further], 1)
    expected = (rows.logsumexp(1) - logits.diag()).mean() + (logits.logsumexp(0) - logits.diag()).mean()
    torch.testing.assert_close(infonce(queries, targets, 0.1, negative_logits=further), expected)
    torch.testing.assert_close(hn_nce(queries, targets, 0.1, negative_logits=further), expected)
    torch.testing.assert_close(multi_positive(queries, targets, 0.1, labels, negative_logits=further), expected)
    assert hn_nce(queries, targets, 0.1, beta=0.5, negative_logits=further) > expected
