"""What the package says of itself agrees: Python versions in `pyproject.toml` and in the README."""

import re
import tomllib
from pathlib import Path

from packaging.specifiers import SpecifierSet

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
