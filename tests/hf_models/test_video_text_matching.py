"""Matching of clips and texts: the losses by hand, the models against their own forward pass, saved and loaded."""

import math

import pytest
import torch
from huggingface_hub.errors import StrictDataclassClassValidationError
from loads_equal import assert_loads_equal
from safetensors.torch import save_file
from small_vidclip import FRAMES, inputs, make_processor, save_blip, save_clip, small_vidclip
from transformers import BertConfig, BertModel

from hf_models import VidCLIPMatcher, VidCLIPMatcherConfig
from hf_models.vidclip.modeling_vidclip_matching import (
    Encoded,
    MatchingHead,
    contrastive_loss,
    matching_loss,
)
from hf_models.video_text_matching import BlipMatcher, Scorer, load_matcher


@pytest.fixture
def clip(tmp_path):
    return save_clip(tmp_path / "clip")


@pytest.fixture
def blip(tmp_path):
    return save_blip(tmp_path / "blip", make_processor().tokenizer)


def small_matcher():
    """A matcher whose head is not at its start."""
    matcher = VidCLIPMatcher.from_vidclip(small_vidclip()).eval()
    for weight in matcher.head.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    return matcher


def batch(rows=3):
    given = inputs(rows)
    return {name: given[name] for name in ("pixel_values", "input_ids")}


def unit(*rows):
    return Encoded(torch.tensor(rows), torch.zeros(len(rows), 1, 1))


def test_the_contrastive_loss_is_the_hand_derived_one():
    clips, positives, negatives = unit([1.0, 0.0], [0.0, 1.0]), unit([1.0, 0.0], [0.0, 1.0]), unit([0.6, 0.8])
    owners, is_same = torch.tensor([0, 1]), torch.eye(2, dtype=torch.bool)
    found = contrastive_loss(clips, positives, owners, negatives, is_same, torch.tensor(2.0))
    text_0 = -2 + math.log(math.exp(2) + math.exp(0) + math.exp(1.2))
    text_1 = -2 + math.log(math.exp(2) + math.exp(0) + math.exp(1.6))
    clip_side = -2 + math.log(math.exp(2) + math.exp(0))
    assert found.item() == pytest.approx(((text_0 + text_1) / 2 + clip_side) / 2, abs=1e-5)


def test_an_equal_caption_of_another_clip_is_not_a_negative():
    clips, texts = unit([1.0, 0.0], [0.0, 1.0]), unit([1.0, 0.0], [1.0, 0.0])
    everything = torch.ones(2, 2, dtype=torch.bool)
    nothing = Encoded(torch.zeros(0, 2), torch.zeros(0, 1, 1))
    loss = contrastive_loss(clips, texts, torch.tensor([0, 1]), nothing, everything, torch.tensor(5.0))
    assert loss.item() == pytest.approx(0)


def test_the_matching_loss_weighs_both_classes_alike():
    loss = matching_loss(torch.tensor([0.0, 0.0]), torch.tensor([0.0]))
    assert loss.item() == pytest.approx(math.log(2))
    assert matching_loss(torch.tensor([20.0]), torch.tensor([-20.0])).item() < 1e-6


def test_a_saved_matcher_scores_as_before(clip, tmp_path):
    torch.manual_seed(0)
    scorer = Scorer(*load_matcher(clip, num_frames=4))
    scorer.matcher.eval()
    frames = torch.randint(0, 255, (6, 3, 16, 16), dtype=torch.uint8)  # more than the model's: some are left out
    before = scorer(frames, ["a dog runs", "then a dog sits"])
    scorer.save_pretrained(tmp_path / "model")
    again = Scorer(*load_matcher(str(tmp_path / "model")))
    again.matcher.eval()
    assert again(frames, ["a dog runs", "then a dog sits"]) == pytest.approx(before, abs=1e-5)
    assert again(frames, ["then a dog sits"]) == pytest.approx(before[1:], abs=1e-5)  # padding changes nothing


def test_blip_matching_is_the_mean_over_frames_of_its_own(blip):
    scorer = Scorer(*load_matcher(blip))
    assert isinstance(scorer.matcher, BlipMatcher)
    scorer.matcher.eval()
    frames = torch.randint(0, 255, (3, 3, 16, 16), dtype=torch.uint8)
    texts = ["a dog runs", "then a dog sits"]
    tokens = scorer.tokens(texts)
    with torch.inference_mode():
        pixels = scorer.pixels(frames[None])[0]
        expected = torch.zeros(2)
        for frame in pixels:
            logits = scorer.matcher.model(**tokens, pixel_values=frame[None].expand(2, -1, -1, -1)).itm_score
            expected += (logits[:, 1] - logits[:, 0]) / 3
    assert scorer(frames, texts) == pytest.approx(expected.tolist(), abs=1e-5)


def test_a_matchers_scale_beyond_its_limit_has_a_gradient_and_goes_back_to_the_limit(clip, blip):
    for folder in (clip, blip):
        matcher = load_matcher(folder)[0]
        scale = getattr(matcher.model, "logit_scale", None)
        scale = matcher.logit_scale if scale is None else scale
        with torch.no_grad():
            scale.fill_(6.0)
        matcher.scale.backward()
        assert matcher.scale.item() == pytest.approx(100, rel=1e-3)
        assert scale.grad.item() == pytest.approx(100, rel=1e-3)
        matcher.limit_logit_scale_()
        assert scale.item() == pytest.approx(math.log(100), abs=1e-4)


@torch.inference_mode()
def test_a_forward_pass_is_the_similarity_of_the_towers_corrected_by_the_head():
    matcher, given = small_matcher(), batch()
    output = matcher(**given)
    towers = matcher.model(**given)
    torch.testing.assert_close(output.video_embeds, towers.video_embeds)
    torch.testing.assert_close(output.text_embeds, towers.text_embeds)
    correction = output.logits - towers.logits_per_video.diagonal()
    assert (correction.abs() > 1e-3).all()
    states = matcher.model.get_frame_tokens(given["pixel_values"]), matcher.encode_texts(given["input_ids"]).states
    torch.testing.assert_close(
        correction, matcher.head(*states, torch.ones_like(given["input_ids"])), atol=1e-5, rtol=1e-4
    )
    torch.testing.assert_close(matcher(**given, return_dict=False)[0], output.logits)


@torch.inference_mode()
def test_a_saved_matcher_is_loaded_by_its_class_and_by_auto_model(tmp_path):
    given = batch()
    assert_loads_equal(small_matcher(), tmp_path, lambda matcher: matcher(**given).logits)
    loaded = VidCLIPMatcher.from_pretrained(tmp_path)
    assert (loaded.max_frames, loaded.max_tokens) == (FRAMES, 160)


def test_a_new_head_is_the_one_that_the_seed_draws():
    model = small_vidclip()
    torch.manual_seed(3)
    matcher = VidCLIPMatcher.from_vidclip(model)
    torch.manual_seed(3)
    head = MatchingHead(model.config.text_config.hidden_size, model.config.vision_config.hidden_size, FRAMES)
    torch.testing.assert_close(matcher.head.state_dict(), head.state_dict(), atol=0, rtol=0)
    assert matcher.model is model
    assert not any(weight.is_meta for weight in [*matcher.parameters(), *matcher.buffers()])


def test_a_vidclip_of_which_weights_are_missing_gets_no_head(tmp_path):
    model = small_vidclip()
    model.save_pretrained(tmp_path)
    rest = {name: value for name, value in model.state_dict().items() if "layers.0." not in name}
    save_file(rest, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match=r"\d+ weights of .* are missing"):
        VidCLIPMatcher.from_vidclip(tmp_path)


def test_weights_that_a_checkpoint_lacks_start_like_a_new_head(tmp_path):
    matcher = small_matcher()
    towers = {name: value for name, value in matcher.state_dict().items() if name.startswith("model.")}
    matcher.save_pretrained(tmp_path, state_dict=towers)
    loaded = VidCLIPMatcher.from_pretrained(tmp_path)
    assert not loaded.head.time.any()
    assert torch.equal(loaded.head.fusion.norm.weight, torch.ones(16))
    bound = 1 / math.sqrt(loaded.head.vision.in_features)  # of PyTorch's linear layers
    assert 0.5 * bound < loaded.head.vision.weight.abs().max() <= bound


def test_a_model_that_is_not_a_matcher_is_refused(clip, tmp_path):
    BertModel(BertConfig(hidden_size=8, num_attention_heads=1, num_hidden_layers=1)).save_pretrained(tmp_path / "bert")
    with pytest.raises(ValueError, match="is a bert model; give a CLIP, a VidCLIP or a BLIP"):
        load_matcher(str(tmp_path / "bert"))
    with pytest.raises(ValueError, match="is a clip model, so its matching head is untrained"):
        load_matcher(clip, needs_trained_head=True)
    small_vidclip().save_pretrained(tmp_path / "vidclip")
    with pytest.raises(ValueError, match=r"'vidclip' configuration.*from_vidclip puts a matching head"):
        VidCLIPMatcher.from_pretrained(tmp_path / "vidclip")
    with pytest.raises(StrictDataclassClassValidationError, match="num_matching_layers is 0"):
        VidCLIPMatcherConfig(num_matching_layers=0)
