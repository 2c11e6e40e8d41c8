"""The judge against `transformers serve` with a tiny random model: its prose is counted, never scored."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from served_model import IMAGE, PATCH, save_tiny_llava, served

pytestmark = [pytest.mark.peers, pytest.mark.timeout(600)]
RECIPE = Path(__file__).parents[2] / "recipes" / "judge.py"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The address of a running server, and the folder of its LLaVA of a few thousand weights."""
    folder = tmp_path_factory.mktemp("served") / "tiny-llava"
    save_tiny_llava(folder)
    with served(folder) as url:
        yield url, folder


def test_a_real_model_sees_the_frames_and_its_prose_is_counted_and_kept(server, tiny_comp, tmp_path):
    url, model = server
    output = tmp_path / "judged"
    command = [
        sys.executable,
        RECIPE,
        "--base_url",
        url,
        "--model",
        model,
        "--data_dir",
        tiny_comp["data_dir"],
    ]
    command += [
        "--num_frames",
        "3",
        "--cache",
        tmp_path / "answers.sqlite",
        "--output_dir",
        output,
        "--quiet",
        "true",
    ]

    def judge(limit, num_frames):
        given = [*command, "--limit", limit, "--num_frames", num_frames]
        done = subprocess.run(list(map(str, given)), capture_output=True, text=True, check=False, timeout=300)
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
