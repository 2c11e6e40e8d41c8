"""AIM against the reference implementation, CLIP itself, and the properties that its paper implies."""

import shutil

import pytest
import torch
from loads_equal import assert_loads_equal
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from small_aim import FRAMES, ORDER_AND_FACTORS, TOWER, randomize, small_aim
from torch.nn import functional as F
from torchvision.ops import StochasticDepth
from transformers import (
    AutoModel,
    AutoModelForVideoClassification,
    CLIPConfig,
    CLIPModel,
    CLIPTextConfig,
    CLIPTextModel,
    CLIPVisionConfig,
    CLIPVisionModel,
)

from hf_models import AIMConfig, AIMForVideoClassification, AIMModel
from hf_models.tfcovr import layers_aim
from hf_models.tfcovr.layers_aim import AIMDropPath

TEXT = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 50}


@pytest.fixture
def clip_folder(clip, tmp_path):
    clip.save_pretrained(tmp_path / "clip")
    return tmp_path / "clip"


@pytest.mark.parametrize("whole", [True, False], ids=["clip-with-text", "vision-tower-alone"])
@pytest.mark.parametrize("num_temporal_adapters", [1, 2])
def test_a_new_aim_computes_what_clip_does_frame_by_frame(tmp_path, pixel_values, whole, num_temporal_adapters):
    if whole:  # with the activation of LAION's models, not OpenAI's
        saved = CLIPModel(CLIPConfig(vision_config=TOWER | {"hidden_act": "gelu"}, text_config=TEXT)).eval()
        tower = saved.vision_model
    else:
        saved = tower = CLIPVisionModel(CLIPVisionConfig(**TOWER)).eval()
    saved.save_pretrained(tmp_path)
    aim = AIMModel.from_clip(tmp_path, num_frames=FRAMES, num_temporal_adapters=num_temporal_adapters)
    output = aim(pixel_values)
    per_frame = tower(pixel_values.flatten(0, 1)).pooler_output.unflatten(0, (2, FRAMES))
    torch.testing.assert_close(output.last_hidden_state, per_frame)
    torch.testing.assert_close(output.pooler_output, per_frame.mean(1))


def test_the_tower_is_found_under_either_prefix(clip, clip_folder, pixel_values):
    weights = clip_folder / "model.safetensors"
    bare = {key.removeprefix("vision_model."): value for key, value in load_file(weights).items()}
    outputs = []
    for prefix in ("", "vision_model."):
        save_file({prefix + key: value for key, value in bare.items()}, weights, metadata={"format": "pt"})
        outputs.append(AIMModel.from_clip(clip_folder, num_frames=FRAMES)(pixel_values).pooler_output)
    torch.testing.assert_close(*outputs)
    assert bare.keys() == clip.state_dict().keys()


def test_a_backbone_that_does_not_load_is_an_error(clip_folder):
    weights = load_file(clip_folder / "model.safetensors")
    kept = {key: value for key, value in weights.items() if "layers.1.mlp" not in key}
    save_file(kept, clip_folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"did not load.*4 weights.*encoder\.layers\.1\.mlp"):
        AIMModel.from_clip(clip_folder, num_frames=FRAMES)


@pytest.mark.parametrize("case", ["text", "another folder", "missing", "no weights"])
def test_a_checkpoint_without_a_clip_vision_tower_is_refused(tmp_path, clip_folder, case):
    folder = tmp_path / case
    if case == "text":
        CLIPTextModel(CLIPTextConfig(**TEXT)).save_pretrained(folder)
    elif case == "another folder":
        folder.mkdir()
        (folder / "notes.txt").write_text("nothing here")
    elif case == "no weights":
        shutil.copytree(clip_folder, folder)
        (folder / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"built on a 'clip'|read as a CLIP checkpoint"):
        AIMModel.from_clip(str(folder), num_frames=FRAMES)


def test_the_order_of_frames_matters_only_with_a_temporal_embedding_that_is_not_zero(clip_folder, pixel_values):
    order = torch.tensor([2, 0, 3, 1])

    def change(model):
        return (model(pixel_values).pooler_output - model(pixel_values[:, order]).pooler_output).abs().max()

    new = AIMModel.from_clip(clip_folder, num_frames=FRAMES)
    assert change(new) < 1e-5
    assert change(randomize(new, time=False)) < 1e-5
    assert change(randomize(new)) > 1e-2


def test_adapters_and_temporal_embedding_start_at_zero_whether_new_or_from_clip(clip_folder):
    for model in (AIMModel(AIMConfig(**TOWER)), AIMModel.from_clip(clip_folder, num_temporal_adapters=2)):
        zeros = [value for name, value in model.named_parameters() if ".up." in name or "temporal_embedding" in name]
        assert len(zeros) == 1 + 3 * 2 * (2 + model.config.num_temporal_adapters)
        assert not any(value.any() for value in zeros)
        assert all(value.std() > 0 for name, value in model.named_parameters() if "down.weight" in name)


@pytest.mark.parametrize(("adapters", "total", "trained"), [(1, 96_695_346, 10_897_458), (2, 100_245_810, 14_447_922)])
def test_vit_b_16_has_the_parameters_of_the_paper(adapters, total, trained):
    with torch.device("meta"):
        model = AIMForVideoClassification(AIMConfig(num_frames=12, num_labels=306, num_temporal_adapters=adapters))
    model.freeze_backbone()
    assert model.num_parameters() == total
    assert model.num_parameters(only_trainable=True) == trained


def test_only_trainable_weights_get_gradients(pixel_values):
    model = small_aim(AIMForVideoClassification).train()
    model.freeze_backbone()
    model(pixel_values, labels=torch.tensor([0, 4])).loss.backward()
    for name, parameter in model.named_parameters():
        assert (parameter.grad is not None and bool(parameter.grad.any())) == parameter.requires_grad, name


def test_paths_are_dropped_as_torchvision_does():
    change, results = torch.randn(8, 3, 5), []
    for module in (AIMDropPath(0.4), StochasticDepth(0.4, "row")):
        torch.manual_seed(0)
        results.append(module(change))
        assert module.eval()(change) is change
    torch.testing.assert_close(*results)
    assert 0 < (results[0] == 0).sum() < change.numel()


def test_eager_attention_and_sdpa_agree(pixel_values):
    model = small_aim()
    assert model.config._attn_implementation == "sdpa"
    expected = model(pixel_values).pooler_output
    model.set_attn_implementation("eager")
    torch.testing.assert_close(model(pixel_values).pooler_output, expected, atol=1e-5, rtol=1e-5)


def test_hidden_states_and_attention_maps_are_whole_and_change_nothing(pixel_values):
    model = small_aim()
    plain = model(pixel_values)
    full = model(pixel_values, output_hidden_states=True, output_attentions=True)
    torch.testing.assert_close(full.pooler_output, plain.pooler_output, atol=1e-5, rtol=1e-5)
    assert [tuple(states.shape) for states in full.hidden_states] == [(2, FRAMES, 5, 32)] * 4
    assert [tuple(maps.shape) for maps in full.attentions] == [(2 * FRAMES, 4, 5, 5)] * 3
    assert [tuple(maps.shape) for maps in full.temporal_attentions] == [(2 * 5, 4, FRAMES, FRAMES)] * 3
    torch.testing.assert_close(full.attentions[0].sum(-1), torch.ones(2 * FRAMES, 4, 5))
    torch.testing.assert_close(model.post_layernorm(full.hidden_states[-1][:, :, 0]), full.last_hidden_state)


def test_hidden_states_of_chosen_blocks_leave_none_in_the_places_of_the_others(pixel_values):
    model = small_aim(AIMForVideoClassification)
    full = model(pixel_values, output_hidden_states=True).hidden_states
    chosen = model(pixel_values, output_hidden_states=[1, -1]).hidden_states
    assert [states is None for states in chosen] == [True, False, True, False]
    torch.testing.assert_close(chosen[1], full[1])
    torch.testing.assert_close(chosen[3], full[3])


def test_one_compiled_graph_gives_the_same(pixel_values):
    model = small_aim(AIMForVideoClassification)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(pixel_values).logits, model(pixel_values).logits)


def test_checkpointing_gives_the_same_gradients(pixel_values):
    gradients = []
    for checkpointing in (False, True):
        model = small_aim(AIMForVideoClassification, drop_path_rate=0.0, classifier_dropout=0.0).train()
        model.freeze_backbone()
        if checkpointing:
            model.activation_checkpointing_enable()
        model(pixel_values, labels=torch.tensor([0, 4])).loss.backward()
        gradients.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("with_maps", [False, True])
def test_attention_over_more_sequences_than_a_cuda_grid_has_rows_is_done_in_parts(pixel_values, monkeypatch, with_maps):
    """2 clips of 4 frames and 5 tokens: 10 sequences over time and 8 over space, at most 3 of which go together."""
    results, sizes = [], []
    attention = F.scaled_dot_product_attention

    def counted(query, *rest, **options):
        sizes.append(len(query))
        return attention(query, *rest, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", counted)
    for most in (65_535, 3):
        monkeypatch.setattr(layers_aim, "MOST_SEQUENCES", most)
        model = small_aim()
        output = model(pixel_values, output_attentions=with_maps)
        output.pooler_output.square().sum().backward()
        maps = (output.attentions, output.temporal_attentions)
        results.append([output.pooler_output, *maps, {name: one.grad for name, one in model.named_parameters()}])
    assert set(sizes) == (set() if with_maps else {8, 10, 3, 2, 1})
    torch.testing.assert_close(*results)


def test_the_residual_stream_stays_float32_under_autocast(pixel_values):
    model = small_aim()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = model(pixel_values, output_hidden_states=True)
    assert {states.dtype for states in output.hidden_states} == {torch.float32}
    torch.testing.assert_close(output.pooler_output, model(pixel_values).pooler_output, atol=0.1, rtol=0.1)


def test_a_low_rank_adapter_on_the_output_projection_is_applied(pixel_values):
    base = small_aim()
    before = base(pixel_values).pooler_output
    model = get_peft_model(base, LoraConfig(target_modules=["out_proj"], init_lora_weights=False)).eval()
    assert (model(pixel_values).pooler_output - before).abs().max() > 1e-3
    after = model(pixel_values).pooler_output
    torch.testing.assert_close(model.merge_and_unload()(pixel_values).pooler_output, after, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("clips", "message"),
    [
        (torch.zeros(2, 3, FRAMES, 16, 16), "must be .batch, frames, 3 channels"),
        (torch.zeros(FRAMES, 3, 16, 16), "must be .batch, frames, 3 channels"),
        (torch.zeros(2, FRAMES + 1, 3, 16, 16), "5 frames, the model 4"),
        (torch.zeros(2, FRAMES, 3, 24, 24), "doesn't match model"),
        (torch.zeros(1, FRAMES, 3, 16, 16, dtype=torch.uint8), "AIMVideoProcessor"),
    ],
    ids=["channels first", "one clip", "frames", "size", "raw frames"],
)
def test_clips_of_another_shape_and_raw_frames_are_refused(clips, message):
    with pytest.raises(ValueError, match=message):
        small_aim()(clips)


def test_another_number_of_frames_is_interpolated_on_request(tmp_path):
    model = small_aim()
    longer = torch.randn(1, 7, 3, 16, 16)
    once = model(longer, interpolate_temporal=True).pooler_output
    assert model.config.num_frames == FRAMES
    model.resize_temporal_embedding(7)
    torch.testing.assert_close(model(longer).pooler_output, once)
    model.save_pretrained(tmp_path)
    torch.testing.assert_close(AIMModel.from_pretrained(tmp_path)(longer).pooler_output, once)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"num_temporal_adapters": 3}, {"num_frames": 0}, {"adapter_ratio": 0.0}, {"drop_path_rate": 1.0}),
        *({"temporal_pooling": "max"}, {"label_factors": [["leap"]]}, {"label_factors": [["leap"], []]}),
        {"num_frames": "eight"},
    ],
    ids=str,
)
def test_a_contradictory_configuration_is_refused(wrong):
    with pytest.raises(Exception, match=next(iter(wrong))):
        AIMConfig(**wrong)


@pytest.mark.parametrize("changes", [{}, ORDER_AND_FACTORS], ids=["plain", "gru-and-factors"])
@pytest.mark.parametrize("cls", [AIMModel, AIMForVideoClassification])
def test_a_saved_model_loads_equal_through_every_class(tmp_path, pixel_values, cls, changes):
    auto = AutoModel if cls is AIMModel else AutoModelForVideoClassification
    model = small_aim(cls, num_temporal_adapters=2, **changes)
    assert_loads_equal(model, tmp_path, lambda model: model(pixel_values)[0], auto)


def test_the_encoder_of_a_saved_classifier_loads_alone(tmp_path, pixel_values):
    model = small_aim(AIMForVideoClassification)
    model.save_pretrained(tmp_path)
    encoder, info = AIMModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"]
    torch.testing.assert_close(encoder(pixel_values).pooler_output, model.aim(pixel_values).pooler_output)


class Quantized(torch.Tensor):
    """What torchao puts in a layer's weight: a tensor that can be applied by `F.linear`, and not multiplied."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if "matmul" in function.__name__:
            raise NotImplementedError("a product of quantized weights")
        result = super().__torch_function__(function, types, args, kwargs or {})
        return result.as_subclass(torch.Tensor) if function is torch.nn.functional.linear else result


def test_a_model_with_quantized_weights_runs(pixel_values):
    torch.manual_seed(0)
    model = AIMForVideoClassification(AIMConfig(num_frames=FRAMES, **TOWER)).eval()
    with torch.no_grad():
        expected = model(pixel_values).logits
        for layer in model.modules():
            if type(layer) is torch.nn.Linear:
                layer.weight = torch.nn.Parameter(layer.weight.as_subclass(Quantized))
        torch.testing.assert_close(model(pixel_values).logits, expected)
