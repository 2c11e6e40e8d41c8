"""How commands are typed: `python recipes/embed.py` in a checkout, `subtle embed` where they are installed.

Docstrings and messages spell commands as in a checkout. `as_typed` gives the other form; the parser of `options.py` and
`running.py` apply it to all that they show, so that no recipe has to.
"""

import importlib.machinery
import os
import re
import sys
from pathlib import Path

SUBTLE = Path(__file__).parent
IS_INSTALLED = (SUBTLE.parent / "subtle_recipes").is_dir()
RECIPES = SUBTLE.parent / ("subtle_recipes" if IS_INSTALLED else "recipes")
CONFIGS = RECIPES / "configs"
CONFIG_FOLDERS = (Path(), Path("configs"), Path("recipes/configs"))
IN_CHECKOUT_AND_INSTALLED = (
    (r"(accelerate launch [^`\n]*?)\brecipes/(\w+)\.py\b", r"\1$(subtle path \2)"),
    (r"\b(?:python )?recipes/(\w+)\.py\b", r"subtle \1"),
    (r"\brecipes/configs/([\w-]+\.yaml)\b", r"\1"),
    (r"\brecipes/((?:accelerate|weights)/[\w./-]*\w)", r"$(subtle path \1)"),
    (r"\bmake quickstart\b", "subtle quickstart"),
)
BARE = rf"`?(?<![\w/.-])({'|'.join(sorted(path.stem for path in RECIPES.glob('[a-z]*.py')))})\.py\b`?"
EXTRA = ("accelerate", "detect_secrets", "jinja2", "rich")
"""The modules of the extra `recipes` in `pyproject.toml`."""
started_by_command = False
"""Set by the command `subtle`, which an editable checkout has too."""


def as_typed(text: str) -> str:
    """A text with the commands and files in it as one types them here; in a checkout as they stand.

    >>> as_typed("`python recipes/embed.py` makes it")
    '`python recipes/embed.py` makes it'
    """
    if IS_INSTALLED or started_by_command:
        for pattern, replacement in IN_CHECKOUT_AND_INSTALLED:
            text = re.sub(pattern, replacement, text)
        text = re.sub(BARE, r"`subtle \1`", text)
    return text


def program() -> str | None:
    """The name of the running program in its own help; None for its file name."""
    return f"subtle {Path(sys.argv[0]).stem}" if IS_INSTALLED or started_by_command else None


def find_config(path: Path) -> Path:
    """A YAML file in the working directory, or else the one of that name among those that ship."""
    if os.path.isfile(path) or path.parent not in CONFIG_FOLDERS:  # noqa: PTH113 no error for any text
        return path
    shipped = CONFIGS / path.name
    return shipped if os.path.isfile(shipped) else path  # noqa: PTH113 no error for any text


def missing_modules() -> str | None:
    """What every recipe needs beyond the packages and is not installed, with the command that installs it."""
    missing = [name for name in EXTRA if not is_installed(name)]
    return f"{', '.join(missing)}: not installed; run: pip install 'subtle-video[recipes]'" if missing else None


def is_installed(module: str) -> bool:
    spec = importlib.machinery.PathFinder.find_spec(module)
    return spec is not None and spec.origin is not None  # a folder of that name, such as ours of YAML files, has none
