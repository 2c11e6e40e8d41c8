"""Every family of encoders by the same rules: shapes, lengths, one by one as together, one frame and many."""

import copy
import dataclasses
from unittest.mock import patch

import pytest
import torch
from small_encoders import (
    FAMILIES,
    LANGUAGE_MODELS,
    blip,
    clip,
    gme,
    perception_encoder,
    qwen_3_vl,
    random_videos,
    siglip,
    siglip_2,
    v_jepa_2,
    x_clip,
)
from torch.nn import functional as F
from torch.testing import assert_close

from hf_models.encoders import ENCODERS, load_encoder

TEXTS = ["a dog runs then a dog sits", "dog", "a dog sits"]
VIDEOS = random_videos(3, 4, 32)
ANY_LENGTH = {perception_encoder, x_clip}


def reading(family):
    return family is not v_jepa_2


def one_by_one(encode, *inputs):
    return torch.cat([encode(*([each] for each in item)) for item in zip(*inputs, strict=True)])


def test_shapes_and_lengths(encoder_of, family):
    encoder = encoder_of(family)
    videos = encoder.encode_video(VIDEOS)
    size = videos.shape[-1]
    assert videos.shape == ((3, 5, size) if family is x_clip else (3, size))
    rows = [] if family in ANY_LENGTH else [videos]
    if reading(family):
        texts, queries = encoder.encode_text(TEXTS), encoder.encode_query(VIDEOS, TEXTS)
        assert texts.shape == queries.shape == (3, size)
        rows += [queries] if family in ANY_LENGTH else [queries, texts]
        assert encoder.compare(videos, texts[:2]).shape == (3, 2)
        assert encoder.compare_queries(queries[:2], videos).shape == (2, 3)
    for each in rows:
        assert_close(each.norm(dim=-1), torch.ones(3))


def test_one_by_one_gives_what_a_batch_gives(encoder_of, family):
    """So neither padding nor another text or video of the batch changes an embedding."""
    encoder = encoder_of(family)
    near = {"atol": 1e-5, "rtol": 1e-5}
    assert_close(one_by_one(encoder.encode_video, VIDEOS), encoder.encode_video(VIDEOS), **near)
    if reading(family):
        assert_close(one_by_one(encoder.encode_text, TEXTS), encoder.encode_text(TEXTS), **near)
        assert_close(one_by_one(encoder.encode_query, VIDEOS, TEXTS), encoder.encode_query(VIDEOS, TEXTS), **near)


def test_each_text_each_video_and_each_half_of_a_query_counts(encoder_of, family):
    encoder = encoder_of(family)
    videos = encoder.encode_video(VIDEOS).flatten(1)
    assert (videos[0] - videos[1]).abs().max() > 1e-4
    if reading(family):
        texts = encoder.encode_text(TEXTS)
        queries = encoder.encode_query([*VIDEOS[:2], VIDEOS[0]], [*TEXTS[:1] * 2, TEXTS[1]])
        for rows in (texts[[0, 1]], queries[[0, 1]], queries[[0, 2]]):
            assert (rows[0] - rows[1]).abs().max() > 1e-4


def test_one_frame_and_many(encoder_of, family):
    encoder = encoder_of(family)
    if encoder.fixed_frames(encoder.model.config):
        with pytest.raises(ValueError, match="takes 4 frames of a video, not 1"):
            encoder.encode_video([VIDEOS[0][:1]])
        return
    single, many = encoder.encode_video([VIDEOS[0][:1]]), encoder.encode_video([VIDEOS[0].repeat(2, 1, 1, 1)])
    assert single.shape == many.shape
    assert single.isfinite().all()
    assert many.isfinite().all()


@pytest.mark.parametrize("make", [clip, siglip, siglip_2, blip])
def test_an_image_model_is_averaged_over_its_unit_norm_frames(encoder_of, make):
    encoder = encoder_of(make)
    frames = one_by_one(encoder.encode_video, VIDEOS[0].unsqueeze(1))
    assert_close(encoder.encode_video(VIDEOS[:1])[0], F.normalize(frames.mean(0), dim=0))


def test_the_middle_frame_of_a_query_is_what_blip_looks_at(encoder_of):
    encoder, blank = encoder_of(blip), torch.zeros_like(VIDEOS[0])
    queries = []
    for place in range(4):
        video = blank.clone()
        video[place] = VIDEOS[0][0]
        queries.append(encoder.encode_query([video], ["dog"])[0])
    assert_close(queries[0], queries[1])
    assert_close(queries[0], queries[3])
    assert (queries[0] - queries[2]).abs().max() > 1e-4


def test_blip_cuts_texts_where_covr_cuts_them_in_its_tests_and_in_training(encoder_of):
    encoder = encoder_of(blip)
    with (
        patch.object(encoder.model.config.text_config, "max_position_embeddings", 512),
        patch.object(encoder.processor.tokenizer, "model_max_length", 512),
    ):
        tested, trained = (encoder.tokens(["dog " * 100], *given)["input_ids"] for given in ((), (35,)))
    assert (tested.shape, trained.shape) == ((1, 64), (1, 35))
    assert tested[0, -1] == trained[0, -1] == encoder.tokens(["dog"])["input_ids"][0, -1], "cut texts end as others do"


@pytest.mark.parametrize("make", [make for make in FAMILIES if make not in {x_clip, v_jepa_2, blip, *LANGUAGE_MODELS}])
def test_a_query_of_two_towers_is_the_mean_of_its_unit_norm_halves(encoder_of, make):
    encoder = encoder_of(make)
    halves = F.normalize(encoder.encode_video(VIDEOS), dim=-1), F.normalize(encoder.encode_text(TEXTS), dim=-1)
    assert_close(encoder.encode_query(VIDEOS, TEXTS), F.normalize(halves[0] + halves[1], dim=-1))


@pytest.mark.parametrize("make", LANGUAGE_MODELS)
def test_frames_in_one_prompt_and_in_prompts_of_their_own_differ(encoder_of, make):
    apart, together = encoder_of(make, one_prompt=False), encoder_of(make, one_prompt=True)
    each = torch.cat([apart.encode_video([frame[None]]) for frame in VIDEOS[0]])
    assert_close(apart.encode_video(VIDEOS[:1])[0], F.normalize(each.mean(0), dim=-1), atol=1e-5, rtol=1e-5)
    assert (apart.encode_video(VIDEOS[:1]) - together.encode_video(VIDEOS[:1])).abs().max() > 1e-5
    assert encoder_of(make).one_prompt == (make is qwen_3_vl)


@pytest.mark.parametrize("make", LANGUAGE_MODELS)
def test_prompts_are_read_some_at_a_time(encoder_of, make):
    few = encoder_of(make, prompts_at_once=2)
    assert_close(few.encode_query(VIDEOS, TEXTS), encoder_of(make).encode_query(VIDEOS, TEXTS), atol=1e-5, rtol=1e-5)


def test_every_family_says_how_it_is_used():
    for kind in ENCODERS.values():
        facts = dataclasses.asdict(kind.usage)
        assert all(isinstance(value, str) for value in facts.values())
        assert all(value for name, value in facts.items() if name != "inferred")
    assert "RN50" in ENCODERS["clip"].usage.inferred


def test_a_model_in_bfloat16_gives_float32(encoder_of, family):
    if family is gme and torch.cpu._is_amx_tile_supported() and torch.backends.cpu.get_cpu_capability() != "AVX512":
        pytest.skip("torch's attention in bfloat16 asks the processor, not ATEN_CPU_CAPABILITY, what it has, and fails")
    encoder = copy.deepcopy(encoder_of(family))
    encoder.model.bfloat16()
    videos = encoder.encode_video(VIDEOS)
    assert videos.dtype == torch.float32
    assert_close(videos, encoder_of(family).encode_video(VIDEOS), atol=0.1, rtol=0.1)
    if reading(family):
        texts, queries = encoder.encode_text(TEXTS), encoder.encode_query(VIDEOS, TEXTS)
        assert texts.dtype == queries.dtype == torch.float32
        assert encoder.compare(videos, texts).isfinite().all()
        assert encoder.compare_queries(queries, videos).isfinite().all()


def test_moments_are_searched_by_what_the_encoder_makes_of_a_query(folder_of, encoder_of):
    moments, encoder = load_encoder(folder_of(blip), num_frames=4), encoder_of(blip)
    vectors = moments.vectors(VIDEOS)
    assert_close(torch.from_numpy(vectors), encoder.encode_video(VIDEOS))
    query = torch.from_numpy(moments.query(VIDEOS[0], "a dog"))
    assert_close(query, encoder.encode_query(VIDEOS[:1], ["a dog"])[0])


def test_a_search_by_v_jepa_2_is_by_a_clip_only(folder_of):
    moments = load_encoder(folder_of(v_jepa_2))
    assert moments.num_frames == 4
    assert moments.query(VIDEOS[0]).shape == (16,)
    assert {"weights", "processor"} <= moments.fingerprint.keys()
    with pytest.raises(ValueError, match="embeds videos only, so a query is a clip"):
        moments.query(text="a dog")


def test_an_index_knows_the_prompts_of_its_vectors_and_frames_keep_their_size(folder_of):
    moments = load_encoder(folder_of(gme), num_frames=4)
    assert "You are a helpful assistant." in moments.fingerprint["prompts"]
    assert moments.frame_size is None  # Qwen's size is a number of pixels
    before = moments.fingerprint
    moments.instruction = "Find the dog."
    assert moments.fingerprint != before
