"""How commands are typed: `python recipes/embed.py clips` in a checkout, `subtle embed clips` where they are installed.

Docstrings and messages spell commands as in a checkout. `as_typed` gives the other form; the parser of `options.py` and
`running.py` apply it to all that they show, so that no recipe has to.
"""

import difflib
import importlib.machinery
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

SUBTLE = Path(__file__).parent
IS_INSTALLED = (SUBTLE.parent / "subtle_recipes").is_dir()
RECIPES = SUBTLE.parent / ("subtle_recipes" if IS_INSTALLED else "recipes")
# A script's own folder is the first place where Python looks: `evaluate.py` there would hide the library of that name.
sys.path[:] = [place for place in sys.path if os.path.realpath(place) != os.path.realpath(RECIPES)]
CONFIGS = RECIPES / "configs"
CONFIG_FOLDERS = (Path(), Path("configs"), Path("recipes/configs"))
IN_CHECKOUT_AND_INSTALLED = (
    (r"(accelerate launch [^`\n]*?)\brecipes/(\w+)\.py\b", r"\1$(subtle path \2)"),
    (r"\b(?:python )?recipes/(\w+)\.py\b", r"subtle \1"),
    (r"(?<![\w/.-])recipes/configs/([\w-]+\.yaml)\b", r"\1"),
    (r"(?<![\w/.-])recipes/((?:accelerate|weights)/[\w./-]*\w)", r"$(subtle path \1)"),
    (r"\bmake quickstart\b", "subtle quickstart"),
)
SECOND_WORDS = {
    "check": ("tfcovr", "comp", "fig"),
    "build": ("tfcovr", "clips", "comp", "fig"),
    "analyse": ("tfcovr", "comp", "fig"),
    "evaluate": ("tfcovr", "comp", "vcmr", "mteb"),
    "embed": ("clips", "moments"),
    "caption": ("write", "rewrite", "select"),
}
"""Of a verb whose options are another's in each paper, or for each thing that it is done with."""
BARE = (
    rf"`?(?<![\w/.-])({'|'.join(sorted(path.stem for path in RECIPES.glob('[a-z]*.py')))})\.py\b"
    rf"( (?:{'|'.join(sorted(set().union(*SECOND_WORDS.values())))})\b)?`?"
)
EXTRA = ("accelerate", "detect_secrets", "jinja2", "rich")
"""The modules of the extra `recipes` in `pyproject.toml`."""
started_by_command = False
"""Set by the command `subtle`, which an editable checkout has too."""
second_word = ""
"""Set by `take_second_word`."""


def as_typed(text: str, *, by_command: bool = False) -> str:
    """A text with the commands and files in it as one types them here; in a checkout as they stand.

    With `by_command` as of the command `subtle`, wherever it is.

    >>> as_typed("`python recipes/embed.py clips` makes it")
    '`python recipes/embed.py clips` makes it'
    """
    if IS_INSTALLED or started_by_command or by_command:
        for pattern, replacement in IN_CHECKOUT_AND_INSTALLED:
            text = re.sub(pattern, replacement, text)
        text = re.sub(BARE, r"`subtle \1\2`", text)
    return text


def command_of(name: str) -> str:
    """What one types for a verb and its second word, `evaluate tfcovr`."""
    verb, *second = name.split()
    return as_typed(" ".join([f"python recipes/{verb}.py", *second]))


def program() -> str:
    """The name of the running program in its own help."""
    script = Path(sys.argv[0])
    name = f"subtle {script.stem}" if IS_INSTALLED or started_by_command else script.name
    return f"{name} {second_word}".rstrip()


def first_sentence(text: str) -> str:
    """Of a docstring."""
    return re.split(r"(?<=[.?!])\s", " ".join(text.partition("\n\n")[0].split()), maxsplit=1)[0]


def take_second_word(docstring: str) -> tuple[str, str]:
    """The word after a verb, which leaves the command line, and what the docstring of the verb's script says about it.

    Ends the process for `--help`, which lists the words, and in one line where there is none of them.

    Args:
        docstring: An introduction, then for each word a part that begins with `WORD: `.
    """
    global second_word
    words = SECOND_WORDS[Path(sys.argv[0]).stem]
    introduction, *parts = re.split(rf"^({'|'.join(words)}): ", docstring, flags=re.MULTILINE)
    about = dict(zip(parts[::2], parts[1::2], strict=True))
    name, given = program(), "".join(sys.argv[1:2])
    if given in words:
        second_word = given
        del sys.argv[1]
        return given, f"{about[given].rstrip()}\n{introduction.partition('.')[2].rstrip()}"
    if given in {"-h", "--help"}:
        shown = [f"  {word:<12}{first_sentence(about[word])}" for word in words]
        usage = f"usage: {name} {{{','.join(words)}}} [FILE.yaml] [--flag value ...]"
        sys.stdout.write(
            as_typed("\n".join([usage, "", introduction, *shown, "", f"{name} {words[0]} --help: more\n"]))
        )
        sys.exit(0)
    what = (
        f"{name}: there is no {given!r}; " if given and not given.startswith("-") else f"{name} needs one word more: "
    )
    sys.stderr.write(f"error: {what}give {', '.join(words)}{nearest(given, words, most=1)}\n")
    sys.exit(2)


def nearest(name: Any, names: Iterable[str], form: str = "{}", *, most: int = 3) -> str:
    """`; did you mean ...?` with the names that look like this one, or nothing."""
    found = difflib.get_close_matches(str(name), list(names), n=most)
    return f"; did you mean {' or '.join(form.format(name) for name in found)}?" if found else ""


def find_config(path: Path) -> Path:
    """A YAML file in the working directory, or else the one of that name among those that ship."""
    if os.path.isfile(path) or path.parent not in CONFIG_FOLDERS:  # noqa: PTH113 no error for any text
        return path
    shipped = CONFIGS / path.name
    return shipped if os.path.isfile(shipped) else path  # noqa: PTH113 no error for any text


def find_weights(value: Any) -> Any:
    """An option's value, in which a folder `recipes/weights/NAME` that is not here becomes the one that ships."""
    if isinstance(value, list):
        return [find_weights(one) for one in value]
    if isinstance(value, dict):
        return {name: find_weights(one) for name, one in value.items()}
    if isinstance(value, str) and Path(value).parent == Path("recipes/weights") and not os.path.exists(value):  # noqa: PTH110
        shipped = RECIPES / "weights" / Path(value).name
        return str(shipped) if os.path.isdir(shipped) else value  # noqa: PTH112 no error for any text
    return value


def missing_modules() -> str | None:
    """What every recipe needs beyond the packages and is not installed, with the command that installs it."""
    missing = [name for name in EXTRA if not is_installed(name)]
    return f"{', '.join(missing)}: not installed; run: pip install 'subtle-video[recipes]'" if missing else None


def is_installed(module: str) -> bool:
    spec = importlib.machinery.PathFinder.find_spec(module)
    return spec is not None and spec.origin is not None  # a folder of that name, such as ours of YAML files, has none
