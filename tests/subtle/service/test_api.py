"""The service: over HTTP it finds what the library finds, and what it refuses is a problem document."""

import asyncio
import base64
import io
import json
import shutil
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("prometheus_client")

import httpx2
import mcp
import uvicorn
from PIL import Image
from small_index import build_index

import subtle
from hf_datasets.footage.files import path_of_video
from subtle.service import serve
from subtle.service.agents import Agents
from subtle.service.api import Service, build_api
from subtle.service.marks import Marks
from subtle.service.media import Media
from subtle.service.options import ServeConfig


@contextmanager
def served(path, folder, marks=None, **options):
    """A service of an index on a port of this machine."""
    index = subtle.open_index(path, device="cpu", video_dir=options.pop("video_dir", None))
    index.loaded()
    media = Media(
        partial(path_of_video, index.root()), folder, num_workers=1, timeout_seconds=30, max_upload_bytes=2_000_000
    )
    kept = Service(index, media, Marks(marks) if marks else None, timeout_seconds=options.pop("timeout_seconds", 20.0))
    api = build_api(kept, **options)
    api.add_route("/mcp", Agents(kept))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        # Without handlers of its own, which would keep the stderr of one test.
        server = uvicorn.Server(uvicorn.Config(api, log_config=None, log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}", kept
        finally:
            server.should_exit = True
            thread.join()
            media.close()


@pytest.fixture(scope="module")
def made(tiny, tmp_path_factory):
    return build_index(tiny, tmp_path_factory.mktemp("service"))


@pytest.fixture(scope="module")
def service(made, tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    with served(made.output, folder / "own", folder / "marks.csv") as (address, kept):
        yield address, kept


@pytest.fixture
def client(service):
    with subtle.Client(service[0]) as client:
        yield client


@pytest.fixture(scope="module")
def index(made):
    with subtle.open_index(made.output, device="cpu") as index:
        yield index


def ids(found):
    return [one.moment_id for one in found]


def refused(answer):
    """The status and the detail of a problem document."""
    problem = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert problem["status"] == answer.status_code
    return problem["status"], problem["detail"]


def test_it_finds_what_the_library_finds(made, service, client, index):
    clip = Path(made.video_dir, "first/two.mp4")
    for asked in (
        {"text": "show red", "limit": 16},
        {"clip": clip, "start_seconds": 1.0, "end_seconds": 2.0},
        {"clip": clip, "text": "show red", "folder": "second", "where": "label != 'green'", "exclude_same_video": True},
    ):
        expected, found = index.search(**asked), client.search(**asked)
        assert ids(found) == ids(expected)
        assert [one.score for one in found] == pytest.approx([one.score for one in expected], abs=1e-4)
        assert isinstance(found[0], subtle.Moment)
    right = expected[0]
    marked = client.search(text="show red", more_like=[right], less_like=expected[1:2])
    assert ids(marked) == ids(index.search(text="show red", more_like=[right], less_like=expected[1:2]))
    same = client.search(moment_id=right.moment_id, limit=4)  # four videos show each color
    assert right.moment_id in ids(same)
    assert same[0].score == pytest.approx(1, abs=1e-3)
    assert client.search(text="show red", min_score=2.0) == []
    assert not list((service[1].media.folder / "uploads").glob("sent-*"))


def test_an_agent_searches_looks_and_marks_and_is_told_what_was_wrong(service, index):
    async def ask():
        async with mcp.Client(f"{service[0]}/mcp") as agent:
            tools = {tool.name: tool for tool in (await agent.list_tools()).tools}
            found = await agent.call_tool("search", {"query": {"text": "show red", "limit": 3}})
            moments = [json.loads(part.text) for part in found.content]
            best = {"moment_id": moments[0]["moment_id"]}
            seen = await agent.call_tool("look", best)
            kept = await agent.call_tool("mark", best | {"is_right": True, "text": "show red"})
            wrong = [
                await agent.call_tool("search", {"query": {"text": "show red", "where": "label ="}}),
                await agent.call_tool("search", {"query": {}}),
                await agent.call_tool("look", {"moment_id": "none"}),
            ]
            return tools, moments, seen, kept, wrong

    tools, moments, seen, kept, wrong = asyncio.run(ask())
    assert set(tools) == {"search", "look", "mark"}
    assert [one["moment_id"] for one in moments] == ids(index.search(text="show red", limit=3))
    with Image.open(io.BytesIO(base64.b64decode(seen.content[0].data))) as picture:
        assert picture.format == "JPEG"
    assert kept.content[0].text == "kept"
    assert service[1].marks.read()[-1]["text"] == "show red"
    assert [one.is_error for one in wrong] == [True] * 3
    reasons = " ".join(one.content[0].text for one in wrong)
    assert all(part in reasons for part in ("say what to look for", "has no moment 'none'", "label ="))


def test_queries_that_arrive_together_find_what_each_finds_alone(service, client, index):
    asked = [
        {"text": f"show {color}", "limit": limit} for color in ("red", "blue", "green", "white") for limit in (3, 9)
    ]
    asked.append({"more_like": [index.search(text="show red")[0].moment_id], "limit": 3})
    with ThreadPoolExecutor(24) as pool:
        found = list(pool.map(lambda one: client.search(**one), asked * 4))
    assert [ids(one) for one in found] == [ids(index.search(**one)) for one in asked * 4]
    together = [
        line for line in httpx2.get(f"{service[0]}/metrics").text.splitlines() if "queries_together_count" in line
    ]
    assert float(together[0].split()[1]) > 0


def test_a_query_that_cannot_be_does_not_spoil_those_beside_it(client):
    def ask(number):
        try:
            return len(client.search(text="show red", limit=3, less_like=["none"] if number % 2 else []))
        except subtle.ServiceError as error:
            return error.status

    with ThreadPoolExecutor(12) as pool:
        assert list(pool.map(ask, range(12))) == [3, 422] * 6


def test_a_moment_its_clip_and_its_picture(client, index):
    found = index.search(text="show red")[0]
    moment = client.moment(found.moment_id)
    assert (moment.video, moment.start_seconds, moment.label) == (found.video, found.start_seconds, found.label)
    assert client.clip(found)[4:8] == b"ftyp"
    assert client.thumbnail(found)[:3] == b"\xff\xd8\xff"
    assert client.health()["moments"] == 16


def test_marks_are_kept_as_the_page_keeps_them(service, client, index):
    first, second = index.search(text="show red", limit=2)
    client.mark(first, is_right=True, text="show red")
    client.mark(second, is_right=False, text="show red", query_moment_id=first.moment_id)
    marks = service[1].marks.read()
    assert [(one["video"], one["is_right"], one["query_video"]) for one in marks] == [
        (first.video, "true", ""),
        (second.video, "false", first.video),
    ]
    client.mark(first, is_right=None, text="show red")
    assert len(service[1].marks.read()) == 1


@pytest.mark.parametrize(
    ("asked", "status", "detail"),
    [
        ({}, 422, "say what to look for"),
        ({"text": " "}, 422, "the text is empty"),
        ({"text": "red " * 99}, 422, "the model reads 32"),
        ({"text": "x" * 1001}, 422, "at most 1000 characters"),
        ({"text": "red", "limit": 0}, 422, "limit: Input should be greater"),
        ({"text": "red", "clip": "/etc/passwd"}, 422, "clip: Extra inputs"),
        ({"text": "red", "where": "label ="}, 422, "is not understood"),
        ({"text": "red", "where": "1=1; DROP TABLE x"}, 422, ""),
        ({"text": "red", "start_seconds": 1.0}, 422, "are of a clip"),
        ({"moment_id": "none"}, 404, "no moment 'none'"),
        ({"more_like": ["no\u0000ne"]}, 422, "no moment"),
        ({"text": "red", "min_score": "x"}, 422, "min_score"),
    ],
)
def test_what_cannot_be_is_a_problem_that_names_no_path(made, service, asked, status, detail):
    answer = httpx2.post(f"{service[0]}/search", json=asked)
    got, said = refused(answer)
    assert (got, detail in said) == (status, True), said
    assert str(Path(made.output).parent) not in answer.text


def test_what_is_no_request_of_ours_is_refused(service):
    address = service[0]
    post = partial(httpx2.post, f"{address}/search")
    assert refused(post(content=b"{"))[0] == 422
    assert refused(post(content=b"\xff" * 10))[0] == 422
    assert refused(post(content=b" " * 4_000_000)) == (413, "a request may have 3,000,000 bytes")

    host, port = address.removeprefix("http://").split(":")
    head, chunk = b"POST /search HTTP/1.1\r\nHost: 127.0.0.1\r\n", b"186a0\r\n" + b" " * 100_000 + b"\r\n"
    for said, sent in (("Content-Length: 8000000", b" " * 4_000_000), ("Transfer-Encoding: chunked", 40 * chunk)):
        with socket.create_connection((host, int(port)), timeout=10) as client:
            client.sendall(head + said.encode() + b"\r\n\r\n" + sent)
            assert client.recv(12, socket.MSG_PEEK) == b"HTTP/1.1 413"
            client.sendall(sent)  # as of clients that read when they have sent all
            assert client.recv(12) == b"HTTP/1.1 413"
    _, detail = refused(post(files={"clip": ("../of mine.mp4", b"no video")}, data={"query": "{}"}))
    assert detail == "of_mine.mp4 is not a video, or it is damaged; choose an MP4, WebM or MOV file"
    assert refused(post(data={"query": "{}"}, files={"other": b"x"}))[0] == 422
    assert refused(post(json={"text": "red"}, headers={"Host": "evil.example"}))[0] == 403
    assert refused(post(json={"text": "red"}, headers={"Origin": "http://evil.example"}))[0] == 403
    assert refused(httpx2.get(f"{address}/search"))[0] == 405
    for path in ("/moments/none/clip.mp4", "/moments/..%2F..%2Fetc%2Fpasswd", "/nothing"):
        assert refused(httpx2.get(address + path))[0] == 404


def test_a_slow_client_and_one_that_goes_leave_the_service_as_it_was(made, tmp_path):
    with served(made.output, tmp_path / "own", timeout_seconds=0.5) as (address, _):
        host, port = address.removeprefix("http://").split(":")
        head = b"POST /search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{"
        with socket.create_connection((host, int(port))) as slow:
            slow.sendall(head)
            slow.settimeout(10)
            assert slow.recv(1000).startswith(b"HTTP/1.1 408")
        with socket.create_connection((host, int(port))) as gone:
            gone.sendall(head)
        assert httpx2.get(f"{address}/health").status_code == 200


def test_others_need_the_token_and_too_many_requests_wait(made, tmp_path, monkeypatch):
    with served(made.output, tmp_path / "own", token="a secret", per_minute=4) as (address, _):
        for wrong in (None, "another"):
            with subtle.Client(address, token=wrong) as client, pytest.raises(subtle.ServiceError) as caught:
                client.health()
            assert caught.value.status == 401
        monkeypatch.setenv("SUBTLE_TOKEN", "a secret")
        with subtle.Client(address) as client:
            assert [client.health()["status"] for _ in range(4)] == ["ok"] * 4
            with pytest.raises(subtle.ServiceError, match="4 requests a minute") as caught:
                client.health()
            assert caught.value.status == 429
            with pytest.raises(subtle.ServiceError, match="4 requests"):
                client.mark("none", is_right=True)
    monkeypatch.delenv("SUBTLE_TOKEN")
    with pytest.raises(ValueError, match="set the environment variable SUBTLE_TOKEN"):
        serve.token_of(ServeConfig(host="0.0.0.0"))
    with subtle.Client(address) as client, pytest.raises(OSError, match="start it with `subtle serve`"):
        client.health()


def test_an_index_that_grows_is_damaged_or_goes_while_it_is_served(made, tmp_path):
    copied = tmp_path / "index"
    shutil.copytree(made.output, copied)
    with (
        served(copied, tmp_path / "own", video_dir=made.video_dir) as (address, _),
        served(copied, tmp_path / "other", video_dir=made.video_dir) as (beside, _),
        subtle.Client(address) as one,
        subtle.Client(beside) as two,
    ):
        found = one.search(text="show red", limit=16)
        assert ids(found) == ids(two.search(text="show red", limit=16))
        with subtle.open_index(copied, device="cpu") as writer:
            writer.store.remove(writer.model.key, ["first/one.mp4"])
        assert len(one.search(text="show red", limit=16)) == len(two.search(text="show red", limit=16)) == 12
        shutil.rmtree(copied)
        for client in (one, two):
            with pytest.raises(subtle.ServiceError) as caught:
                client.moment(found[0].moment_id)
            assert caught.value.status == 503
            assert str(tmp_path) not in str(caught.value)


def test_the_document_names_every_route_and_the_page_and_the_service_share_a_process(service, monkeypatch, made):
    document = httpx2.get(f"{service[0]}/openapi.json").json()
    assert sorted(document["paths"]) == [
        *("/health", "/marks", "/metrics", "/moments/{moment_id}", "/moments/{moment_id}/clip.mp4"),
        *("/moments/{moment_id}/thumbnail.jpg", "/search"),
    ]
    assert set(document["paths"]["/search"]["post"]["requestBody"]["content"]) == {
        "application/json",
        "multipart/form-data",
    }
    assert json.dumps(document)
    pytest.importorskip("gradio")
    seen = {}

    def look(blocks):
        seen["health"] = httpx2.get(f"{blocks.local_url}health").json()
        seen["page"] = "gradio" in httpx2.get(blocks.local_url).text
        blocks.close()

    monkeypatch.setattr("gradio.Blocks.block_thread", look)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    serve.main(ServeConfig(index=made.output, device="cpu", num_workers=1))
    assert seen == {"health": {"status": "ok", "moments": 16, "model": "model"}, "page": True}
