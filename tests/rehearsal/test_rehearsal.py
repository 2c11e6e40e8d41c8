"""A dress rehearsal: every command of recipes/README.md, "From paper to command", on data as one downloads them.

The commands are read from there and typed in a folder with the drawn data of `drawn_data` and the small models of
`stand_ins`. Their configuration files are those that ship, with fewer steps and on this machine.
"""

import importlib.util
import json
import math
import shlex
import sys
import time
from pathlib import Path

import pytest
import yaml
from accelerate.state import AcceleratorState, GradientState
from chat_server import ChatServer, last_text

import subtle.commands
import subtle.options
from hf_datasets.fig import construction
from hf_datasets.generation.openai_chat import OpenAIChat
from hf_datasets.miniature import TIERS, MiniatureConfig, prepare_miniature
from hf_datasets.miniature.render import tier_name
from hf_datasets.tfcovr.captions import caption_of
from hf_datasets.tfcovr.labels import labels_by_id
from subtle import cli
from subtle.table.options import options_of_kind
from tests.fixtures.verbs import RECIPES, options_of
from tests.rehearsal.commands import Command, read_commands
from tests.rehearsal.stand_ins import make_models

FEWER = {"epochs": 1, "batch_size": 8, "max_steps": 2, "warmup_steps": 1, "seeds": [0], "checkpoint_steps": 1000}
HERE = {"device": "cpu", "num_workers": 0}
SMALLER = {"fusion_hidden_dim": 16, "fusion_projection_dim": 16}
IMPORT = "subtle embed clips embed_one_gpu.yaml --video_dir none --import_from aim_embeddings_12f_train_val_test.pkl"
NOT_REHEARSED = {
    "subtle publish ": "it needs the Hub; test_hub.py publishes to a server here",
    **dict.fromkeys(
        (
            "python -m hf_models.tfcovr.convert_stage2",
            f"{IMPORT} --text_model",
            "subtle evaluate tfcovr evaluate_tfcovr_one_gpu.yaml --video_dir none --models outputs/tfcovr/released",
        ),
        "it needs the authors' checkpoint; test_converters.py converts one of that form",
    ),
}
"""How a command begins -> why it is not run here."""
UNKNOWN = {
    "gymnastics": caption_of(labels_by_id()["40"]),
    "diving": caption_of(labels_by_id()["103b"]),
    None: '{"target_description": "The clip shows a switch leap."}',
}
"""Answers about clips of a sport without a label, which are all that the release tests on, and about anything else."""
COMMANDS = read_commands()


def fewer(values, changes):
    """A configuration with fewer steps, also of the variations in it."""
    return {
        name: fewer(value, changes) if isinstance(value, dict) else changes.get(name, value)
        for name, value in values.items()
    }


@pytest.fixture(scope="module")
def here(drawn):
    """The folder in which commands are typed, and a chat server that answers as the rule-based generators."""
    import datasets

    root = drawn
    make_models(root)
    small = MiniatureConfig(
        labels=("40", "41", "54", "55", "119", "93", "103b", "107b"),  # 54 or 55 is held out of `unseen`
        clips_per_label={"train": 4, "validation": 2, "test": 2},
        videos_per_split={"train": 3, "validation": 2, "test": 2},
        size=32,
        fps=6,
    )
    drawn = prepare_miniature(root / "cache/subtle-miniature", config=small, num_workers=0, progress=False)
    for tier in (MiniatureConfig(), TIERS["hard"]):
        drawn.with_name(tier_name(tier)).symlink_to(drawn)
    written = {}
    answer = OpenAIChat.answer

    def remember(self, request):
        """Before it is asked, what the rule-based generator would answer; some sentence where it knows no answer."""
        text = last_text({"messages": request.messages})
        try:
            written[text] = request.task.write(request.row)
        except ValueError:
            written[text] = UNKNOWN[getattr(request.row, "sport", None)]
        return answer(self, request)

    with pytest.MonkeyPatch.context() as patch, ChatServer(lambda body: written[last_text(body)]) as server:
        patch.chdir(root)
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", root / "cache")
        patch.setattr(OpenAIChat, "answer", remember)
        patch.setenv("OPENAI_BASE_URL", server.url)
        for key in ("OPENAI_API_KEY", "GEMINI_API_KEY"):
            patch.setenv(key, "none")
        if importlib.util.find_spec("scenedetect") is None:  # an extra: then each moment is one scene
            patch.setattr(construction, "keyframe_seconds", lambda _, start, end: [(start + min(end, 8)) / 2])
        for path in (RECIPES / "configs").glob("*.yaml"):
            values = yaml.safe_load(path.read_text(encoding="utf-8"))
            values = fewer(values, FEWER | HERE | SMALLER | {"mixed_precision": "no", "base_url": server.url})
            for folder in (root, root / "recipes/configs"):
                folder.mkdir(parents=True, exist_ok=True)
                (folder / path.name).write_text(yaml.safe_dump(values, sort_keys=False), encoding="utf-8")
        yield server.url


def fill_in_the_forms(folder: Path) -> None:
    """What three participants of a user study send back."""
    item, *_ = json.loads((folder / "items.json").read_text(encoding="utf-8"))
    for person in ("ann", "bob", "cyd"):
        answer = {"item_id": item, "static": 1, "dynamic": 1, "accuracy": 4}
        content = {"form": "1", "participant": person, "answers": [answer]}
        (folder / f"answers-{person}.json").write_text(json.dumps(content), encoding="utf-8")


def typed(command: Command, url: str) -> list[str]:
    """The words of a command; of this machine what it does not name, and fewer steps where no file gives them."""
    words = command.words(url)
    verb, *rest = words
    name = f"{verb}_{rest[0]}" if verb in subtle.commands.SECOND_WORDS else verb
    options = subtle.options.settings_of(options_of_kind(rest) if verb == "table" else options_of(name))
    more = HERE if any(map(subtle.options.is_yaml, words)) else HERE | FEWER
    for option, value in more.items():
        if option in options and f"--{option}" not in words:
            words += [f"--{option}", *map(str, value if isinstance(value, list) else [value])]
    return words


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


def written_since(start: float) -> dict:
    """The figures of each folder of results that was written since then, or of another output its size in bytes."""
    paths = [path for path in Path("outputs").rglob("*.*") if ".sqlite" not in path.name and path.is_file()]
    paths = [path for path in paths if path.stat().st_mtime >= start]
    results = {
        path.parent: json.loads(path.read_text(encoding="utf-8")) for path in paths if path.name == "results.json"
    }
    return {str(folder): values["figures"] for folder, values in results.items()} or {
        str(path): path.stat().st_size for path in paths
    }


def numbers_in(value):
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from numbers_in(one)
    elif isinstance(value, int | float):
        yield value


def marks_of(command: Command) -> list:
    return [pytest.mark.skip(reason=why) for start, why in NOT_REHEARSED.items() if command.text.startswith(start)]


@pytest.mark.slow  # `make test-rehearsal`
@pytest.mark.parametrize(
    "command",
    [pytest.param(one, marks=marks_of(one), id=one.text.removeprefix("subtle ")) for one in COMMANDS],
)
def test_a_command_of_the_readme_gives_its_row(command, here, monkeypatch):
    start = time.time()
    words = typed(command, here)
    if "--answers" in words:
        fill_in_the_forms(Path(words[words.index("--answers") + 1]))
    status = run(words, monkeypatch)
    assert not status, shlex.join(words)
    found = written_since(start)
    if not found and "--dry_run" not in words:  # a complete run stays as it is
        configured = [yaml.safe_load(Path(word).read_text("utf-8")) for word in words if subtle.options.is_yaml(word)]
        places = [one["output_dir"] for one in configured if "output_dir" in one]
        place = words[words.index("--output_dir") + 1] if "--output_dir" in words else places[-1]
        found = json.loads(Path(place, "results.json").read_text(encoding="utf-8"))
    if "--dry_run" not in words:
        assert any(map(math.isfinite, numbers_in(found))), "it wrote no figure"
    row = (command.section, command.row, command.text, f"{time.time() - start:.1f} s", str(found)[:200])
    sys.stdout.write(f"\nROW: {' | '.join(row)}\n")


def test_what_is_not_rehearsed_is_in_the_readme():
    assert all(any(one.text.startswith(start) for one in COMMANDS) for start in NOT_REHEARSED)
