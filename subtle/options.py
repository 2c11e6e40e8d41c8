"""How every recipe is configured: flags, or YAML files of which each overrides those before it, or both: flags win.

The rules are those of `transformers.HfArgumentParser`, which takes half a second to import, over argparse.

Why no library: this file was written over jsonargparse 4.53 and tyro 1.0, too, and stayed as long: 337 and 373 lines.
Neither knows `none`, a name or a folder or a Hub name, and the nearest choice; jsonargparse does not say the nearest
flag, nor the file that a mistake is in, and tyro reads no YAML. The processor time of `stage1.py --help` went from
0.10 s to 0.19 and 0.25 s.
"""

import argparse
import contextlib
import copy
import dataclasses
import inspect
import itertools
import os
import signal
import sys
import textwrap
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

import yaml

from subtle import running
from subtle.commands import CONFIGS, RECIPES, as_typed, find_config, find_weights, missing_modules, program
from subtle.commands import nearest as nearest  # tables and trainings take it from here
from subtle.running import Config
from subtle.running import run_recipe as run_recipe  # every recipe has both from here

VALUE_KINDS = {
    bool: ("true|false", "true or false"),
    int: ("INT", "a whole number"),
    float: ("FLOAT", "a number"),
    str: ("TEXT", "text"),
    dict: ("YAML", "a mapping of the form {name: value}"),
}
"""The kinds of values: how `--help` shows one, and what a mistake says that it is not."""


def option(default: Any, help: str, *, names: tuple[str, ...] = ()) -> Any:
    """A field of a configuration with its sentence in `--help`.

    Args:
        default: its default; a list or a mapping is copied for each configuration.
        help: what it is, in which unit, and what None means. A subclass that only changes the default can leave it out.
        names: the names that a text may have beside a folder or a Hub name (which has a `/`).
    """
    metadata = {"help": help, "names": names}
    if isinstance(default, list | dict):
        return dataclasses.field(default_factory=lambda: copy.deepcopy(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class Setting:
    """A field of a configuration as flags and YAML files give it."""

    name: str
    group: type  # the configuration class that introduced it
    help: str
    default: Any
    kind: type  # of one value, a key of `VALUE_KINDS`
    choices: tuple[str, ...]  # the only values there are; empty where any will do
    names: tuple[str, ...]  # see `option`
    is_list: bool
    is_optional: bool  # whether it may be None

    def read(self, value: Any) -> Any:
        """The value that a YAML file or the words after a flag give.

        Raises:
            ValueError: It is of another kind, or not among the choices.
        """
        values = value if isinstance(value, list) else [value]
        if self.is_optional and len(values) == 1 and str(values[0]).lower() in {"none", "null"}:
            return None
        if self.is_list and not isinstance(value, list):
            raise ValueError(f"{value!r} is not a list; write [{value}]")
        return [self.read_one(item) for item in value] if self.is_list else self.read_one(value)

    def read_one(self, value: Any) -> Any:
        """One value; text is read as on the command line."""
        if value is False and "no" in self.choices:  # YAML reads an unquoted no as false
            value = "no"
        known, text = self.choices or self.names, str(value)
        is_elsewhere = bool(self.names) and ("/" in text or os.path.isdir(text))  # noqa: PTH112 no error for any text
        if known and value not in known and not is_elsewhere:
            there = f"{'there are' if self.choices else 'give'} {self.known}"
            raise ValueError(f"there is no {value!r}; {there}{nearest(value, known)}")
        read = value
        with contextlib.suppress(ValueError, yaml.YAMLError, RecursionError):
            if self.kind in {bool, dict} and isinstance(value, str):
                read = yaml.safe_load(value)
            elif self.kind in {int, float} and isinstance(value, str | int) and not isinstance(value, bool):
                read = self.kind(value)
        if not isinstance(read, self.kind) or (self.kind is int and isinstance(read, bool)):
            hint = f"; write it in quotes: '{value}'" if self.kind is str and not isinstance(value, list | dict) else ""
            raise ValueError(f"{value!r} is not {VALUE_KINDS[self.kind][1]}{hint}")
        return read

    @property
    def known(self) -> str:
        """The choices; where there are only names, also what else a text may be."""
        return ", ".join(self.choices or (*self.names, "a folder, or a Hub name (owner/name)"))

    @property
    def described(self) -> str:
        """The sentence with the default, as one would type it."""
        values = self.default if isinstance(self.default, list) else [self.default]
        words = [str(value).lower() if value is None or self.kind is bool else str(value) for value in values]
        shown = " ".join(word.replace(f"{RECIPES}{os.sep}", "recipes/") for word in words)
        return " ".join(
            [
                self.help,
                *([f"{self.known}."] if self.names else []),
                *([f"Default: {shown}."] if shown and self.kind is not dict else []),
                *([f"--no_{self.name} turns it off."] if self.default is True else []),
            ]
        )


def settings_of(config_class: type) -> dict[str, Setting]:
    """The fields of a configuration class by name, its own first, then those that it inherits, class by class."""
    hints = get_type_hints(config_class)
    lineage = [base for base in config_class.__mro__ if dataclasses.is_dataclass(base)]
    found = []
    for field in dataclasses.fields(config_class):
        having = [base for base in lineage if field.name in inspect.get_annotations(base)]
        metadata = [base.__dataclass_fields__[field.name].metadata for base in having]
        described: Mapping[str, Any] = next((entry for entry in metadata if "help" in entry), {})
        hint = hints[field.name]
        is_optional = get_origin(hint) in {Union, UnionType}
        if is_optional:
            (hint,) = (kind for kind in get_args(hint) if kind is not type(None))
        is_list = get_origin(hint) is list
        kind = get_args(hint)[0] if is_list else hint
        has_choices = get_origin(kind) is Literal
        setting = Setting(
            name=field.name,
            group=having[-1],
            help=described.get("help", ""),
            default=field.default if field.default_factory is dataclasses.MISSING else field.default_factory(),
            kind=str if has_choices else get_origin(kind) or kind,
            choices=get_args(kind) if has_choices else (),
            names=described.get("names", ()),
            is_list=is_list,
            is_optional=is_optional,
        )
        found.append(setting)
    titles = [group_title(base) for base in lineage]  # that of several classes is one group
    return {setting.name: setting for setting in sorted(found, key=lambda one: titles.index(group_title(one.group)))}


class ConfigParser(argparse.ArgumentParser):
    """Flags for every field of a configuration class, under the first lines of the classes' docstrings.

    A mistake is one line on stderr and exit status 2.
    """

    def __init__(self, config_class: type, description: str | None) -> None:
        super().__init__(
            prog=program(),
            usage="%(prog)s [FILE.yaml ...] [--flag value ...]",
            description=description and as_typed(description),
            formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, max_help_position=32),
            allow_abbrev=False,
            argument_default=argparse.SUPPRESS,
        )
        self.config_class, self.settings = config_class, settings_of(config_class)
        self.add_argument(
            "--print_config", action="store_true", help="Print the configuration as a YAML file and run nothing."
        )
        for title, settings in itertools.groupby(self.settings.values(), lambda setting: group_title(setting.group)):
            group = self.add_argument_group(title.rstrip("."))
            for setting in settings:
                shape: dict[str, Any] = {"metavar": VALUE_KINDS[setting.kind][0]}
                if setting.choices:
                    shape["metavar"] = f"{{{','.join(setting.choices)}}}"
                if setting.is_list:
                    shape["nargs"] = "+"
                if setting.kind is bool:
                    shape |= {"nargs": "?", "const": True}
                    group.add_argument(
                        f"--no_{setting.name}", dest=setting.name, action="store_false", help=argparse.SUPPRESS
                    )
                group.add_argument(f"--{setting.name}", help=as_typed(setting.described).replace("%", "%%"), **shape)

    def read(self, arguments: list[str]) -> Any:
        """The configuration that the command line gives; ends the process for `--help` and `--print_config`."""
        words = [with_underscores(word) for word in arguments]
        values: dict[str, Any] = {}
        while words and is_yaml(words[0]):
            values |= self.read_file(find_config(Path(words.pop(0))))
        for before, word in itertools.pairwise(["", *words]):
            if is_yaml(word) and not word.startswith("--") and not is_yaml(before) and not before.endswith("_config"):
                self.error(f"the YAML file comes before the flags: {self.prog} FILE.yaml --flag value")
        flags, unknown = self.parse_known_args(words)
        for word in unknown:
            what = f"there is no flag {word}" if word.startswith("-") else f"{word!r} belongs to no flag"
            self.error(f"{what}{self.alike(word.partition('=')[0].lstrip('-'), '--{}')}")
        given = vars(flags)
        prints = given.pop("print_config", False)
        values |= self.read_values(given, "--")
        try:
            config = self.config_class(**values)
        except ValueError as error:
            self.error(str(error))
        config.given = frozenset(values)
        if prints:
            sys.stdout.write(self.as_yaml(config))
            self.exit()
        return config

    def read_file(self, path: Path) -> dict[str, Any]:
        """The values of a YAML file."""
        if not os.path.isfile(path):  # noqa: PTH113 no error for any text
            known = sorted(shipped.name for shipped in CONFIGS.glob("*.yaml"))
            there = f"those that ship are {', '.join(known)}{nearest(path.name, known)}"
            self.error(f"no configuration file {path}; {there}")
        try:
            values = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (yaml.YAMLError, ValueError, OSError, RecursionError) as error:
            self.error(f"{path} cannot be read as YAML: {error}")
        if not isinstance(values, dict | None):
            self.error(f"{path} has no lines of the form `name: value` but {str(values)[:40]!r}")
        for name in values or {}:
            if name not in self.settings:
                self.error(f"{path}: there is no {name!r}{self.alike(str(name).replace('-', '_'))}")
        return self.read_values(values or {}, f"{path}: ")

    def read_values(self, given: Mapping[str, Any], where: str) -> dict[str, Any]:
        """The values of what is given by name."""
        read = {}
        for name, value in given.items():
            try:
                read[name] = self.settings[name].read(find_weights(value))
            except ValueError as error:
                self.error(f"{where}{name}: {error}")
        return read

    def alike(self, name: str, form: str = "{}") -> str:
        """The options with such a name, or where to find all."""
        return nearest(name, self.settings, form) or f"; {self.prog} --help lists what there is"

    def as_yaml(self, config: Any) -> str:
        """A configuration as a YAML file, with the sentence of each field above it."""
        lines: list[str] = []
        for title, settings in itertools.groupby(self.settings.values(), lambda setting: group_title(setting.group)):
            lines += ["", f"## {title}"]
            for setting in settings:
                lines += textwrap.wrap(
                    f"# {as_typed(setting.help)}", 110, subsequent_indent="# ", break_on_hyphens=False
                )
                value = {setting.name: getattr(config, setting.name)}
                lines.append(yaml.safe_dump(value, allow_unicode=True, width=1000, sort_keys=False).rstrip())
        return "\n".join([*lines[1:], ""])

    def error(self, message: str) -> NoReturn:
        """Exit with one line on stderr and exit status 2."""
        self.exit(2, as_typed(f"error: {running.visible(' '.join(message.split()))}\n"))


def given_in(config: Any) -> frozenset[str]:
    """The options that the command line or its YAML file gave; of a configuration made in Python, those off default."""
    if "given" not in vars(config):
        default = type(config)()
        names = (field.name for field in dataclasses.fields(config))
        return frozenset(name for name in names if getattr(config, name) != getattr(default, name))
    given: frozenset[str] = config.given
    return given


def adopt(config: Any, others: Iterable[Any], names: Iterable[str]) -> None:
    """Give a configuration what was not given to it but to another recipe's, such as the data that a YAML file names.

    Raises:
        ValueError: Several were given different values.
    """
    given = given_in(config)
    for name in [name for name in names if name not in given]:
        found = [getattr(other, name) for other in others if name in given_in(other)]
        if any(value != found[0] for value in found):
            raise ValueError(
                f"the configuration files differ in {name}: {' and '.join(map(str, found))}; say which with --{name}"
            )
        if found:
            setattr(config, name, found[0])


def override(other: Any, config: Any, names: Iterable[str]) -> None:
    """Give another recipe's configuration what was given to this one, and whatever was not given to it."""
    given, own = given_in(config), given_in(other)
    for name in names:
        if name in given or name not in own:
            setattr(other, name, getattr(config, name))


def group_title(group: type) -> str:
    """The first line of a configuration class's docstring."""
    return (group.__doc__ or "").strip().partition("\n")[0]


def is_yaml(word: Any) -> bool:
    return isinstance(word, str) and word.endswith((".yaml", ".yml"))


def first_words_as(names: Sequence[str], words: list[str]) -> list[str]:
    """The first words as flags with these names, as far as they are neither flags nor YAML files.

    >>> first_words_as(["what", "name"], ["metric", "map_at_k", "--dry_run"])
    ['--what', 'metric', '--name', 'map_at_k', '--dry_run']
    """
    first = list(itertools.takewhile(lambda word: not (word.startswith("-") or is_yaml(word)), words[: len(names)]))
    named = zip((f"--{name}" for name in names), first, strict=False)
    return [*itertools.chain.from_iterable(named), *words[len(first) :]]


def with_underscores(word: str) -> str:
    """A flag as the fields are spelled: `--batch-size=8` is `--batch_size=8`."""
    flag, equals, value = word.partition("=")
    return f"--{flag[2:].replace('-', '_')}{equals}{value}" if word.startswith("--") else word


def parse_config(config_class: type[Config], description: str | None, arguments: list[str] | None = None) -> Config:
    """The recipe's configuration from `[FILE.yaml ...] [--flag value ...]`.

    Args:
        config_class: a dataclass of `option` fields: bool, int, float, str, `Literal` of texts, lists and `| None` of
            them, and `dict[str, Any]`, which a flag gives as YAML.
        description: the first lines of `--help`.
        arguments: the words; by default those of the command line. Then an interrupt ends the process in one line until
            `run_recipe` runs: the imports between take seconds.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if arguments is None and is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, running.end_at_once)
    parser = ConfigParser(config_class, description)
    if arguments is None and (missing := missing_modules()):
        parser.error(missing)
    config: Config = parser.read(sys.argv[1:] if arguments is None else arguments)
    if arguments is None:
        running.imports = running.announce("loading the libraries")
    return config
