"""VideoComp's losses against values derived by hand, a plain second implementation, and themselves on two processes."""

import math
from itertools import combinations, pairwise
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from hf_models.vidclip.losses import clip_loss, comp_loss, negclip

GOLDEN = torch.tensor([0.42]), torch.tensor([[0.35, 0.36, 0.20]])


def unit(*shape, seed=0):
    return F.normalize(torch.randn(*shape, generator=torch.Generator().manual_seed(seed)), dim=-1)


def plain_comp_loss(positive, negatives, levels, pairs):
    """A video's loss, level by level."""
    texts = {0: [positive]}
    for cosine, level in zip(negatives, levels, strict=True):
        if level:
            texts.setdefault(level, []).append(cosine)
    order = sorted(texts)
    compared = {
        "adjacent": list(pairwise(order)),
        "all": list(combinations(order, 2)),
        "positive": [(0, level) for level in order[1:]],
    }[pairs]
    terms = [
        sum(math.log1p(math.exp(low - high)) for high in texts[i] for low in texts[j]) / (len(texts[i]) * len(texts[j]))
        for i, j in compared
    ]
    return sum(terms) / len(terms)


@pytest.mark.parametrize(("pairs", "expected"), [("adjacent", 0.657754), ("all", 0.641167), ("positive", 0.637181)])
def test_comp_loss_has_the_golden_values(pairs, expected):
    loss = comp_loss(*GOLDEN, torch.tensor([[1, 2, 3]]), pairs=pairs)
    assert loss.item() == pytest.approx(expected, abs=1e-5)


def test_the_hinge_counts_only_what_is_within_the_margin():
    loss = comp_loss(*GOLDEN, torch.tensor([[1, 2, 3]]), kind="hinge", margin=0.1)
    assert loss.item() == pytest.approx((0.03 + 0.11 + 0.0) / 3, abs=1e-5)


@pytest.mark.parametrize("pairs", ["adjacent", "all", "positive"])
def test_comp_loss_equals_a_plain_implementation_over_ragged_levels(pairs):
    generator = torch.Generator().manual_seed(3)
    positive, negatives = torch.rand(8, generator=generator), torch.rand(8, 5, generator=generator)
    levels = torch.randint(0, 4, (8, 5), generator=generator)
    levels[0], levels[1] = 0, torch.tensor([2, 0, 2, 0, 0])
    expected = [
        plain_comp_loss(p, n, level, pairs)
        for p, n, level in zip(positive.tolist(), negatives.tolist(), levels.tolist(), strict=True)
        if any(level)
    ]
    loss = comp_loss(positive, negatives, levels, pairs=pairs)
    assert loss.item() == pytest.approx(sum(expected) / len(expected), abs=1e-5)


def test_texts_of_one_level_are_not_compared_with_each_other():
    levels = torch.tensor([[1, 1, 2]])
    negatives = torch.tensor([[0.3, 0.5, 0.1]], requires_grad=True)
    comp_loss(torch.tensor([0.4]), negatives, levels, kind="hinge").backward()
    # Only 0.5 is above the positive, and both are above 0.1: the order of 0.3 and 0.5 asks for nothing.
    assert negatives.grad.tolist() == [[0.0, 0.25, 0.0]]


def test_no_negative_gives_zero_and_no_gradient():
    positive = torch.tensor([0.3, 0.4], requires_grad=True)
    loss = comp_loss(positive, torch.zeros(2, 2), torch.zeros(2, 2, dtype=torch.long))
    loss.backward()
    assert loss == 0
    assert not positive.grad.any()


def test_clip_loss_of_equal_similarities_is_log_of_the_batch():
    same = unit(1, 8).expand(5, 8)
    assert clip_loss(same, same, 7.0).item() == pytest.approx(math.log(5), abs=1e-5)


def test_negclip_chooses_among_the_negatives_of_the_whole_batch():
    same = unit(1, 8).expand(4, 8)
    levels = torch.tensor([[1, 0], [1, 2], [0, 0], [3, 0]])
    loss = negclip(same, same, same[:, None].expand(4, 2, 8), levels, 7.0)
    assert loss.item() == pytest.approx((math.log(8) + math.log(4)) / 2, abs=1e-5)


def test_negclip_without_negatives_is_clip_loss():
    video, text, negatives = unit(4, 8), unit(4, 8, seed=1), unit(4, 2, 8, seed=2)
    none = torch.zeros(4, 2, dtype=torch.long)
    torch.testing.assert_close(negclip(video, text, negatives, none, 7.0), clip_loss(video, text, 7.0))


def test_every_loss_falls_along_its_gradient_and_runs_in_half_precision():
    video, text, negatives = unit(4, 8), unit(4, 8, seed=1), unit(4, 2, 8, seed=2)
    levels = torch.tensor([[1, 2]] * 4)
    losses = {
        "clip_loss": lambda v: clip_loss(v, text.to(v.dtype), 7.0),
        "negclip": lambda v: negclip(v, text.to(v.dtype), negatives.to(v.dtype), levels, 7.0),
        "comp_loss": lambda v: comp_loss(
            (v * text.to(v.dtype)).sum(-1), torch.einsum("bd,bkd->bk", v, negatives.to(v.dtype)), levels
        ),
    }
    for name, loss in losses.items():
        point = video.clone().requires_grad_()
        loss(point).backward()
        assert loss(video - 0.01 * point.grad) < loss(video), name
        assert loss(video.bfloat16()).dtype == torch.float32, name


@pytest.mark.parametrize(
    "call",
    [
        lambda: clip_loss(unit(3, 8), unit(4, 8), 1.0),
        lambda: negclip(unit(3, 8), unit(3, 8), unit(2, 1, 8), torch.ones(2, 1), 1.0),
        lambda: comp_loss(torch.ones(3), torch.ones(3, 2), torch.ones(3, 3)),
        lambda: comp_loss(*GOLDEN, torch.ones(1, 3), pairs="neighbours"),
    ],
    ids=["clip_loss", "negclip", "comp_loss", "option"],
)
def test_shapes_and_options_that_do_not_fit_are_refused(call):
    with pytest.raises(ValueError, match=r"shape|with B = 3|'adjacent'"):
        call()


def test_two_processes_equal_one_with_uneven_batches_and_where_one_has_no_negatives_or_no_rows(tmp_path, warm_python):
    script = Path(__file__).parents[1] / "fixtures" / "two_process_vidclip.py"
    # One process that waits for the other would wait for ever.
    for done in warm_python.run_ranks(2, [script, tmp_path], timeout=150):
        assert done.returncode == 0, done.stderr
    alone, *ranks = (torch.load(tmp_path / f"{name}.pt") for name in ("alone", "rank0", "rank1"))
    assert len(alone) == 9
    for case, expected in alone.items():
        assert expected["gradients"].keys() == ranks[0][case]["gradients"].keys(), case
        for rank in ranks:
            torch.testing.assert_close(
                rank[case], expected, atol=1e-5, rtol=1e-4, msg=lambda text, case=case: f"{case}: {text}"
            )
