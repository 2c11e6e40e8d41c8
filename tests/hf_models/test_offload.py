"""Models whose weights lie on disk and come into memory for one module at a time compute what they do otherwise."""

import copy

import pytest
import torch
from peft import get_peft_model
from small_aim import LAYERS, TOWER, clip_tower
from transformers import BertConfig, CLIPVisionModel

from hf_models import (
    AIMAdapterConfig,
    AIMConfig,
    AIMForVideoClassification,
    AIMModel,
    FactoredCoVRConfig,
    FactoredCoVRForComposedRetrieval,
    TFCoVRConfig,
    TFCoVRForComposedRetrieval,
)
from hf_models.tfcovr.merging_aim import to_aim

AIM = AIMConfig(num_frames=4, num_labels=5, num_temporal_adapters=2, **TOWER)
CLIPS = torch.randn(2, 4, 3, 16, 16, generator=torch.Generator().manual_seed(0))
TOKENS = torch.tensor([[1, 5, 6, 2], [1, 7, 2, 0]])
LITTLE = {"device_map": "auto", "max_memory": {"cpu": 100_000}}  # bytes, of 300,000 and more that they need
NONE = {"device_map": {"": "disk"}}


def composed(fusion="mlp"):
    text = BertConfig(vocab_size=20, **LAYERS)
    sizes = {"fusion_hidden_dim": 16, "fusion_projection_dim": 16}
    options = {"standardize_video": True, "learnable_temperature": True}
    config = TFCoVRConfig(vision_config=AIM, text_config=text, fusion=fusion, **sizes, **options)
    return TFCoVRForComposedRetrieval(config)


def factored():
    """With a gru in its encoder, whose weights PyTorch also keeps in a list."""
    vision = AIMConfig(num_frames=4, temporal_pooling="gru", **TOWER)
    labels = {"num_labels": 3, "label_factors": [["leap"], ["turn"], ["leap", "turn"]]}
    text = BertConfig(vocab_size=20, **LAYERS)
    config = FactoredCoVRConfig(vision_config=vision, text_config=text, fusion_hidden_dim=16, **labels)
    return FactoredCoVRForComposedRetrieval(config)


def saved(model, folder):
    """The model with weights of which none is zero, and saved."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3, generator=generator)
    model.eval().save_pretrained(folder)
    return model


CASES = {
    "encoder": (lambda: AIMModel(AIM), lambda model: model(CLIPS).pooler_output),
    "classifier": (lambda: AIMForVideoClassification(AIM), lambda model: model(CLIPS).logits),
    "comparison": (composed, lambda model: model(CLIPS, TOKENS, None, CLIPS).logits_per_query),
    "query": (lambda: composed("gated"), lambda model: model.get_query_features(CLIPS, TOKENS)),
    "target": (composed, lambda model: model.get_target_features(CLIPS)),
    "factored": (factored, lambda model: model(CLIPS, TOKENS, None, CLIPS).logits_per_query),
}


@pytest.mark.parametrize("memory", [pytest.param(LITTLE, marks=pytest.mark.slow), NONE], ids=["little", "none"])
@pytest.mark.parametrize("case", CASES)
def test_a_model_on_disk_computes_what_it_does_in_memory(tmp_path, case, memory):
    make, call = CASES[case]
    model = saved(make(), tmp_path)
    offloaded = type(model).from_pretrained(tmp_path, offload_folder=tmp_path / "offload", **memory)
    assert "disk" in offloaded.hf_device_map.values()
    torch.testing.assert_close(call(offloaded), call(model), atol=1e-5, rtol=1e-5)


def test_statistics_offloaded_to_disk_are_refused(tmp_path):
    saved(composed(), tmp_path)
    offload = {"offload_folder": tmp_path / "offload", "offload_buffers": True, **NONE}
    model = TFCoVRForComposedRetrieval.from_pretrained(tmp_path, **offload)
    with pytest.raises(ValueError, match="offload_buffers=False"):
        model.get_target_features(CLIPS)


def test_an_adapter_on_an_offloaded_clip_is_refused_with_an_alternative(tmp_path):
    clip = saved(clip_tower(), tmp_path / "clip")
    offload = {"offload_folder": tmp_path / "offload", **NONE}
    offloaded = CLIPVisionModel.from_pretrained(tmp_path / "clip", **offload)
    with pytest.raises(ValueError, match="to_aim"):
        get_peft_model(offloaded, AIMAdapterConfig(num_frames=4))
    adapted = get_peft_model(copy.deepcopy(clip), AIMAdapterConfig(num_frames=4)).eval()
    to_aim(adapted).save_pretrained(tmp_path / "aim")
    way_out = AIMModel.from_pretrained(tmp_path / "aim", **offload)
    torch.testing.assert_close(way_out(CLIPS).pooler_output, adapted(CLIPS).pooler_output, atol=1e-5, rtol=1e-5)
