"""Builds in trouble: stopped runs, dead writers' drafts, full disks."""

import contextlib
import errno
import json
import os
import shutil
import signal
import subprocess
from functools import partial

import pytest
from chat_server import ChatServer
from small_builds import contents, hidden, options, tfcovr, writes

from hf_datasets.drafts import draft_of
from hf_datasets.generation.cache import AnswerCache
from hf_datasets.generation.openai_chat import Limits
from subtle.building import build_tfcovr
from subtle.evaluate import judge
from subtle.run import build, chat_client

PRICED = {"input_usd": 10.0, "output_usd": 100.0, "max_output_tokens": 20}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Retries that do not take their time."""
    monkeypatch.setattr(chat_client, "Limits", partial(Limits, max_wait_seconds=0.01, max_tries=2))


def test_a_run_that_stops_early_leaves_a_complete_earlier_build_alone(tmp_path, capsys):
    with ChatServer(writes) as server:
        assert tfcovr(tmp_path, server, limit=10) == 0
        before = contents(tmp_path / "built")
        assert tfcovr(tmp_path, server, limit=20, max_usd=0.03, **PRICED) == 1  # another token limit: asks anew
        assert contents(tmp_path / "built") == before
        assert "keeps the complete build" in capsys.readouterr().err
        url = server.url
    assert tfcovr(tmp_path, url, limit=20) == 1  # the server is gone
    assert contents(tmp_path / "built") == before
    assert "10 rows found no answer" in capsys.readouterr().err
    with ChatServer(writes) as server:
        assert tfcovr(tmp_path, server, limit=20) == 0
    assert contents(tmp_path / "built") != before


def test_rows_that_found_no_answer_mark_the_build_until_a_run_completes_it(tmp_path, capsys):
    last = []

    def fault(body, times):
        text = str(body["messages"][-1])
        last[:] = last or [text]
        return "server_error" if text == last[0] else None

    with ChatServer(writes, fault) as server:
        assert tfcovr(tmp_path, server, limit=10) == 1
    results = json.loads((tmp_path / "built" / "results.json").read_text())
    assert not results["complete"]
    card = (tmp_path / "built" / "README.md").read_text()
    assert "1 rows found no answer" in card
    assert "* rejected (modifications, no answer after 2 tries): 1\n" in card
    assert "run the command again" in capsys.readouterr().err.lower()
    with ChatServer(writes) as server:
        assert tfcovr(tmp_path, server, limit=10) == 0
        assert sum(server.asked.values()) == 1
    assert json.loads((tmp_path / "built" / "results.json").read_text())["complete"]


def dies_while_writing(folder):
    """A process that is killed inside `draft_of`, after its first move."""
    child = os.fork()
    if not child:
        try:
            with draft_of(folder) as draft:
                (draft / "half").write_text("half")
                folder.replace(draft.with_name("old"))
                os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    os.waitpid(child, 0)


def test_leftovers_of_a_killed_writer_are_removed_and_the_earlier_build_is_restored(tmp_path):
    assert tfcovr(tmp_path, limit=5) == 0
    assert hidden(tmp_path) == []
    before = contents(tmp_path / "built")
    dies_while_writing(tmp_path / "built")
    assert not (tmp_path / "built").exists()
    assert hidden(tmp_path)
    with pytest.raises(ValueError, match="threshold is 7"):  # any next run, even one that fails
        build_tfcovr.main(build_tfcovr.BuildTFCoVRConfig(**options(tmp_path, threshold=7.0)))
    assert contents(tmp_path / "built") == before
    assert hidden(tmp_path) == []


def test_the_draft_of_a_running_writer_is_not_removed(tmp_path):
    config = build_tfcovr.BuildTFCoVRConfig(**options(tmp_path))
    with draft_of(tmp_path / "built") as draft:
        (draft / "half").write_text("half")
        build.Build(config)
        assert (draft / "half").read_text() == "half"
    assert (tmp_path / "built" / "half").exists()


def test_a_full_disk_while_writing_is_one_line_and_the_next_run_completes(tmp_path, monkeypatch, capsys):
    assert tfcovr(tmp_path, limit=5) == 0
    before = contents(tmp_path / "built")

    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(build, "write_results", full)  # the last file
        assert tfcovr(tmp_path, limit=6) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert str(tmp_path / "built") in error
    assert "No space left on device" in error
    assert contents(tmp_path / "built") == before
    assert hidden(tmp_path) == []
    assert tfcovr(tmp_path, limit=6) == 0


@contextlib.contextmanager
def small_disk(folder, size):
    """A disk of a few bytes, where this machine lets us have one."""
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", folder], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip("this machine mounts no file system for tests")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.skipif(not shutil.which("mount"), reason="there is no mount")
def test_a_full_disk_under_the_cache_or_the_build_is_one_line_and_keeps_all_answers(tmp_path, capsys):
    disk = tmp_path / "disk"
    with small_disk(disk, "1m"), ChatServer(writes) as server:
        for place, others in (("cache", 4_000), ("output_dir", 0)):
            given = {place: str(disk / "answers.sqlite" if place == "cache" else disk / "built")}
            with AnswerCache(disk / "answers.sqlite"):
                pass
            (disk / "filler").write_bytes(bytes(shutil.disk_usage(disk).free - 16_384 - others))
            capsys.readouterr()
            assert tfcovr(tmp_path, server, **given) == 2
            error = capsys.readouterr().err
            assert error.count("\n") == 1
            assert str(disk) in error
            assert "Traceback" not in error
            (disk / "filler").unlink()
            assert hidden(disk) == []
            assert tfcovr(tmp_path, server, **given) == 0
    assert max(server.answered.values()) <= 2


def test_a_judge_that_stops_early_keeps_the_earlier_complete_verdicts(tiny_comp, tmp_path, capsys):
    given = {"data_dir": tiny_comp["data_dir"], "num_frames": 2, "max_side": 32}
    with ChatServer(lambda body: "1") as server:
        config = judge.JudgeConfig(**options(tmp_path, server, **given))
        assert judge.main(config) == 0
        before = contents(tmp_path / "built")
        url = server.url
    config = judge.JudgeConfig(**options(tmp_path, url, own_questions=True, seed=3, **given))
    assert judge.main(config) == 1
    assert contents(tmp_path / "built") == before
    assert "keeps the complete" in capsys.readouterr().err
    assert hidden(tmp_path) == []
