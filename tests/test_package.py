"""What the package says of itself agrees with what is built: Python versions, the wheel's files and command, pins."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]


def test_the_python_versions_are_the_same_wherever_they_are_named():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = settings["project"]
    named = [version for line in project["classifiers"] for version in re.findall(r"Python :: (3\.\d+)", line)]
    allowed = SpecifierSet(project["requires-python"])
    assert named == [f"3.{minor}" for minor in range(30) if f"3.{minor}" in allowed]
    assert settings["tool"]["ruff"]["target-version"] == f"py{named[0].replace('.', '')}"
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"Python {named[0]} to {named[-1]}" in readme


PACKAGES = ("hf_datasets", "hf_models", "metrics", "subtle", "recipes")


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with everything that the wheel installs, built from a copy because a build leaves files behind."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in PACKAGES:
        shutil.copytree(ROOT / name, folder / "source" / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / "source")
    program = "from setuptools.build_meta import build_wheel; print(build_wheel('..'))"
    build = subprocess.run(
        [sys.executable, "-c", program], cwd=folder / "source", capture_output=True, text=True, check=True
    )
    assert "absent from the `packages`" not in build.stderr
    with zipfile.ZipFile(folder / build.stdout.splitlines()[-1]) as wheel:
        wheel.extractall(folder / "site")
    return folder / "site"


def run_installed(installed, folder, *arguments, python=()):
    """The command in another folder, with the wheel's packages instead of the checkout's; status, output, errors."""
    run = subprocess.run(
        [sys.executable, *python, "-m", "subtle", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(installed), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    return run.returncode, run.stdout, run.stderr


def test_the_wheel_has_every_file_of_the_packages_and_the_recipes_and_nothing_else(installed):
    wanted = {
        Path("subtle_recipes" if name == "recipes" else name, path.relative_to(ROOT / name))
        for name in PACKAGES
        for path in (ROOT / name).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
        if path.parent.name != "shared"  # what Spaces and models link to is in the wheel with each of them
    }
    found = {path.relative_to(installed) for path in installed.rglob("*") if path.is_file()}
    assert {path for path in found if ".dist-info" not in path.parts[0]} == wanted
    assert len(wanted) > 200


def test_the_installed_command_lists_its_verbs_with_the_standard_library_alone(installed, tmp_path):
    status, shown, errors = run_installed(installed, tmp_path, python=["-S"])
    assert (status, errors) == (0, "")
    assert re.search(r"^  stage2 +Train the fusion of clip and text", shown, re.MULTILINE)
    assert run_installed(installed, tmp_path, "--help", python=["-S"])[1] == shown
    assert run_installed(installed, tmp_path, "path", "stage2", python=["-S"]) == (
        0,
        f"{installed / 'subtle_recipes' / 'stage2.py'}\n",
        "",
    )


def test_the_installed_command_names_the_extra_that_is_missing(installed, tmp_path):
    status, shown, errors = run_installed(installed, tmp_path, "stage2", python=["-S"])
    assert (status, shown) == (2, "")
    missing = "accelerate, detect_secrets, jinja2, rich"
    assert errors == f"error: {missing}: not installed; run: pip install 'subtle-video[recipes]'\n"


def test_an_installed_recipe_speaks_of_the_command_and_reads_the_configurations_that_ship(installed, tmp_path):
    status, shown, errors = run_installed(installed, tmp_path, "stage2", "--help")
    assert (status, errors) == (0, "")
    assert shown.startswith("usage: subtle stage2 [FILE.yaml ...]")
    assert "accelerate launch $(subtle path stage2)\n" in shown
    assert "$(subtle path weights/miniature-clip)" in shown
    assert "recipes/" not in shown
    status, shown, errors = run_installed(installed, tmp_path, "stage2", "stage2_one_gpu.yaml", "--print_config")
    assert (status, errors) == (0, "")
    assert "\nepochs: 100\n" in shown


PINNED = (ROOT / "requirements" / "tests.txt").read_text(encoding="utf-8").replace("\\\n", "").splitlines()


def test_every_package_is_pinned_with_hashes_and_no_address():
    assert len(PINNED) > 100
    pin = re.compile(r"[\w.-]+==[\w.!+-]+ *(?:; [^@/\\]+?)? *(?: +--hash=sha256:[0-9a-f]{64})+ *")
    assert not [line[:80] for line in PINNED if not pin.fullmatch(line)]


def test_the_pins_are_versions_that_the_project_allows():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    assert "subtle-video[recipes,index]" in extras["dev"]
    pins = [Requirement(line.partition(" --hash")[0]) for line in PINNED]
    for one in map(Requirement, project["dependencies"] + extras["dev"] + extras["recipes"] + extras["index"]):
        name = canonicalize_name(one.name)
        versions = [str(pin.specifier).removeprefix("==") for pin in pins if canonicalize_name(pin.name) == name]
        assert versions or one.name == project["name"], f"{one.name} is missing: make constraints"
        assert all(map(one.specifier.contains, versions)), f"{one}, but {versions}: make constraints"
