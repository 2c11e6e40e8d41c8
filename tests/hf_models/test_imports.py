"""What importing the package costs, and that the lazy registration is as complete as an eager one."""

import subprocess
import sys

import pytest
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
