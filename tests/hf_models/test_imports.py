"""What importing the package costs, that classes are registered, and that saved models need none of it."""

import subprocess
import sys

import pytest
import torch
from small_aim import ORDER_AND_FACTORS, small_aim
from small_encoders import languagebind
from small_moment_models import MODELS
from small_moment_models import inputs as moment_inputs
from small_moment_models import small as small_moments
from small_tfcovr import CLIPS, TOKENS, small_tfcovr
from small_vidclip import small_vidclip
from warm_python import WarmPython

import hf_models

NOTHING_HEAVY = """
import sys
import hf_models
heavy = sorted({"torch", "transformers", "peft", "torchvision", "av"} & set(sys.modules))
print(heavy)
"""
# In a process of its own, because the order of imports is what is tested: of ours, transformers and peft.
ADAPTER_FIRST = """
import hf_models.tfcovr.adapter_aim
from peft import PeftType
from transformers import AutoConfig, AutoModel, AutoModelForVideoClassification, AutoProcessor, AutoVideoProcessor

AUTO = {auto.__name__: auto for auto in (AutoModel, AutoModelForVideoClassification)}
for name, module, auto, key in hf_models.CLASSES:
    own = getattr(hf_models, name)
    if auto == "AutoConfig":
        assert type(AutoConfig.for_model(key)) is own, name
    elif auto in AUTO:
        assert AUTO[auto]._model_mapping[getattr(hf_models, key)] is own, name
        assert getattr(hf_models, key) in AUTO[auto]._model_mapping.keys(), name
    assert auto is None or own._auto_class == auto, name
assert "AIM" in PeftType.__members__
print("registered")
"""


def output_of(code: str, python: WarmPython) -> str:
    run = python.run(["-I", "-c", code], timeout=120)  # where nothing has imported transformers
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


def test_importing_the_package_imports_neither_torch_nor_transformers_nor_peft():
    run = subprocess.run([sys.executable, "-c", NOTHING_HEAVY], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout.strip()) == (0, "[]"), run.stderr


@pytest.mark.parametrize(
    "first", ["configuration_aim_adapter", pytest.param("layers_aim_adapter", marks=pytest.mark.slow)]
)
def test_a_module_of_the_adapter_can_be_the_first_import(warm_python, first):
    code = f"import hf_models.tfcovr.{first}\nfrom peft import PeftType\nprint('AIM' in PeftType.__members__)"
    assert output_of(code, warm_python) == "True"


def test_every_class_is_registered_also_where_the_adapter_is_imported_first(warm_python):
    assert output_of(ADAPTER_FIRST, warm_python) == "registered"


def test_the_table_of_classes_is_the_list_of_public_names():
    assert sorted({name for name, *_ in hf_models.CLASSES}) == sorted(hf_models.__all__)
    assert set(hf_models.__all__) <= set(dir(hf_models))


def test_an_unknown_name_is_refused_with_a_list_of_the_public_names():
    with pytest.raises(AttributeError, match="AIMModel"):
        hf_models.AimModel  # noqa: B018


SAVED_MODELS_ALONE = """
import sys, torch
sys.modules |= dict.fromkeys(("hf_models", "torchvision", "av"))  # importing them raises
from transformers import AutoModel
cases, found = torch.load("cases.pt", weights_only=True), {}
for name, (method, given) in cases.items():
    model = AutoModel.from_pretrained(name, trust_remote_code=True).eval()
    with torch.no_grad():
        value = getattr(model, method)(**given)
    found[name] = value if isinstance(value, torch.Tensor) else value.to_tuple()
torch.save(found, "found.pt")
"""


@torch.no_grad()
def test_saved_models_need_neither_this_package_nor_a_video_library(tmp_path, warm_python, pixel_values):
    clips = {"pixel_values": pixel_values}
    models = {
        "aim": (small_aim(**ORDER_AND_FACTORS), "forward", clips),
        "tfcovr": (small_tfcovr(), "get_query_features", {"pixel_values": CLIPS, "input_ids": TOKENS}),
        "vidclip": (small_vidclip(), "get_video_features", clips),
        "languagebind": (languagebind()[0].eval(), "get_video_features", clips),
    }
    models |= {name: (small_moments(name), "forward", moment_inputs()) for name in MODELS}
    expected = {}
    for name, (model, method, given) in models.items():
        model.save_pretrained(tmp_path / name)
        value = getattr(model, method)(**given)
        expected[name] = value if isinstance(value, torch.Tensor) else value.to_tuple()
    torch.save({name: case[1:] for name, case in models.items()}, tmp_path / "cases.pt")
    environment = {"HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1", "PATH": "", "OMP_NUM_THREADS": "1"}
    done = warm_python.run(["-c", SAVED_MODELS_ALONE], cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    torch.testing.assert_close(torch.load(tmp_path / "found.pt", weights_only=True), expected)
