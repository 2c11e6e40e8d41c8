"""Atomic preparation into the cache of `datasets`, so that a process that imports only `datasets` never fails."""

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import datasets
import pytest
from filelock import FileLock

from hf_datasets import builders
from hf_datasets.__main__ import main
from hf_datasets.builders import prepare

READER = """
import sys, time
from pathlib import Path
import datasets
folder, found = Path(sys.argv[1]), set()
loads = 0
while not (folder / "stop").exists():
    try:
        rows = datasets.load_dataset("numbers", split="train")
        found.add(f"{rows.config_name} {len(rows)}")
    except Exception as error:
        found.add(repr(error))
    loads += 1
    (folder / "loads").write_text(str(loads))
print(sorted(found))
"""


def bare(tmp_path, code, *arguments):
    """A process that imports only `datasets`, on the cache of the test."""
    environment = os.environ | {"HF_DATASETS_CACHE": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1"}
    environment.pop("PYTHONPATH", None)
    command = [sys.executable, "-c", code, *arguments]
    with (tmp_path / "errors").open("w") as errors:  # a pipe would fill up and stop it
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True)


def printed(process, tmp_path):
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, (tmp_path / "errors").read_text()[-2000:]
    return output


def wait_for(condition, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def kill_in_the_middle(tmp_path, monkeypatch, load):
    """Prepare in another process and kill it with no chance to clean up."""
    monkeypatch.setenv("NUMBERS_STARTED", str(tmp_path / "started"))
    writer = multiprocessing.get_context("fork").Process(target=load)
    writer.start()
    wait_for((tmp_path / "started").exists)
    os.kill(writer.pid, signal.SIGKILL)
    writer.join()
    (tmp_path / "started").unlink()
    monkeypatch.delenv("NUMBERS_STARTED")


def unfinished(tmp_path):
    """Folders where `datasets` searches that it cannot read, and what is left where it does not."""
    root = tmp_path / "cache" / "numbers"
    folders = [path for path in root.glob("[!.]*/*/*") if path.is_dir()]
    left = [path for path in root.glob(".preparing/*") if path.is_dir()]
    return [path for path in folders if not (path / "dataset_info.json").is_file()], left


def numbers_once():
    datasets.load_dataset("numbers")


def test_a_prepared_name_opens_in_a_process_that_imports_only_datasets(numbers, tmp_path):
    assert {config: len(splits["train"]) for config, splits in prepare(numbers).items()} == {"mini": 3, "mini-clips": 3}
    datasets.load_dataset(numbers, "other", count=7)
    datasets.load_dataset(numbers, "mini", count=9)
    datasets.load_dataset(numbers, "other")
    code = (
        "from datasets import load_dataset; "
        "print([len(load_dataset('numbers', *name)['train']) for name in ((), ('mini-clips',), ('other',))])"
    )
    assert printed(bare(tmp_path, code), tmp_path) == "[3, 3, 3]\n"


@pytest.mark.parametrize("name", ["numbers-train.arrow", "dataset_info.json", "rejections.parquet"])
@pytest.mark.parametrize("share", [0, 0.5])
def test_what_a_power_loss_cut_in_the_cache_is_named_with_the_cure(numbers, tmp_path, name, share):
    prepare(numbers)
    (path,) = (tmp_path / "cache/numbers/mini").rglob(name)
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(OSError, match=r"is damaged, as by a power loss .* remove it and prepare it again") as raised:
        prepare(numbers)
    assert str(tmp_path / "cache/numbers/mini") in str(raised.value)
    shutil.rmtree(tmp_path / "cache/numbers/mini")
    assert len(prepare(numbers)["mini"]["train"]) == 3


def test_a_reader_never_fails_while_others_prepare_and_are_killed(numbers, tmp_path, monkeypatch):
    prepare(numbers)
    reader = bare(tmp_path, READER, str(tmp_path))
    wait_for((tmp_path / "loads").exists)
    monkeypatch.setenv("NUMBERS_SECONDS", "0.1")
    for version in ("first", "second"):
        monkeypatch.setattr(builders, "source_hash", lambda version=version: version)
        kill_in_the_middle(tmp_path, monkeypatch, numbers_once)
        assert unfinished(tmp_path)[0] == []
        prepare(numbers)
        datasets.load_dataset(numbers, "other", count=9)
        datasets.load_dataset(numbers, "other")
    before = int((tmp_path / "loads").read_text() or 0)
    wait_for(lambda: int((tmp_path / "loads").read_text() or 0) > before + 2)
    (tmp_path / "stop").touch()
    assert printed(reader, tmp_path) == "['mini 3']\n"
    assert unfinished(tmp_path) == ([], [])


def test_unfinished_folders_of_dead_writers_go_with_the_next_preparation_and_those_of_living_ones_stay(
    numbers, tmp_path, monkeypatch
):
    kill_in_the_middle(tmp_path, monkeypatch, numbers_once)
    assert len(unfinished(tmp_path)[1]) == 1
    version = tmp_path / "cache" / numbers / "mini" / "1.0.0"
    dead, damaged, living = version / "dead.incomplete", version / "damaged", version / "living.incomplete"
    for folder in (dead, damaged, living):
        folder.mkdir(parents=True)
        (folder / "numbers-train.arrow").touch()
    with FileLock(version / "living_builder.lock"):
        datasets.load_dataset(numbers, "other")
    assert unfinished(tmp_path) == ([living], [])
    prepare(numbers)
    assert unfinished(tmp_path) == ([], [])


def test_preparing_again_by_force_replaces_what_was_there(numbers, tmp_path):
    first = datasets.load_dataset_builder(numbers)
    first.download_and_prepare()
    (Path(first.cache_dir) / "old").touch()
    for mode in ("force_redownload", datasets.DownloadMode.FORCE_REDOWNLOAD):
        rows = datasets.load_dataset(numbers, split="train", download_mode=mode)
        assert len(rows) == 3
        assert Path(rows.cache_files[0]["filename"]).parent == Path(first.cache_dir)
        assert not (Path(first.cache_dir) / "old").exists()
    assert unfinished(tmp_path) == ([], [])


def test_a_preparation_that_fails_leaves_the_earlier_rows_and_no_unfinished_folder(numbers, tmp_path):
    first = datasets.load_dataset_builder(numbers)
    first.download_and_prepare()
    again = datasets.load_dataset_builder(numbers)
    again._split_generators = lambda manager: 1 / 0
    with pytest.raises(ZeroDivisionError):
        again.download_and_prepare(download_mode="force_redownload")
    assert unfinished(tmp_path) == ([], [])
    assert len(datasets.load_dataset(numbers)["train"]) == 3


def test_rows_go_to_a_folder_of_the_users_where_one_is_named(numbers, tmp_path):
    builder = datasets.load_dataset_builder(numbers)
    builder.download_and_prepare(str(tmp_path / "own"))
    assert (tmp_path / "own" / "dataset_info.json").is_file()
    assert not (tmp_path / "cache" / numbers / "mini").exists()


def test_a_split_without_rows_is_left_out_and_named_in_the_description(numbers):
    rows = datasets.load_dataset(numbers)
    assert set(rows) == {"train"}
    assert "Without rows, so left out: test." in rows["train"].info.description
    assert set(datasets.load_dataset(numbers, count=4)) == {"train", "test"}
    with pytest.raises(ValueError, match="numbers mini-count=0 has no row in train, test, the first refused: odd: 1"):
        datasets.load_dataset(numbers, count=0)


def test_the_command_reports_a_name_as_ready_only_if_it_opens(numbers, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["hf_datasets", "prepare", numbers])
    broken = tmp_path / "cache" / numbers / "broken" / "1.0.0" / "hash"
    broken.mkdir(parents=True)
    (broken / "dataset_info.json").write_text("{")
    assert main() == 1
    output, errors = capsys.readouterr()
    assert "Open it" not in output
    folder = tmp_path / "cache" / numbers
    assert "cannot open it (JSONDecodeError: " in errors
    assert f"remove {folder} and prepare it again" in errors
    shutil.rmtree(folder)
    assert main() == 0
    output = capsys.readouterr().out
    assert output.splitlines()[:2] == ["numbers mini: train 3", "numbers mini-clips: train 3"]
    assert 'Open it in any process with `load_dataset("numbers")`.' in output
