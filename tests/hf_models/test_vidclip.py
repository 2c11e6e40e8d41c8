"""VidCLIP against CLIP itself, and the properties that the paper's description implies."""

import pytest
import torch
from loads_equal import assert_loads_equal
from safetensors.torch import load_file, save_file
from small_vidclip import FRAMES, VISION, clip_model, inputs, sentences, small_vidclip
from transformers import CLIPVisionConfig, CLIPVisionModel

from hf_models import VidCLIPConfig, VidCLIPModel
from hf_models.vidclip.modeling_vidclip import extend_positions


@pytest.fixture
def clip_folder(tmp_path):
    clip_model().save_pretrained(tmp_path / "clip")
    return tmp_path / "clip"


def test_one_frame_from_clip_is_clips_image_and_a_video_the_mean_of_its_frames(clip_folder, pixel_values):
    clip, model = clip_model(), VidCLIPModel.from_clip(clip_folder, num_frames=FRAMES)
    seen = clip.get_image_features(pixel_values=pixel_values.flatten(0, 1)).pooler_output
    normal = torch.nn.functional.normalize
    for images in (pixel_values[:, 0], pixel_values[:, :1]):
        torch.testing.assert_close(model.get_video_features(images), normal(seen[::FRAMES]))
    expected = normal(seen.unflatten(0, (2, FRAMES)).mean(1))
    torch.testing.assert_close(model.get_video_features(pixel_values), expected)


def test_without_the_residual_one_frame_does_not_see_the_temporal_embedding_at_first(pixel_values):
    model = small_vidclip()
    before = model.get_video_features(pixel_values[:, :1])
    whole = model.get_video_features(pixel_values)
    with torch.no_grad():
        model.video_pooler.temporal_embedding.weight.zero_()
    torch.testing.assert_close(model.get_video_features(pixel_values[:, :1]), before)
    assert (model.get_video_features(pixel_values) - whole).abs().max() > 1e-3


def test_a_text_of_twenty_tokens_is_clips_text_and_longer_ones_fit(clip_folder):
    clip, model = clip_model(), VidCLIPModel.from_clip(clip_folder, num_frames=FRAMES)
    short = sentences(3, 20)
    expected = clip.get_text_features(input_ids=short).pooler_output
    torch.testing.assert_close(model.get_text_features(short), torch.nn.functional.normalize(expected))
    assert model.get_text_features(sentences(2, 160)).shape == (2, 24)
    with pytest.raises(ValueError, match="161"):
        model.get_text_features(sentences(2, 161))


def test_extended_positions_keep_the_first_and_both_ends():
    positions = torch.randn(77, 5)
    extended = extend_positions(positions, 160)
    assert torch.equal(extended[:20], positions[:20])
    torch.testing.assert_close(extended[[20, -1]], positions[[20, -1]])
    steps = torch.arange(57.0)[:, None]
    line = extend_positions(torch.cat([torch.zeros(20, 1), steps]), 160)[20:]
    torch.testing.assert_close(line, torch.linspace(0, 56, 140)[:, None])
    with pytest.raises(ValueError, match="77 text positions cannot become 40"):
        extend_positions(positions, 40)


def test_the_summary_token_sees_every_word_and_no_padding():
    model = small_vidclip()
    tokens = sentences(1, 12)
    text = model.get_text_features(tokens)
    for place in range(11):
        changed = tokens.clone()
        changed[0, place] = tokens[0, place] % 36 + 1
        assert (model.get_text_features(changed) - text).abs().max() > 1e-5, place
    padded = torch.cat([tokens, torch.zeros(1, 5, dtype=torch.long)], dim=1)
    mask = torch.cat([torch.ones(1, 12), torch.zeros(1, 5)], dim=1).long()
    torch.testing.assert_close(model.get_text_features(padded, mask), text)


@pytest.mark.parametrize("residual", [False, True])
def test_the_order_of_frames_is_seen(pixel_values, residual):
    model = small_vidclip(class_token_residual=residual)
    with torch.no_grad():
        model.video_pooler.video_pooler.layernorm.weight.fill_(1.0)
    order = torch.tensor([2, 0, 3, 1])
    change = model.get_video_features(pixel_values) - model.get_video_features(pixel_values[:, order])
    assert change.abs().max() > 1e-3


def test_the_poolers_have_the_papers_shape():
    with torch.device("meta"):
        model = VidCLIPModel(VidCLIPConfig())
    assert model.video_pooler.token_pooler.query.shape == (196, 1024)
    assert model.video_pooler.video_pooler.query.shape == (1, 1024)
    assert model.text_model.embeddings.position_embedding.weight.shape == (160, 768)
    # The paper: a vision tower of 303 M, a text tower of 128 M.
    assert model.vision_model.num_parameters() == pytest.approx(303e6, rel=0.01)
    assert model.text_model.num_parameters() == pytest.approx(128e6, rel=0.04)


def test_more_frames_are_interpolated_on_request_only():
    model = small_vidclip()
    longer = torch.randn(1, 7, 3, 16, 16)
    with pytest.raises(ValueError, match="7 frames, the model 4"):
        model.get_video_features(longer)
    assert model.get_video_features(longer, interpolate_temporal=True).shape == (1, 24)
    larger = torch.randn(1, FRAMES, 3, 24, 24)
    assert model.get_video_features(larger, interpolate_pos_encoding=True).shape == (1, 24)


@pytest.mark.parametrize(
    "wrong", [torch.zeros(3, 16, 16), torch.zeros(1, FRAMES, 3, 16, 16, dtype=torch.uint8)], ids=["shape", "bytes"]
)
def test_pixel_values_of_another_shape_or_type_are_refused(wrong):
    with pytest.raises(ValueError, match="VidCLIPProcessor"):
        small_vidclip().get_video_features(wrong)


@torch.no_grad()
def test_tokens_of_frames_stand_in_for_pixels_and_one_of_the_two_is_needed():
    model, data = small_vidclip(), inputs()
    tokens = model.get_frame_tokens(data["pixel_values"])
    assert tokens.shape == (3, FRAMES, 5, 32)
    from_pixels = model(data["pixel_values"], data["input_ids"])
    from_tokens = model(input_ids=data["input_ids"], frame_tokens=tokens)
    torch.testing.assert_close(from_tokens.logits_per_video, from_pixels.logits_per_video)
    for wrong in ({}, {"pixel_values": data["pixel_values"], "frame_tokens": tokens}):
        with pytest.raises(ValueError, match="either pixel_values or frame_tokens"):
            model(input_ids=data["input_ids"], **wrong)


def test_features_are_unit_norm_and_logits_are_their_products_both_ways():
    model = small_vidclip()
    data = inputs()
    output = model(data["pixel_values"], data["input_ids"][:2])
    assert output.logits_per_video.shape == (3, 2)
    torch.testing.assert_close(output.logits_per_text, output.logits_per_video.T)
    for embeds in (output.video_embeds, output.text_embeds):
        torch.testing.assert_close(embeds.norm(dim=-1), torch.ones(len(embeds)))
    scale = torch.tensor(2.6592).exp()
    torch.testing.assert_close(output.logits_per_video, scale * output.video_embeds @ output.text_embeds.T)
    assert output.loss is None


@pytest.mark.parametrize("loss", ["clip", "negclip", "comploss"])
def test_gradients_reach_every_weight(loss):
    model = small_vidclip(loss=loss, class_token_residual=True).train()
    with torch.no_grad():  # what starts at zero holds back the gradients behind it for one step only
        model.video_pooler.video_pooler.layernorm.weight.fill_(0.1)
    model(**inputs(), return_loss=True).loss.backward()
    for name, parameter in model.named_parameters():
        # The first LayerNorm's bias moves every key alike, which attention does not see.
        if not name.endswith(("k_proj.bias",)):
            assert parameter.grad is not None, name
            assert parameter.grad.any(), name


@pytest.mark.parametrize("loss", ["negclip", "comploss"])
def test_padding_among_negatives_changes_nothing(loss):
    model, data = small_vidclip(loss=loss), inputs()
    expected = model(**data, return_loss=True).loss
    data["negative_input_ids"] = torch.cat([data["negative_input_ids"], sentences(3, 9, seed=5)[:, None]], dim=1)
    data["negative_levels"] = torch.cat([data["negative_levels"], torch.zeros(3, 1, dtype=torch.long)], dim=1)
    output = model(**data, return_loss=True)
    torch.testing.assert_close(output.loss, expected)
    assert not output.negative_embeds[:, 2].any()


def test_a_loss_over_negatives_without_negatives_is_an_error():
    data = inputs()
    with pytest.raises(ValueError, match="'comploss' needs negative_input_ids"):
        small_vidclip()(data["pixel_values"], data["input_ids"], return_loss=True)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"pooler_num_attention_heads": 5}, {"num_frames": 0}, {"preference_weight": -1.0}, {"loss": "siglip"}),
        *({"num_captioning_layers": -1}, {"captioning_weight": -0.5}),
    ],
    ids=str,
)
def test_a_contradictory_configuration_is_refused(wrong):
    with pytest.raises(Exception, match=next(iter(wrong))):
        VidCLIPConfig(vision_config=VISION, **wrong)


def test_a_checkpoint_that_is_not_a_whole_clip_is_refused(tmp_path, clip_folder):
    CLIPVisionModel(CLIPVisionConfig(**VISION)).save_pretrained(tmp_path / "tower")
    with pytest.raises(ValueError, match="'clip_vision_model' model"):
        VidCLIPModel.from_clip(str(tmp_path / "tower"))
    with pytest.raises(ValueError, match="not a CLIP checkpoint"):
        VidCLIPModel.from_clip(str(tmp_path / "nowhere"))
    weights = load_file(clip_folder / "model.safetensors")
    kept = {key: value for key, value in weights.items() if "text_projection" not in key}
    save_file(kept, clip_folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"not a whole CLIP: 1 weights.*text_projection"):
        VidCLIPModel.from_clip(str(clip_folder))


def test_a_saved_model_loads_equal_through_every_class(tmp_path, pixel_values):
    model = small_vidclip(class_token_residual=True, preference_kind="hinge")
    assert_loads_equal(model, tmp_path, lambda model: model.get_video_features(pixel_values))
