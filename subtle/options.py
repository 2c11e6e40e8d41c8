"""How every recipe is configured: flags, or one YAML file, or a YAML file with flags that override it.

The rules are those of `transformers.HfArgumentParser`. Importing transformers takes half a second, though, and a recipe
answers `--help` and a misspelt flag before it imports anything that takes long, so they are written out over argparse.
"""

import argparse
import contextlib
import copy
import dataclasses
import difflib
import inspect
import os
import signal
import sys
import textwrap
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import UnionType
from typing import Any, Literal, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml

from subtle import running
from subtle.commands import CONFIGS, RECIPES, as_typed, find_config, missing_modules, program
from subtle.running import run_recipe as run_recipe  # every recipe has both from here

Config = TypeVar("Config")
BOOLEANS = dict.fromkeys(("true", "yes", "t", "y", "1"), True) | dict.fromkeys(("false", "no", "f", "n", "0"), False)
KINDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    dict: "a mapping of the form {name: value}",
}
METAVARS: dict[type, str] = {str: "TEXT", dict: "YAML"}


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
    """A field of a configuration as flags and YAML files give it.

    Attributes:
        name: of the field.
        group: the configuration class that introduced it.
        help: its sentence.
        default: its default.
        kind: bool, int, float, str or dict, of one value.
        choices: the only values there are; empty where any will do.
        names: see `option`.
        is_list: whether it has several values.
        is_optional: whether it may be None.
    """

    name: str
    group: type
    help: str
    default: Any
    kind: type
    choices: tuple[str, ...]
    names: tuple[str, ...]
    is_list: bool
    is_optional: bool

    def read(self, value: Any) -> Any:
        """The value that a YAML file gives.

        Raises:
            ValueError: It is of another kind, or not among the choices.
        """
        if value is None and self.is_optional:
            return None
        if not self.is_list:
            return self.read_one(value)
        if not isinstance(value, list):
            raise ValueError(f"{value!r} is not a list; write [{value}]")
        return [self.read_one(item) for item in value]

    def read_one(self, value: Any) -> Any:
        """The value that one word of the command line or one scalar of a YAML file gives.

        Raises:
            ValueError: It is of another kind, or not among the choices.
        """
        if value is False and "no" in self.choices:  # YAML reads an unquoted no as false
            value = "no"
        if self.is_optional and isinstance(value, str) and value.lower() in {"none", "null"}:
            return None
        if self.choices and value not in self.choices:
            known = ", ".join(self.choices)
            raise ValueError(f"there is no {value!r}; there are {known}{nearest(value, self.choices)}")
        if self.names and isinstance(value, str) and not self.is_known(value):
            raise ValueError(f"there is no {value!r}; give {self.known_names}{nearest(value, self.names)}")
        return converted(value, self.kind)

    def is_known(self, text: str) -> bool:
        """Whether a text is one of `names`, or may be a folder or a Hub name."""
        return text in self.names or "/" in text or os.path.isdir(text)  # noqa: PTH112 no error for any text

    @property
    def known_names(self) -> str:
        """What a text with `names` may be."""
        return f"{', '.join(self.names)}, a folder, or a Hub name (owner/name)"

    @property
    def described(self) -> str:
        """The sentence with the default, as one would type it."""
        values = self.default if isinstance(self.default, list) else [self.default]
        if self.kind is dict:  # what is in it is no line of help
            values = [f"{{{', '.join(map(str, self.default))}}}"] if self.default else ["{}"]
        words = [str(value).lower() if value is None or self.kind is bool else str(value) for value in values]
        shown = " ".join(word.replace(f"{RECIPES}{os.sep}", "recipes/") for word in words)
        return " ".join(
            [
                self.help,
                *([f"{self.known_names}."] if self.names else []),
                *([f"Default: {shown}."] if shown else []),
                *([f"--no_{self.name} turns it off."] if self.default is True else []),
            ]
        )


def converted(value: Any, kind: type) -> Any:
    """A scalar as `kind`; text is read as on the command line.

    Raises:
        ValueError: It cannot be read as one.
    """
    if kind is bool and isinstance(value, str):
        value = BOOLEANS.get(value.lower(), value)
    if kind is dict and isinstance(value, str):
        with contextlib.suppress(yaml.YAMLError, ValueError):
            value = yaml.safe_load(value)
    if kind in {int, float} and isinstance(value, str | int) and not isinstance(value, bool):
        try:
            value = kind(value)
        except ValueError as error:
            raise ValueError(f"{value!r} is not {KINDS[kind]}") from error
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        hint = f"; write it in quotes: '{value}'" if kind is str and not isinstance(value, list | dict) else ""
        raise ValueError(f"{value!r} is not {KINDS[kind]}{hint}")
    return value


def nearest(name: Any, names: Iterable[str], form: str = "{}") -> str:
    """`; did you mean ...?` with the names that look like this one, or nothing."""
    found = difflib.get_close_matches(str(name), list(names), n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(form.format(name) for name in found)}?" if found else ""


def settings_of(config_class: type) -> dict[str, Setting]:
    """The fields of a configuration class by name, its own first, then those that it inherits, class by class."""
    hints = get_type_hints(config_class)
    lineage = [base for base in config_class.__mro__ if dataclasses.is_dataclass(base)]
    found = []
    for field in dataclasses.fields(config_class):
        having = [base for base in lineage if field.name in inspect.get_annotations(base)]
        metadata = [base.__dataclass_fields__[field.name].metadata for base in having]
        described: Mapping[str, Any] = next((entry for entry in metadata if "help" in entry), {})
        kind, is_list, is_optional = unwrapped(hints[field.name])
        has_choices = get_origin(kind) is Literal
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        found.append(
            Setting(
                name=field.name,
                group=having[-1],
                help=described.get("help", ""),
                default=default,
                kind=str if has_choices else kind,
                choices=get_args(kind) if has_choices else (),
                names=described.get("names", ()),
                is_list=is_list,
                is_optional=is_optional,
            )
        )
    titles = [title_of(base) for base in lineage]  # that of several classes is one group
    return {setting.name: setting for setting in sorted(found, key=lambda one: titles.index(title_of(one.group)))}


def unwrapped(hint: Any) -> tuple[Any, bool, bool]:
    """The type of one value, whether it comes in a list, and whether it may be None."""
    is_optional = get_origin(hint) in {Union, UnionType}
    if is_optional:
        (hint,) = (kind for kind in get_args(hint) if kind is not type(None))
    if get_origin(hint) is list:
        return get_args(hint)[0], True, is_optional
    if get_origin(hint) is dict:
        return dict, False, is_optional
    return hint, False, is_optional


class ConfigParser(argparse.ArgumentParser):
    """Flags for every field of a configuration class, under the first lines of the classes' docstrings.

    A mistake is one line on stderr and exit status 2.
    """

    def __init__(self, config_class: type, description: str | None) -> None:
        super().__init__(
            prog=program(),
            usage="%(prog)s [FILE.yaml] [--flag value ...]",
            description=description and as_typed(description),
            formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, max_help_position=32),
            allow_abbrev=False,
            argument_default=argparse.SUPPRESS,
        )
        self.config_class, self.settings = config_class, settings_of(config_class)
        self.order = f"the YAML file comes before the flags: {self.prog} FILE.yaml --flag value"
        self.add_argument(
            "--print_config", action="store_true", help="Print the configuration as a YAML file and run nothing."
        )
        groups: dict[str, Any] = {}
        for setting in self.settings.values():
            title = title_of(setting.group).rstrip(".")
            if title not in groups:
                groups[title] = self.add_argument_group(title)
            self.add_setting(groups[title], setting)

    def add_setting(self, group: Any, setting: Setting) -> None:
        """The flag of a field, and `--no_FLAG` where it is true or false."""

        def read(word: str) -> Any:
            try:
                return setting.read_one(word)
            except ValueError as error:
                raise argparse.ArgumentTypeError(f"{error} ({self.order})" if is_yaml(word) else str(error)) from None

        shape: dict[str, Any] = {"metavar": METAVARS.get(setting.kind, setting.kind.__name__.upper())}
        if setting.choices:
            shape["metavar"] = f"{{{','.join(setting.choices)}}}"
        if setting.is_list:
            shape["nargs"] = "+"
        if setting.kind is bool:
            shape |= {"nargs": "?", "const": True, "metavar": "true|false"}
        described = as_typed(setting.described).replace("%", "%%")
        group.add_argument(f"--{setting.name}", type=read, help=described, **shape)
        if setting.kind is bool:
            group.add_argument(f"--no_{setting.name}", dest=setting.name, action="store_false", help=argparse.SUPPRESS)

    def read(self, arguments: list[str]) -> Any:
        """The configuration that the command line gives; ends the process for `--help` and `--print_config`."""
        values: dict[str, Any] = {}
        if arguments and is_yaml(arguments[0]):
            values = self.read_file(Path(arguments[0]))
            arguments = arguments[1:]
        flags, unknown = self.parse_known_args([with_underscores(word) for word in arguments])
        if unknown:
            self.refuse(unknown[0])
        given = vars(flags)
        prints = given.pop("print_config", False)
        for name, value in given.items():  # a list takes whatever follows its flag
            if isinstance(value, list) and not name.endswith("_config") and any(map(is_yaml, value)):
                self.error(self.order)
        try:
            config = self.config_class(**values | given)
        except ValueError as error:
            self.error(str(error))
        config.given = frozenset(values | given)
        if prints:
            self.exit(0, self.as_yaml(config))
        return config

    def as_yaml(self, config: Any) -> str:
        """A configuration as a YAML file, with the sentence of each field above it."""
        lines: list[str] = []
        title = None
        for name, setting in self.settings.items():
            if title_of(setting.group) != title:
                title = title_of(setting.group)
                lines += [*([""] if lines else []), f"## {title}"]
            comment = as_typed(setting.help)
            lines += textwrap.wrap(comment, 110, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)
            value = {name: getattr(config, name)}
            lines.append(yaml.safe_dump(value, allow_unicode=True, width=1000, sort_keys=False).rstrip())
        return "\n".join([*lines, ""])

    def read_file(self, path: Path) -> dict[str, Any]:
        """The values of a YAML file, yours or one that ships."""
        path = find_config(path)
        if not os.path.isfile(path):  # noqa: PTH113 no error for any text
            known = sorted(shipped.name for shipped in CONFIGS.glob("*.yaml"))
            self.error(
                f"no configuration file {path}; those that ship are {', '.join(known)}{nearest(path.name, known)}"
            )
        try:
            values = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (yaml.YAMLError, ValueError, OSError, RecursionError) as error:
            self.error(f"{path} cannot be read as YAML: {error}")
        if values is None:
            return {}
        if not isinstance(values, dict):
            self.error(f"{path} has no lines of the form `name: value` but {str(values)[:40]!r}")
        read = {}
        for name, value in values.items():
            if name not in self.settings:
                alike = nearest(str(name).replace("-", "_"), self.settings)
                self.error(f"{path}: there is no {name!r}{alike or f'; {self.prog} --help lists what there is'}")
            try:
                read[name] = self.settings[name].read(value)
            except ValueError as error:
                self.error(f"{path}: {name}: {error}")
        return read

    def refuse(self, word: str) -> NoReturn:
        """Exit with an error about a word of the command line that is not known."""
        if is_yaml(word):
            self.error(self.order)
        flag = word.partition("=")[0].lstrip("-")
        alike = nearest(flag, self.settings, "--{}") or f"; {self.prog} --help lists what there is"
        what = f"there is no flag {word}" if word.startswith("-") else f"{word!r} belongs to no flag"
        self.error(f"{what}{alike}")

    def error(self, message: str) -> NoReturn:
        """Exit with one line on stderr and exit status 2."""
        self.exit(2, as_typed(f"error: {running.visible(' '.join(message.split()))}\n"))

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """Exit; requested text goes to stdout, an error to stderr."""
        (sys.stderr if status else sys.stdout).write(message or "")
        sys.exit(status)


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


def title_of(group: type) -> str:
    """The first line of a configuration class's docstring."""
    return (group.__doc__ or "").strip().partition("\n")[0]


def is_yaml(word: Any) -> bool:
    return isinstance(word, str) and word.endswith((".yaml", ".yml"))


def first_word_as(name: str, words: list[str]) -> list[str]:
    """The first word as a flag, where it is neither a flag nor a YAML file.

    >>> first_word_as("index", ["archive", "--limit", "5"])
    ['--index', 'archive', '--limit', '5']
    """
    return words if not words or words[0].startswith("-") or is_yaml(words[0]) else [f"--{name}", *words]


def with_underscores(word: str) -> str:
    """A flag as the fields are spelled: `--batch-size=8` is `--batch_size=8`."""
    flag, equals, value = word.partition("=")
    return f"--{flag[2:].replace('-', '_')}{equals}{value}" if word.startswith("--") else word


def parse_config(config_class: type[Config], description: str | None, arguments: list[str] | None = None) -> Config:
    """The recipe's configuration from `[FILE.yaml] [--flag value ...]`.

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
