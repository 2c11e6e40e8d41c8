"""The house rules that a machine can check: arrows, file lengths, names, forbidden calls."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("hf_datasets", "hf_models", "metrics")
SOURCES = sorted(
    path for folder in (*PACKAGES, "recipes", "tests") for path in (ROOT / folder).rglob("*.py") if path.is_file()
)
MAX_LINES = 400
# Who opens videos, each within the same limits; the benchmark times the decoders of others on files of its own.
OPENERS = {
    "hf_datasets/video/pyav.py",
    "hf_datasets/video/backends.py",
    "hf_models/tfcovr/video_processing_aim.py",
    "recipes/benchmarks/video.py",
}
DECODERS = {"VideoReader", "VideoDecoder", "VideoCapture", "read_video"}
BANNED_STEMS = {"utils", "util", "common", "helpers", "helper", "misc"}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def imported_roots(path: Path) -> set[str]:
    roots = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            roots |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            roots.add(node.module.split(".")[0])
    return roots


def called_names(path: Path) -> set[str]:
    calls = (node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call))
    return {ast.unparse(call.func) for call in calls}


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_a_file_is_short_and_named_after_a_noun(path):
    assert path.stem not in BANNED_STEMS
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MAX_LINES


@pytest.mark.parametrize("path", [p for p in SOURCES if p.relative_to(ROOT).parts[0] in PACKAGES], ids=name_of)
def test_arrows_point_one_way(path):
    own = path.relative_to(ROOT).parts[0]
    others = {"recipes", "tests", *PACKAGES} - {own}
    assert not imported_roots(path) & others


@pytest.mark.parametrize("path", [p for p in SOURCES if p.relative_to(ROOT).parts[0] in PACKAGES], ids=name_of)
def test_a_package_neither_prints_nor_reads_arguments(path):
    if path.stem in {"__main__", "tests", "app"} or path.stem.startswith("convert_"):
        pytest.skip("a command or a Space's own file")
    assert "print" not in called_names(path)
    assert "argparse" not in imported_roots(path)


@pytest.mark.parametrize("path", [p for p in SOURCES if "tests" not in p.relative_to(ROOT).parts[:1]], ids=name_of)
def test_data_is_never_executed(path):
    calls = called_names(path)
    assert not calls & {"eval", "exec", "pickle.load", "pickle.loads", "os.system"}
    text = path.read_text(encoding="utf-8")
    assert "weights_only=False" not in text
    assert "shell=True" not in text


def opened_videos(path: Path) -> list[str]:
    """The calls that open a video to read it; one that writes says so with its mode."""
    calls = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
    names = [(ast.unparse(call.func), call) for call in calls]
    return [
        ast.unparse(call)
        for name, call in names
        if (name.split(".")[-1] in DECODERS)
        or (name.endswith("av.open") and not any(ast.unparse(mode) == "'w'" for mode in call.args[1:2]))
    ]


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_videos_are_opened_in_few_places(path):
    if name_of(path) not in OPENERS and path.relative_to(ROOT).parts[0] != "tests":
        assert not opened_videos(path), "read videos with hf_datasets.video, which refuses what is none"


def test_calls_that_open_a_video_are_found():
    assert {name for name in OPENERS if opened_videos(ROOT / name)} == OPENERS


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_a_module_says_what_it_is(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert not tree.body or ast.get_docstring(tree), "a module docstring is missing"


def test_the_sources_are_found():
    assert len(SOURCES) > 10
