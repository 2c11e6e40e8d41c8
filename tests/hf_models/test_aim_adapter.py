"""AIM's adapters through PEFT: the same function as the native model, in small files that find their base again."""

import copy
import json
import warnings
from pathlib import Path

import pytest
import torch
from peft import PeftConfig, PeftModel, PeftType, get_peft_model
from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING, PEFT_TYPE_TO_TUNER_MAPPING
from safetensors import safe_open
from small_aim import FACTORS, FRAMES, ORDER_AND_FACTORS, TOWER, clip_tower
from transformers import CLIPConfig, CLIPModel, CLIPTextModel, CLIPVisionConfig, CLIPVisionModel

from hf_models import AIMAdapterConfig, AIMConfig, AIMForVideoClassification, AIMModel
from hf_models.tfcovr.adapter_aim import AIMTuner, fingerprint_base
from hf_models.tfcovr.merging_aim import to_adapter, to_aim
from hf_models.tfcovr.modeling_aim import CLIPVisionTower, load_clip_vision

# PEFT asks transformers for a property that transformers renamed.
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")


def adapted(clip, seed=1, **changes):
    """A copy of CLIP with an adapter that was trained, that is, whose weights are not zero."""
    model = get_peft_model(copy.deepcopy(clip), AIMAdapterConfig(**{"num_frames": FRAMES, "num_labels": 5, **changes}))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.normal_(std=0.3, generator=generator)
    return model.eval()


def assert_same(first, second, pixel_values):
    torch.testing.assert_close(first(pixel_values).logits, second(pixel_values).logits)


def test_peft_still_accepts_a_method_registered_from_outside():
    assert isinstance(PeftType.AIM, PeftType), "PEFT's enumeration changed: see add_peft_type"
    assert PeftType("AIM") is PeftType.AIM is PeftType["AIM"]
    assert PeftType.AIM in list(PeftType)
    assert PeftType.AIM.value == "AIM"
    assert PEFT_TYPE_TO_CONFIG_MAPPING["AIM"] is AIMAdapterConfig
    assert PEFT_TYPE_TO_TUNER_MAPPING[PeftType.AIM] is AIMTuner


@pytest.mark.parametrize("hook", ["_prepare_model", "_replace_module", "_cast_adapter_dtype", "_check_merge_allowed"])
def test_the_hooks_that_we_override_are_still_there(hook):
    assert hasattr(super(AIMTuner, AIMTuner), hook), f"PEFT no longer calls {hook}"


def test_a_new_adapter_changes_nothing(clip, pixel_values):
    model = get_peft_model(copy.deepcopy(clip), AIMAdapterConfig(num_frames=FRAMES)).eval()
    output = model(pixel_values)
    per_frame = clip(pixel_values.flatten(0, 1)).pooler_output.unflatten(0, (2, FRAMES))
    torch.testing.assert_close(output.last_hidden_state, per_frame)
    torch.testing.assert_close(output.pooler_output, per_frame.mean(1))


@pytest.mark.parametrize("temporal_pooling", ["mean", "gru"])
@pytest.mark.parametrize("label_factors", [None, FACTORS], ids=["plain", "factored"])
@pytest.mark.parametrize("num_temporal_adapters", [1, 2])
@pytest.mark.parametrize("num_labels", [0, 5])
def test_both_forms_compute_the_same_from_the_same_weights(
    clip, pixel_values, num_temporal_adapters, num_labels, label_factors, temporal_pooling
):
    label_factors = label_factors if num_labels else None
    changes = {"temporal_pooling": temporal_pooling, "label_factors": label_factors}
    model = adapted(clip, num_temporal_adapters=num_temporal_adapters, num_labels=num_labels, **changes)
    output = model(pixel_values)
    native = to_aim(model)
    assert type(native) is (AIMForVideoClassification if num_labels else AIMModel)
    encoder = native.aim if num_labels else native
    torch.testing.assert_close(encoder(pixel_values).last_hidden_state, output.last_hidden_state)
    torch.testing.assert_close(encoder(pixel_values).pooler_output, output.pooler_output)
    if num_labels:
        torch.testing.assert_close(native(pixel_values).logits, output.logits)
    assert (native.config.temporal_pooling, native.config.label_factors) == (temporal_pooling, label_factors)
    back = to_adapter(native, copy.deepcopy(clip)).eval()
    made = back.peft_config["default"]
    assert {name: getattr(made, name) for name in changes} == changes
    torch.testing.assert_close(back(pixel_values).pooler_output, output.pooler_output)
    if num_labels:
        torch.testing.assert_close(back(pixel_values).logits, output.logits)


@pytest.mark.parametrize("changes", [{}, ORDER_AND_FACTORS], ids=["plain", "gru-and-factors"])
def test_both_forms_learn_the_same(clip, pixel_values, changes):
    """One step of training from the same weights: equal losses, gradients and therefore weights."""
    labels = torch.tensor([0, 4])
    adapter = adapted(clip, drop_path_rate=0.0, classifier_dropout=0.0, **changes)
    native = to_aim(adapter).train()
    native.freeze_backbone()
    adapter.train()
    losses = [native(pixel_values, labels=labels).loss, adapter(pixel_values, labels=labels).loss]
    torch.testing.assert_close(*losses)
    for model, loss in zip((native, adapter), losses, strict=True):
        loss.backward()
        torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1).step()
    torch.testing.assert_close(native.eval()(pixel_values).logits, adapter.eval()(pixel_values).logits)


def test_vit_b_16_trains_the_parameters_of_the_paper():
    with torch.device("meta"):
        tower = CLIPVisionModel(CLIPVisionConfig(patch_size=16))
        model = get_peft_model(tower, AIMAdapterConfig(num_frames=12, num_labels=306))
    assert model.get_nb_trainable_parameters()[0] == 10_897_458


@pytest.mark.parametrize("changes", [{}, {"temporal_pooling": "gru"}, {"label_factors": FACTORS}], ids=str)
def test_the_checkpoint_is_one_small_file_that_loads_under_another_name(clip, pixel_values, tmp_path, changes):
    model = adapted(clip, **changes)
    model.save_pretrained(tmp_path)
    files = {path.name for path in tmp_path.iterdir()}
    assert files == {"README.md", "adapter_config.json", "adapter_model.safetensors"}
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    trained += sum(buffer.numel() for name, buffer in model.named_buffers() if "membership" in name)
    with safe_open(tmp_path / "adapter_model.safetensors", "pt") as file:
        assert sum(file.get_tensor(key).numel() for key in file.keys()) == trained  # noqa: SIM118 (not a dict)
        assert not any("default" in key for key in file.keys())  # noqa: SIM118
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # PEFT only warns of weights that it does not find
        loaded = PeftModel.from_pretrained(copy.deepcopy(clip), tmp_path, adapter_name="diving").eval()
    assert_same(loaded, model, pixel_values)
    assert isinstance(PeftConfig.from_pretrained(tmp_path), AIMAdapterConfig)


def test_load_adapter_of_transformers_loads_it_too(clip, pixel_values, tmp_path):
    model = adapted(clip)
    model.save_pretrained(tmp_path)
    loaded = copy.deepcopy(clip)
    loaded.load_adapter(str(tmp_path))
    assert_same(loaded.eval(), model, pixel_values)


def test_sports_are_switched_disabled_and_unloaded(clip, pixel_values, tmp_path):
    sports = {"diving": adapted(clip, seed=1), "vault": adapted(clip, seed=2, num_labels=7)}
    for name, model in sports.items():
        model.save_pretrained(tmp_path / name)
    model = PeftModel.from_pretrained(copy.deepcopy(clip), tmp_path / "diving", adapter_name="diving")
    model.load_adapter(tmp_path / "vault", "vault")
    model.add_adapter("beam", AIMAdapterConfig(num_frames=2))
    model.eval()
    for name in ("vault", "diving", "vault"):
        model.set_adapter(name)
        assert_same(model, sports[name], pixel_values)
    model.set_adapter("beam")
    assert model(pixel_values[:, :2]).pooler_output.shape == (2, 32)
    frames = pixel_values.flatten(0, 1)
    expected = clip(frames).pooler_output
    with model.disable_adapter():
        torch.testing.assert_close(model(frames).pooler_output, expected)
    model.set_adapter("diving")
    model.delete_adapter("beam")
    assert_same(model, sports["diving"], pixel_values)
    assert_same(to_aim(model, "vault"), sports["vault"], pixel_values)
    bare = model.unload()
    assert type(bare) is CLIPVisionModel
    assert bare.state_dict().keys() == clip.state_dict().keys()
    torch.testing.assert_close(bare(frames).pooler_output, expected)


def test_only_the_active_adapter_trains(clip):
    model = adapted(clip)
    model.add_adapter("vault", AIMAdapterConfig(num_frames=FRAMES))
    model.set_adapter("vault")
    trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    assert trained
    assert all(".vault" in name for name in trained)


def test_several_at_once_are_refused(clip):
    model = adapted(clip)
    model.add_adapter("vault", AIMAdapterConfig(num_frames=FRAMES))
    with pytest.raises(ValueError, match="one AIM adapter is active at a time"):
        model.base_model.set_adapter(["default", "vault"])


def other_norm(clip):
    clip.encoder.layers[2].layer_norm2.weight.mul_(1.001)


def one_other_value(clip):
    clip.encoder.layers[1].mlp.fc1.weight[5, 7] += 0.001


def other_matrices(clip):
    for parameter in clip.parameters():
        if parameter.ndim > 1:
            parameter.copy_(torch.randn_like(parameter) * parameter.std())
    return clip


OTHER_CLIPS = {
    "a norm": other_norm,
    "one value": one_other_value,
    "all matrices": other_matrices,
    "all matrices, in half precision": lambda clip: other_matrices(clip).bfloat16(),
    "fewer layers": lambda _: clip_tower(num_hidden_layers=2),
    "another width": lambda _: clip_tower(hidden_size=48, num_attention_heads=6),
}


@pytest.mark.parametrize("change", OTHER_CLIPS.values(), ids=OTHER_CLIPS)
@torch.no_grad()
def test_another_clip_is_refused_and_left_alone(clip, tmp_path, change):
    adapted(clip).save_pretrained(tmp_path)
    other = change(clip) or clip
    names = list(other.state_dict())
    with pytest.raises(ValueError, match="another CLIP"):
        PeftModel.from_pretrained(other, tmp_path)
    assert list(other.state_dict()) == names


def test_an_adapter_saved_before_matrices_were_sampled_loads_and_is_checked(clip, pixel_values, tmp_path):
    model = adapted(clip)
    model.save_pretrained(tmp_path)
    path = tmp_path / "adapter_config.json"
    old = json.loads(path.read_text())
    assert old.pop("base_digest")
    assert old.pop("base_matrix_sample")
    path.write_text(json.dumps(old))
    loaded = PeftModel.from_pretrained(copy.deepcopy(clip), tmp_path).eval()
    assert_same(loaded, model, pixel_values)
    clip.pre_layrnorm.bias.data += 0.1
    with pytest.raises(ValueError, match="another CLIP"):
        PeftModel.from_pretrained(clip, tmp_path)


def test_the_shipped_adapter_knows_all_weights_of_the_shipped_clip():
    weights = Path(__file__).parents[2] / "recipes" / "weights"
    tower, _ = load_clip_vision(weights / "miniature-clip")
    model = PeftModel.from_pretrained(tower, weights / "miniature-aim")
    assert model.peft_config["default"].base_digest == fingerprint_base(tower)["base_digest"] is not None


def test_a_model_without_a_vision_tower_is_refused():
    text = CLIPTextModel(CLIPConfig().text_config.__class__(hidden_size=16, num_attention_heads=2, num_hidden_layers=1))
    with pytest.raises(ValueError, match="CLIPVisionModel"):
        get_peft_model(text, AIMAdapterConfig())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_same_clip_in_half_precision_is_recognized(clip, pixel_values, tmp_path, dtype):
    model = adapted(clip)
    model.save_pretrained(tmp_path)
    half = PeftModel.from_pretrained(copy.deepcopy(clip).to(dtype), tmp_path).eval()
    logits = half(pixel_values.to(dtype)).logits
    assert logits.dtype == dtype
    torch.testing.assert_close(logits.float(), model(pixel_values).logits, atol=0.5, rtol=0.1)


def test_a_configuration_serves_for_two_bases(clip):
    config = AIMAdapterConfig(num_frames=FRAMES)
    get_peft_model(copy.deepcopy(clip), config)
    get_peft_model(CLIPVisionModel(CLIPVisionConfig(**TOWER)), config)


def test_a_whole_clip_model_can_hold_an_adapter(pixel_values):
    torch.manual_seed(0)
    text = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    clip = CLIPModel(CLIPConfig(vision_config=TOWER, text_config=text, projection_dim=8)).eval()
    model = get_peft_model(clip, AIMAdapterConfig(num_frames=FRAMES))
    assert not any("text_model" in name for name, p in model.named_parameters() if p.requires_grad)
    assert model.base_model.model.vision_model(pixel_values).pooler_output.shape == (2, 32)


def test_checkpointing_gives_the_same_gradients(clip, pixel_values):
    gradients = []
    for checkpointing in (False, True):
        model = adapted(clip, drop_path_rate=0.0, classifier_dropout=0.0).train()
        if checkpointing:
            model.base_model.model.activation_checkpointing_enable()
        model(pixel_values, labels=torch.tensor([0, 4])).loss.backward()
        gradients.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    torch.testing.assert_close(*gradients)


def test_a_training_tower_gets_training_adapters_and_the_reverse(clip):
    for tower in (copy.deepcopy(clip).eval(), copy.deepcopy(clip).train()):
        model = get_peft_model(tower, AIMAdapterConfig(num_frames=FRAMES, num_labels=3))
        assert {module.training for name, module in tower.named_modules() if name} == {tower.training}
        assert isinstance(model, PeftModel)


@pytest.mark.parametrize("what", ["output_hidden_states", "output_attentions"])
def test_hidden_states_and_attention_maps_are_refused_with_an_alternative(clip, pixel_values, what):
    model = adapted(clip)
    with pytest.raises(ValueError, match="to_aim"):
        model(pixel_values, **{what: True})
    assert len(to_aim(model)(pixel_values, output_hidden_states=True).hidden_states) == 4


def test_merging_is_refused(clip):
    with pytest.raises(ValueError, match="cannot be merged"):
        adapted(clip).merge_and_unload()


def test_images_and_clips_of_another_length_are_refused(clip, pixel_values):
    model = adapted(clip)
    with pytest.raises(ValueError, match=r"must be .batch, frames"):
        model(pixel_values[:, 0])
    with pytest.raises(ValueError, match="3 frames, the model 4"):
        model(pixel_values[:, :3])
    with pytest.raises(ValueError, match="need a head"):
        adapted(clip, num_labels=0)(pixel_values, labels=torch.tensor([0, 1]))


def test_a_model_trained_in_full_is_refused_as_an_adapter(clip):
    native = to_aim(adapted(clip))
    with torch.no_grad():
        native.aim.encoder.layers[0].mlp.fc1.weight.add_(0.1)
    with pytest.raises(ValueError, match=r"encoder\.layers\.0\.mlp\.fc1\.weight differs"):
        to_adapter(native, copy.deepcopy(clip))


def test_a_saved_configuration_tells_peft_alone_what_to_install_and_where_the_tower_is(clip, tmp_path):
    tower = CLIPVisionTower(clip.config)
    tower.load_state_dict(clip.state_dict())
    adapted(tower).save_pretrained(tmp_path)
    path = tmp_path / "adapter_config.json"
    written = json.loads(path.read_text())
    assert "pip install subtle-video" in written["peft_type"]
    assert written["auto_mapping"] == {"base_model_class": "CLIPVisionModel", "parent_library": "transformers"}
    for name in (written["peft_type"], "AIM"):  # AIM: of version 0.1
        path.write_text(json.dumps(written | {"peft_type": name}))
        config = PeftConfig.from_pretrained(tmp_path)
        assert (type(config), config.peft_type) == (AIMAdapterConfig, PeftType.AIM)
        PeftModel.from_pretrained(copy.deepcopy(clip), tmp_path)


def test_the_names_of_labels_are_saved_with_the_adapter(clip, tmp_path):
    names = {0: "tuck", 1: "pike"}
    adapted(clip, id2label=names).save_pretrained(tmp_path)
    loaded = PeftModel.from_pretrained(copy.deepcopy(clip), tmp_path)
    config = to_aim(loaded).config
    assert (config.id2label, config.label2id) == (names, {"tuck": 0, "pike": 1})
    assert isinstance(config, AIMConfig)


def test_an_unknown_adapter_is_named(clip):
    with pytest.raises(ValueError, match=r"'gone'; there are \['default'\]"):
        to_aim(adapted(clip), "gone")
    with pytest.raises(ValueError, match="no AIM adapter"):
        to_aim(clip)


def test_the_patch_embedding_is_found_under_an_adapter_and_can_be_made_to_require_gradients(clip, pixel_values):
    model = adapted(clip)
    embedding = model.get_input_embeddings()
    assert torch.equal(embedding.weight, clip.get_input_embeddings().weight)
    model.enable_input_require_grads()
    assert embedding(pixel_values[:, 0]).requires_grad
