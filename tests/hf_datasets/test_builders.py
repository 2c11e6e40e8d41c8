"""Names in `load_dataset`: with our import, without it, and what makes the cache stale."""

import pickle
import subprocess
import sys
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets.load import DatasetModule

import hf_datasets
from hf_datasets import builders
from hf_datasets.__main__ import main
from hf_datasets.builders import BUILDERS, prepare, summarise
from hf_datasets.records import Rejection


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
    with pytest.warns(UserWarning, match=f"opens the folder {folder}, not the registered.*rename the folder") as caught:
        assert len(datasets.load_dataset(numbers)["train"]) == 1
    assert caught[0].filename == __file__
    assert len(prepare(numbers)["mini"]["train"]) == 3, "what is prepared is the registered dataset all the same"
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
def test_arguments_that_a_registered_name_would_ignore_are_refused_with_the_cure(name, ignored, cure):
    with pytest.raises(ValueError, match=f"{name!r} {cure}"):
        datasets.load_dataset(name, **ignored)


@pytest.mark.parametrize("name", BUILDERS)
def test_a_folder_that_is_not_a_miniature_is_refused_with_the_other_configurations(name, tmp_path):
    expected = rf"holds no clips\.parquet and no videos\.parquet.*load_dataset\('{name}', 'release', data_dir=...\)"
    with pytest.raises(FileNotFoundError, match=expected):
        datasets.load_dataset(name, data_dir=str(tmp_path))


def test_other_names_load_as_without_our_import(numbers, tmp_path):
    pa.parquet.write_table(pa.table({"n": [1]}), tmp_path / "train.parquet")
    assert len(datasets.load_dataset("parquet", data_files=str(tmp_path / "train.parquet"))["train"]) == 1


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"unknown dataset 'nope'; there are .*tfcovr"):
        prepare("nope")


def test_a_builder_survives_pickling(numbers):
    builder = datasets.load_dataset_builder(numbers, "other", count=4)
    assert pickle.loads(pickle.dumps(builder)).cache_dir == builder.cache_dir


def test_changed_annotations_and_new_videos_are_read_again_and_other_files_do_not_matter(numbers, tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()

    def cache_dir(option="data_dir"):
        return datasets.load_dataset_builder(numbers, **{option: str(folder)}).cache_dir

    before = cache_dir()
    (folder / "frame.jpg").write_bytes(b"")
    assert cache_dir() == before
    (folder / "train.csv").write_text("1")
    after = cache_dir()
    assert after != before
    (folder / "train.csv").write_text("12")
    assert cache_dir() not in {before, after}
    before = cache_dir("video_dir")
    (folder / "a.mp4").touch()
    assert cache_dir("video_dir") != before


def test_an_edit_of_the_package_makes_the_cache_stale(numbers, monkeypatch):
    before = datasets.load_dataset_builder(numbers).cache_dir
    monkeypatch.setattr(builders, "source_hash", lambda: "edited")
    assert datasets.load_dataset_builder(numbers).cache_dir != before


def test_refused_rows_are_counted_in_the_description_and_kept_beside_the_data(numbers):
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


def test_the_command_prepares_known_names_and_refuses_others(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "hf_datasets", "prepare", "nope"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "unknown dataset nope; there are" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_command_renders_and_refuses_numbers_below_one(tmp_path, monkeypatch, capsys):
    sizes = ["--seed", "3", "--test_times", "2", "--train_times"]
    command = ["hf_datasets", "render", "--root", str(tmp_path), *sizes]
    planned = {}
    monkeypatch.setattr(
        "hf_datasets.miniature.prepare_miniature", lambda root, **given: planned.update(given) or Path(root, "drawn")
    )
    monkeypatch.setattr(sys, "argv", [*command, "4"])
    assert main() == 0
    assert capsys.readouterr().out == f"{tmp_path / 'drawn'}\n"
    assert planned["seed"] == 3
    assert planned["config"].videos_per_split == {"train": 208, "validation": 10, "test": 20}
    monkeypatch.setattr(sys, "argv", [*command, "0"])
    assert main() == 1
    assert capsys.readouterr().err == "0 times the train competitions: at least 1 is needed\n"
