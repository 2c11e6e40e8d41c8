"""Rejections of the three pipelines behind a faulty server: each can be found."""

from functools import partial
from itertools import count

import pytest
from chat_server import ChatServer
from small_builds import CAPTIONS, MOMENTS, comp, enriched, fig, hidden, paragraph, rejected, tfcovr, writes

from hf_datasets.generation.cache import AnswerCache
from hf_datasets.generation.openai_chat import Limits
from hf_datasets.tfcovr.labels import load_labels
from subtle.run import chat_client

FAULTS = ("bad_row", None, "refusal", None, None, "cut", None, "html", None, "server_error", None, "close", None)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Retries that do not take their time."""
    monkeypatch.setattr(chat_client, "Limits", partial(Limits, max_wait_seconds=0.01, max_tries=2))


def is_of_tfcovr(key):
    ids = {label.label_id for label in load_labels()}
    return set(key.split("->")) <= ids


def is_of_comp(key):
    return key.partition("/")[0] in CAPTIONS


def is_of_fig(key):
    return key in {f"{video}/{number}" for video, _, number, _ in MOMENTS} | {"charades_fig_test.jsonl:4"}


@pytest.mark.parametrize(
    ("pipeline", "answers", "is_of_the_input"),
    [(tfcovr, writes, is_of_tfcovr), (comp, paragraph, is_of_comp), (fig, enriched, is_of_fig)],
    ids=["tfcovr", "comp", "fig"],
)
def test_every_rejection_names_its_row_its_request_and_its_raw_text(
    tmp_path, monkeypatch, pipeline, answers, is_of_the_input
):
    # The extra `keyframes` finds them; here it does not matter which they are.
    monkeypatch.setattr("hf_datasets.fig.construction.keyframe_seconds", lambda path, start, end: [(start + end) / 2])
    turns = count()
    prose = lambda body: answers(body) if next(turns) % 3 else "Well, [[[["  # noqa: E731 - one of three is not an answer
    fault_of = {}

    def fault(body, times):
        return fault_of.setdefault(str(body["messages"][-1]), FAULTS[len(fault_of) % len(FAULTS)])

    with ChatServer(prose, fault) as server:
        pipeline(tmp_path, server, limit=60, max_answers=1)
    rows = rejected(tmp_path)
    assert len({row["reason"].partition(":")[0] for row in rows}) >= 5
    assert [row for row in rows if not (row["key"] and is_of_the_input(row["key"]))] == []
    asked = [row for row in rows if row["request"]]
    assert len(asked) >= 5
    silent = {"no answer after 2 tries: InternalServerError", "no answer after 2 tries: APIConnectionError"}
    assert [row for row in rows if not row["raw"] and row["reason"] not in silent] == []
    with AnswerCache(tmp_path / "answers.sqlite") as cache:
        kept = [row for row in asked if not row["reason"].startswith(("no answer", "the server refused"))]
        assert kept
        assert [row for row in kept if cache.get(row["request"]).text != row["raw"]] == []


def test_a_build_without_an_accepted_row_writes_the_rejections_with_their_reasons(tmp_path, capsys):
    with ChatServer(lambda body: "I dance.") as server:
        assert comp(tmp_path, server) == 1
        assert "there is no row to write" in capsys.readouterr().err
        written = [row for row in rejected(tmp_path) if row["request"]]
        assert {row["raw"] for row in written} == {"I dance."}
        assert hidden(tmp_path) == []
        assert comp(tmp_path, server) == 2
        assert f"{tmp_path / 'built'}, which stays as it was" in capsys.readouterr().err
