"""How every recipe is configured: flags, or one YAML file, or a YAML file with flags that override it."""

import sys
from pathlib import Path
from typing import TypeVar

import yaml
from transformers import HfArgumentParser

Config = TypeVar("Config")


def parse_config(
    config_class: type[Config], description: str | None, arguments: list[str] | None = None
) -> Config:
    """The recipe's configuration from `[FILE.yaml] [--flag value ...]`; an unknown key is an error."""
    parser = HfArgumentParser(config_class, description=description)
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments and arguments[0].endswith((".yaml", ".yml")):
        path = Path(arguments[0])
        if not path.is_file():
            parser.error(f"no configuration file {path}; those of this project are in recipes/configs")
        values = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
        known = {action.dest: action for action in parser._actions}
        unknown = sorted(set(values) - set(known))
        if unknown:
            parser.error(f"{path}: unknown keys {unknown}; allowed: {sorted(set(known) - {'help'})}")
        for name in values:
            known[name].required = False
        parser.set_defaults(**values)
        arguments = arguments[1:]
    (config,) = parser.parse_args_into_dataclasses(arguments)
    return config
