"""The rules of the tree that a machine can check: imports, file lengths, names, forbidden calls."""

import ast
import gc
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("hf_datasets", "hf_models", "metrics")
ABOVE = ("subtle", "benchmarks", "recipes")  # each may use what stands before it
WINGS = ("tfcovr", "comp", "fig")
ROOMS = (*PACKAGES, *ABOVE, "examples", "tests")
SOURCES = sorted(path.relative_to(ROOT) for room in ROOMS for path in (ROOT / room).rglob("*.py"))
IN_PACKAGES = [path for path in SOURCES if path.parts[0] in PACKAGES]
NOT_TESTS = [path for path in SOURCES if path.parts[0] != "tests"]
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


MODULES = {module_of(path): path for path in SOURCES if path.parts[0] != "tests"}


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
def called_names(path: Path) -> set[str]:
    return {ast.unparse(node.func) for node in ast.walk(tree_of(path)) if isinstance(node, ast.Call)}


def wing_of(module: str) -> str | None:
    """The wing of a module of hf_datasets or subtle, or the family of one of hf_models."""
    parts = module.split(".")
    if parts[0] == "hf_models":
        return parts[1] if parts[1:] and (ROOT / "hf_models" / parts[1]).is_dir() else None
    return next((part for part in parts[:2] if part in WINGS), None)


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules that import each other (Tarjan's strongly connected components of more than one)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph.get(node, ()):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            place = stack.index(node)
            group = stack[place:]
            del stack[place:]
            if len(group) > 1:
                found.append(sorted(group))

    for node in graph:
        if node not in index:
            visit(node)
    return found


@pytest.fixture(scope="module", autouse=True)
def parsed():
    """Looking for garbage among the trees would take most of the time, here and in the tests that follow."""
    gc.disable()
    yield
    gc.enable()
    for cached in (tree_of, imports_of, called_names):
        cached.cache_clear()


def test_files_are_short_and_named_after_nouns():
    assert not [path for path in SOURCES if path.stem in BANNED_STEMS]
    long = {str(path): len(text_of(path).splitlines()) for path in SOURCES}
    assert not {name: lines for name, lines in long.items() if lines > MAX_LINES}


def test_every_module_says_what_it_is():
    assert not [path for path in SOURCES if tree_of(path).body and not ast.get_docstring(tree_of(path))]


def test_packages_import_neither_each_other_nor_recipes():
    others = {*ABOVE, "subtle_recipes", "tests", "examples", *PACKAGES}
    wrong = {
        f"{path} imports {name}"
        for path in IN_PACKAGES
        for name in imports_of(path)
        if name.split(".")[0] in others - {path.parts[0]}
    }
    assert not wrong


def test_wings_and_model_families_do_not_import_each_other():
    wrong = {
        f"{path} imports {name}"
        for path in NOT_TESTS
        for name in imports_of(path)
        if (own := wing_of(module_of(path)))
        and own != "encoders"  # whose registry knows every family
        and (other := wing_of(name))
        and other != own
        # A wing's recipes use that wing's models, whose family has a name of its own.
        and name.split(".")[0] == module_of(path).split(".")[0]
    }
    assert not wrong


def test_shared_rooms_do_not_import_what_stands_above_them():
    """`subtle/run` knows no wing and no verb, a wing's room no verb, what `hf_datasets` shares no wing."""
    scripts = [path for path in SOURCES if path.parent == Path("recipes")]
    verbs = {name.removesuffix(".main") for path in scripts for name in imports_of(path) if name.endswith(".main")}
    wrong = set()
    for path in NOT_TESTS:
        names = {name for name in imports_of(path) if name in MODULES}
        if path.parts[0] == "subtle" and path.parts[1] in {"run", *WINGS}:
            wrong |= {f"{path} imports {name}" for name in names if name in verbs}
        if path.parts[:2] == ("subtle", "run"):
            wrong |= {f"{path} imports {name}" for name in names if wing_of(name) and name.startswith("subtle.")}
        if path.parts[0] == "hf_datasets" and len(path.parts) > 2 and path.parts[1] not in WINGS:
            wrong |= {f"{path} imports {name}" for name in names if wing_of(name)}
    assert not wrong


def test_recipes_are_thin_and_nothing_imports_them():
    recipes = [path for path in SOURCES if path.parts[0] == "recipes" and path.stem != "__init__"]
    code = {str(path): len(text_of(path).splitlines()) - tree_of(path).body[0].end_lineno for path in recipes}
    assert not {name: lines for name, lines in code.items() if lines > 30}
    assert not [f"{path} imports {name}" for path in SOURCES for name in imports_of(path) if name.startswith("recipes")]


def test_no_modules_import_each_other_in_a_circle():
    graph = {
        module: {name for name in imports_of(path) if name in MODULES and name != module}
        # A package's `__init__` is imported with each of its modules; that is no circle of ours to see.
        for module, path in MODULES.items()
        if path.stem != "__init__"
    }
    graph = {module: {name for name in names if name in graph} for module, names in graph.items()}
    assert not cycles(graph)


def test_what_is_imported_of_our_own_exists():
    """Also in files that no test imports, such as the benchmarks."""
    roots = {name.split(".")[0] for name in MODULES}
    missing = set()
    for path in SOURCES:
        for node in ast.walk(tree_of(path)):
            if not isinstance(node, ast.ImportFrom) or node.level:
                continue
            if node.module.split(".")[0] in roots:
                missing |= set() if node.module in MODULES else {f"{path} imports {node.module}"}
    assert not missing


def test_a_circle_is_found():
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [["b", "c"]]


def test_packages_neither_print_nor_read_arguments_nor_exit():
    commands = {"__main__", "tests", "app"}
    files = [path for path in IN_PACKAGES if path.stem not in commands and not path.stem.startswith("convert_")]
    assert not [path for path in files if "print" in called_names(path)]
    assert not [path for path in files if "argparse" in imports_of(path)]
    assert not [path for path in files if "SystemExit" in text_of(path)]


def test_packages_import_no_dependency_that_only_the_extra_for_recipes_installs():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    names = {line.split(">")[0].split("[")[0].strip().lower() for line in extras["recipes"]}
    modules = {{"pyyaml": "yaml", "scikit-learn": "sklearn"}.get(name, name) for name in names}
    assert "rich" in modules
    assert not {
        f"{path} imports {name}"
        for path in IN_PACKAGES
        if path.stem not in {"app", "__main__"}
        for name in imports_of(path)
        if name.split(".")[0] in modules
    }


def test_data_is_never_executed():
    calls = {"eval", "exec", "pickle.load", "pickle.loads", "os.system"}
    assert not {str(path): found for path in NOT_TESTS if (found := called_names(path) & calls)}
    unpickles = [path.as_posix() for path in NOT_TESTS if "pickle" in imports_of(path)]
    assert unpickles == ["hf_datasets/sources/pickle_reading.py"]  # which answers every name with a function of its own
    assert not [path for path in NOT_TESTS if "weights_only=False" in text_of(path) or "shell=True" in text_of(path)]


def test_processes_of_python_do_not_look_for_modules_in_the_working_directory():
    """`python -c` and `python -m` would run a `json.py` that lies there; a script's own folder is ours."""
    commands = {
        (str(path), ast.unparse(node)): [ast.unparse(word).strip("'") for word in node.elts[1:]]
        for path in NOT_TESTS
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.List) and node.elts and ast.unparse(node.elts[0]) == "sys.executable"
    }
    assert len(commands) > 5
    assert not [place for place, words in commands.items() if {"-c", "-m"} & set(words) and "-P" not in words]


def opened_videos(path: Path) -> list[str]:
    """The calls that open a video to read it; one that writes says so with its mode."""
    calls = [(ast.unparse(node.func), node) for node in ast.walk(tree_of(path)) if isinstance(node, ast.Call)]
    return [
        ast.unparse(call)
        for name, call in calls
        if (name.split(".")[-1] in DECODERS)
        or (name.endswith("av.open") and not any(ast.unparse(mode) == "'w'" for mode in call.args[1:2]))
    ]


def test_processes_of_a_launch_are_connected_in_one_place_which_decides_how_long_they_wait():
    called = {str(path) for path in NOT_TESTS if called_names(path) & {"PartialState", "Accelerator"}}
    assert called - {"benchmarks/stage2.py"} == {"subtle/run/accelerator.py"}


def test_videos_are_opened_in_few_places():
    """Everything else reads videos with `hf_datasets.video`, which refuses what is not one."""
    assert {str(path) for path in NOT_TESTS if opened_videos(path)} == OPENERS


@pytest.mark.parametrize("room", ROOMS)
def test_the_sources_are_found(room):
    assert [path for path in SOURCES if path.parts[0] == room]
