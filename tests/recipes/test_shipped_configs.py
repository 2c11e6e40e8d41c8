"""Every configuration file that ships can be read by the recipe or launcher that it is for."""

from pathlib import Path

import pytest
from ablate import STAGES, AblateConfig, planned
from accelerate.commands.config.config_args import load_config_from_file
from embed import EmbedConfig
from evaluate_tfcovr import EvaluateConfig
from finetune_baseline import FinetuneConfig
from stage2 import Stage2Config
from zero_shot import ZeroShotConfig

from baselines.variations import read_variations
from harness.config import parse_config

RECIPES = Path(__file__).parents[2] / "recipes"
CONFIGS = {
    "ablate": AblateConfig,
    "embed": EmbedConfig,
    "stage2": Stage2Config,
    "evaluate_tfcovr": EvaluateConfig,
    "zero_shot": ZeroShotConfig,
    "finetune_baseline": FinetuneConfig,
}
ON_REAL_DATA = ("gpu", "a100", "_table", "paper")
FILES = [(path, kind) for name, kind in CONFIGS.items() for path in sorted((RECIPES / "configs").glob(f"{name}*.yaml"))]


@pytest.mark.parametrize(("path", "kind"), FILES, ids=lambda value: getattr(value, "stem", ""))
def test_a_configuration_file_is_read(path, kind):
    config = parse_config(kind, None, [str(path)])
    assert ("release" in config.dataset_config) == any(part in path.stem for part in ON_REAL_DATA)


@pytest.mark.parametrize("path", sorted((RECIPES / "configs").glob("ablate*.yaml")), ids=lambda path: path.stem)
def test_the_variations_of_a_configuration_file_are_options(path):
    config = parse_config(AblateConfig, None, [str(path)])
    variations = read_variations(config.variations, STAGES)
    planned(config, variations)


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_the_file_of_the_miniature_has_the_defaults_of_the_recipe(name):
    assert parse_config(CONFIGS[name], None, [str(RECIPES / "configs" / f"{name}.yaml")]) == CONFIGS[name]()


@pytest.mark.parametrize("path", sorted((RECIPES / "accelerate").glob("*.yaml")), ids=lambda path: path.stem)
def test_a_launch_file_is_read(path):
    config = load_config_from_file(str(path))
    expected = {"one_gpu": 1, "4xa100": 4, "8xa100": 8, "8xa100_fsdp2": 8}
    assert config.num_processes == expected[path.stem]
    assert not config.use_cpu
