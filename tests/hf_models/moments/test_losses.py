"""The losses of moment retrieval against values derived by hand."""

import math

import pytest
import torch

from hf_models.moments.losses import (
    frame_contrastive_loss,
    negative_pairs,
    ranking_loss,
    span_loss,
    video_contrastive_loss,
)

SCORES = torch.tensor([[0.5, 0.45, 0.1], [0.0, 0.2, 0.3], [0.7, 0.1, 0.6]])
OTHERS = ~torch.eye(3, dtype=torch.bool)


def test_a_sampled_negative_is_one_of_the_row():
    possible = {round(max(0.0, 0.1 + n - 0.5), 4) for n in (0.45, 0.1)}
    torch.manual_seed(0)
    alone = torch.zeros(3, 3, dtype=torch.bool)
    alone[0, 1:] = True  # only the first row has negatives
    seen = {round(ranking_loss(SCORES, alone).item(), 4) for _ in range(40)}
    assert seen == possible == {0.05, 0.0}


def test_the_hardest_negative_is_certain_in_a_pool_of_one():
    # rows: 0.1 + 0.45 - 0.5, 0.1 + 0.3 - 0.2, 0.1 + 0.7 - 0.6
    expected = (0.05 + 0.2 + 0.2) / 3
    for _ in range(5):
        loss = ranking_loss(SCORES, OTHERS, hard_pool_size=1)
        assert loss.item() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("last_bits", [(0, 0, 0), (2, 1, 0), (0, 1, 2), (0, 2, 1)], ids=str)
def test_hard_negatives_do_not_hang_on_the_last_bits_of_scores(last_bits):
    # Columns 1 to 3 are one video, so a pool of two is column 4 and the first of these.
    scores, drawn = torch.zeros(5, 5), torch.zeros(5, 5)
    scores[0] = torch.tensor([0.5, 0.3, 0.3, 0.3, 0.4])
    scores[0, 1:4] += 3e-8 * torch.tensor(last_bits)
    drawn[0] = torch.tensor([0.9, 0.1, 0.3, 0.5, 0.2])
    alone = torch.zeros(5, 5, dtype=torch.bool)
    alone[0, 1:] = True  # only the first row has negatives
    loss = ranking_loss(scores, alone, margin=1.0, hard_pool_size=2, random_scores=drawn)
    assert loss.item() == pytest.approx(1 + 0.4 - 0.5, abs=1e-5)  # not 1 + 0.3 - 0.5


def test_all_negatives_are_averaged_and_hard_ones_weigh_more():
    hinges = [[0.05, 0.0], [0.0, 0.2], [0.2, 0.0]]
    mean = sum(map(sum, hinges)) / 6
    assert ranking_loss(SCORES, OTHERS, negatives="all").item() == pytest.approx(mean, abs=1e-5)
    hard = ranking_loss(SCORES, OTHERS, negatives="all", hard_pool_size=1, hard_weight=10.0, easy_weight=0.1)
    assert hard.item() == pytest.approx(10 * (0.05 + 0.2 + 0.2) / 6, abs=1e-5)


def test_a_pool_of_videos_counts_a_video_once_however_many_queries_it_has():
    """Queries 0 and 1 are of one video, 2 and 3 of another; hinges of query 0: 0.08, 0.08 and 0.05."""
    scores = torch.tensor([[0.5, 0.5, 0.48, 0.48, 0.45]]).expand(5, 5)
    is_negative = negative_pairs(torch.tensor([0, 0, 1, 1, 2]))
    is_negative = is_negative & (torch.arange(5) == 0)[:, None]  # only the first row has negatives
    options = {"negatives": "all", "hard_pool_size": 2, "hard_weight": 10.0, "easy_weight": 0.1}
    of_pairs = ranking_loss(scores, is_negative, **options)
    assert of_pairs.item() == pytest.approx((10 * 0.08 + 10 * 0.08 + 0.1 * 0.05) / 3, abs=1e-6)
    of_videos = ranking_loss(scores, is_negative, **options, videos=torch.tensor([0, 0, 1, 1, 2]))
    assert of_videos.item() == pytest.approx(10 * (0.08 + 0.08 + 0.05) / 3, abs=1e-6)


def test_lse_is_the_smooth_hinge_without_margin():
    two = SCORES[:2, :2]
    expected = (math.log1p(math.exp(-0.05)) + math.log1p(math.exp(-0.2))) / 2
    loss = ranking_loss(two, ~torch.eye(2, dtype=torch.bool), kind="lse")
    assert loss.item() == pytest.approx(expected, abs=1e-5)


def test_rows_without_negatives_do_not_count():
    is_negative = negative_pairs(torch.tensor([0, 0, 1]))
    assert is_negative.tolist() == [[False, False, True], [False, False, True], [True, True, False]]
    none = negative_pairs(torch.tensor([4, 4, 4]))
    for negatives in ("sampled", "all"):
        assert ranking_loss(SCORES, none, negatives=negatives) == 0
    # negatives: 0.1, 0.3 and the mean of 0.7, 0.1
    expected = (0.0 + 0.2 + (0.2 + 0.0) / 2) / 3
    assert ranking_loss(SCORES, is_negative, negatives="all").item() == pytest.approx(expected, abs=1e-5)


def test_the_span_loss_adds_both_cross_entropies():
    logits = torch.log(torch.tensor([[0.2, 0.3, 0.5]]))
    loss = span_loss(logits, logits, torch.tensor([0]), torch.tensor([2]))
    assert loss.item() == pytest.approx(-math.log(0.2) - math.log(0.5), abs=1e-5)


def test_frames_outside_the_video_do_not_count_in_the_frame_contrast():
    similarities = torch.tensor([[0.5, -0.25, 0.25, 9.0]])
    inside = torch.tensor([[False, True, True, False]])
    mask = torch.tensor([[True, True, True, False]])
    assert frame_contrastive_loss(similarities, inside, mask).item() == pytest.approx(0.288722, abs=1e-5)


def test_a_moment_that_is_the_whole_video_has_no_outside():
    everything = torch.ones(1, 2, dtype=torch.bool)
    loss = frame_contrastive_loss(torch.zeros(1, 2), everything, everything)
    assert loss.item() == pytest.approx(0.0, abs=1e-5)  # log 2 - softplus(0)


def test_queries_of_one_video_are_left_out_of_the_video_contrast():
    scores = torch.tensor([[1.0, 5.0], [5.0, 2.0]])
    assert video_contrastive_loss(scores, negative_pairs(torch.tensor([3, 3]))).item() == pytest.approx(
        math.log(2), abs=1e-5
    )
    # row: exp 1 + exp 5 twice, minus the positive
    both = video_contrastive_loss(scores, negative_pairs(torch.tensor([3, 4]))).item()
    first = math.log(2 * math.exp(1) + 2 * math.exp(5)) - 1
    second = math.log(2 * math.exp(2) + 2 * math.exp(5)) - 2
    assert both == pytest.approx((first + second) / 2, abs=1e-5)
