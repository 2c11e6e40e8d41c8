"""Re-ranking by a chat model: order, places, cost, cache, and what is sent."""

import sqlite3
from dataclasses import replace
from pathlib import Path

import datasets
import pytest
from chat_server import ChatServer
from small_footage import footage_in, loaded_once, shortlist

from hf_datasets.generation.images import image_part
from hf_datasets.video import read_frames
from subtle.footage import search
from subtle.footage.options import SearchConfig
from subtle.options import run_recipe


@pytest.fixture(scope="module")
def footage(tmp_path_factory):
    with loaded_once():
        yield footage_in(tmp_path_factory.getbasetemp())


@pytest.fixture
def chat(footage, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    judge = {"rerank": "tiny-judge", "num_frames": 2, "shortlist": 8, "input_usd": 1.0, "output_usd": 2.0}
    return SearchConfig(index=str(footage / "index"), text="show red", device="cpu", **judge)


def answers_for(config, answer_of):
    """A server's answer by the frames of each moment of the shortlist."""
    root = Path(config.index).parent / "videos"
    known = {}
    for rank, row in enumerate(shortlist(config)[: config.shortlist]):
        frames = read_frames(root / row["video"], 2, row["start_seconds"], row["end_seconds"]).frames
        known[image_part(frames[1], max_side=448)["image_url"]["url"]] = answer_of(rank)

    def answer(body):
        images = [part["image_url"]["url"] for part in body["messages"][-1]["content"] if part["type"] == "image_url"]
        return known[images[-1]]

    return answer


def test_a_chat_model_orders_and_what_it_cannot_judge_keeps_its_place(chat):
    given = ['{"score": 3}', "I like it.", '```json\n{"score": 9}\n```', '{"score": 11}', '{"score": 3}']
    given += ["I'm sorry, I can't help with that.", '{"score": 4}', '{"score": true}']
    first = shortlist(chat)[:8]
    said = []
    with ChatServer(answer=answers_for(chat, given.__getitem__)) as server:
        query = replace(chat, base_url=server.url)
        found = search.find(query, say=said.append)
        assert sum(server.asked.values()) == 8
        places = [first.index(next(one for one in first if one["moment_id"] == row["moment_id"])) for row in found]
        assert places == [2, 1, 6, 3, 0, 5, 4, 7]  # 9, -, 4, -, 3, -, 3, -
        assert [row["rerank_score"] for row in found] == [9, None, 4, None, 3, None, 3, None]
        assert [row["score"] for row in found] == [
            row["vector_score"] if row["rerank_score"] is None else row["rerank_score"] for row in found
        ]
        assert said[0].startswith("4 of 8 moments have no score of --rerank and keep their place: ")
        assert "refused by the model (1)" in said[0]
        assert "8 requests, 0 answered before" in said[1]
        assert search.find(query, say=said.append) == found  # nothing is paid for twice
        assert sum(server.asked.values()) == 8
        assert "0 requests, 8 answered before" in said[-1]
        assert "sk-secret" not in " ".join(said)


def test_a_request_shows_the_query_clip_first_and_asks_for_json(chat, footage):
    with ChatServer(answer=lambda body: '{"score": 1}') as server:
        clip = {"clip": str(footage / "videos/0.mp4"), "start_seconds": 1.0, "end_seconds": 3.0}
        search.find(replace(chat, base_url=server.url, shortlist=1, **clip), say=lambda message: None)
        (body,) = server.bodies
    content = body["messages"][-1]["content"]
    kinds = [part["type"] for part in content]
    assert kinds == ["text", "image_url", "image_url", "text", "image_url", "image_url", "text"]
    assert content[0]["text"] == "The query clip, in order:"
    assert "show red" in content[-1]["text"]
    assert body["response_format"]["json_schema"]["strict"] is True


def test_a_dry_run_says_how_many_calls_it_would_take_and_their_price(chat, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    said = []
    found = search.find(replace(chat, dry_run=True), say=said.append)
    assert "would make 8 requests" in said[0]
    assert "$0.00" in said[0]
    assert [row["moment_id"] for row in found] == [row["moment_id"] for row in shortlist(chat)[:8]]


def test_a_wrong_key_or_a_budget_stops_in_one_line(chat, capsys):
    with ChatServer(fault=lambda body, times: "bad_key") as server:
        assert run_recipe(search.main, replace(chat, base_url=server.url)) == 2
        captured = capsys.readouterr()
        assert captured.err.count("\n") == 1
        assert "key" in captured.err
        assert "sk-secret" not in captured.err
    with ChatServer(answer=lambda body: '{"score": 1}') as server:
        assert run_recipe(search.main, replace(chat, base_url=server.url, max_usd=1e-6)) == 2
        assert "budget" in capsys.readouterr().err
        assert not server.asked


def test_what_killed_runs_of_a_search_sent_counts_against_its_budget_and_no_other(chat, tmp_path, capsys):
    with ChatServer(answer=lambda body: '{"score": 1}') as server:
        query = replace(chat, base_url=server.url, max_usd=1.0)
        assert run_recipe(search.main, query) == 0
        (kept,) = (tmp_path / "cache").rglob("answers.sqlite")
        with sqlite3.connect(kept) as answers:
            answers.execute("DELETE FROM answers")  # as if the run had been killed before they arrived
        capsys.readouterr()
        assert run_recipe(search.main, replace(query, max_usd=1e-3)) == 2
        assert "$0.0010 spent, $0.0010 of it by other runs" in capsys.readouterr().err
        assert run_recipe(search.main, replace(query, max_usd=1e-3, text="show blue")) == 2
        assert "$0.0000 spent, next" in capsys.readouterr().err
