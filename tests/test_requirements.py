"""The packages that the tests may be pinned to."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
PINNED = (ROOT / "requirements" / "tests.txt").read_text(encoding="utf-8").replace("\\\n", "").splitlines()
PINS = [line.partition(" --hash")[0] for line in PINNED]


def test_every_package_is_pinned_with_hashes_and_no_address():
    assert len(PINNED) > 100
    for line in PINNED:
        assert re.fullmatch(r"[\w.-]+==[\w.!+-]+ *(?:; [^@/\\]+?)? *(?: +--hash=sha256:[0-9a-f]{64})+ *", line), line[
            :80
        ]


def test_the_pins_are_versions_that_the_project_allows():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    assert "subtle-video[recipes,index]" in extras["dev"]
    wanted = map(Requirement, project["dependencies"] + extras["dev"] + extras["recipes"] + extras["index"])
    pins = [Requirement(pin) for pin in PINS]
    for one in wanted:
        if one.name == project["name"]:
            continue
        versions = [str(pin.specifier).removeprefix("==") for pin in pins if same(pin.name, one.name)]
        assert versions, f"{one.name} is missing: make constraints"
        assert all(map(one.specifier.contains, versions)), f"{one}, but {versions}: make constraints"


def same(first, second):
    return re.sub(r"[-_.]+", "-", first).lower() == re.sub(r"[-_.]+", "-", second).lower()
