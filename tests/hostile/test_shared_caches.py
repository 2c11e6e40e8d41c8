"""Several processes on one cache or folder: nothing is damaged or counted twice, the result is that of one."""

import hashlib
import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from chat_server import ChatServer
from colored_videos import write_colored_video
from sentences import EXPECTED, ROWS, SentenceTask, answer

from hf_datasets.generation import cache as answer_cache
from hf_datasets.generation.cache import AnswerCache
from hf_datasets.generation.generate import generate
from hf_datasets.generation.openai_chat import OpenAIChat
from hf_datasets.video.frame_cache import FrameCache
from hf_models.feature_store import FeatureStore
from subtle.options import run_recipe
from tests.fixtures.verbs import typed
from tests.hostile.full_disk import one_line
from tests.hostile.kill_harness import differences, leftovers
from tests.hostile.outcomes import embeddings, features
from tests.subtle.conftest import LABELS

pytestmark = [pytest.mark.hostile, pytest.mark.timeout(900)]
PROCESSES = 3
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "ACCELERATE_USE_CPU": "true"}
DECODE = """
import hashlib, json, sys
from pathlib import Path
from hf_datasets.video.frame_cache import FrameCache
from hf_models.feature_store import FeatureStore
folder, clips = Path(sys.argv[1]), json.loads(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
cache = FrameCache(folder, clips, 4, (16, 16), num_workers=1, also=2)
print(json.dumps([hashlib.sha256(cache.frames.tobytes()).hexdigest(), cache.failures]))
"""
HOLD = """
import sqlite3, sys, time
base = sqlite3.connect(sys.argv[1], isolation_level=None)
base.execute("BEGIN EXCLUSIVE")
print("held", flush=True)
time.sleep(float(sys.argv[2]))
base.execute("COMMIT")
"""


def start(*command, **options):
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, *map(str, command)], env=ENVIRONMENT, **streams, **options)


def test_processes_that_decode_the_same_clips_at_once_find_the_frames_of_one(tmp_path):
    clips = []
    for number in range(24):
        path = tmp_path / f"{number}.mp4"
        write_colored_video(path, [list(LABELS.values())[number % 4]], seed=number)
        clips.append({"clip_id": str(number), "video": str(path), "start_seconds": None, "end_seconds": None})
    (tmp_path / "7.mp4").write_text("no video")
    alone = FrameCache(tmp_path / "alone", clips, 4, (16, 16), num_workers=1, also=2)
    expected = [hashlib.sha256(alone.frames.tobytes()).hexdigest(), alone.failures]
    assert list(alone.failures) == ["7"]
    words = ("-c", DECODE, tmp_path / "shared", json.dumps(clips))
    processes = [start(*words) for _ in range(PROCESSES)]
    assert [one.stdout.readline() for one in processes] == ["ready\n"] * PROCESSES
    found = []
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    for process in processes:
        out, _ = process.communicate(timeout=300)
        assert process.returncode == 0
        found.append(json.loads(out))
    assert found == [expected] * PROCESSES
    assert not leftovers(tmp_path / "shared")


@pytest.mark.parametrize("name", ["embed_clips", "embed_moments"])
def test_encoders_that_write_one_folder_at_once_leave_the_files_of_one(name, tiny, moments, tmp_path):
    if name == "embed_clips":
        options = {**tiny, "batch_size": 2, "shard_size": 2}
    else:
        clip = Path(tiny["vision_model"]).parent / "clip"
        options = {"dataset": moments, "vision_model": clip, "text_model": tiny["text_model"], "shard_size": 1}
    flags = [
        part for key, value in {**options, "num_workers": 1, "device": "cpu"}.items() for part in (f"--{key}", value)
    ]

    def started(folder, cache):
        words = [*typed(name), "--output_dir", folder, *flags]
        environment = ENVIRONMENT | {"HF_DATASETS_CACHE": str(tmp_path / cache)}
        log = (tmp_path / f"{cache}.log").open("w")
        return subprocess.Popen(
            [sys.executable, *map(str, words)], env=environment, stdout=log, stderr=log, cwd=tmp_path
        )

    assert started(tmp_path / "alone", "cache").wait(300) == 0, (tmp_path / "cache.log").read_text()[-2000:]
    processes = [started(tmp_path / "shared", f"cache-{number}") for number in range(2)]
    for number, process in enumerate(processes):
        assert process.wait(600) == 0, (tmp_path / f"cache-{number}.log").read_text()[-2000:]
    outcome = embeddings if name == "embed_clips" else features
    assert not differences(outcome(tmp_path / "alone"), outcome(tmp_path / "shared"), 1e-5)
    if name == "embed_clips":
        ids, _ = FeatureStore(tmp_path / "shared" / "video").load()
    else:
        ids = list(FeatureStore(tmp_path / "shared" / "video"))
    assert set(Counter(ids).values()) == {1}
    assert not leftovers(tmp_path / "shared")


def hold(path, seconds):
    """A process that locks a database for so many seconds, once it does."""
    process = start("-c", HOLD, path, seconds)
    assert process.stdout.readline() == "held\n"
    return process


def test_a_cache_that_another_process_has_locked_is_waited_for(tmp_path):
    AnswerCache(tmp_path / "answers.sqlite").close()
    process, begin = hold(tmp_path / "answers.sqlite", 4), time.monotonic()
    with ChatServer(answer) as server, AnswerCache(tmp_path / "answers.sqlite") as cache:
        assert list(generate(SentenceTask(), ROWS, OpenAIChat("m", base_url=server.url), cache)) == EXPECTED
        assert len(cache) == len(set(ROWS))
        assert set(server.asked.values()) == {1}
    assert time.monotonic() - begin > 3
    assert process.wait(20) == 0


def test_a_cache_that_stays_locked_is_one_line(tmp_path, monkeypatch, capsys):
    path = tmp_path / "answers.sqlite"
    AnswerCache(path).close()
    connect = answer_cache.sqlite3.connect
    monkeypatch.setattr(
        answer_cache.sqlite3, "connect", lambda *args, **options: connect(*args, **{**options, "timeout": 0.2})
    )
    process = hold(path, 30)

    def build(_):
        with ChatServer(answer) as server, AnswerCache(path) as cache:
            list(generate(SentenceTask(), ROWS, OpenAIChat("m", base_url=server.url), cache))

    assert run_recipe(build, None) == 2
    error = one_line(capsys)
    assert str(path) in error
    assert "locked" in error
    assert "run again" in error
    process.kill()
