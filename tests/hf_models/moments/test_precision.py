"""XML, ReLoCLNet and HERO in float16 and bfloat16: as close to float32 as rounding allows, in training too."""

import copy
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from small_moment_models import LABELS, both_streams, every_model, inputs, small

from hf_models.moments.corpus import VideoBatch, encode_corpus
from hf_models.moments.layers_moments import EncodedVideos
from hf_models.moments.spans import SpanSearch

# Of one rounding, 2 ** -11 and 2 ** -8, what a few layers make of it.
TOLERANCES = {torch.float16: 0.005, torch.bfloat16: 0.04}
MODES = {
    "half": (torch.float16, lambda model, _: (model.half(), nullcontext())),
    "bfloat16": (torch.bfloat16, lambda model, _: (model.bfloat16(), nullcontext())),
    "loaded in half": (torch.float16, lambda model, path: (reload(model, path), nullcontext())),
    "autocast to half": (torch.float16, lambda model, _: (model, torch.autocast("cpu", torch.float16))),
    "autocast to bfloat16": (torch.bfloat16, lambda model, _: (model, torch.autocast("cpu", torch.bfloat16))),
}


def reload(model, path):
    model.save_pretrained(path)
    return type(model).from_pretrained(path, dtype=torch.float16).eval()


def certain(name, **changes):
    """A model without dropout whose loss depends on nothing random."""
    fixed = {"hidden_dropout": 0.0, "input_dropout": 0.0, "ranking_negatives": "all", "margin": 3.0}
    return small(name, span_loss_probability=1.0, span_loss_weight=1.0, **fixed, **changes)


@pytest.mark.parametrize("mode", MODES)
@every_model
@both_streams
def test_low_precision_is_close_to_single_in_scores_logits_and_gradients(name, subtitles, mode, tmp_path):
    single, batch = certain(name, subtitles=subtitles), inputs(subtitles=subtitles)
    dtype, prepare = MODES[mode]
    low, context = prepare(copy.deepcopy(single), tmp_path)
    with context:
        found = low(**batch)
        training = low.train()(**batch, **LABELS)
    training.loss.backward()
    expected = single(**batch)
    expected_loss = single.train()(**batch, **LABELS).loss
    expected_loss.backward()
    for output in ("video_scores", "start_logits", "end_logits"):
        values, truth = getattr(found, output), getattr(expected, output)
        assert values.dtype == torch.float32
        scale = truth[truth > -1e9].abs().max()
        torch.testing.assert_close(values / scale, truth / scale, atol=2 * TOLERANCES[dtype], rtol=0)
    assert training.loss.item() == pytest.approx(expected_loss.item(), rel=2 * TOLERANCES[dtype])
    gradients = [
        torch.cat([p.grad.float().flatten() for p in model.parameters() if p.grad is not None])
        for model in (low, single)
    ]
    assert gradients[0].isfinite().all()
    error = (gradients[0] - gradients[1]).norm() / gradients[1].norm()
    assert error < 5 * TOLERANCES[dtype]


@every_model
@torch.no_grad()
def test_autocast_leaves_the_comparison_of_queries_with_clips_in_single(name):
    model, batch = small(name), inputs()
    queries = model.encode_query(batch["query_features"], batch["query_mask"])
    videos = model.encode_video(batch["video_features"], batch["video_mask"])
    expected = model.video_scores(queries, videos), *model.span_head(queries, videos)
    with torch.autocast("cpu", torch.bfloat16):
        found = model.video_scores(queries, videos), *model.span_head(queries, videos)
    torch.testing.assert_close(found, expected)


@torch.no_grad()
def test_cosines_of_half_vectors_are_taken_in_single():
    model, generator = small("xml"), torch.Generator().manual_seed(0)
    queries, clips = (torch.randn(shape, generator=generator).half() for shape in ((3, 1, 16), (2, 1, 9, 16)))
    clips[0, 0, 4] = 0  # no direction, no NaN
    mask = torch.ones(2, 9, dtype=torch.bool)
    found, expected = (
        model.video_scores(one, EncodedVideos(other, other, mask))
        for one, other in ((queries, clips), (queries.double(), clips.double()))
    )
    torch.testing.assert_close(found, expected.float())


@every_model
@torch.no_grad()
def test_a_search_under_autocast_finds_what_it_finds_without(name):
    model, batch = small(name), inputs()
    videos = VideoBatch(["a", "b", "c"], batch["video_features"], batch["video_mask"], torch.ones(3))
    search = SpanSearch(model, encode_corpus(model, [videos], num_videos=3), min_clips=1, max_clips=4, num_spans=20)
    queries = model.encode_query(batch["query_features"], batch["query_mask"])
    expected, _ = search.rank(queries)
    with torch.autocast("cpu", torch.bfloat16):
        found, _ = search.rank(queries)
        in_one = search.localize(queries, torch.tensor([0, 1, 2]))
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-5, atol=1e-5)
    alone = search.localize(queries, torch.tensor([0, 1, 2]))
    np.testing.assert_allclose(in_one.scores, alone.scores, rtol=1e-5, atol=1e-5)


@every_model
def test_a_query_that_is_all_padding_gives_no_nan_in_half(name):
    batch = inputs()
    batch["query_mask"][1] = 0
    assert small(name).half()(**batch).video_scores.isfinite().all()
