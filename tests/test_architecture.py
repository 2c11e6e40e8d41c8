"""The rules of the tree that a machine can check: imports, file lengths, names, forbidden calls."""

import ast
import gc
import re
import tomllib
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("hf_datasets", "hf_models", "metrics")
ABOVE = ("subtle", "benchmarks", "recipes")  # each may use what stands before it
WINGS = ("tfcovr", "comp", "fig")
ROOMS = (*PACKAGES, *ABOVE, "examples", "tests")
SOURCES = sorted(path.relative_to(ROOT) for room in ROOMS for path in (ROOT / room).rglob("*.py"))
NOT_TESTS = [path for path in SOURCES if path.parts[0] != "tests"]
IN_PACKAGES = [path for path in NOT_TESTS if path.parts[0] in PACKAGES]
QUIET = [
    path
    for path in IN_PACKAGES
    if path.stem not in {"__main__", "tests", "app"} and not path.stem.startswith("convert_")
]
"""What neither reads arguments nor ends the process; that it does not print, ruff sees."""
MAX_LINES = 800
# What opens videos, each within the same limits; the benchmark times the decoders of others on files of its own.
OPENERS = {
    "hf_datasets/video/pyav.py",
    "hf_datasets/video/backends.py",
    "hf_models/tfcovr/video_processing_aim.py",
    "benchmarks/video.py",
}
DECODERS = {"VideoReader", "VideoDecoder", "VideoCapture", "read_video"}
BANNED_STEMS = {"utils", "util", "common", "helpers", "helper", "misc"}


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(text_of(path))


@cache
def text_of(path: Path) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def module_of(path: Path) -> str:
    """Its dotted name."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in NOT_TESTS}


@cache
def imports_of(path: Path) -> list[str]:
    """Dotted names that a file imports anywhere, of `from a import b` both `a` and `a.b`."""
    package = module_of(path) if path.stem == "__init__" else module_of(path).rpartition(".")[0]
    names = []
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            names += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    return names


@cache
def calls_of(path: Path) -> list[tuple[str, ast.Call]]:
    """The calls in a file with the dotted names of what is called; "?" for what is no name."""

    def dotted(node: ast.expr) -> str:
        if isinstance(node, ast.Attribute):
            return f"{dotted(node.value)}.{node.attr}"
        return node.id if isinstance(node, ast.Name) else "?"

    return [(dotted(node.func), node) for node in ast.walk(tree_of(path)) if isinstance(node, ast.Call)]


@pytest.fixture(scope="module", autouse=True)
def parsed():
    """Looking for garbage among the trees would take most of the time, here and in the tests that follow."""
    gc.disable()
    yield
    gc.enable()
    for cached in (tree_of, imports_of, calls_of):
        cached.cache_clear()


def test_files_are_short_and_named_after_nouns():
    assert {path.parts[0] for path in SOURCES} == set(ROOMS)
    assert not [path for path in SOURCES if path.stem in BANNED_STEMS]
    long = {str(path): len(text_of(path).splitlines()) for path in SOURCES}
    assert not {name: lines for name, lines in long.items() if lines > MAX_LINES}


def wing_of(module: str) -> str | None:
    """The wing of a module of hf_datasets or subtle, or the family of one of hf_models."""
    parts = module.split(".")
    if parts[0] == "hf_models":
        return parts[1] if parts[1:] and (ROOT / "hf_models" / parts[1]).is_dir() else None
    return next((part for part in parts[:2] if part in WINGS), None)


def is_of_another_wing(path: Path, name: str) -> bool:
    """Within a package: a wing's recipes use that wing's models, whose family has a name of its own."""
    own, other = wing_of(module_of(path)), wing_of(name)
    return bool(own and other and own != other and name.split(".")[0] == path.parts[0])


VERBS = {
    name.removesuffix(".main")
    for path in NOT_TESTS
    if path.parent == Path("recipes")
    for name in re.findall(r"^\s*from (subtle\S+) import .*\bmain\b", text_of(path), re.MULTILINE)
}
EXTRA = {"accelerate", "detect_secrets", "jinja2", "rich"}
# What is not imported -> by which files, and whether a name is it.
FORBIDDEN = {
    "packages: each other and what stands above them": (
        IN_PACKAGES,
        lambda path, name: name.split(".")[0] in {*ROOMS, "subtle_recipes"} - {path.parts[0]},
    ),
    "packages: what only the extra for recipes installs": (
        [path for path in IN_PACKAGES if path.stem not in {"app", "__main__"}],
        lambda path, name: name.split(".")[0] in EXTRA,
    ),
    "packages: parsers of arguments": (QUIET, lambda path, name: name == "argparse"),
    "wings and families of models, but for the registry of all families: each other": (
        [path for path in NOT_TESTS if path.parts[:2] != ("hf_models", "encoders")],
        is_of_another_wing,
    ),
    "subtle/run: a wing": (
        [path for path in NOT_TESTS if path.parts[:2] == ("subtle", "run")],
        lambda path, name: name in MODULES and wing_of(name) and name.startswith("subtle."),
    ),
    "subtle/run and the rooms of wings: a verb": (
        [path for path in NOT_TESTS if path.parts[0] == "subtle" and path.parts[1] in {"run", *WINGS}],
        lambda path, name: name in VERBS,
    ),
    "what hf_datasets shares: a wing": (
        [
            path
            for path in NOT_TESTS
            if path.parts[0] == "hf_datasets" and path.parts[1] not in WINGS and path.parts[2:]
        ],
        lambda path, name: name in MODULES and wing_of(name),
    ),
    "all: recipes": (NOT_TESTS, lambda path, name: name.split(".")[0] == "recipes"),
    # Which answers every name with a function of its own.
    "all but one: pickle": (
        [path for path in NOT_TESTS if path.as_posix() != "hf_datasets/sources/pickle_reading.py"],
        lambda path, name: name == "pickle",
    ),
}


@pytest.mark.parametrize("rule", FORBIDDEN)
def test_what_is_not_to_be_imported_is_not(rule):
    files, is_forbidden = FORBIDDEN[rule]
    assert files
    assert not {f"{path} imports {name}" for path in files for name in imports_of(path) if is_forbidden(path, name)}


def test_the_rules_know_the_verbs_and_what_the_extra_for_recipes_installs():
    assert len(VERBS) > 15
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert {re.match(r"[\w-]+", line)[0].replace("-", "_") for line in extras["recipes"]} == EXTRA


def test_recipes_are_thin():
    recipes = [path for path in NOT_TESTS if path.parts[0] == "recipes" and path.stem != "__init__"]
    code = {str(path): len(text_of(path).splitlines()) - tree_of(path).body[0].end_lineno for path in recipes}
    assert not {name: lines for name, lines in code.items() if lines > 30}


def test_no_modules_import_each_other_in_a_circle():
    # A package's `__init__` is imported with each of its modules; that is no circle of ours to see.
    modules = {module: path for module, path in MODULES.items() if path.stem != "__init__"}
    graph = {one: (modules.keys() & imports_of(path)) - {one} for one, path in modules.items()}
    TopologicalSorter(graph).prepare()  # which raises an error that names the circle


def test_what_is_imported_of_our_own_exists():
    """Also in files that no test imports, such as the benchmarks."""
    roots = {name.split(".")[0] for name in MODULES}
    wanted = {(path, node.module) for path in NOT_TESTS for node in ast.walk(tree_of(path))
              if isinstance(node, ast.ImportFrom) and not node.level}  # fmt: skip
    assert not {(path, name) for path, name in wanted if name.split(".")[0] in roots and name not in MODULES}


def test_packages_do_not_exit():
    assert not [path for path in QUIET if "SystemExit" in text_of(path)]


def test_data_is_never_executed():
    banned = {"eval", "exec", "pickle.load", "pickle.loads", "os.system"}
    assert not {(path, name) for path in NOT_TESTS for name, _ in calls_of(path) if name in banned}
    assert not [path for path in NOT_TESTS if "weights_only=False" in text_of(path) or "shell=True" in text_of(path)]


def test_only_the_published_demo_trusts_code_of_the_hub():
    calls = [(path, name, call) for path in NOT_TESTS if path.parts[0] != "examples" for name, call in calls_of(path)]
    trusting = {
        path.as_posix()
        for path, _, call in calls
        for one in call.keywords
        if one.arg == "trust_remote_code" and ast.unparse(one.value) == "True"
    }
    assert trusting == {"subtle/demo_space/app.py"}
    loaded = [one.value for _, name, call in calls if name == "evaluate.load" for one in call.args[:1]
              if isinstance(one, ast.Constant)]  # fmt: skip
    assert not [name for name in loaded if "/" in name]


def test_processes_of_python_do_not_look_for_modules_in_the_working_directory():
    """`python -c` and `python -m` would run a `json.py` that lies there; a script's own folder is ours."""
    commands = {
        (str(path), ast.unparse(node)): [ast.unparse(word).strip("'") for word in node.elts[1:]]
        for path in NOT_TESTS
        if "sys.executable" in text_of(path)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.List) and node.elts and ast.unparse(node.elts[0]) == "sys.executable"
    }
    assert len(commands) > 5
    assert not [place for place, words in commands.items() if {"-c", "-m"} & set(words) and "-P" not in words]


def test_processes_of_a_launch_are_connected_in_one_place_which_decides_how_long_they_wait():
    called = {str(path) for path in NOT_TESTS for name, _ in calls_of(path) if name in {"PartialState", "Accelerator"}}
    assert called - {"benchmarks/stage2.py"} == {"subtle/run/accelerator.py"}


def test_videos_are_opened_in_few_places():
    """Everything else reads videos with `hf_datasets.video`, which refuses what is not one; one that writes says so."""
    opening = {
        str(path)
        for path in NOT_TESTS
        for name, call in calls_of(path)
        if name.split(".")[-1] in DECODERS
        or (name.endswith("av.open") and "'w'" not in map(ast.unparse, call.args[1:2]))
    }
    assert opening == OPENERS
