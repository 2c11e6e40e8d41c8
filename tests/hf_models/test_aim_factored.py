"""AIM that reads the order of its frames with a GRU and whose labels share factors, natively and as an adapter."""

import copy
import json

import pytest
import torch
from peft import get_peft_model
from small_aim import FACTORS, FRAMES, ORDER_AND_FACTORS, small_aim

from hf_models import AIMAdapterConfig, AIMForVideoClassification, AIMModel
from hf_models.tfcovr.merging_aim import to_adapter, to_aim

# PEFT asks transformers for a property that transformers renamed.
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")


def test_a_gru_reads_the_order_of_frames_without_a_temporal_embedding(clip, pixel_values, tmp_path):
    clip.save_pretrained(tmp_path)
    new = AIMModel.from_clip(tmp_path, num_frames=FRAMES, temporal_pooling="gru")
    backwards = pixel_values.flip(1)
    assert (new(pixel_values).pooler_output - new(backwards).pooler_output).abs().max() > 1e-4
    torch.testing.assert_close(new(pixel_values).last_hidden_state, new(backwards).last_hidden_state.flip(1))
    assert new(pixel_values[:, [0] * 7], interpolate_temporal=True).pooler_output.shape == (2, 32)


def test_a_gru_adds_to_the_mean_what_it_makes_of_the_frames_one_by_one(pixel_values):
    model = small_aim(temporal_pooling="gru")
    output, pooling = model(pixel_values), model.pooling
    cells = {way: torch.nn.GRUCell(32, 32) for way in ("", "_reverse")}
    states = []
    for way, cell in cells.items():
        cell.load_state_dict({name: getattr(pooling.gru, f"{name}_l0{way}") for name in cell.state_dict()})
        state, found = torch.zeros(2, 32), []
        for time in range(FRAMES)[:: -1 if way else 1]:
            state = cell(output.last_hidden_state[:, time], state)
            found.append(state)
        states.append(torch.stack(found).mean(0))
    mean = output.last_hidden_state.mean(1)
    torch.testing.assert_close(output.pooler_output, mean + pooling.projection(torch.cat([*states, mean], 1)))


@pytest.mark.parametrize("mixed", [False, True])
def test_a_gru_and_factors_run_in_half_precision(pixel_values, mixed):
    model = small_aim(AIMForVideoClassification, **ORDER_AND_FACTORS)
    expected = model(pixel_values).logits
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=mixed):
        found = model(pixel_values) if mixed else model.bfloat16()(pixel_values.bfloat16())
    assert mixed or found.logits.dtype == torch.bfloat16
    torch.testing.assert_close(found.logits.float(), expected, atol=0.1, rtol=0.1)


def test_labels_of_a_head_with_factors_share_what_they_have_in_common(pixel_values):
    model = small_aim(AIMForVideoClassification, **ORDER_AND_FACTORS)
    logits, linear = model(pixel_values).logits, model.classifier.linear
    pooled = model.aim(pixel_values).pooler_output
    assert linear.out_features == 4
    assert linear.weight.std() < 0.02  # small at first
    leap, turn = ((pooled @ linear.weight[place] + linear.bias[place]) for place in (0, 1))
    torch.testing.assert_close(logits[:, :3], torch.stack([leap, turn, leap + turn], 1))
    model.train().freeze_backbone()
    model(pixel_values, labels=torch.tensor([2, 0])).loss.backward()
    with_gradient = {name for name, one in model.named_parameters() if one.grad is not None}
    assert {"classifier.linear.weight", "aim.pooling.gru.weight_hh_l0", "aim.pooling.projection.bias"} <= with_gradient
    assert with_gradient == {name for name, one in model.named_parameters() if one.requires_grad}


def test_a_folder_from_before_these_options_is_a_mean_and_a_plain_head(tmp_path, pixel_values):
    model = small_aim(AIMForVideoClassification)
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for name in ("temporal_pooling", "label_factors"):
        config.pop(name, None)
    (tmp_path / "config.json").write_text(json.dumps(config))
    loaded, info = AIMForVideoClassification.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values())
    assert {name for name in loaded.state_dict() if "classifier" in name} == {"classifier.weight", "classifier.bias"}
    torch.testing.assert_close(loaded(pixel_values).logits, model(pixel_values).logits)
    output = loaded.aim(pixel_values)
    torch.testing.assert_close(output.pooler_output, output.last_hidden_state.mean(1))


def test_the_encoder_of_a_classifier_with_factors_becomes_an_adapter_without_a_head(clip, pixel_values):
    config = AIMAdapterConfig(num_frames=FRAMES, num_labels=5, **ORDER_AND_FACTORS)
    native = to_aim(get_peft_model(copy.deepcopy(clip), config))
    model = to_adapter(native.aim, clip).eval()
    assert (model.peft_config["default"].num_labels, model.peft_config["default"].label_factors) == (0, None)
    torch.testing.assert_close(model(pixel_values).pooler_output, native.aim(pixel_values).pooler_output)


def test_factors_without_labels_are_refused_with_the_cure():
    with pytest.raises(ValueError, match="name these in id2label, or leave them out"):
        AIMAdapterConfig(num_frames=FRAMES, label_factors=FACTORS)
    with pytest.raises(Exception, match="those of 5 labels, but there are 4"):
        AIMAdapterConfig(num_frames=FRAMES, num_labels=4, label_factors=FACTORS)


def test_a_model_with_factors_goes_on_with_other_labels_without_them(tmp_path, pixel_values):
    small_aim(AIMForVideoClassification, **ORDER_AND_FACTORS).save_pretrained(tmp_path)
    options = {"num_labels": 3, "ignore_mismatched_sizes": True}
    with pytest.raises(Exception, match="those of 5 labels, but there are 3; give each label its own, or None"):
        AIMForVideoClassification.from_pretrained(tmp_path, **options)
    for factors in (None, [["leap"], ["leap", "turn"], ["a"]]):
        model = AIMForVideoClassification.from_pretrained(tmp_path, **options, label_factors=factors)
        assert model.config.label_factors == factors
        assert model(pixel_values).logits.shape == (2, 3)
