"""The code that made a dataset, to lie beside it: `generation/`, which rebuilds the rows with public libraries alone.

Nothing in it has the name of a repository: a script `tfcovr.py` in the root of `ORG/tfcovr` would stop `datasets`.
"""

import ast
import importlib.metadata
import json
import shutil
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from modulefinder import ModuleFinder
from pathlib import Path
from typing import Any

from hf_datasets.registry import BUILDERS

GENERATION_FOLDER = "generation"
PARAMETERS_FILE = "parameters.json"
PACKAGE = Path(__file__).parents[1]
SCRIPT = PACKAGE / "publishing" / "__main__.py"
"""What is copied as `rebuild.py`."""
LAZY_BUT_NEEDED = frozenset({"av"})
"""Imported inside a function, by the renderer."""


@dataclass(frozen=True)
class GenerationCode:
    """What made the rows of a published folder.

    Attributes:
        name: A key of `names.BUILDERS`.
        configurations: Configuration -> the parameters of its `BuilderConfig`, without folders; the default one first.
        miniature: The values of `MiniatureConfig`, where the rows are made of a rendered miniature.
    """

    name: str
    configurations: Mapping[str, Mapping[str, Any]]
    miniature: Mapping[str, Any] | None = field(default=None)


class OwnModules(ModuleFinder):
    """Follows what modules of this project import of it; where it is installed, all libraries stand beside it.

    Args:
        packages: Whose modules are followed.
        bare: Packages that are entered past their `__init__`, whose imports are left out.
    """

    def __init__(self, packages: Collection[str], bare: Collection[str]) -> None:
        super().__init__([str(PACKAGE.parent)])
        self.packages, self.bare = packages, bare

    def find_module(self, name: str, path: Any, parent: Any = None) -> Any:
        """Where a module is.

        Raises:
            ImportError: It is of another package.
        """
        if path is None and name not in self.packages:
            raise ImportError(name)
        return super().find_module(name, path, parent)

    def scan_code(self, code: Any, module: Any) -> None:
        """Follow the imports of a module."""
        if module.__name__ not in self.bare:
            super().scan_code(code, module)


def write_generation_code(folder: Path, code: GenerationCode) -> str:
    """Write `generation/`: the modules that the builder needs, `rebuild.py`, its parameters and the libraries.

    Args:
        folder: The published folder.
        code: What made it.

    Returns:
        A section for the card that says how to rebuild the rows.
    """
    place = folder / GENERATION_FOLDER
    modules = sorted(imported_files([BUILDERS[code.name], "hf_datasets.publishing.rebuilding"]))
    data = {
        path
        for parent in {path.parent for path in modules}
        for path in (PACKAGE.parent / parent).iterdir()
        if path.is_file() and path.suffix not in {".py", ".pyc"} and path.name != "README.md"
    }
    for path in [*(PACKAGE.parent / path for path in modules), *data]:
        copy = place / path.relative_to(PACKAGE.parent)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    shutil.copyfile(SCRIPT, place / "rebuild.py")
    (place / PARAMETERS_FILE).write_text(json.dumps(asdict(code), indent=2) + "\n", encoding="utf-8")
    requirements = "".join(f"{line}\n" for line in required_libraries(modules))
    (place / "requirements.txt").write_text(requirements, encoding="utf-8")
    text = _instructions(code)
    (place / "README.md").write_text(f"# How the rows were made\n\n{text}\n", encoding="utf-8")
    return text


def imported_files(
    modules: Iterable[str], *, packages: Collection[str] = (PACKAGE.name,), bare: Collection[str] = ()
) -> set[Path]:
    """The files of this package that modules import, directly or not, also inside functions.

    Args:
        modules: Dotted names of modules of this package.
        packages: See `OwnModules`.
        bare: See `OwnModules`.

    Returns:
        Paths relative to the folder that holds `hf_datasets`.

    Example:
        >>> sorted(path.as_posix() for path in imported_files(["hf_datasets.registry"]) if path.stem == "registry")
        ['hf_datasets/registry.py']
    """
    finder = OwnModules(packages, bare)
    for module in modules:
        finder.import_hook(module)
    found: Iterable[Any] = finder.modules.values()
    return {Path(module.__file__).relative_to(PACKAGE.parent) for module in found}


def required_libraries(files: Iterable[Path]) -> list[str]:
    """The libraries without which modules of this package cannot be imported or render, as `name==version`.

    Args:
        files: Paths as `imported_files` returns them.

    Returns:
        Lines for a file of requirements, in the order of the alphabet.
    """
    nodes = [node for path in files for node in ast.parse((PACKAGE.parent / path).read_text(encoding="utf-8")).body]
    imported = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    imported += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level]
    names = {name.partition(".")[0] for name in imported} | LAZY_BUT_NEEDED
    outside = names - sys.stdlib_module_names - {PACKAGE.name}
    distributions = importlib.metadata.packages_distributions()
    found = {own for name in outside for own in distributions.get(name, ())}
    return sorted(f"{name}=={importlib.metadata.version(name).partition('+')[0]}" for name in found)


def _instructions(code: GenerationCode) -> str:
    needs = " --data_dir FOLDER"
    more = "`FOLDER` holds the annotations, or the texts that a model wrote, from which the rows were made."
    if code.miniature is not None:
        needs = ""
        more = (
            "The videos are drawn before, into the cache of `datasets`. Another version of the encoder gives other "
            "bytes for the same pictures, so bytes of videos are counted, not required to be equal."
        )
    return f"""\
`generation/` holds the code that made the rows, its tables, prompts and parameters (seeds, counts). In a clone of \
this repository, Python 3.11 or later and public libraries are enough:

```bash
pip install -r generation/requirements.txt
python generation/rebuild.py --output_dir rebuilt --check{needs}
```

makes `{next(iter(code.configurations))}` again and compares it, row for row, with the Parquet files of this \
repository; `--configs NAME ...` takes other configurations. {more}"""
