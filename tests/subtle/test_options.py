"""The command lines of all recipes: help, mistakes, YAML files, and what the documents say of them."""

import ast
import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml

from subtle.commands import SECOND_WORDS, find_config, find_weights
from subtle.options import first_words_as, given_in, is_yaml, option, parse_config, settings_of
from subtle.run.shared_config import COMP_DATASETS, FIG_DATASETS, TFCOVR_DATASETS, DataConfig, EndConvention
from tests.fixtures.verbs import VERBS, VERBS_AND_KINDS, WORDS, options_of, typed

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "recipes"
DOCUMENTS = [
    path
    for pattern in ("*.md", "docs/*.md", "recipes/**/*.md", "recipes/**/*.yaml", "hf_*/**/*.md", "metrics/**/*.md")
    for path in sorted(ROOT.glob(pattern))
]
CODE = [
    path
    for name in ("recipes", "subtle", "hf_datasets", "hf_models", "metrics")
    for path in sorted((ROOT / name).rglob("*.py"))
]
OF_OTHER_PROGRAMS = {"--repo-type", "--local-dir", "--num-cpus", "--num-gpus"}  # of hf and of ray
COMMAND = re.compile(
    r"(?:(?:python|accelerate launch[^`\n]*?) recipes/(\w+)\.py|(?:^ *|`)subtle "
    r"(?!path\b)([a-z]\w+)|\$\(subtle path ([a-z]\w+)\))([^`]*?)(?:`|#|\n|\Z)",
    re.MULTILINE,
)


def run_calls(calls):
    """What each command line answers, in one process that can import nothing heavy."""
    process = subprocess.run(
        [sys.executable, str(ROOT / "tests/fixtures/recipe_calls.py")],
        input=json.dumps(calls),
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "100"},
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


def text_of(path):
    """What a document says; of code, its module docstring, with lines that `\\` continues joined."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        text = ast.get_docstring(ast.parse(text)) or ""
    return re.sub(r"\s*\\\n#?\s*", " ", text)


def commands_in(text):
    """Every command line of a recipe in a text, options in brackets included."""
    for script, verb, launched, rest in COMMAND.findall(text):
        words = shlex.split(rest.replace("[", " ").replace("]", " "), comments=True)
        yield (f"recipes/{script or verb or launched}.py", *(word for word in words if word != "..."))


@cache
def documented_commands():
    """The command lines in documents and docstrings, and what a row of a table adds: "then with `--answers DIR`"."""
    found = {}
    for path in (*DOCUMENTS, *CODE):
        found |= dict.fromkeys(commands_in(text_of(path)), path.relative_to(ROOT))
    command = ()
    for row in re.findall(r"^\| .*", (RECIPES / "README.md").read_text(encoding="utf-8"), re.MULTILINE):
        command = next(commands_in(row), command)  # "the same with ..." is about the row above
        found |= {(*command, *shlex.split(more)): "recipes/README.md" for more in re.findall(r"`(--[^`]+)`", row)}
    return found


def test_every_recipe_answers_help_before_anything_heavy_is_imported():
    assert len(VERBS) == 22
    answers = run_calls([[*typed(name), "--help"] for name in WORDS])
    for (name, (script, *word)), (status, shown, errors) in zip(WORDS.items(), answers, strict=True):
        assert (status, errors) == (0, ""), name
        docstring = ast.get_docstring(ast.parse((RECIPES / script).read_text(encoding="utf-8")))
        for one in word:
            docstring = re.search(rf"^{one}: (.*?)(\n\n\w+: |\Z)", docstring, re.MULTILINE | re.DOTALL)[1]
        assert docstring.strip() in shown, name  # the examples keep their lines


def test_a_verb_with_second_words_lists_them_with_the_first_sentence_of_each():
    answers = run_calls([[f"recipes/{verb}.py", *more] for verb in SECOND_WORDS for more in ([], ["--help"], ["flg"])])
    for number, (verb, words) in enumerate(SECOND_WORDS.items()):
        bare, helped, wrong = answers[3 * number : 3 * number + 3]
        assert bare == [2, "", f"error: {verb}.py needs one word more: give {', '.join(words)}\n"]
        assert (helped[0], helped[2]) == (0, "")
        assert tuple(re.findall(r"^  (\w+) +[A-Z].+[.]$", helped[1], re.MULTILINE)) == words
        assert wrong[2].startswith(f"error: {verb}.py: there is no 'flg'; give {', '.join(words)}")


def test_every_documented_command_names_a_script_a_file_and_flags_that_exist():
    commands = documented_commands()
    assert len(commands) > 100
    for (command, path), (status, _, errors) in zip(
        commands.items(), run_calls([[*command, "--print_config"] for command in commands]), strict=True
    ):
        assert status == 0, f"{path}: {shlex.join(command)}: {errors}"


def test_a_printed_configuration_given_back_is_the_same(tmp_path):
    calls = [
        ["recipes/vidclip.py", "--stack", "4", "--learning-rate=1e-4", "--mixed_precision", "no"],
        ["recipes/evaluate.py", "tfcovr", "--seeds", "0", "1", "--no_compare", "--name", "no: 'quotes'"],
        ["recipes/embed.py", "moments", "--clip_seconds", "0.25"],
    ]
    printed = [out for _, out, _ in run_calls([[*call, "--print_config"] for call in calls])]
    again = []
    for number, ((script, word, *_), out) in enumerate(zip(calls, printed, strict=True)):
        file = tmp_path / f"{number}.yaml"
        file.write_text(out)
        again.append([script, *([] if word.startswith("-") else [word]), str(file), "--print_config"])
    assert [[0, out, ""] for out in printed] == run_calls(again)
    first, second, third = map(yaml.safe_load, printed)
    assert (first["stack"], first["learning_rate"], first["mixed_precision"]) == (4, 1e-4, "no")
    assert (second["seeds"], second["compare"], second["name"]) == ([0, 1], False, "no: 'quotes'")
    assert (third["clip_seconds"], third["dataset"]) == (0.25, "charades_fig")
    assert "# Highest learning rate, after the warm-up.\nlearning_rate: 0.0001\n" in printed[0]


def test_every_field_of_every_recipe_has_a_sentence_and_every_group_a_title():
    printed = run_calls([[*typed(name), "--print_config"] for name in VERBS_AND_KINDS])
    for verb, (status, out, _) in zip(VERBS_AND_KINDS, printed, strict=True):
        assert status == 0, verb
        settings = settings_of(options_of(verb))
        assert list(settings) == list(yaml.safe_load(out))
        for setting in settings.values():
            assert re.fullmatch(r"[A-Z].*[^.]\.", setting.help), f"{verb} --{setting.name}: {setting.help!r}"
            assert setting.group.__doc__
            assert not setting.group.__doc__.startswith(f"{setting.group.__name__}("), setting.group
            if is_yaml(setting.default):
                assert find_config(Path(setting.default)).is_file(), f"{verb} --{setting.name}"


def test_documents_spell_flags_with_underscores_and_switches_without_a_value():
    for path in (*DOCUMENTS, *CODE):
        text = text_of(path)
        hyphenated = set(re.findall(r"(?<![\w-])--[a-z]+-[a-z-]+", text)) - OF_OTHER_PROGRAMS
        assert not hyphenated, path
        assert not re.findall(r"--\w+ (?:true|false)\b", text), path


# Mistakes, in this process.


@dataclass
class Group(DataConfig):
    """A recipe for these tests.

    More about it.
    """

    source: str | None = option(None, "Folder.")
    loss: Literal["hn_nce", "infonce"] = option("hn_nce", "Loss.")
    precision: Literal["no", "bf16"] | None = option(None, "Precision.")
    epochs: int = option(10, "Passes.")
    rate: float = option(1e-3, "Learning rate, 100% of it.")
    restart: bool = option(False, "Start again.")
    cache: bool = option(True, "Keep frames.")
    projects: bool | None = option(None, "Project.")
    splits: list[str] = option(["train"], "Splits.")
    kinds: list[Literal["fine", "coarse"]] = option(["fine"], "Captions.")
    seeds: list[int] = option([0], "Seeds.")
    only: list[str] | None = option(None, "Names.")
    part_config: str | None = option(None, "YAML file.")

    def __post_init__(self):
        if self.epochs < 1:
            raise ValueError(f"--epochs {self.epochs}: at least 1 is needed")


def read(*words):
    return parse_config(Group, "What it is.\n\n    an example\n", list(words))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], {}),
        (["--restart"], {"restart": True}),
        (["--restart", "true", "--cache", "no"], {"restart": True, "cache": False}),
        (["--no_cache", "--no-restart"], {"cache": False, "restart": False}),
        (["--source", "none", "--only", "none", "--projects", "false"], {"only": None, "projects": False}),
        (["--seeds", "1", "2", "--kinds", "coarse", "fine"], {"seeds": [1, 2], "kinds": ["coarse", "fine"]}),
        (["--data-dir", "a-b", "--rate=1e-5"], {"data_dir": "a-b", "rate": 1e-5}),
        (["--dataset", "someone/their_tfcovr"], {"dataset": "someone/their_tfcovr"}),
        (["--part_config", "a.yaml"], {"part_config": "a.yaml"}),
        (["--epochs", "3", "--precision", "no"], {"epochs": 3, "precision": "no"}),
    ],
)
def test_flags_are_read(words, expected):
    assert read(*words) == Group(**expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("epochs: 3\nrate: 1e-5\n", {"epochs": 3, "rate": 1e-5}),
        ("rate: 1\nrestart: yes\n", {"rate": 1.0, "restart": True}),
        ("precision: no\nsource: null\n", {"precision": "no"}),
        ("seeds: [1, 2]\nsplits: []\n", {"seeds": [1, 2], "splits": []}),
    ],
)
def test_a_yaml_file_is_read_and_flags_override_it(tmp_path, text, expected):
    file = tmp_path / "a.yaml"
    file.write_text(text)
    assert read(str(file)) == Group(**expected)
    assert read(str(file), "--epochs", "7") == Group(**expected | {"epochs": 7})


MISTAKES = {
    "--epoch 3": r"there is no flag --epoch; did you mean --epochs\?",
    "--epochs three": r"--epochs: 'three' is not a whole number",
    "--epochs 0": r"--epochs 0: at least 1 is needed",
    "--epochs": "argument --epochs: expected one argument",
    "--loss hnnce": r"there is no 'hnnce'; there are hn_nce, infonce; did you mean hn_nce",
    "--kinds fine medium": r"there is no 'medium'; there are fine, coarse",
    "--dataset tfcov": r"there is no 'tfcov'; give tfcovr, a folder, or a Hub name \(owner/name\); did you mean "
    r"tfcovr\?",
    "--restart maybe": "'maybe' is not true or false",
    "stray": "'stray' belongs to no flag",
    "--restart FILE": "the YAML file comes before the flags",
    "--epochs 3 FILE": "the YAML file comes before the flags",
    "--splits train FILE": "the YAML file comes before the flags",
    "recipes/configs/stage3.yaml": r"no configuration file .*those that ship are .*did you mean stage\d\.yaml",
}


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_on_the_command_line_is_one_line_with_the_nearest_names(line, capsys):
    with pytest.raises(SystemExit) as end:
        read(*line.replace("FILE", "recipes/configs/stage2.yaml").split())
    captured = capsys.readouterr()
    assert (end.value.code, captured.out, captured.err.count("\n")) == (2, "", 1)
    assert re.search(MISTAKES[line], captured.err), captured.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epochs: [3\n", r"a\.yaml cannot be read as YAML: .*line 2"),
        ("epoch: 3\n", r"a\.yaml: there is no 'epoch'; did you mean epochs\?"),
        ("nothing_like_it: 3\n", r"there is no 'nothing_like_it'; .* --help lists what there is"),
        ("epochs: many\n", r"a\.yaml: epochs: 'many' is not a whole number"),
        ("epochs: 1.5\n", r"epochs: 1\.5 is not a whole number"),
        ("epochs: true\n", r"epochs: True is not a whole number"),
        ("epochs: null\n", r"epochs: None is not a whole number"),
        ("restart: 1\n", r"restart: 1 is not true or false"),
        ("rate: [1]\n", r"rate: \[1\] is not a number"),
        ("data_dir: 2024\n", r"data_dir: 2024 is not text; write it in quotes: '2024'"),
        ("seeds: 3\n", r"seeds: 3 is not a list; write \[3\]"),
        ("seeds: [a]\n", r"seeds: 'a' is not a whole number"),
        ("loss: hn-nce\n", r"loss: there is no 'hn-nce'; there are hn_nce, infonce; did you mean hn_nce"),
        ("dataset: tfcvr\n", r"dataset: there is no 'tfcvr'; .*did you mean tfcovr\?"),
        ("- epochs\n", r"a\.yaml has no lines of the form `name: value`"),
        (b"epochs: \xff\n", r"a\.yaml cannot be read as YAML"),
    ],
)
def test_a_mistake_in_a_yaml_file_is_one_line(tmp_path, capsys, text, message):
    file = tmp_path / "a.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(SystemExit) as end:
        read(str(file))
    captured = capsys.readouterr()
    assert (end.value.code, captured.out, captured.err.count("\n")) == (2, "", 1)
    assert re.search(message, captured.err), captured.err


def test_the_first_words_of_the_command_line_are_flags_unless_they_are_files():
    names = ["what", "name"]
    assert first_words_as(names, ["all", "--org", "x"]) == ["--what", "all", "--org", "x"]
    assert first_words_as(names, ["model", "a", "--repo", "o/a"]) == ["--what", "model", "--name", "a", "--repo", "o/a"]
    assert first_words_as(names, ["publish.yaml", "--tag", "v1"]) == ["publish.yaml", "--tag", "v1"]
    assert first_words_as(["index"], ["archive", "more"]) == ["--index", "archive", "more"]


def test_weights_that_ship_are_found_from_any_folder_after_the_users_own_also_inside_a_value(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = "recipes/weights/miniature-clip"
    (tmp_path / "table.yaml").write_text(f"variations: {{one: {{vision_model: {name}}}, two: {{epochs: 1}}}}")

    def read():
        return parse_config(options_of("ablate"), None, ["table.yaml", "--stage2_config", "recipes/weights/none"])

    shipped = str(RECIPES / "weights/miniature-clip")
    assert read().variations == {"one": {"vision_model": shipped}, "two": {"epochs": 1}}
    assert read().stage2_config == "recipes/weights/none"
    for strange in ("recipes/weights/" + "x" * 5000, "recipes/weights/\0"):  # names that no file can have
        assert find_weights(strange) == strange
    (tmp_path / name).mkdir(parents=True)
    assert read().variations["one"] == {"vision_model": name}


def test_a_name_of_a_configuration_that_ships_is_found_from_any_folder_after_the_users_own(tmp_path, monkeypatch):
    from subtle.train.stage2 import Stage2Config

    monkeypatch.chdir(tmp_path)
    for name in ("stage2_one_gpu.yaml", "configs/stage2_one_gpu.yaml", "recipes/configs/stage2_one_gpu.yaml"):
        assert parse_config(Stage2Config, None, [name]).epochs == 100
    (tmp_path / "stage2_one_gpu.yaml").write_text("epochs: 3\n")
    assert parse_config(Stage2Config, None, ["stage2_one_gpu.yaml"]).epochs == 3
    with pytest.raises(SystemExit):
        parse_config(Stage2Config, None, ["elsewhere/stage2_one_gpu.yaml"])


def test_help_groups_fields_by_the_class_that_introduced_them(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as end:
        read("--help")
    shown = capsys.readouterr().out
    assert end.value.code == 0
    assert "What it is.\n\n    an example\n" in shown
    own, inherited = (shown.index(title) for title in ("A recipe for these tests:\n", "The dataset:\n"))
    assert own < shown.index("--epochs INT") < inherited < shown.index("--dataset TEXT")
    assert "Passes. Default: 10." in shown
    assert "Learning rate, 100% of it. Default: 0.001." in shown
    assert "Keep frames. Default: true. --no_cache turns it off." in shown
    assert "Folder. Default: none." in shown


def test_a_subclass_that_changes_a_default_keeps_the_sentence():
    @dataclass
    class Changed(Group):
        """Another."""

        epochs: int = 3

    assert settings_of(Changed)["epochs"].described == "Passes. Default: 3."
    assert settings_of(Changed)["epochs"].group is Group


def test_values_that_configurations_repeat_are_those_of_the_packages():
    from hf_datasets.builders import BUILDERS
    from hf_datasets.fig.clusters import TFIDF
    from hf_datasets.tfcovr.pairs import DEFAULT_THRESHOLD
    from hf_models.moments import configuration_moments
    from subtle.building.options import BuildTFCoVRConfig
    from subtle.evaluate.options import AnalyzeFIGConfig, EvaluateVCMRConfig
    from subtle.train.options import VCMRConfig
    from subtle.train.vcmr import MOMENT_MODELS

    assert f"none: {DEFAULT_THRESHOLD} of attributes" in settings_of(BuildTFCoVRConfig)["threshold"].help
    assert AnalyzeFIGConfig().encoder == TFIDF
    assert EndConvention == configuration_moments.EndConvention
    assert sorted((*TFCOVR_DATASETS, *COMP_DATASETS, *FIG_DATASETS)) == sorted(BUILDERS)
    assert settings_of(VCMRConfig)["model"].choices == tuple(MOMENT_MODELS)
    assert settings_of(EvaluateVCMRConfig)["architectures"].choices == tuple(MOMENT_MODELS)


@dataclass
class WithAMapping:
    """Options with names of the user's own."""

    models: dict[str, Any] = option({"first": {"beta": 0.0}}, "Models by name.")


def test_a_mapping_is_given_as_yaml(tmp_path):
    (tmp_path / "run.yaml").write_text("models: {b: {beta: 0.5}, a: 1}")
    read = parse_config(WithAMapping, None, [str(tmp_path / "run.yaml")])
    assert list(read.models.items()) == [("b", {"beta": 0.5}), ("a", 1)]
    assert parse_config(WithAMapping, None, ["--models", "{b: {beta: 0.5}, a: 1}"]) == read


def test_a_mapping_is_printed_in_its_order_and_read_again(tmp_path, capsys):
    with pytest.raises(SystemExit):
        parse_config(WithAMapping, None, ["--models", "{b: 1, a: {d: 2, c: 3}}", "--print_config"])
    (tmp_path / "printed.yaml").write_text(capsys.readouterr().out)
    read = parse_config(WithAMapping, None, [str(tmp_path / "printed.yaml")])
    assert json.dumps(read.models) == '{"b": 1, "a": {"d": 2, "c": 3}}'


@pytest.mark.parametrize("text", ["beta", "[1, 2]", "{a: 1", "3"])
def test_what_is_no_mapping_is_refused(text, capsys):
    with pytest.raises(SystemExit):
        parse_config(WithAMapping, None, ["--models", text])
    assert "is not a mapping of the form {name: value}" in capsys.readouterr().err


def test_the_default_mapping_is_copied():
    WithAMapping().models["first"]["beta"] = 1.0
    assert WithAMapping().models == {"first": {"beta": 0.0}}


def test_what_was_given_is_known_also_where_it_is_the_default(tmp_path):
    from subtle.train.stage2 import Stage2Config

    (tmp_path / "run.yaml").write_text("epochs: 100\n")
    config = parse_config(Stage2Config, None, [str(tmp_path / "run.yaml"), "--dataset_config", "mini"])
    assert given_in(config) == {"epochs", "dataset_config"}
    assert given_in(Stage2Config(epochs=3, dataset_config="mini")) == {"epochs"}  # made in Python, nobody knows better
