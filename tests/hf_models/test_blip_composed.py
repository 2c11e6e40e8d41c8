"""BLIP for composed retrieval is the encoder's BLIP before training, trains its text half, and is saved as a BLIP."""

import pytest
import torch
from small_encoders import blip, random_videos, save_small

from hf_models.encoders import load_encoder
from hf_models.encoders.modeling_blip_composed import BlipForComposedRetrieval

TEXTS = ["a dog runs", "then sits"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_small(blip, tmp_path_factory.mktemp("blip") / "model")


@pytest.fixture
def model(folder):
    return BlipForComposedRetrieval.from_pretrained(folder).eval()


@pytest.fixture
def inputs(folder):
    """What the encoder makes of the middle frames of two videos and their texts."""
    encoder = load_encoder(folder, num_frames=3)
    videos = random_videos(2, 3, 16)
    tokens = encoder.tokens(TEXTS)
    tokens["input_ids"][:, 0] = encoder.enc_token_id
    return encoder, videos, {**tokens, **encoder.images([video[1:2] for video in videos])}


def test_before_training_queries_and_targets_are_those_of_the_encoder(model, inputs):
    encoder, videos, arguments = inputs
    with torch.inference_mode():
        queries, targets = encoder.encode_query(videos, TEXTS), encoder.encode_video(videos)
    pixels = encoder.images(videos)["pixel_values"].unflatten(0, (2, 3))
    torch.testing.assert_close(model(**arguments), queries)
    torch.testing.assert_close(model.get_target_features(pixels), targets)
    states = model.encode_image(arguments.pop("pixel_values"))
    torch.testing.assert_close(model(**arguments, image_states=states), queries)


def test_gradients_reach_the_text_encoder_alone(model, inputs):
    model.freeze_vision()
    (model(**inputs[2]) * torch.arange(12)).sum().backward()
    with_gradient = {name.split(".")[0] for name, weight in model.named_parameters() if weight.grad is not None}
    assert with_gradient == {"text_encoder", "text_proj"}
    assert not [name for name, weight in model.named_parameters() if weight.requires_grad and weight.grad is None]


def test_a_trained_model_is_saved_as_a_blip_that_the_encoders_load(model, inputs, tmp_path):
    encoder, videos, arguments = inputs
    with torch.no_grad():
        for weight in model.text_encoder.parameters():
            weight += 0.1 * torch.randn_like(weight)
        trained = model(**arguments)
    model.save_pretrained(tmp_path)
    encoder.processor.save_pretrained(tmp_path)
    torch.testing.assert_close(BlipForComposedRetrieval.from_pretrained(tmp_path).eval()(**arguments), trained)
    with torch.inference_mode():
        found = load_encoder(str(tmp_path), num_frames=3).encode_query(videos, TEXTS)
        torch.testing.assert_close(found, trained)
        assert not torch.allclose(found, encoder.encode_query(videos, TEXTS))


def test_a_query_without_text_or_with_two_frames_is_refused(model, inputs):
    pixels, tokens = inputs[2]["pixel_values"], inputs[2]["input_ids"]
    with pytest.raises(ValueError, match="needs a text; give input_ids"):
        model.get_query_features(pixels)
    for given in ({}, {"pixel_values": pixels, "image_states": model.encode_image(pixels)}):
        with pytest.raises(ValueError, match="either pixel_values or image_states"):
            model.get_query_features(input_ids=tokens, **given)
