"""Train, measure and build with Subtle: one recipe per verb, each on a small dataset drawn on this machine by default.

subtle VERB [FILE.yaml] [--flag value ...]      # run a recipe; FILE.yaml: yours, or one of `subtle path configs`
subtle VERB --help                              # its flags with their defaults; some verbs need a second word, which
                                                # this lists, such as `subtle evaluate tfcovr`
accelerate launch $(subtle path stage2)         # on one or many GPUs
subtle path configs                             # prints a folder that ships; also: accelerate, cluster, weights

Results go to `outputs` in the working directory.
"""

import importlib.metadata
import runpy
import shutil
import signal
import sys
import textwrap
from pathlib import Path

from subtle import commands
from subtle.commands import RECIPES, nearest

VERBS = {
    "Start here": ("quickstart", "serve"),
    "Your own footage": ("index", "search", "tune"),
    "Data": ("check", "doctor", "build", "analyse", "caption", "embed"),
    "Training": ("stage1", "stage2", "finetune_vlm", "vidclip", "noise_evaluator", "vcmr"),
    "Measuring": ("evaluate", "table", "judge", "report"),
    "On the Hub": ("publish",),
}
RECIPE_FOLDERS = ("configs", "accelerate", "cluster", "weights")
DISTRIBUTION = "subtle-video"


def main() -> int:
    """Run the command; the exit status."""
    verbs = [verb for group in VERBS.values() for verb in group]
    word, *rest = sys.argv[1:] or ["--help"]
    if word in {"-h", "--help"}:
        return print_text(overview())
    if word == "--version":
        return print_text(f"{DISTRIBUTION} {importlib.metadata.version(DISTRIBUTION)}")
    if word == "path":
        return show_path(rest, verbs)
    if word in verbs:
        return run_verb(word, rest)
    known = [*verbs, "path"]
    return refuse(f"there is no {word!r}; there are {', '.join(known)}{nearest_verb(word, known)}")


def print_text(text: str) -> int:
    sys.stdout.write(f"{text}\n")
    return 0


def refuse(message: str) -> int:
    """One line on stderr; exit status 2."""
    sys.stderr.write(f"error: {message}\n")
    return 2


def nearest_verb(word: str, known: list[str]) -> str:
    return nearest(word.replace("-", "_"), known, most=1)


def overview() -> str:
    """What the command is, and its verbs with the first sentence of each."""
    columns = shutil.get_terminal_size().columns
    lines = [(__doc__ or "").strip()]
    for title, verbs in VERBS.items():
        lines += ["", f"{title}:"]
        for verb in verbs:
            # Read as text: parsing twenty files would take longer than starting Python.
            docstring = (RECIPES / f"{verb}.py").read_text(encoding="utf-8").split('"""', 2)[1]
            sentence = commands.as_typed(commands.first_sentence(docstring), by_command=True)
            text = f"  {verb:<20}{sentence}"
            lines.append(textwrap.fill(text, max(columns - 1, 60), subsequent_indent=" " * 22, break_on_hyphens=False))
    return "\n".join(lines)


def show_path(words: list[str], verbs: list[str]) -> int:
    """Print where a script, a folder of files or one of these files is."""
    allowed = f"give a verb ({', '.join(verbs)}), one of the folders {', '.join(RECIPE_FOLDERS)}, or a file in these"
    if len(words) != 1:
        return refuse(f"subtle path takes one name: {allowed}")
    (word,) = words
    name = Path(word)
    if word in verbs:
        return print_text(str(RECIPES / f"{word}.py"))
    is_inside = name.parts and not name.is_absolute() and ".." not in name.parts
    for relative in (name, "configs" / name) if is_inside else ():
        if relative.parts[0] in RECIPE_FOLDERS and (RECIPES / relative).exists():
            return print_text(str(RECIPES / relative))
    return refuse(f"there is no {word!r}; {allowed}{nearest_verb(word, [*verbs, *RECIPE_FOLDERS])}")


def run_verb(verb: str, arguments: list[str]) -> int:
    """Run a script as `python recipes/VERB.py` would."""
    if missing := commands.missing_modules():
        return refuse(missing)
    script = str(RECIPES / f"{verb}.py")
    earlier, words, started = signal.getsignal(signal.SIGINT), sys.argv, commands.started_by_command
    try:
        sys.argv, commands.started_by_command = [script, *arguments], True
        runpy.run_path(script, run_name="__main__")
    finally:
        sys.argv, commands.started_by_command = words, started
        if signal.getsignal(signal.SIGINT) is not earlier:  # of a program that calls this
            signal.signal(signal.SIGINT, earlier)
    return 0
