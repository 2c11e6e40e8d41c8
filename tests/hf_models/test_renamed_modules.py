"""Old names of modules that moved: they import, warn once, and give the same module."""

import importlib
import subprocess
import sys
import warnings

import pytest

import hf_models
from hf_models import registration
from hf_models.renamed_modules import MOVED, MovedModules


def run(*lines):
    command = [sys.executable, "-c", "\n".join(lines)]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.strip(), finished.stderr


@pytest.fixture
def before(monkeypatch):
    """`hf_models.before`, the old name of `hf_models.registration`."""
    monkeypatch.setitem(MOVED, "before", "registration")
    yield
    del sys.modules["hf_models.before"], hf_models.before


@pytest.mark.usefixtures("before")
def test_an_old_name_gives_the_new_module_unchanged():
    with pytest.warns(DeprecationWarning, match=r"before is now hf_models\.registration; .* release 0\.3") as found:
        import hf_models.before as old
    assert found[0].filename == __file__
    assert old is registration
    assert old.__name__ == old.__spec__.name == "hf_models.registration"
    assert hf_models.before is registration


@pytest.mark.usefixtures("before")
def test_a_name_is_imported_from_an_old_module_and_the_warning_comes_once():
    with pytest.warns(DeprecationWarning, match="is now") as found:
        from hf_models.before import load as first
    assert [warning.filename for warning in found] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from hf_models.before import load as again
    assert first is again is registration.load


@pytest.mark.parametrize("name", ["hf_models.never", "hf_models.tfcovr.never", "never"])
def test_a_name_that_never_existed_is_not_found(name):
    with pytest.raises(ModuleNotFoundError, match=name):
        importlib.import_module(name)


def test_only_an_old_name_warns_and_the_warning_names_the_line_that_imports_it():
    table = "import hf_models.renamed_modules as renamed; renamed.MOVED['before'] = 'registration'"
    lines = ("import hf_models.registration", "from hf_models.before import load", "import hf_models.before as old")
    printed, warned = run(table, *lines, "print(old.__name__)")
    assert printed == "hf_models.registration"
    assert warned.count("DeprecationWarning") == 1
    assert warned.startswith("<string>:3: DeprecationWarning")


@pytest.mark.parametrize(("old", "new"), MOVED.items())
def test_every_line_of_the_table_leads_from_an_old_name_to_a_module(old, new):
    assert isinstance(importlib.util.find_spec(f"hf_models.{old}").loader, MovedModules)
    assert not isinstance(importlib.util.find_spec(f"hf_models.{new}").loader, MovedModules)
