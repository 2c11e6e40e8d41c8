"""AIM's adapter in PEFT's common suite; `test_peers.py` runs this file among its tests."""

import inspect
import sys
from types import ModuleType, SimpleNamespace
from unittest import mock

import pytest
import torch
from transformers import CLIPVisionConfig, CLIPVisionModel
from transformers.models.clip.modeling_clip import CLIPVisionEmbeddings

from hf_models import AIMAdapterConfig

sys.modules.setdefault("diffusers", ModuleType("diffusers")).StableDiffusionPipeline = type("No", (), {})

from . import testing_common  # noqa: E402
from .testing_common import PeftCommonTester  # noqa: E402

NOT_FOR_US = ("generate", "prompt_learning", "input_embeds", "adapters_lora", "adapters_ia3")
OPTIONS = {"dtype": torch.float32, "use_reentrant": True}
NAMES = sorted(
    name.removeprefix("_test_")
    for name in dir(PeftCommonTester)
    if name.startswith("_test_") and not any(word in name for word in NOT_FOR_US)
)


def frame_by_frame(embed):
    """Let the tower without adapter see the frames of a clip as images, so that both take one input."""

    def forward(self, pixel_values, **options):
        return embed(self, pixel_values.flatten(0, -4), **options)

    return forward


def trained(get_peft_model):
    """Adapters that do something, as others have with `init_weights=False`: ours start at zero."""

    def get(*args, **options):
        model = get_peft_model(*args, **options)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.requires_grad and not parameter.is_meta:
                    parameter.normal_(std=0.2)
        return model

    return get


@pytest.fixture(scope="module")
def tower(tmp_path_factory):
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 37, "num_hidden_layers": 2, "num_attention_heads": 4}
    folder = tmp_path_factory.mktemp("tower")
    CLIPVisionModel(CLIPVisionConfig(**sizes, image_size=16, patch_size=8)).save_pretrained(folder)
    return str(folder)


class ClipTower(CLIPVisionModel):
    """A tower that gives one vector for each clip, with and without adapter."""

    def __call__(self, pixel_values, **options):
        pooled = super().__call__(pixel_values=pixel_values, **options).pooler_output
        return pooled.reshape(len(pixel_values), -1, pooled.shape[-1]).mean(1)

    def generate(self, pixel_values, **_):
        """What the suite calls to see the output of a model that disables its adapters."""
        return SimpleNamespace(scores=(self(pixel_values),))


class Clips(dict):
    """Inputs of which the suite may also take tokens to embed: the frames."""

    def __missing__(self, _):
        return self["pixel_values"].flatten(0, 1)


class TestAIMAdapter(PeftCommonTester):
    transformers_class = ClipTower

    def prepare_inputs_for_testing(self):
        generator = torch.Generator().manual_seed(0)
        return Clips(pixel_values=torch.randn(2, 4, 3, 16, 16, generator=generator))

    @pytest.mark.parametrize("name", NAMES)
    def test(self, name, tower):
        torch.manual_seed(0)
        method = getattr(self, f"_test_{name}")
        given = {key: OPTIONS[key] for key in inspect.signature(method).parameters if key in OPTIONS}
        with (
            mock.patch.object(testing_common, "get_peft_model", trained(testing_common.get_peft_model)),
            mock.patch.object(CLIPVisionEmbeddings, "forward", frame_by_frame(CLIPVisionEmbeddings.forward)),
        ):
            method(tower, AIMAdapterConfig, {"num_frames": 4, "drop_path_rate": 0.0}, **given)
