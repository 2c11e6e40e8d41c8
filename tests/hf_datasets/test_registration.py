"""Names in `load_dataset`: with our import, without it, and what makes the cache stale."""

import multiprocessing
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets.load import DatasetModule
from filelock import FileLock

import hf_datasets
from hf_datasets import registration
from hf_datasets.__main__ import main
from hf_datasets.records import Rejection
from hf_datasets.registration import BUILDERS, prepare, summarise

BUILDER = '''
"""A builder for the tests."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
from datasets.builder import Key

from hf_datasets.records import Rejection
from hf_datasets.registration import RegisteredBuilder


@dataclass
class NumbersConfig(datasets.BuilderConfig):
    video_dir: str | None = None
    count: int = 3


class Numbers(RegisteredBuilder):
    VERSION = datasets.Version("1.0.0")
    BUILDER_CONFIG_CLASS = NumbersConfig
    BUILDER_CONFIGS = [NumbersConfig(name=name, version="1.0.0") for name in ("mini", "mini-clips", "other")]
    DEFAULT_CONFIG_NAME = "mini"

    def _info(self):
        return datasets.DatasetInfo(description="Numbers.", features=datasets.Features(n=datasets.Value("int64")))

    def _split_generators(self, dl_manager):
        self.rejections = [Rejection("odd: 1", "1"), Rejection("odd: 3", "3"), Rejection("late: 9", "9")]
        return [datasets.SplitGenerator(name="train", gen_kwargs={"count": self.config.count}),
                datasets.SplitGenerator(name="test", gen_kwargs={"count": max(self.config.count - 3, 0)})]

    def _generate_tables(self, count):
        if "NUMBERS_STARTED" in os.environ:
            Path(os.environ["NUMBERS_STARTED"]).touch()
            time.sleep(60)
        yield Key(0, 0), pa.table({"n": pa.array(range(count), pa.int64())})
        time.sleep(float(os.environ.get("NUMBERS_SECONDS", "0")))
'''


@pytest.fixture
def numbers(tmp_path, monkeypatch):
    """The name of a registered builder in an empty cache and an empty working folder."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "numbers_of_tests.py").write_text(BUILDER)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.syspath_prepend(tmp_path / "modules")
    monkeypatch.setitem(BUILDERS, "numbers", "numbers_of_tests")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    return "numbers"


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


def test_the_private_factory_is_where_we_wrap_it():
    assert datasets.load.dataset_module_factory.__wrapped__.__module__ == "datasets.load"
    assert datasets.inspect.dataset_module_factory is datasets.load.dataset_module_factory
    assert DatasetModule("module", "hash", {}).module_path == "module"
    assert (
        "dataset_module_factory("
        in Path(datasets.load.__file__).read_text(encoding="utf-8").split("def load_dataset_builder")[1]
    )


def test_registering_twice_wraps_once():
    hf_datasets.register()
    hf_datasets.register()
    assert not hasattr(datasets.load.dataset_module_factory.__wrapped__, "__wrapped__")


def test_every_registered_builder_exists_and_has_a_miniature_by_default():
    for name in BUILDERS:
        assert datasets.get_dataset_default_config_name(name) == "mini"
        assert "mini" in datasets.get_dataset_config_names(name)


def test_a_name_opens_by_default_by_configuration_and_with_parameters(numbers):
    assert len(datasets.load_dataset(numbers)["train"]) == 3
    assert len(datasets.load_dataset(numbers, "other", count=5)["train"]) == 5
    assert len(list(datasets.load_dataset(numbers, streaming=True)["train"])) == 3
    with pytest.raises(ValueError, match="'nope' not found"):
        datasets.load_dataset(numbers, "nope")


def test_a_folder_of_that_name_wins_and_a_warning_names_it_and_the_cure(numbers, tmp_path):
    folder = tmp_path / "here" / numbers
    folder.mkdir()
    (folder / "train.csv").write_text("n\n1\n")
    with pytest.warns(
        UserWarning, match=f"opens the folder {folder}, not the registered.*rename the folder"
    ) as caught:
        assert len(datasets.load_dataset(numbers)["train"]) == 1
    assert caught[0].filename == __file__
    assert len(prepare(numbers)["mini"]["train"]) == 3, (
        "what is prepared is the registered dataset all the same"
    )
    folder.rename(tmp_path / "here" / "else")
    assert len(datasets.load_dataset(numbers)["train"]) == 3


def test_a_file_of_that_name_is_not_in_the_way(numbers, tmp_path):
    (tmp_path / "here" / numbers).write_text("n\n1\n")
    assert len(datasets.load_dataset(numbers)["train"]) == 3


@pytest.mark.parametrize("name", BUILDERS)
@pytest.mark.parametrize(
    ("ignored", "cure"),
    [
        ({"revision": "v1.0"}, "takes no revision; .*leave revision out"),
        ({"data_files": "x.csv"}, r"takes no data_files; .*'release', data_dir=FOLDER"),
        ({"data_files": {"train": ["x.csv"]}, "streaming": True}, "takes no data_files"),
    ],
)
def test_what_a_registered_name_would_ignore_is_refused_with_the_cure(name, ignored, cure):
    with pytest.raises(ValueError, match=f"{name!r} {cure}"):
        datasets.load_dataset(name, **ignored)


@pytest.mark.parametrize("name", BUILDERS)
def test_a_folder_that_is_no_miniature_is_refused_with_the_other_configurations(name, tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    expected = (
        rf"holds no clips\.parquet and no videos\.parquet.*load_dataset\('{name}', 'release', data_dir=...\)"
    )
    with pytest.raises(FileNotFoundError, match=expected):
        datasets.load_dataset(name, data_dir=str(tmp_path))


def test_other_names_go_their_usual_way(numbers, tmp_path):
    pa.parquet.write_table(pa.table({"n": [1]}), tmp_path / "train.parquet")
    assert len(datasets.load_dataset("parquet", data_files=str(tmp_path / "train.parquet"))["train"]) == 1


def test_a_prepared_name_opens_in_a_process_that_imports_only_datasets(numbers, tmp_path):
    assert {config: len(splits["train"]) for config, splits in prepare(numbers).items()} == {
        "mini": 3,
        "mini-clips": 3,
    }
    datasets.load_dataset(numbers, "other", count=7)
    datasets.load_dataset(numbers, "mini", count=9)
    datasets.load_dataset(numbers, "other")
    code = (
        "from datasets import load_dataset; "
        "print([len(load_dataset('numbers', *name)['train']) for name in ((), ('mini-clips',), ('other',))])"
    )
    assert printed(bare(tmp_path, code), tmp_path) == "[3, 3, 3]\n"


def test_a_reader_never_fails_while_others_prepare_and_are_killed(numbers, tmp_path, monkeypatch):
    prepare(numbers)
    reader = bare(tmp_path, READER, str(tmp_path))
    wait_for((tmp_path / "loads").exists)
    monkeypatch.setenv("NUMBERS_SECONDS", "0.1")
    for version in ("first", "second"):
        monkeypatch.setattr(registration, "source_hash", lambda version=version: version)
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


def test_a_split_without_rows_is_left_out_and_said(numbers):
    rows = datasets.load_dataset(numbers)
    assert set(rows) == {"train"}
    assert "Without rows, so left out: test." in rows["train"].info.description
    assert set(datasets.load_dataset(numbers, count=4)) == {"train", "test"}
    with pytest.raises(
        ValueError, match="numbers mini-count=0 has no row in train, test, the first refused: odd: 1"
    ):
        datasets.load_dataset(numbers, count=0)


def test_the_command_says_that_a_name_opens_only_when_it_does(numbers, tmp_path, monkeypatch, capsys):
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
    assert 'Open it in any process with `load_dataset("numbers")`.' in capsys.readouterr().out


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"unknown data set 'nope'; there are .*tfcovr"):
        prepare("nope")


def test_a_builder_survives_pickling(numbers):
    builder = datasets.load_dataset_builder(numbers, "other", count=4)
    assert pickle.loads(pickle.dumps(builder)).cache_dir == builder.cache_dir


def test_annotations_that_change_are_read_anew_and_other_files_are_not_asked(numbers, tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()

    def cache_dir():
        return datasets.load_dataset_builder(numbers, data_dir=str(folder)).cache_dir

    before = cache_dir()
    (folder / "frame.jpg").write_bytes(b"")
    assert cache_dir() == before
    (folder / "train.csv").write_text("1")
    after = cache_dir()
    assert after != before
    (folder / "train.csv").write_text("12")
    assert cache_dir() not in {before, after}


def test_videos_that_arrive_are_seen(numbers, tmp_path):
    def cache_dir():
        return datasets.load_dataset_builder(numbers, video_dir=str(tmp_path / "here")).cache_dir

    before = cache_dir()
    (tmp_path / "here" / "a.mp4").touch()
    assert cache_dir() != before


def test_an_edit_of_the_package_makes_the_cache_stale(numbers, monkeypatch):
    before = datasets.load_dataset_builder(numbers).cache_dir
    monkeypatch.setattr(registration, "source_hash", lambda: "edited")
    assert datasets.load_dataset_builder(numbers).cache_dir != before


def test_what_was_refused_is_counted_in_the_description_and_kept_beside_the_data(numbers):
    builder = datasets.load_dataset_builder(numbers)
    builder.download_and_prepare()
    builder.download_and_prepare(download_mode="force_redownload")
    said = "Numbers. Without rows, so left out: test.\n\n3 rows were refused (2 x odd; 1 x late)."
    assert builder.info.description.startswith(said)
    assert builder.info.description.count("refused") == 1
    assert pq.read_metadata(Path(builder.cache_dir, "rejections.parquet")).num_rows == 3
    reopened = datasets.load_dataset(numbers, split="train")
    assert "3 rows were refused" in reopened.info.description
    assert summarise([Rejection("odd: 1", "1")]).startswith("1 rows were refused (1 x odd)")


def test_the_command_prepares_and_refuses_by_name(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "hf_datasets", "prepare", "nope"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "unknown data set nope; there are" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_command_renders_and_refuses_by_number(tmp_path, monkeypatch, capsys):
    sizes = ["--seed", "3", "--test_times", "2", "--train_times"]
    command = ["hf_datasets", "render", "--root", str(tmp_path), *sizes]
    planned = {}
    monkeypatch.setattr(
        "hf_datasets.miniature.prepare_miniature",
        lambda root, **given: planned.update(given) or Path(root, "drawn"),
    )
    monkeypatch.setattr(sys, "argv", [*command, "4"])
    assert main() == 0
    assert capsys.readouterr().out == f"{tmp_path / 'drawn'}\n"
    assert planned["seed"] == 3
    assert planned["config"].videos_per_split == {"train": 208, "validation": 10, "test": 20}
    monkeypatch.setattr(sys, "argv", [*command, "0"])
    assert main() == 1
    assert capsys.readouterr().err == "0 times the train competitions: at least 1 is needed\n"
