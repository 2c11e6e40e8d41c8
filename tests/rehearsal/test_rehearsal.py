"""A dress rehearsal: every command of recipes/README.md, "From paper to command", on data as one downloads them.

The commands are read from there and typed in a folder with the drawn data of `drawn_data` and the small models of
`stand_ins`. Their configuration files are those that ship, with fewer steps and on this machine.
"""

import json
import math
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from accelerate.state import AcceleratorState, GradientState
from chat_server import ChatServer, last_text

import subtle.commands
import subtle.options
from hf_datasets.generation.openai_chat import OpenAIChat
from hf_datasets.miniature import TIERS, MiniatureConfig, prepare_miniature
from hf_datasets.miniature.render import fingerprint
from hf_datasets.tfcovr.captions import ClipToCaption
from hf_datasets.tfcovr.labels import labels_by_id
from subtle import cli
from tests.fixtures.verbs import RECIPES, options_of
from tests.rehearsal.commands import Command, read_commands
from tests.rehearsal.drawn_data import draw
from tests.rehearsal.stand_ins import make_models

FEWER = {"epochs": 1, "batch_size": 8, "max_steps": 2, "warmup_steps": 1, "seeds": [0], "checkpoint_steps": 1000}
HERE = {"device": "cpu", "mixed_precision": "no", "num_workers": 0}
SMALLER = {"fusion_hidden_dim": 16, "fusion_projection_dim": 16}
NOT_REHEARSED: dict[str, str] = {}
"""Start of a command -> why it is not run here."""
SMALLEST = ()
"""Starts of the commands that `make test` runs, too."""
COMMANDS = read_commands()


def fewer(values):
    """A configuration with fewer steps, also of the variations in it."""
    changes = FEWER | HERE | SMALLER
    return {
        name: fewer(value) if isinstance(value, dict) else changes.get(name, value) for name, value in values.items()
    }


@pytest.fixture(scope="session")
def here(tmp_path_factory):
    """The folder in which commands are typed, and a chat server that answers as the rule-based generators."""
    import datasets

    root = tmp_path_factory.mktemp("rehearsal")
    draw(root)
    make_models(root)
    for path in (RECIPES / "configs").glob("*.yaml"):
        values = fewer(yaml.safe_load(path.read_text(encoding="utf-8")))
        for folder in (root, root / "recipes/configs"):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / path.name).write_text(yaml.safe_dump(values, sort_keys=False), encoding="utf-8")
    small = MiniatureConfig(
        labels=("40", "41", "119", "93", "103b", "107b"),
        clips_per_label={"train": 4, "validation": 2, "test": 2},
        videos_per_split={"train": 3, "validation": 2, "test": 2},
        size=32,
        fps=6,
    )
    drawn = prepare_miniature(root / "cache/subtle-miniature", config=small, num_workers=0, progress=False)
    for tier in (MiniatureConfig(), TIERS["hard"]):
        drawn.with_name(fingerprint(tier)).symlink_to(drawn)
    written = {}
    answer = OpenAIChat.answer

    def remember(self, request):
        """Before it is asked, what the rule-based generator would answer; it has to know a label, which tests lack."""
        row = request.row
        if isinstance(row, ClipToCaption) and row.label is None:
            row = replace(row, label=labels_by_id()["103b" if row.sport == "diving" else "40"])
        written[last_text({"messages": request.messages})] = request.task.write(row)
        return answer(self, request)

    with pytest.MonkeyPatch.context() as patch, ChatServer(lambda body: written[last_text(body)]) as server:
        patch.chdir(root)
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", root / "cache")
        patch.setattr(OpenAIChat, "answer", remember)
        patch.setenv("OPENAI_BASE_URL", server.url)
        patch.setenv("OPENAI_API_KEY", "none")
        yield server.url


def typed(command: Command, url: str) -> list[str]:
    """The words of a command, and of this machine what it does not name."""
    words = command.words(url)
    verb, *rest = words
    name = f"{verb}_{rest[0]}" if verb in subtle.commands.SECOND_WORDS else verb
    options = options_of(name) if verb != "table" else subtle.table.options.options_of_kind(rest)
    there = subtle.options.settings_of(options)
    return words + [
        word
        for name, value in HERE.items()
        if name in there and f"--{name}" not in words
        for word in (f"--{name}", str(value))
    ]


def run(words: list[str], monkeypatch) -> int | str | None:
    """Run a command line in this process; its exit status."""
    monkeypatch.setattr(sys, "argv", ["subtle", *words])
    monkeypatch.setattr(subtle.commands, "started_by_command", True)
    monkeypatch.setattr(subtle.commands, "second_word", "")
    try:
        return cli.main()
    except SystemExit as end:
        return end.code
    finally:
        AcceleratorState._reset_state(reset_partial_state=True)
        GradientState._reset_state()


def figures_since(start: float) -> dict:
    """What the results that were written since then hold, by folder."""
    paths = [path for path in Path("outputs").rglob("results.json") if path.stat().st_mtime >= start]
    return {str(path.parent): json.loads(path.read_text(encoding="utf-8"))["figures"] for path in paths}


def numbers_in(value):
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from numbers_in(one)
    elif isinstance(value, int | float):
        yield value


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.text.removeprefix("subtle "))
def test_a_command_of_the_readme_gives_its_row(command, here, monkeypatch, request):
    start = time.time()
    words = typed(command, here)
    status = run(words, monkeypatch)
    assert not status, " ".join(words)
    found = figures_since(start)
    if "--dry_run" not in words:
        assert found, "no results"
        assert any(map(math.isfinite, numbers_in(found)))
    print(
        "ROW",
        command.section,
        "|",
        command.row,
        "|",
        command.text,
        "|",
        str(found)[:300],
        "|",
        f"{time.time() - start:.1f} s",
    )
