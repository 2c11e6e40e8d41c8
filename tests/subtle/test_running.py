"""How recipes end: one line for a user's mistake, a traceback for a bug, exit status 130 when interrupted."""

import gc
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

from subtle.run.results import read_json
from subtle.running import run_recipe

RECIPES = Path(__file__).parents[2] / "recipes"


def fail(error):
    def main(config):
        raise error

    return main


def test_a_mistake_of_the_user_is_one_line(capsys, tmp_path):
    from hf_datasets.video import VideoError
    from hf_models import AIMConfig

    def wrapped(config):
        try:
            AIMConfig(num_temporal_adapters=3)
        except ValueError as error:
            raise RuntimeError("a library's own words") from error

    mains = {
        "No such file": lambda config: (tmp_path / "nowhere").read_text(),
        "does not decode": fail(VideoError("the clip\ndoes not decode")),
        "AIM has 1 or 2": wrapped,
    }
    for message, main in mains.items():
        assert run_recipe(main, None) == 2
        shown = capsys.readouterr().err
        assert (message in shown, shown.count("\n"), shown.startswith("error: ")) == (True, 1, True), shown


DAMAGE = [
    ("miniature-clip", "config.json", "[]", "AutoModel"),
    ("miniature-clip", "config.json", '{"model_type": "clip", "text_config": 3}', "AutoConfig"),
    ("miniature-clip", "model.safetensors", "x", "AutoModel"),
    ("miniature-clip", "tokenizer.json", "{", "AutoTokenizer"),
    ("miniature-clip", "processor_config.json", "[1]", "AutoProcessor"),
    ("miniature-aim", "adapter_config.json", "[]", "AIMAdapterConfig"),
    ("miniature-aim", "adapter_config.json", "{", "AIMAdapterConfig"),
]


@pytest.mark.parametrize(("model", "name", "text", "opener"), DAMAGE, ids=str)
def test_whatever_a_library_says_of_a_damaged_model_is_one_line_that_names_its_folder(
    tmp_path, capsys, model, name, text, opener
):
    import transformers

    import hf_models

    folder = shutil.copytree(RECIPES / "weights" / model, tmp_path / "model")
    (folder / name).write_text(text)
    load = getattr(transformers, opener, None) or getattr(hf_models, opener)
    assert run_recipe(lambda _: load.from_pretrained(folder), None) == 2
    *_, line = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {folder} cannot be opened as a model (")


def test_a_damaged_parquet_file_of_an_earlier_run_is_one_line_that_names_it(tmp_path, capsys):
    import polars as pl

    (tmp_path / "a.parquet").write_text("PAR1")
    assert run_recipe(lambda _: pl.read_parquet(tmp_path / "*.parquet"), None) == 2
    assert capsys.readouterr().err.startswith(f"error: {tmp_path}/*.parquet cannot be read (ComputeError: ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read as JSON"),
        ("[" * 100_000, "cannot be read as JSON"),
        ("[]", "does not hold a JSON object"),
        ("{}", "holds no config and no size"),
        ('{"config": 3, "size": 1}', "holds no config; it is damaged"),
    ],
)
def test_damaged_results_of_an_earlier_run_are_refused(tmp_path, text, message):
    (tmp_path / "results.json").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_json(tmp_path / "results.json", config=dict, size=int)


class UnreadableVideos:
    """Two videos of which none can be read."""

    def __len__(self):
        return 2

    def __getitem__(self, row):
        from hf_datasets.video import VideoError

        try:
            raise OSError("VideoError: an earlier error")
        except OSError as error:
            raise VideoError("a.mp4 does not decode:\nit is cut off") from error


def test_an_unreadable_video_in_a_process_of_a_data_loader_is_one_line_without_its_traceback(capsys, monkeypatch):
    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 0.1)  # or the loader's end takes 5 s
    for num_workers in (0, 1):
        assert run_recipe(lambda _, n=num_workers: list(DataLoader(UnreadableVideos(), num_workers=n)), None) == 2
        assert capsys.readouterr().err == "error: a.mp4 does not decode: it is cut off\n"
    gc.collect()  # ends the loader's process while the time above counts


def test_a_bug_keeps_its_traceback():
    def mismatch(config):
        list(zip([1], [1, 2], strict=True))

    for main, error in ((mismatch, ValueError), (fail(KeyError("x")), KeyError), (fail(TypeError("x")), TypeError)):
        with pytest.raises(error):
            run_recipe(main, None)


def test_an_interrupted_run_is_one_line_and_exit_status_130(capsys, monkeypatch):
    assert run_recipe(fail(KeyboardInterrupt()), None) == 130
    assert capsys.readouterr().err == "\ninterrupted; what is done is kept, run again to go on\n"
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert run_recipe(fail(KeyboardInterrupt()), None) == 130
    assert capsys.readouterr().err == ""
    assert run_recipe(lambda config: None, None) == 0
    assert run_recipe(lambda config: 1, None) == 1


def run_interrupted(*statements):
    """A recipe that does nothing and meets these statements outside its `main`."""
    program = """
import atexit, os, signal, sys, time
from dataclasses import dataclass
from subtle.options import parse_config, run_recipe

@dataclass
class Nothing:
    pass

config = parse_config(Nothing, None)
"""
    program += "\n".join(statements)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


def test_an_interrupt_of_the_imports_is_one_line_and_exit_status_130():
    run = run_interrupted("os.kill(os.getpid(), signal.SIGINT)", "time.sleep(60)")
    assert (run.returncode, run.stderr) == (130, "\ninterrupted; what is done is kept, run again to go on\n")


def test_an_interrupt_after_the_results_are_written_does_not_turn_success_into_failure():
    run = run_interrupted(
        "atexit.register(os.kill, os.getpid(), signal.SIGINT)", "sys.exit(run_recipe(lambda _: 0, config))"
    )
    assert (run.returncode, run.stderr) == (0, "")
