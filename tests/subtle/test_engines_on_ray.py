# ruff: noqa: F811 fixtures of another file
"""A Ray cluster of two workers on this machine: the same rows as without it, also after a worker or the driver is lost.

The cluster is started and stopped here; these tests need the extra `ray`.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, replace

import psutil
import pyarrow as pa
import pytest

from subtle import engines
from subtle.embedding import embed_clips
from subtle.embedding.embed_clips import EmbedConfig
from subtle.footage import engines as indexing_engines
from subtle.footage import index, reading
from subtle.footage.updating import Indexer
from subtle.run.shared_config import ActorConfig
from tests.fixtures.planted_modules import plant
from tests.subtle.test_engines import assert_same, config, contents, footage  # noqa: F401 fixtures

pytest.importorskip("ray", reason="needs the extra ray")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

WORK = """
import os
import signal
from pathlib import Path

import pyarrow as pa


class Worker:
    def __init__(self, log, start=""):
        if start == "exit":
            raise SystemExit("there is no such model")
        self.log = Path(log)

    def __call__(self, work):
        with self.log.open("a") as log:
            log.write(f"{work['number']} {os.getpid()}\\n")
        if work["do"] == "end":
            os.kill(os.getpid(), signal.SIGKILL)
        if work["do"] == "end once" and self.log.read_text().count(f"{work['number']} ") == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if work["do"] == "refuse":
            raise ValueError("no such video")
        return pa.table({"double": [2 * work["number"]], "text": [work["text"]]})
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Two cores, little memory; its workers can import `pieces_of_work`. Gives what appears if planted code is run."""
    folder = tmp_path_factory.mktemp("modules")
    (folder / "pieces_of_work.py").write_text(WORK)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("RAY_ADDRESS", raising=False)
        patch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
        patch.setenv("OMP_NUM_THREADS", "1")
        temporary = tempfile.mkdtemp(prefix="ray", dir="/tmp")  # the names of sockets must be short
        patch.setenv("RAY_TMPDIR", temporary)
        patch.setattr(engines, "OBJECT_STORE_BYTES", 200 << 20)
        patch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
        ran = plant(tmp_path_factory.mktemp("stranger"), patch)
        with engines.running(ActorConfig(engine="ray", num_actors=2, cpus_per_actor=1), device="cpu"):
            yield ran
        shutil.rmtree(temporary, ignore_errors=True)


@pytest.fixture
def on_ray(config, tmp_path):
    return replace(config, output=str(tmp_path / "ray"), engine="ray", num_actors=2, cpus_per_actor=1)


def actors():
    """The processes of actors, of this process's cluster."""
    mine = {one.pid for one in psutil.Process().children(recursive=True)}
    return [pid for pid, line in command_lines() if pid in mine and line.startswith("ray::MapWorker")]


def command_lines():
    """Number and command line of every process."""
    found = psutil.process_iter(["pid", "cmdline"])
    return [(one.info["pid"], " ".join(one.info["cmdline"] or ())) for one in found]


def numbers(log):
    return sorted(int(line.split()[0]) for line in log.read_text().splitlines())


def run(works, log, **options):
    arguments = {"log": str(log), **options}
    return engines.run_on_ray("pieces_of_work:Worker", arguments, works, ActorConfig(cpus_per_actor=1))


def test_each_piece_of_work_is_done_once_also_after_its_worker_was_lost(cluster, tmp_path):
    works = [{"number": number, "do": "", "text": f"ü{number}"} for number in range(12)]
    works[5]["do"] = "end once"
    done = list(run(works, tmp_path / "log"))
    assert sorted(number for number, _ in done) == list(range(12))
    assert all(table.equals(pa.table({"double": [2 * n], "text": [f"ü{n}"]})) for n, table in done)
    assert numbers(tmp_path / "log").count(5) == 2
    assert not cluster.exists(), "a module of the working directory was run"


def test_a_lost_worker_loses_one_piece_of_work_however_many_there_are(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(engines, "BLOCKS_AT_ONCE", 4)
    works = [{"number": number, "do": "end" if number in (1, 9) else "", "text": ""} for number in range(10)]
    done, found = run(works, tmp_path / "log"), []
    with pytest.raises(OSError, match=r"2 of 10 pieces of work are not done"):
        found.extend(number for number, _ in done)
    assert sorted(found) == [0, 2, 3, 4, 5, 6, 7, 8]
    assert all(numbers(tmp_path / "log").count(number) == 1 for number in found)


def test_work_that_ends_every_worker_is_given_up_and_all_other_work_is_done(cluster, tmp_path):
    works = [{"number": number, "do": "end" if number == 2 else "", "text": ""} for number in range(6)]
    done = run(works, tmp_path / "log")
    assert sorted(next(done)[0] for _ in range(5)) == [0, 1, 3, 4, 5]
    with pytest.raises(OSError, match=r"1 of 6 pieces of work are not done, all others are: .* ended 3 times"):
        next(done)
    assert numbers(tmp_path / "log").count(2) == engines.MAX_TRIES


def test_a_worker_that_refuses_the_work_ends_the_run_with_its_reason(cluster, tmp_path):
    with pytest.raises(ValueError, match=r"^no such video \(a worker on "):
        list(run([{"number": 0, "do": "refuse", "text": ""}], tmp_path / "log"))
    with pytest.raises(ValueError, match=r"^there is no such model \(a worker on "):
        list(run([{"number": 0, "do": "", "text": ""}], tmp_path / "log", start="exit"))


def test_two_workers_index_the_same_rows_and_vectors_also_when_both_are_killed(cluster, config, on_ray, monkeypatch):
    monkeypatch.setattr(reading, "FILES_PER_GROUP", 1)
    monkeypatch.setattr(indexing_engines, "SECONDS_PER_COMMIT", 0.0)
    index.run(config)
    assert index.run(on_ray)["moments_in_index"] == 12
    assert contents(on_ray.output) == contents(config.output)

    commit, killed = Indexer.commit, []

    def kill_then_commit(self, files, rows):
        if not killed:
            killed.extend(actors())
            for pid in killed:
                os.kill(pid, signal.SIGKILL)
        commit(self, files, rows)

    monkeypatch.setattr(Indexer, "commit", kill_then_commit)
    again = replace(on_ray, output=f"{on_ray.output} again")
    index.run(again)
    assert len(killed) == 2
    assert contents(again.output) == contents(config.output)


def test_after_the_driver_is_killed_the_next_run_does_the_rest(config, on_ray, tmp_path):
    program = (
        "import os, signal\n"
        "from subtle.footage import engines, index, reading\n"
        "from subtle.footage.updating import Indexer\n"
        "reading.FILES_PER_GROUP, engines.SECONDS_PER_COMMIT = 2, 0.0\n"
        "commit = Indexer.commit\n"
        "def then_kill(self, files, rows):\n"
        "    commit(self, files, rows)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        f"config = index.IndexConfig(**{asdict(on_ray)!r})\n"
        "if not os.path.exists(config.output):\n"
        "    Indexer.commit = then_kill\n"
        "print(index.run(config))\n"
    )
    folder = tempfile.mkdtemp(prefix="ray", dir="/tmp")
    variables = {"RAY_TMPDIR": folder, "OMP_NUM_THREADS": "1"}
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"} | variables
    call = [sys.executable, "-c", program]
    first = subprocess.run(call, env=environment, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert first.returncode == -signal.SIGKILL, first.stderr
    done = len(contents(on_ray.output)[1])
    assert done in {1, 2}  # of five: the files of one group, the last of which has one
    until = time.monotonic() + 60
    while left := [line[:200] for _, line in command_lines() if folder in line]:  # of the cluster in it
        assert time.monotonic() < until, left
        time.sleep(0.5)
    second = subprocess.run(call, env=environment, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert second.returncode == 0, second.stderr
    assert f"'files_unchanged': {done}," in second.stdout
    index.run(config)
    assert contents(on_ray.output) == contents(config.output)
    shutil.rmtree(folder, ignore_errors=True)


def test_workers_embed_the_same_clips(cluster, tiny, embedded, tmp_path):
    options = {"engine": "ray", "num_actors": 2, "cpus_per_actor": 1, "device": "cpu"}
    made = embed_clips.run(EmbedConfig(**tiny, **options, output_dir=str(tmp_path / "made"), shard_size=6))
    assert made["encoded"] == 36
    assert_same(tmp_path / "made" / "video", f"{embedded}/video")
