"""VidCLIP behaves as transformers' models: outputs on request, Trainer, checkpointing, dtypes, export, offloading."""

import logging

import pytest
import torch
from quiet_trainer import QUIET
from small_vidclip import END, FRAMES, clip_model, inputs, sentences, small_vidclip
from torch.export import Dim, export
from torch.nn import functional as F
from transformers import Trainer, TrainingArguments

from hf_models import VidCLIPConfig, VidCLIPModel
from hf_models.vidclip.layers_vidclip import limited_scale

LIMIT = VidCLIPConfig.max_logit_scale


@pytest.fixture
def data():
    return inputs()


def pairs():
    return {name: value for name, value in inputs().items() if not name.startswith("negative")}


def test_without_return_dict_the_outputs_come_as_a_tuple_in_the_same_order(data):
    model = small_vidclip()
    model.set_attn_implementation("eager")
    options = {"return_loss": True, "output_hidden_states": True, "output_attentions": True}
    named = model(**data, **options)
    listed = model(**data, **options, return_dict=False)
    assert isinstance(listed, tuple)
    torch.testing.assert_close(listed[0], named.loss)
    torch.testing.assert_close(listed[1], named.logits_per_video)
    torch.testing.assert_close(listed[-1], named.vision_model_output.to_tuple())


def test_hidden_states_and_attention_maps_are_those_of_the_towers(data):
    model = small_vidclip()
    model.set_attn_implementation("eager")
    plain = model(**pairs())
    assert plain.text_model_output is plain.vision_model_output is None
    output = model(**pairs(), output_hidden_states=True, output_attentions=True)
    torch.testing.assert_close(output.logits_per_video, plain.logits_per_video)
    text, vision = output.text_model_output, output.vision_model_output
    assert [tuple(state.shape) for state in text.hidden_states] == [(3, 9, 16)] * 3
    assert [tuple(state.shape) for state in vision.hidden_states] == [(3 * FRAMES, 5, 32)] * 3
    assert [tuple(maps.shape) for maps in text.attentions] == [(3, 2, 9, 9)] * 2
    assert [tuple(maps.shape) for maps in vision.attentions] == [(3 * FRAMES, 4, 5, 5)] * 2
    torch.testing.assert_close(vision.attentions[0].sum(-1), torch.ones(3 * FRAMES, 4, 5))
    tokens = model.vision_model.post_layernorm(vision.hidden_states[-1])
    torch.testing.assert_close(tokens.unflatten(0, (3, FRAMES)), model.get_frame_tokens(data["pixel_values"]))
    model.config.output_hidden_states = True
    assert model(**pairs()).text_model_output.hidden_states


def test_attention_maps_of_an_attention_that_makes_none_are_refused_with_a_hint():
    model = small_vidclip()
    with pytest.raises(ValueError, match=r"this model has 'sdpa'.*set_attn_implementation\(\"eager\"\)"):
        model(**pairs(), output_attentions=True)


def test_each_attention_implementation_runs_and_both_agree(monkeypatch):
    model, data = small_vidclip(class_token_residual=True), inputs(negatives=1)
    torch.nn.init.ones_(model.video_pooler.video_pooler.layernorm.weight)
    mask = torch.ones_like(data["input_ids"])
    mask[0, 6:] = 0
    data["input_ids"][0, 5] = END
    given, found, calls = (data["pixel_values"], data["input_ids"], mask), {}, []
    attend = F.scaled_dot_product_attention
    monkeypatch.setattr(
        F, "scaled_dot_product_attention", lambda *args, **kwargs: calls.append(1) or attend(*args, **kwargs)
    )
    for name, expected in (("sdpa", 2 + 2 + 2), ("eager", 0)):  # layers of the towers, and the two poolers
        model.set_attn_implementation(name)
        calls.clear()
        found[name] = model(*given).logits_per_video
        assert len(calls) == expected, name
    torch.testing.assert_close(found["sdpa"], found["eager"])


def test_gradient_checkpointing_gives_the_same_gradients_and_can_be_switched_off(data):
    gradients = []
    for checkpointing in (False, True):
        model = small_vidclip().train()
        if checkpointing:
            model.gradient_checkpointing_enable()
            assert model.is_gradient_checkpointing
        model(**data, return_loss=True).loss.backward()
        gradients.append({name: p.grad for name, p in model.named_parameters()})
    torch.testing.assert_close(*gradients)
    model.gradient_checkpointing_disable()
    assert not model.is_gradient_checkpointing


def test_the_embedding_of_tokens_can_be_read_and_replaced():
    model = small_vidclip()
    embedding = model.get_input_embeddings()
    assert embedding.weight.shape == (40, 16)
    before = model.get_text_features(sentences(2, 5))
    model.set_input_embeddings(torch.nn.Embedding.from_pretrained(torch.zeros_like(embedding.weight)))
    assert (model.get_text_features(sentences(2, 5)) - before).abs().max() > 1e-4


def collate(rows):
    batch = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
    return batch | {"return_loss": True}


def test_transformers_trainer_trains_and_evaluates(tmp_path):
    whole = inputs(rows=8)
    rows = [{name: value[row] for name, value in whole.items()} for row in range(8)]
    shapes = []

    def compute_metrics(prediction):
        shapes.extend(one.shape for one in prediction.predictions[:2])
        return {}

    options = {"learning_rate": 1e-2, "num_train_epochs": 4, "gradient_checkpointing": True}
    sizes = {"per_device_train_batch_size": 4, "per_device_eval_batch_size": 4}
    arguments = TrainingArguments(tmp_path, **options, **sizes, **QUIET)
    data = {"train_dataset": rows, "eval_dataset": rows, "data_collator": collate}
    trainer = Trainer(small_vidclip(loss="negclip"), arguments, **data, compute_metrics=compute_metrics)
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    assert trainer.evaluate()["eval_loss"] < before
    assert shapes[:2] == [(8, 4), (8, 4)]  # each batch compares its own


def test_a_bfloat16_model_takes_float32_pixels_and_stored_embeddings(data):
    model = small_vidclip(class_token_residual=True)
    stored = model.get_frame_tokens(data["pixel_values"]).detach()
    exact = model(**data, return_loss=True)
    model.bfloat16()
    data.pop("pixel_values")
    rough = model(**data, frame_tokens=stored, return_loss=True)
    assert rough.video_embeds.dtype == torch.bfloat16
    assert rough.loss.dtype == torch.float32
    torch.testing.assert_close(rough.video_embeds.float(), exact.video_embeds, atol=0.02, rtol=0)
    torch.testing.assert_close(model.pool_frame_tokens(stored).float(), exact.video_embeds, atol=0.02, rtol=0)


def test_a_folder_of_another_architecture_is_refused_and_the_way_from_a_clip_named(tmp_path):
    clip_model().save_pretrained(tmp_path)
    for load in (VidCLIPModel.from_pretrained, VidCLIPConfig.from_pretrained):
        with pytest.raises(ValueError, match=r"this is a 'clip' configuration.*VidCLIPModel.from_clip"):
            load(tmp_path)


def test_a_scale_beyond_its_limit_still_has_a_gradient_and_comes_back():
    model = small_vidclip(loss="clip").train()
    with torch.no_grad():
        model.logit_scale.fill_(LIMIT + 0.5)
    data = pairs()
    data["input_ids"] = data["input_ids"][:1].expand(3, -1)  # all alike: the smaller the scale, the better
    data["pixel_values"][:] += torch.arange(3.0)[:, None, None, None, None]
    output = model(**data, return_loss=True)
    cosines = output.video_embeds @ output.text_embeds.T
    torch.testing.assert_close(output.logits_per_video, cosines * torch.tensor(LIMIT).exp())
    output.loss.backward()
    assert model.logit_scale.grad > 1e-4
    optimizer = torch.optim.SGD([model.logit_scale], lr=1e-3)
    optimizer.step()
    model.limit_logit_scale_()
    torch.testing.assert_close(model.logit_scale.data, torch.tensor(LIMIT))
    model(**data, return_loss=True).loss.backward()
    optimizer.step()
    assert model.logit_scale < LIMIT - 1e-5


def test_below_its_limit_a_scale_is_its_exponential_with_its_gradient():
    scale = torch.tensor(2.5, requires_grad=True)
    limited_scale(scale, LIMIT).backward()
    torch.testing.assert_close(limited_scale(scale, LIMIT), scale.exp())
    torch.testing.assert_close(scale.grad, scale.exp())


def test_a_clip_whose_scale_is_above_the_limit_is_limited_with_a_warning_unless_the_limit_is_raised(
    tmp_path, caplog, monkeypatch
):
    clip = clip_model()
    with torch.no_grad():
        clip.logit_scale.fill_(4.99999)
    clip.save_pretrained(tmp_path)
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    limited = VidCLIPModel.from_clip(tmp_path, num_frames=FRAMES)
    assert "is 5.0000, above max_logit_scale 4.6052" in caplog.text
    torch.testing.assert_close(limited.logit_scale.data, torch.tensor(LIMIT))
    assert "pass max_logit_scale=5.0" in caplog.text
    caplog.clear()
    kept = VidCLIPModel.from_clip(tmp_path, num_frames=FRAMES, max_logit_scale=5.0)
    chosen = VidCLIPModel.from_clip(tmp_path, num_frames=FRAMES, logit_scale_init_value=2.0)
    assert not caplog.text
    assert kept.logit_scale == clip.logit_scale
    assert kept.config.logit_scale_init_value == clip.logit_scale.item()
    assert chosen.logit_scale == 2.0


class Part(torch.nn.Module):
    """A method of the model as a module, which is what can be exported."""

    def __init__(self, model, method):
        super().__init__()
        self.model, self.method = model, method

    def forward(self, *args):
        return getattr(self.model, self.method)(*args)


@pytest.mark.parametrize("attention", ["sdpa", pytest.param("eager", marks=pytest.mark.slow)])
def test_the_video_tower_exports_for_any_number_of_videos_and_of_frames(attention):
    model = small_vidclip(class_token_residual=True)
    model.set_attn_implementation(attention)
    sizes = {0: Dim("videos"), 1: Dim("frames", max=FRAMES)}
    example = (torch.randn(2, 3, 3, 16, 16),)
    program = export(Part(model, "get_video_features"), example, dynamic_shapes=((sizes,),)).module()
    for videos, frames in ((2, 3), (1, 4), (5, 2)):
        pixel_values = torch.randn(videos, frames, 3, 16, 16)
        torch.testing.assert_close(program(pixel_values), model.get_video_features(pixel_values))


def test_the_text_tower_exports_for_any_number_of_texts_and_of_tokens():
    model = small_vidclip()
    sizes = {0: Dim("texts"), 1: Dim("tokens", max=160)}
    example = (sentences(2, 9), torch.ones(2, 9, dtype=torch.long))
    program = export(Part(model, "get_text_features"), example, dynamic_shapes=((sizes, sizes),)).module()
    tokens, mask = sentences(5, 12), torch.ones(5, 12, dtype=torch.long)
    tokens[0, 6], mask[0, 7:] = END, 0
    torch.testing.assert_close(program(tokens, mask), model.get_text_features(tokens, mask))


@torch.no_grad()
def test_a_model_offloaded_to_disk_gives_the_same_and_refuses_what_needs_weights_in_memory(tmp_path, data):
    model = small_vidclip(class_token_residual=True)
    torch.nn.init.ones_(model.video_pooler.video_pooler.layernorm.weight)
    model.save_pretrained(tmp_path / "model")
    load = VidCLIPModel.from_pretrained
    offloaded = load(
        tmp_path / "model", device_map="auto", max_memory={"cpu": 60_000}, offload_folder=tmp_path / "disk"
    ).eval()
    assert "disk" in offloaded.hf_device_map.values()
    assert offloaded.video_pooler.token_pooler.query.is_meta
    data["negative_levels"][:] = 0  # no negative at all must not read weights of its own accord
    expected, found = model(**data, return_loss=True), offloaded(**data, return_loss=True)
    torch.testing.assert_close(found.to_tuple(), expected.to_tuple())
    features = offloaded.get_video_features(data["pixel_values"])
    torch.testing.assert_close(features, expected.video_embeds)
    larger = torch.ones(1, FRAMES, 3, 24, 24)
    with pytest.raises(ValueError, match=r"'vision_model\.embeddings' in memory"):
        offloaded.get_video_features(larger, interpolate_pos_encoding=True)
    places = dict.fromkeys((name for name, _ in model.named_children()), "disk") | {"logit_scale": "cpu"}
    del places["vision_model"]
    places |= {f"vision_model.{name}": "disk" for name, _ in model.vision_model.named_children()}
    places["vision_model.embeddings"] = "cpu"
    cured = load(tmp_path / "model", device_map=places, offload_folder=tmp_path / "disk").eval()
    torch.testing.assert_close(
        cured.get_video_features(larger, interpolate_pos_encoding=True),
        model.get_video_features(larger, interpolate_pos_encoding=True),
    )
