"""Modules of release 0.1 that moved are still imported by their old names."""

import importlib
import subprocess
import sys
import warnings

import pytest

from hf_datasets.renamed_modules import MOVED

RELEASE_0_1 = {
    "": "__main__ drafts factory publish records registration spreadsheets video video_backends video_pool "
    "video_process video_pyav video_reading video_resizing video_shared_memory video_store video_worker",
    "comp": "activitynet_comp annotations builder construction disruptions judging miniature pairs paragraphs release "
    "stacking tasks verbs youcook2_comp",
    "fig": "builder captions keyframes moments noise prompts release rewording rewritings statistics tasks",
    "generation": "batch cache chat completions dialogue estimate faults generate images objections openai_chat prices "
    "repair task",
    "miniature": "actions captions competitions drawing motion render skeleton",
    "sources": "activitynet_captions charades_sta didemo finediving finegym pickle_reading values youcook2",
    "tfcovr": "builder captions clips collection damaged_csv free_text grammar instructions labels labels_diving "
    "labels_gymnastics normalisation own pairs release splitting statistics tables tasks triplets validation writer",
}


@pytest.fixture
def old_grammar(monkeypatch):
    """The old name of a moved module, not imported yet."""
    monkeypatch.delitem(sys.modules, "hf_datasets.tfcovr.grammar", raising=False)
    monkeypatch.delattr("hf_datasets.tfcovr.grammar", raising=False)
    return "hf_datasets.tfcovr.grammar"


def test_every_module_of_release_0_1_can_be_imported():
    names = [f"{folder}.{name}".lstrip(".") for folder, modules in RELEASE_0_1.items() for name in modules.split()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        modules = {name: importlib.import_module(f"hf_datasets.{name}") for name in names}
    assert {name: module.__name__ for name, module in modules.items()} == {
        name: f"hf_datasets.{MOVED.get(name, name)}" for name in names
    }
    assert set(MOVED) <= set(names)


def test_an_old_name_gives_the_new_module_and_names_it_in_a_warning_at_the_line_of_the_import(old_grammar):
    new = importlib.import_module("hf_datasets.tfcovr.labels.template")
    spec = new.__spec__
    with pytest.warns(DeprecationWarning, match=r"is now hf_datasets\.tfcovr\.labels\.template; .* 0\.3") as caught:
        import hf_datasets.tfcovr.grammar as old
    assert old is new
    assert caught[0].filename == __file__
    assert (new.__name__, new.__spec__) == ("hf_datasets.tfcovr.labels.template", spec)
    assert new.__spec__.name == "hf_datasets.tfcovr.labels.template"


def test_functions_are_imported_from_an_old_name(old_grammar):
    with pytest.warns(DeprecationWarning, match="grammar"):
        from hf_datasets.tfcovr.grammar import number_text
    from hf_datasets.tfcovr.labels import template

    assert number_text is template.number_text


def test_an_old_name_is_an_attribute_of_its_package(old_grammar):
    with pytest.warns(DeprecationWarning, match="grammar"):
        from hf_datasets.tfcovr import grammar
    assert grammar.__name__ == "hf_datasets.tfcovr.labels.template"


@pytest.mark.parametrize("name", ["hf_datasets.tfcovr.grammars", "hf_datasets.grammar", "other.tfcovr.grammar"])
def test_unknown_names_are_still_import_errors(name):
    with pytest.raises(ModuleNotFoundError, match=name.split(".")[-1] if name.startswith("hf_") else "other"):
        importlib.import_module(name)


def test_importing_the_package_imports_no_module_that_moved():
    code = "import sys, hf_datasets; print(*(name for name in sys.modules if name.startswith('hf_datasets.')))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    imported = {name.removeprefix("hf_datasets.") for name in run.stdout.split()}
    assert "renamed_modules" in imported
    assert not imported & {*MOVED, *MOVED.values()}
