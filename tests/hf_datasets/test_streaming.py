"""Streaming in the workers of a DataLoader: forked from a process that has used Polars, they may not use it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hf_datasets.registration import BUILDERS

CHECKOUT = Path(__file__).parents[2]
MOMENT = {"video": "AKKWU", "time": [13, 38], "desc_id": 13612, "duration": 13.2, "cog_desc": "a person eats.",
          "fig_desc": "A person eats an apple.", "fig_desc_score": -5.38}  # fmt: skip


@pytest.fixture
def releases(tmp_path):
    """One folder with the smallest releases of TF-CoVR and Charades-FIG."""
    folder = tmp_path / "release"
    folder.mkdir()
    train = "query_video,target_video,label1,label2,modification\na_1,b_1,40,41,show with 1 turn\n"
    (folder / "train.csv").write_text(train)
    (folder / "test.csv").write_text(
        "query_id,query_video,modification,target_video,target_videos_ids\nq,c_1,show it,d_1,\"['d_1']\"\n"
    )
    (folder / "charades_fig_test.jsonl").write_text(json.dumps(MOMENT) + "\n")
    return folder


def test_every_name_streams_in_forked_workers_without_hanging(miniature, releases, tmp_path):
    cases = [(name, "mini", str(miniature)) for name in BUILDERS]
    cases += [(name, "mini-clips", str(miniature)) for name in ("tfcovr", "activitynet_comp")]
    cases += [("charades_fig", "mini-videos", str(miniature)), ("charades_fig", "release", str(releases))]
    cases += [("tfcovr", config, str(releases)) for config in ("release", "release-clips")]
    environment = os.environ | {"HF_DATASETS_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "tests/fixtures/streaming_workers.py", json.dumps(cases)],
        cwd=CHECKOUT,
        env=environment | {"PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert set(found) == {f"{name} {config}" for name, config, _ in cases}
    assert all(found.values()), found
