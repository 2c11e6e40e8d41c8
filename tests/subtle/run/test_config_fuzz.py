"""Configurations that someone mangled: a configuration, or one line and exit status 2."""

import contextlib
import io
import random
from pathlib import Path

import pytest
from mutations import mangled_text
from odd_values import LONG_RUN

from subtle.options import parse_config
from subtle.train import stage1, stage2, vcmr, vidclip

SHORT_RUN = 60
CONFIGS = Path(__file__).parents[3] / "recipes" / "configs"
RECIPES = {
    "stage1.yaml": stage1.Stage1Config,
    "stage2_4xa100.yaml": stage2.Stage2Config,
    "vidclip.yaml": vidclip.VidCLIPRunConfig,
    "vcmr.yaml": vcmr.VCMRConfig,
}


def refuses_in_one_line_or_parses(config_class, arguments):
    """Whether it parses; fails on anything but a configuration or a line on stderr with exit status 2."""
    said, status, config = io.StringIO(), None, None
    try:
        with contextlib.redirect_stderr(said):
            config = parse_config(config_class, None, arguments)
    except SystemExit as stop:
        status = stop.code
    if status is None:
        assert isinstance(config, config_class)
        return True
    assert (status, len(said.getvalue().splitlines())) == (2, 1), said.getvalue()
    return False


def fuzz_files(name, times, folder, seed):
    original = (CONFIGS / name).read_text(encoding="utf-8")
    path, rng, parsed = folder / name, random.Random(seed), 0
    for _ in range(times):
        path.write_bytes(mangled_text(rng, original))
        parsed += refuses_in_one_line_or_parses(RECIPES[name], [str(path)])
    assert 0 < parsed < times


def fuzz_flags(name, times, seed):
    names = list(RECIPES[name].__dataclass_fields__)
    rng = random.Random(seed)
    for _ in range(times):
        flag = mangled_text(rng, rng.choice(names), times=rng.randrange(2)).decode("utf-8", "replace")
        value = mangled_text(rng, rng.choice(["1", "0.5", "true", "none", "text", "a b"]))
        arguments = [f"--{flag}", value.decode("utf-8", "surrogateescape")]
        if "help" not in flag and "print_config" not in flag and flag:
            refuses_in_one_line_or_parses(RECIPES[name], arguments)


@pytest.mark.parametrize("name", RECIPES)
def test_a_mangled_configuration_is_read_or_refused_in_one_line(name, tmp_path):
    fuzz_files(name, SHORT_RUN, tmp_path, seed=name)
    fuzz_flags(name, SHORT_RUN, seed=name)


@pytest.mark.hostile
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", RECIPES)
def test_many_mangled_configurations_are_read_or_refused_in_one_line(name, tmp_path, record_property):
    record_property("inputs", 2 * (LONG_RUN // 8))
    fuzz_files(name, LONG_RUN // 8, tmp_path, seed=f"{name} long")
    fuzz_flags(name, LONG_RUN // 8, seed=f"{name} long")


@pytest.mark.parametrize(
    "value",
    ["[" * 1200, "9" * 5000, f"charades{'9' * 5000}"],
    ids=["brackets", "a long number", "a name that no file system takes"],
)
def test_inputs_that_once_ended_in_a_traceback_are_one_line(value, tmp_path):
    path = tmp_path / "vcmr.yaml"
    path.write_text(f"dataset: {value}\n", encoding="utf-8")
    assert not refuses_in_one_line_or_parses(vcmr.VCMRConfig, [str(path)])
