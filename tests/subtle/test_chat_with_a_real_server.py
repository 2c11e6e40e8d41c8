"""Captions and judgments by `transformers serve` with a tiny random model: what it says is counted."""

import json
import subprocess
import sys

import polars as pl
import pyarrow.parquet as pq
import pytest
from served_model import IMAGE, PATCH, save_tiny_llava, served

from hf_datasets.miniature import MiniatureConfig, prepare_miniature
from tests.fixtures.verbs import typed

pytestmark = [pytest.mark.peers, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The address of a running server, and the folder of its LLaVA of a few thousand weights."""
    folder = tmp_path_factory.mktemp("served") / "tiny-llava"
    save_tiny_llava(folder)
    with served(folder) as url:
        yield url, folder


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """A few rendered clips."""
    clips = {"train": 2, "validation": 1, "test": 2}
    rendered = MiniatureConfig(("45", "40", "107b", "105b"), clips, {"train": 2, "validation": 1, "test": 2}, size=32)
    return prepare_miniature(tmp_path_factory.mktemp("few"), config=rendered, num_workers=0, progress=False)


def call(verb, **options):
    flags = [str(word) for name, value in options.items() for word in (f"--{name}", value)]
    command = [sys.executable, *typed(verb), *flags]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def run(verb, tmp_path, **options):
    options |= {"output_dir": tmp_path / verb, "cache": tmp_path / "answers.sqlite", "max_answers": 1, "quiet": "true"}
    done = call(verb, **options)
    assert "Traceback" not in done.stderr, done.stderr
    found = json.loads((tmp_path / verb / "results.json").read_text())
    return found, pl.read_parquet(tmp_path / verb / "rejections.parquet"), done


def test_a_real_model_sees_the_frames_and_each_answer_is_a_caption_or_a_rejection(server, data_dir, tmp_path):
    url, model = server
    given = {"base_url": url, "model": model, "data_dir": data_dir, "max_output_tokens": 16}
    one_frame, _, _ = run("caption_write", tmp_path, num_frames=1, limit=2, **given)
    found, refused, done = run("caption_write", tmp_path, num_frames=3, limit=2, **given)
    assert done.returncode == 1, done.stderr
    assert "no answer is a caption" in done.stderr
    assert (found["figures"]["requests"], found["figures"]["cached"]) == (2, 0)
    seen = found["figures"]["input_tokens"] - one_frame["figures"]["input_tokens"]
    assert seen >= 2 * 2 * (IMAGE // PATCH) ** 2  # two clips, two frames more
    assert refused.height == 2
    assert all(refused["key"])
    assert set(refused["reason"].str.split(":").list.first()) <= {
        "truncated",
        "empty answer",
        "is not one line that ends in (Apparatus",
        "is not one line that ends in (Platform",
    }
    more, _, _ = run("caption_write", tmp_path, num_frames=3, limit=4, **given)
    assert (more["figures"]["requests"], more["figures"]["cached"]) == (2, 2)


def test_a_real_model_rewrites_captions_of_labels_and_each_answer_is_counted(server, data_dir, tmp_path):
    url, model = server
    given = {"base_url": url, "model": model, "data_dir": data_dir, "max_output_tokens": 16, "limit": 3}
    found, refused, done = run("caption_rewrite", tmp_path, **given)
    assert done.returncode == 1, done.stderr
    asked, shared = (found["figures"][name] for name in ("requests", "cached"))
    assert asked + shared == refused.height == 3  # queries with the same caption and text are asked once
    assert all(refused["reason"])
    again, _, _ = run("caption_rewrite", tmp_path, **given)
    assert (again["figures"]["requests"], again["figures"]["cached"]) == (0, 3)


def test_a_real_judge_sees_the_frames_and_its_prose_is_counted_and_kept_never_scored(server, tiny_comp, tmp_path):
    url, model = server
    output = tmp_path / "judged"
    options = {"base_url": url, "model": model, "data_dir": tiny_comp["data_dir"], "quiet": "true"}
    options |= {"cache": tmp_path / "answers.sqlite", "output_dir": output}

    def judge(limit, num_frames):
        done = call("judge", limit=limit, num_frames=num_frames, **options)
        assert done.returncode == 1, done.stderr
        assert "no answer can be read" in done.stderr
        return json.loads((output / "results.json").read_text())

    one_frame, measured = (judge(2, num_frames)["figures"] for num_frames in (1, 3))
    assert (measured["requests"], measured["cached"]) == (2, 0)
    seen = measured["input_tokens"] - one_frame["input_tokens"]
    assert seen >= 2 * 2 * (IMAGE // PATCH) ** 2  # two rows, two frames more
    found = judge(5, 3)  # the answers of the first two rows are paid for
    assert (found["figures"]["requests"], found["figures"]["cached"]) == (3, 2)
    assert found["coverage"]["asked"] == found["coverage"]["unreadable or failed"] == 5
    assert not any("accuracy" in name for name in found["figures"])
    refused = pq.read_table(output / "rejections.parquet").to_pylist()
    assert all(row["raw"] and row["key"] for row in refused)
    assert {row["reason"].partition(":")[0] for row in refused} <= {"truncated", "the answer is not 1 or 2"}
