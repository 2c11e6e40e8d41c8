"""A small miniature for all tests that read one, and a small registered dataset in an empty cache."""

import datasets
import pytest

from hf_datasets.builders import BUILDERS
from hf_datasets.miniature import MiniatureConfig, prepare_miniature
from hf_datasets.publish import COUNTS_END, COUNTS_START

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
from hf_datasets.builders import RegisteredBuilder


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


@pytest.fixture(autouse=True)
def datasets_cache(tmp_path, monkeypatch):
    """An empty cache of `datasets` for each test; a module whose tests share one defines this fixture anew."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.fixture
def card(tmp_path):
    """A card as `write_folder` starts from one."""
    path = tmp_path / "card.md"
    path.write_text(f"---\nlicense: mit\n---\n# Card\n{COUNTS_START}\nold\n{COUNTS_END}\nrest\n")
    return path


@pytest.fixture(scope="session")
def miniature(tmp_path_factory):
    """The folder of two competitions per split; tests only read it."""
    config = MiniatureConfig(
        labels=("40", "41", "134", "136", "103b", "107b"),
        clips_per_label={"train": 3, "validation": 1, "test": 2},
        videos_per_split={"train": 2, "validation": 2, "test": 2},
        size=32,
        shortest_seconds=0.4,
        longest_seconds=0.6,
    )
    return prepare_miniature(tmp_path_factory.mktemp("miniature"), config=config, num_workers=0, progress=False)


@pytest.fixture
def numbers(tmp_path, monkeypatch):
    """The name of a registered builder, in an empty working folder."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "numbers_of_tests.py").write_text(BUILDER)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.syspath_prepend(tmp_path / "modules")
    monkeypatch.setitem(BUILDERS, "numbers", "numbers_of_tests")
    return "numbers"
