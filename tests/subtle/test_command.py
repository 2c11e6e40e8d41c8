"""The command `subtle`: it lists the recipes, runs them as Python does, and says in one line what is wrong."""

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from subtle import cli, commands, running
from subtle.running import run_recipe

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "recipes"
SCRIPTS = {path.stem for path in RECIPES.glob("[a-z]*.py")}


@pytest.fixture
def call(monkeypatch, capsys):
    """What the command answers in this process: status, output, errors."""

    def answer(*words):
        monkeypatch.setattr(sys, "argv", ["subtle", *words])
        status = cli.main()
        return (status, *capsys.readouterr())

    return answer


def test_every_script_is_listed_with_its_first_sentence(call, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    verbs = [verb for group in cli.VERBS.values() for verb in group]
    assert verbs[0] == "quickstart"
    assert set(verbs) == SCRIPTS
    status, shown, errors = call()
    assert (status, errors) == (0, "")
    assert re.findall(r"^  (\w+) +[A-Z].+[.?]$", shown, re.MULTILINE) == verbs
    assert "keep the vectors for `subtle search`" in shown
    assert ".py" not in shown
    assert call("--help") == call("-h") == (0, shown, "")


@pytest.mark.parametrize("words", [("check", "comp", "--data_dir", "nowhere"), ("check", "comp", "--help")], ids=str)
def test_a_program_that_runs_a_verb_in_its_process_keeps_its_interrupts(call, words):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with contextlib.suppress(SystemExit):
            call(*words)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_the_version_is_that_of_the_package(call):
    assert re.fullmatch(r"subtle-video \d+\.\d+\.\d+\n", call("--version")[1])


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("stage2", "stage2.py"),
        ("configs", "configs"),
        ("stage2_one_gpu.yaml", "configs/stage2_one_gpu.yaml"),
        ("accelerate/4xa100.yaml", "accelerate/4xa100.yaml"),
        ("weights/miniature-clip", "weights/miniature-clip"),
    ],
)
def test_path_prints_where_a_script_a_folder_or_a_file_is(call, name, path):
    assert call("path", name) == (0, f"{RECIPES / path}\n", "")
    assert (RECIPES / path).exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["stagee2"], r"there is no 'stagee2'; there are quickstart, .*, path; did you mean stage2\?"),
        (["finetune-vlm"], r"did you mean finetune_vlm\?"),
        (["--helf"], "there is no '--helf'; there are"),
        (["path"], "subtle path takes one name: give a verb"),
        (["path", "stage2", "stage1"], "subtle path takes one name"),
        (["path", "conigs"], r"one of the folders configs, accelerate, cluster, weights.*; did you mean configs\?"),
        (["path", "harness"], "there is no 'harness'"),
        (["path", "configs/../stage2.py"], "there is no"),
        (["path", "/etc"], "there is no '/etc'"),
        (["path", ""], "there is no ''"),
    ],
)
def test_a_mistake_is_one_line_with_what_is_allowed(call, words, message):
    status, shown, errors = call(*words)
    assert (status, shown, errors.count("\n")) == (2, "", 1)
    assert re.match(f"error: .*{message}", errors), errors


def test_a_script_without_the_extra_is_one_line_too():
    lines = (
        "import sys, runpy",
        "from subtle import commands",
        "commands.EXTRA = ('rich', 'no_such_module')",
        "sys.argv = ['stage2.py']",
        "runpy.run_path(sys.argv[0], run_name='__main__')",
    )
    words = [sys.executable, "-c", "\n".join(lines)]
    done = subprocess.run(words, cwd=ROOT / "recipes", capture_output=True, text=True, check=False)
    message = "no_such_module: not installed; run: pip install 'subtle-video[recipes]'\n"
    assert (done.returncode, done.stderr) == (2, f"error: {message}")


def test_the_extra_has_the_modules_that_the_command_asks_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extra = project["optional-dependencies"]["recipes"]
    assert sorted(Requirement(line).name.replace("-", "_") for line in extra) == sorted(commands.EXTRA)


def test_a_script_has_the_arguments_and_the_name_that_python_gives_it(call, tmp_path, monkeypatch):
    script = "import sys; from subtle import commands; print([__name__, sys.modules['__main__'].__file__, *sys.argv])"
    script += "; sys.exit(7 if commands.started_by_command else 1)"
    (tmp_path / "serve.py").write_text(script)
    monkeypatch.setattr(cli, "RECIPES", tmp_path)
    monkeypatch.setattr(commands, "started_by_command", False)
    monkeypatch.setattr(sys, "argv", ["subtle", "serve", "--a", "1"])
    with contextlib.redirect_stdout(io.StringIO()) as shown, pytest.raises(SystemExit) as end:
        cli.main()
    path = str(tmp_path / "serve.py")
    assert end.value.code == 7
    assert shown.getvalue() == f"{['__main__', path, path, '--a', '1']}\n"
    assert (commands.started_by_command, sys.argv) == (False, ["subtle", "serve", "--a", "1"])


def test_a_script_hides_no_library_that_has_its_name():
    lines = ("import sys", "import subtle.commands", "from importlib.machinery import PathFinder")
    code = "\n".join([*lines, "print(PathFinder.find_spec('evaluate').origin)"])
    environment = os.environ | {"PYTHONPATH": str(RECIPES)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()).parent.name == "evaluate"


def test_an_interrupt_is_one_line_and_exit_status_130():
    process = subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", "subtle", "stage2"], stderr=subprocess.PIPE, text=True
    )
    errors = ""
    for line in process.stderr:  # the interrupt comes while the recipe imports what takes seconds
        if re.search(r"\| +torch\.", line):
            process.send_signal(signal.SIGINT)
            errors = process.stderr.read()
            break
    assert process.wait() == 130
    assert errors.endswith("\ninterrupted; what is done is kept, run again to go on\n")


WRONG = {
    "index nowhere": "nowhere: there is no such folder of videos or table of moments",
    "index moments.csv": "moments.csv has no column video (or video_id, path), start_seconds, end_seconds; it",
    "index good.csv --video_dir gone": "gone is not a folder; give the one that holds the videos",
    "tune nowhere": "there is no table nowhere; give one with the columns video and label",
    "tune moments.csv": "moments.csv has no column video_id (or video, path), label; it has clip",
    "tune good.csv --video_dir gone": "gone is not a folder; give the one that holds the videos",
    "build tfcovr --data_dir nowhere": "there is no folder or table nowhere; give a table of clips",
}
CALL_EACH = """
import contextlib, io, json, sys
from subtle import cli
answers = []
for words in json.loads(sys.argv[1]):
    sys.argv = ["subtle", *words.split()]
    with contextlib.redirect_stdout(io.StringIO()) as output, contextlib.redirect_stderr(io.StringIO()) as errors:
        try:
            status = cli.main()
        except SystemExit as end:
            status = end.code
    answers.append((status, output.getvalue(), errors.getvalue()))
print(json.dumps(answers))
"""


def test_a_wrong_path_or_table_is_refused_before_anything_heavy_is_imported(tmp_path):
    (tmp_path / "moments.csv").write_text("clip\n1\n")
    (tmp_path / "good.csv").write_text("video,start_seconds,end_seconds,label\na.mp4,0,1,vault\n")
    for heavy in ("torch", "transformers", "lancedb"):
        (tmp_path / f"{heavy}.py").write_text(f"raise AssertionError('{heavy} is imported')")
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", CALL_EACH, json.dumps(list(WRONG))]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    for (status, output, errors), message in zip(json.loads(done.stdout), WRONG.values(), strict=True):
        assert (status, output) == (2, ""), errors
        assert errors.startswith(f"error: {message}"), errors
        assert errors.count("\n") == 1


def test_what_takes_longer_than_two_seconds_says_what_it_does(monkeypatch, capsys):
    monkeypatch.setattr(running, "QUIET_SECONDS", 0.05)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with running.announced("loading the model"):
        pass
    time.sleep(0.1)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with running.announced("loading the model"):
        time.sleep(0.2)
    assert capsys.readouterr().err == "loading the model ...\n"


TYPED = {
    "`python recipes/embed.py clips` makes it": "`subtle embed clips` makes it",
    "accelerate launch --config_file recipes/accelerate/4xa100.yaml recipes/stage2.py recipes/configs/stage2.yaml": (
        "accelerate launch --config_file $(subtle path accelerate/4xa100.yaml) $(subtle path stage2) stage2.yaml"
    ),
    "recipes/build.py fig makes such a folder": "subtle build fig makes such a folder",
    "of `evaluate.py tfcovr`, not evaluate.py figs": "of `subtle evaluate tfcovr`, not `subtle evaluate` figs",
    "Default: recipes/weights/miniature-clip.": "Default: $(subtle path weights/miniature-clip).",
    "/data/recipes.csv and python": "/data/recipes.csv and python",
    "/home/me/recipes/weights/mine cannot be used": "/home/me/recipes/weights/mine cannot be used",
    "a folder that index.py made, for search.py, not data/index.py or other.py": (
        "a folder that `subtle index` made, for `subtle search`, not data/index.py or other.py"
    ),
}


def test_messages_spell_commands_as_the_user_types_them(monkeypatch, capsys):
    def fail(message, kind):
        def main(config):
            raise kind(message)

        return main

    for text, typed in TYPED.items():
        monkeypatch.setattr(commands, "started_by_command", False)
        assert commands.as_typed(text) == text
        monkeypatch.setattr(commands, "started_by_command", True)
        assert commands.as_typed(text) == typed
        assert run_recipe(fail(text, OSError), None) == 2
        assert capsys.readouterr().err == f"error: {typed}\n"
        with pytest.raises(SystemExit) as end:
            run_recipe(fail(text, SystemExit), None)
        assert end.value.code == typed
