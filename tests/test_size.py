"""How large the project is: printed in every run with `-rP`, and a limit for each figure with little room above it."""

import ast
import sys
from collections import defaultdict
from dataclasses import fields

import pytest

from tests.fixtures.verbs import VERBS, VERBS_AND_KINDS, options_of
from tests.test_architecture import MODULES, NOT_TESTS, ROOT, imports_of, parsed, text_of, tree_of  # noqa: F401

LIMITS = {
    "lines of hf_datasets": 24_000,
    "lines of hf_models": 16_600,
    "lines of metrics": 2_950,
    "lines of subtle and recipes": 29_500,
    "lines of tests": 48_000,
    "percent of names in more than one file": 1.0,
    "percent of functions and classes in more than one file": 0.7,
    "options": 350,
    "flags": 920,
    "verbs": 22,
    "files from a clip to mAP": 131,
}
"""At most 5 % above what was measured when they were set; lower them when a figure falls."""


def lines_of(*rooms):
    paths = [path for room in rooms for path in (ROOT / room).rglob("*.py") if not path.is_symlink()]
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def percent_shared(kinds):
    """Of the names that files define at their top level, how many are defined in more than one."""
    files = defaultdict(set)
    for path in NOT_TESTS:
        if path.parts[0] in {"metrics", "examples", "benchmarks", "recipes"} or (ROOT / path).is_symlink():
            continue
        for node in tree_of(path).body:
            names = [node.name] if isinstance(node, ast.FunctionDef | ast.ClassDef) else []
            if isinstance(node, ast.Assign | ast.AnnAssign) and ast.Assign in kinds:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names = [target.id for target in targets if isinstance(target, ast.Name)]
            for name in names:
                files[name].add(path)
    return 100 * sum(len(paths) > 1 for paths in files.values()) / len(files)


def files_behind(*modules):
    """Files of ours that a module needs, each with what it imports in turn."""
    found, waiting = set(), list(modules)
    while waiting:
        module = waiting.pop()
        if module in MODULES and module not in found:
            found.add(module)
            waiting += imports_of(MODULES[module])
    return len({(ROOT / MODULES[module]).resolve() for module in found if text_of(MODULES[module]).count("\n") > 2})


@pytest.fixture(scope="module")
def sizes():
    declared = [node for path in NOT_TESTS if path.parts[0] == "subtle" for node in ast.walk(tree_of(path))]
    declared = [node for node in declared if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Call)]
    return {
        "lines of hf_datasets": lines_of("hf_datasets"),
        "lines of hf_models": lines_of("hf_models"),
        "lines of metrics": lines_of("metrics"),
        "lines of subtle and recipes": lines_of("subtle", "recipes"),
        "lines of tests": lines_of("tests"),
        "percent of names in more than one file": percent_shared({ast.Assign}),
        "percent of functions and classes in more than one file": percent_shared(set()),
        "options": sum(ast.unparse(node.value.func) == "option" for node in declared),
        "flags": sum(len(fields(options_of(name))) for name in VERBS_AND_KINDS),
        "verbs": len(VERBS),
        "files from a clip to mAP": files_behind("subtle.embedding.embed_clips", "subtle.evaluate.evaluate_tfcovr"),
    }


@pytest.mark.parametrize("what", LIMITS)
def test_a_figure_of_size_stays_below_its_limit(what, sizes):
    sys.stdout.write(f"{what}: {sizes[what]:g}, at most {LIMITS[what]:g}\n")
    assert sizes[what] <= LIMITS[what]


def test_limits_leave_little_room(sizes):
    assert not {what: (sizes[what], limit) for what, limit in LIMITS.items() if limit > 1.06 * sizes[what] + 1}
