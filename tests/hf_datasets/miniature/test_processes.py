"""The renderer's processes end with the program, and what they write depends on the plan alone."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

RENDER = """
import sys
from pathlib import Path
from hf_datasets.miniature import MiniatureConfig, plan_competitions, prepare_miniature
from hf_datasets.miniature.render import render_video
config = MiniatureConfig(
    labels=("119", "45", "93", "241", "103b", "10"),
    clips_per_label={"train": 6, "validation": 2, "test": 2},
    videos_per_split={"train": 6, "validation": 2, "test": 2},
)
if sys.argv[1] == "one":
    (plan,) = (plan for plan in plan_competitions(config) if plan.video_id == "gymnastics_000")
    render_video(plan, Path(sys.argv[2]), config)
else:
    prepare_miniature(sys.argv[2], config=config, num_workers=2, progress=False)
"""


def render(what, path, **environment):
    command = [sys.executable, "-c", RENDER, what, str(path)]
    return subprocess.Popen(command, env=os.environ | environment, start_new_session=True, stderr=subprocess.PIPE)


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc fills new memory on demand")
def test_a_video_does_not_depend_on_the_previous_content_of_memory(tmp_path):
    paths = [tmp_path / f"{number}.mp4" for number in (1, 85)]
    runs = [render("one", path, MALLOC_PERTURB_=path.stem) for path in paths]
    assert [run.wait(60) for run in runs] == [0, 0]
    assert paths[0].read_bytes() == paths[1].read_bytes()


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="only Linux shows the processes of a run")
@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_renderers_end_with_a_killed_program_and_the_next_run_removes_its_leftovers(tmp_path, how):
    run = render("all", tmp_path, RENDER_TOKEN=str(tmp_path))
    while not list(tmp_path.glob("*/videos/*.mp4")):
        assert run.poll() is None
        time.sleep(0.005)
    assert len(list(tmp_path.glob("*/videos/*.mp4"))) < 12
    os.kill(run.pid, how)
    assert run.wait(20) == -how
    deadline = time.monotonic() + 20
    while (left := running(f"RENDER_TOKEN={tmp_path}")) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left
    rendered = len(list(tmp_path.glob("*/videos/*.mp4")))
    assert rendered < 12, "it did not wait for all"
    assert render("all", tmp_path).wait(60) == 0
    assert len(list(tmp_path.glob("*/videos/*.mp4"))) == 12
    assert not list(tmp_path.rglob("*.tmp"))


def running(variable):
    """The living processes that were started with a variable."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if variable.encode() in path.read_bytes():
                found.append(path.parent.name)
        except OSError:
            continue
    return found
