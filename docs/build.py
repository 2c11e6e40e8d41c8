"""Write the API reference of the three packages from their docstrings.

    python docs/build.py build/docs

Every public module gets a page; `docs/index.md` is the start page.
"""

import importlib
import pkgutil
import sys
import warnings
from pathlib import Path

import pdoc
import pdoc.render

HERE = Path(__file__).parent
PACKAGES = ("hf_datasets", "hf_models", "metrics")
NOT_API = {"__main__", "app", "tests"}
"""Commands, Spaces' own files, and the table of names that have moved."""

EXPECTED = (
    "The module specification .* already been added",  # pdoc walks a package without `__all__` by itself
    "Error parsing type annotation",  # of libraries' base classes
    "Cannot determine where",  # likewise
    "Failed to run TYPE_CHECKING code",  # an optional decoder is not installed
)


def modules() -> list[str]:
    """The packages and their modules as pdoc takes them: `!` leaves one out."""
    names = list(PACKAGES)
    for package in PACKAGES:
        path = importlib.import_module(package).__path__
        for module in pkgutil.walk_packages(path, f"{package}."):
            is_api = not NOT_API & set(module.name.split("."))
            names.append(module.name if is_api else f"!{module.name}")
    return names


def main(output_dir: str) -> None:
    """Build the pages."""
    for package in PACKAGES:  # their public names are loaded when first read
        module = importlib.import_module(package)
        for name in module.__all__:
            setattr(module, name, getattr(module, name))
    for message in EXPECTED:
        warnings.filterwarnings("ignore", message=message)
    pdoc.render.configure(docformat="google", template_directory=HERE / "templates", show_source=False)
    pdoc.render.env.globals["start_page"] = (HERE / "index.md").read_text(encoding="utf-8")
    pdoc.pdoc(*modules(), output_directory=Path(output_dir))


if __name__ == "__main__":
    main(sys.argv[1])
