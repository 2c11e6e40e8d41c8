"""The Space for composed search: it finds what the model ranks first, and serves its own files only.

The Space is run by a process that cannot import this project, on a dataset in a folder.
"""

import ast
import json
import os
import re
import socket
import sys
import urllib.error
import urllib.request
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import av
import numpy as np
import pytest
import torch
import yaml
from datasets import Dataset, Features, Value, Video
from packaging.requirements import Requirement

from hf_datasets.video import read_frames
from hf_models.retrieval import search as exact_search
from subtle.demo_space.composed_search import Clip, ComposedSearch, fingerprint, read_embeddings, write_embeddings
from subtle.demo_space.footage import Footage
from subtle.hub import demo as publishing_demo
from subtle.hub import model as publishing_model
from subtle.hub.contents import check_text, files_of, machine_folders
from subtle.hub.options import PublishConfig
from subtle.hub.publish import prepare, targets_of
from subtle.run.data import load_split
from subtle.run.model_folders import MINIATURE_TFCOVR
from subtle.run.models import load_trained
from subtle.run.shared_config import DataConfig

SPACE = publishing_demo.SPACE
TEXT = "show with 2 turns"
SPANS = {"one": [(0.0, 0.9), (1.0, 1.9), (2.0, 2.8)], "two": [(0.2, 1.1), (1.2, 2.4), (2.5, 2.9)]}
EVIL = '<img src=x onerror="alert(1)">${1+1}{{value}}'
CARD = """---
configs:
- config_name: mini-clips
  data_files: [{split: test, path: mini-clips/test.parquet}]
- config_name: mini-videos
  data_files: [{split: test, path: mini-videos/test.parquet}]
---
"""
VISITOR = Path(__file__).parents[2] / "fixtures" / "space_visitor.py"


def write_video(path, seed, seconds=3.0, rate=10):
    """Noise that drifts, 64 x 48."""
    noise = np.random.default_rng(seed).integers(0, 255, size=(48, 64, 3), dtype=np.uint8)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=rate)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for number in range(int(seconds * rate)):
            frame = np.roll(noise, 2 * number * (seed + 1), axis=1)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The model that ships over six clips of two long videos."""
    folder = tmp_path_factory.mktemp("demo")
    videos = {name: folder / f"{name}.mp4" for name in SPANS}
    for seed, path in enumerate(videos.values()):
        write_video(path, seed)
    clips = [
        Clip(f"{video}-{number}", video, f"{EVIL} {number}", *span)
        for video, spans in SPANS.items()
        for number, span in enumerate(spans)
    ]
    model, processor = load_trained(MINIATURE_TFCOVR)
    size = (processor.video_processor.size.height, processor.video_processor.size.width)
    frames = [
        read_frames(videos[clip.video_id], 12, clip.start_seconds, clip.end_seconds, size=size).frames for clip in clips
    ]
    pixels = processor.video_processor(frames, do_sample_frames=False, return_tensors="pt")["pixel_values"]
    with torch.inference_mode():
        embeds = model.encode_video(pixels)
    footage = Footage(videos, folder / "clips")
    return SimpleNamespace(
        folder=folder,
        videos=videos,
        clips=clips,
        model=model,
        processor=processor,
        embeds=embeds,
        footage=footage,
        search=ComposedSearch(model, processor, clips, embeds),
    )


@pytest.fixture(scope="module")
def page(small):
    """What the page does; gradio is an extra that tests install."""
    from subtle.demo_space.page import Page

    return Page(small.search, small.footage)


@pytest.fixture(scope="module")
def space(tmp_path_factory):
    """The folders of the Space and of its model, as they are published."""
    root = tmp_path_factory.mktemp("space")
    model = publishing_model.prepare("miniature-tfcovr", "org/miniature-tfcovr", root / "model")
    (target,) = targets_of(PublishConfig(what="demo", repo="org/subtle-demo"))
    return prepare(target, PublishConfig(), root / "space"), model


def own_ranking(small, text, *, upload=None):
    """Ids and scores by the model's methods and the exact search, the first clip as the query."""
    with torch.inference_mode():
        video = {"video_embeds": small.embeds[:1]}
        if upload:
            video = {"pixel_values": small.processor(videos=[str(upload)])["pixel_values"]}
        features = small.model.get_query_features if text else small.model.get_target_features
        query = features(**video, **(small.processor(text=[text]) if text else {}))
        targets = small.model.get_target_features(video_embeds=small.embeds)
    rows, scores = exact_search(query, targets, len(targets), exclude=None if upload else [0])
    return [
        (small.clips[row].clip_id, score)
        for row, score in zip(rows[0].tolist(), scores[0].tolist(), strict=True)
        if row >= 0
    ]


def same(found, expected):
    assert [clip_id for clip_id, _ in found] == [clip_id for clip_id, _ in expected]
    assert [score for _, score in found] == pytest.approx([score for _, score in expected], abs=1e-5)


@pytest.mark.parametrize("text", ["", TEXT])
def test_the_page_finds_what_the_model_ranks_first_without_the_query_itself(small, text):
    found = small.search.find(text, clip=small.clips[0])
    same([(hit.clip.clip_id, hit.score) for hit in found], own_ranking(small, text))
    assert len(found) == len(small.clips) - 1


def test_the_own_video_is_left_out_where_that_is_wanted_and_a_text_alone_searches_all(small):
    found = small.search.find(TEXT, clip=small.clips[0], leave_out_video=True)
    assert {hit.clip.video_id for hit in found} == {"two"}
    assert len(small.search.find(TEXT)) == len(small.clips)
    assert len(small.search.find(TEXT, k=2)) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "choose or upload a clip, or write a text"),
        ("show " * 31, "the text has 31 words and 154 characters; write at most 30 words and 300 characters"),
        ("x" * 301, "the text has 1 words and 301 characters"),
        ("zq" * 60, r"the text has \d+ tokens; the model reads 32; shorten it"),
    ],
)
def test_a_query_that_cannot_be_read_is_named(small, text, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        small.search.find(text)


def test_uploads_are_videos_within_the_limits_or_named_in_one_line(small, page, tmp_path):
    bad = {
        "text.mp4": b"no video" * 99,
        "empty.mp4": b"",
        "cut.mp4": small.videos["one"].read_bytes()[:900],
        "list.mp4": b"#EXTM3U\n#EXTINF:1,\n/etc/passwd\n",
    }
    for name, content in bad.items():
        (tmp_path / name).write_bytes(content)
    write_video(tmp_path / "long.mp4", 3, seconds=21)
    with av.open(str(tmp_path / "sound.mp4"), "w") as container:
        stream = container.add_stream("aac", rate=8000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        frame.sample_rate = 8000
        container.mux(stream.encode(frame))
        container.mux(stream.encode())
    for name in [*bad, "long.mp4", "sound.mp4", "gone.mp4"]:
        query, said = page.upload(str(tmp_path / name))
        shown = re.sub(r"<[^>]+>", "", said)
        assert query is None
        assert shown.startswith(f"{name} cannot be used: ")
        assert len(shown) < 130
        assert str(tmp_path) not in shown
        if name == "long.mp4":
            assert "more than 20 s; cut out the part" in shown
    query, said = page.upload(str(small.videos["two"]))
    assert "<video" in said
    shown = small.footage.take(small.videos["two"])
    assert read_frames(shown, 1).num_frames_in_clip == 30
    assert not list(small.footage.folder.glob("draft*"))


def test_an_upload_is_searched_as_the_model_reads_it(small, page):
    found = small.search.find(TEXT, upload=small.videos["two"])
    same([(hit.clip.clip_id, hit.score) for hit in found], own_ranking(small, TEXT, upload=small.videos["two"]))
    said, _ = page.find({"upload": str(small.folder / "gone.mp4"), "name": "gone"}, TEXT, False)
    assert "is not kept any more; upload it again" in said


def test_clips_are_cut_where_they_begin_and_end_and_only_once(small):
    path = small.footage.cut("two", 1.2, 2.4)
    cut, whole = read_frames(path, 100), read_frames(small.videos["two"], 100, 1.2, 2.4)
    assert (cut.num_frames_in_clip, whole.num_frames_in_clip) == (12, 12)
    assert (cut.frames.float() - whole.frames.float()).abs().mean() < 12
    made = path.stat().st_mtime_ns
    assert small.footage.cut("two", 1.2, 2.4).stat().st_mtime_ns == made
    escaping = Footage({"../../x": small.videos["one"]}, small.footage.folder)
    assert escaping.cut("../../x", 0.0, 1.0).parent == small.footage.folder


class Tags(HTMLParser):
    """The tags of a page."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.append(tag)


def test_results_show_label_seconds_and_score_and_no_markup_of_labels(small, page):
    said, cards = page.find({"row": 0}, f"  {TEXT} ", True)
    assert "The best 3 clips for “show with 2 turns”" in said
    assert set(Tags(cards).found) == {"ul", "li", "video", "div", "small", "span"}
    assert cards.count("<video") == 3
    assert re.search(r"1\. score -?0\.\d\d</span><span>two</span><span>\d\.\d to \d\.\d s", cards)
    alone = SimpleNamespace(clips=small.clips, find=lambda *_, **__: [])
    assert "Nothing is left to show" in type(page)(alone, small.footage).find({"row": 0}, "", True)[0]


def test_clips_are_chosen_by_words_of_their_label(small, page):
    shown, rows, said = page.choices("ONERROR two")
    assert (rows, len(shown["value"])) == ([3, 4, 5], 3)
    assert "3 clips" in said
    _, rows, said = page.choices("<b>none</b>")
    assert (rows, "&lt;b&gt;none" in said) == ([], True)
    query, said = page.choose([3, 4, 5], SimpleNamespace(index=2))
    assert (query, "<video" in said) == ({"row": 5}, True)
    assert page.choose([3], SimpleNamespace(index=7))[0] is None


def status_of(address):
    try:
        with urllib.request.urlopen(address, timeout=20) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def test_the_page_serves_its_clips_and_no_other_file(small, tmp_path, monkeypatch):
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path / "uploads"))
    from subtle.demo_space.page import build_page, launch

    secret = small.folder / "secret.txt"
    secret.write_text("secret")
    blocks = build_page(small.search, small.footage, title="T", note="n", examples=[TEXT])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        here = {"server_name": "127.0.0.1", "server_port": free.getsockname()[1]}
    launch(blocks, small.footage.folder, **here, quiet=True, prevent_thread_lock=True)
    try:
        root = blocks.local_url
        assert root.startswith("http://127.0.0.1:")
        assert blocks.share_url is None
        clip = small.footage.cut("one", 0.0, 0.9)
        assert status_of(f"{root}gradio_api/file={clip}") == 200
        outside = [
            "/etc/passwd",
            secret,
            small.videos["one"],
            SPACE / "app.py",
            f"{small.footage.folder}/../secret.txt",
            f"{small.footage.folder}/%2e%2e/secret.txt",
        ]
        assert {status_of(f"{root}gradio_api/file={path}") for path in outside} <= {403, 404}
    finally:
        blocks.close()


def test_the_space_needs_public_libraries_only_and_says_what_it_uses(space):
    folder = space[0].folder
    files = files_of(folder)
    assert set(files) == {
        *("README.md", "app.py", "clips.safetensors", "composed_search.py", "demo.json", "footage.py", "page.py"),
        "requirements.txt",
    }
    check_text(files, machine_folders())
    needed = {
        name.split(".")[0]
        for path in folder.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])
    } - sys.stdlib_module_names
    own = {path.stem for path in folder.glob("*.py")}
    listed = {Requirement(line).name for line in (folder / "requirements.txt").read_text().split("\n") if line}
    with_another = {"gradio", "huggingface_hub"}
    assert needed - own - with_another <= listed
    header = yaml.safe_load((folder / "README.md").read_text().split("---")[1])
    assert (header["sdk"], header["models"], header["datasets"]) == (
        *("gradio", ["org/miniature-tfcovr"], ["org/tfcovr"]),
    )
    assert space[0].needs == ("org/miniature-tfcovr", "org/tfcovr")
    assert "ORG/" not in (folder / "README.md").read_text()


def test_someone_with_public_libraries_runs_the_space_and_finds_the_same(small, space, tmp_path, warm_python):
    published, model = space
    data = tmp_path / "data"
    rows = [vars(clip) | {"description": clip.label, "label": "1"} for clip in small.clips]
    Dataset.from_list(rows).to_parquet(data / "mini-clips" / "test.parquet")
    files = [
        {"video_id": name, "video": {"bytes": path.read_bytes(), "path": None}} for name, path in small.videos.items()
    ]
    features = Features(video_id=Value("string"), video=Video())
    Dataset.from_list(files, features).to_parquet(data / "mini-videos" / "test.parquet")
    (data / "README.md").write_text(CARD)
    settings_file = published.folder / "demo.json"
    settings = json.loads(settings_file.read_text())
    settings_file.write_text(json.dumps(settings | {"model": str(model.folder), "dataset": str(data)}))
    made_by = fingerprint(small.model, small.processor)
    clip_ids = [clip.clip_id for clip in small.clips]
    write_embeddings(published.folder / "clips.safetensors", clip_ids, small.embeds, made_by)

    environment = os.environ | {"HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1"}
    command = ["-I", VISITOR, published.folder, TEXT, small.videos["two"]]
    done = warm_python.run(command, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    for text, found in answer["found"].items():
        same(found, own_ranking(small, text))
    same(answer["upload"], own_ranking(small, TEXT, upload=small.videos["two"]))
    assert answer["title"] == settings["title"]


def test_the_models_code_is_run_only_if_it_is_what_the_space_was_published_with(space):
    from subtle.demo_space.composed_search import code_hash

    published, model = space
    settings = json.loads((published.folder / "demo.json").read_text())
    assert settings["code"] == code_hash(model.folder)
    (model.folder / "losses.py").write_text("print('other')")
    assert settings["code"] != code_hash(model.folder)


def test_embeddings_of_another_model_or_of_other_clips_are_refused(small, tmp_path):
    path = tmp_path / "clips.safetensors"
    write_embeddings(path, ["a", "b"], torch.eye(2), "x")
    assert read_embeddings(path, ["b"], "x").tolist() == [[0.0, 1.0]]
    with pytest.raises(ValueError, match="of another model"):
        read_embeddings(path, ["b"], "y")
    with pytest.raises(ValueError, match="lacks 1 clips, such as c"):
        read_embeddings(path, ["b", "c"], "x")
    path.write_bytes(b"broken")
    with pytest.raises(ValueError, match=r"does not hold embeddings .*; make them again"):
        read_embeddings(path, ["b"], "x")


def test_the_embeddings_that_ship_are_of_the_model_that_ships(small):
    made_by = fingerprint(small.model, small.processor)
    assert read_embeddings(SPACE / "clips.safetensors", ["gymnastics_062_000"], made_by).shape == (1, 96)


@pytest.mark.slow
def test_the_embeddings_that_ship_are_made_again_from_the_miniature(small):
    rows = list(load_split(DataConfig(), "test", clips=True))
    clip_ids, made = publishing_demo.encode_clips(small.model, small.processor, rows)
    made_by = fingerprint(small.model, small.processor)
    shipped = read_embeddings(SPACE / "clips.safetensors", clip_ids, made_by)
    assert len(rows) == 448
    torch.testing.assert_close(made, shipped, atol=1e-3, rtol=1e-3)
