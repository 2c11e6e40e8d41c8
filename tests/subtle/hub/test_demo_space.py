"""The Space for composed search: it finds what the model ranks first, and marks and exports nothing.

What the page does is tested where it stands over an index, in `tests/subtle/service`. The Space is run by a process
that has of this project only what the Space holds, on a dataset in a folder.
"""

import ast
import json
import os
import shutil
import sys
import urllib.error
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml
from colored_videos import write_colored_video
from datasets import Dataset, Features, Value, Video
from packaging.requirements import Requirement
from small_datasets import write_dataset
from small_index import COLORS, EVIL

from hf_datasets.video import read_frames
from hf_models.encoders import load_encoder
from hf_models.feature_store import FeatureStore
from hf_models.retrieval import search as exact_search
from subtle.demo_space.app import LIMITS, GallerySearch, code_hash, open_vectors
from subtle.demo_space.app import load_published_encoder as load_model_of_space
from subtle.hub import demo as publishing_demo
from subtle.hub import model as publishing_model
from subtle.hub.contents import check_files, files_of, machine_folders
from subtle.hub.options import PublishConfig
from subtle.hub.publish import prepare_publication, targets_of
from subtle.run.data import load_split
from subtle.run.model_folders import MINIATURE_TFCOVR
from subtle.run.shared_config import DataConfig
from subtle.service.media import Footage, Media
from subtle.service.page import Page, Search, build_page, launch

SPACE = publishing_demo.SPACE
TEXT = "show with 2 turns"
SPANS = {"one": [(0.0, 0.9), (1.0, 1.9), (2.0, 2.8)], "two": [(0.2, 1.1), (1.2, 2.4), (2.5, 2.9)]}
VISITOR = Path(__file__).parents[2] / "fixtures" / "space_visitor.py"


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The model that ships over six clips of two videos, as the Space has them."""
    folder = tmp_path_factory.mktemp("demo")
    colors = list(COLORS.values())
    videos = {
        name: write_colored_video(folder / f"{name}.mp4", colors[number : number + 3], seed=number)
        for number, name in enumerate(SPANS)
    }
    clips = [
        {"clip_id": f"{video}-{number}", "video_id": video, "description": f"{EVIL} {number}"}
        | {"start_seconds": start, "end_seconds": end}
        for video, spans in SPANS.items()
        for number, (start, end) in enumerate(spans)
    ]
    encoder = load_encoder(str(MINIATURE_TFCOVR))
    vectors = {}
    for clip in clips:
        frames = frames_of(encoder, videos[clip["video_id"]], clip["start_seconds"], clip["end_seconds"])
        vectors[clip["clip_id"]] = torch.from_numpy(encoder.vectors([frames])[0])
    media = Media(videos.__getitem__, folder / "own", num_workers=1, **LIMITS)
    search = GallerySearch(encoder, media, clips, vectors)
    yield SimpleNamespace(folder=folder, videos=videos, clips=clips, encoder=encoder, vectors=vectors, search=search)
    media.close()


@pytest.fixture(scope="module")
def space(tmp_path_factory):
    """The folders of the Space and of its model, as they are published."""
    root = tmp_path_factory.mktemp("space")
    model = publishing_model.prepare_model("miniature-tfcovr", "org/miniature-tfcovr", root / "model")
    (target,) = targets_of(PublishConfig(what="demo", repo="org/subtle-demo"))
    return prepare_publication(target, PublishConfig(), root / "space"), model


def frames_of(encoder, path, start=None, end=None):
    return read_frames(path, encoder.num_frames, start, end, size=encoder.frame_size, spread="seconds").frames


def own_ranking(small, text, upload=None):
    """Ids and scores by the model's methods and the exact search; the first clip, or an upload, is the query."""
    model, processor, clip = small.encoder.model, small.encoder.processor, small.clips[0]
    span = () if upload else (clip["start_seconds"], clip["end_seconds"])
    frames = frames_of(small.encoder, upload or small.videos[clip["video_id"]], *span)
    pixels = processor(videos=[frames], do_sample_frames=False)["pixel_values"]
    with torch.inference_mode():
        features = model.get_query_features if text else model.get_target_features
        query = features(pixel_values=pixels, **(processor(text=[text]) if text else {}))
    targets = torch.stack([small.vectors[clip["clip_id"]] for clip in small.clips])
    rows, scores = exact_search(query, targets, len(targets), exclude=None if upload else [0])
    pairs = zip(rows[0].tolist(), scores[0].tolist(), strict=True)
    return [(small.clips[row]["clip_id"], score) for row, score in pairs if row >= 0]


def same(found, expected):
    assert [clip_id for clip_id, _ in found] == [clip_id for clip_id, _ in expected]
    assert [score for _, score in found] == pytest.approx([score for _, score in expected], abs=1e-4)


@pytest.mark.parametrize("text", ["", TEXT])
def test_the_space_finds_what_the_model_ranks_first_without_the_query_itself(small, text):
    query = small.search.query_of_moment(small.search.rows[0])
    found, _ = small.search.find(query, text, limit=12)
    same([(row["moment_id"], row["score"]) for row in found], own_ranking(small, text))
    assert len(found) == len(small.clips) - 1
    found, _ = small.search.find(query, text, limit=12, leave_out_video=True)
    assert {row["video"] for row in found} == {"two"}
    found, _ = small.search.find(query, text, limit=12, label=f"{EVIL} 1")
    assert {row["moment_id"] for row in found} == {"one-1", "two-1"}


def test_a_text_alone_searches_all_and_a_clip_without_a_vector_is_named(small):
    assert len(small.search.find(None, TEXT, limit=12)[0]) == len(small.clips)
    assert len(small.search.find(None, TEXT, limit=2)[0]) == 2
    rows, number = small.search.choices("ONERROR two", 2)
    assert ([row["moment_id"] for row in rows], number) == (["two-0", "two-1"], 3)
    with pytest.raises(ValueError, match="1 clips have no vector, such as new"):
        GallerySearch(small.encoder, small.search.media, [*small.clips, {"clip_id": "new"}], small.vectors)


def test_the_published_page_neither_marks_nor_exports_and_is_framed_and_reached_under_any_name(
    small, tmp_path, monkeypatch
):
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path / "sent"))
    page = Page(small.search)
    state, _, cards, _ = page.find(Search(), None, TEXT, None, None, False, None)
    assert (len(state.found), cards.count("<video")) == (6, 6)
    assert not [word for word in ("right", "Export", "Choose", "<img") if word in cards]
    write_colored_video(tmp_path / "long.mp4", [(0, 0, 0)] * 21, fps=2)
    assert "has 21 s; give at most 20 s" in page.upload(str(tmp_path / "long.mp4"))[1]
    (small.folder / "secret.txt").write_text("secret")
    blocks = build_page(page, title="T", note="n", examples=[TEXT])
    monkeypatch.setenv("GRADIO_SERVER_NAME", "127.0.0.1")  # a Space says 0.0.0.0
    launch(blocks, page, is_public=True)
    try:
        shown = f"{blocks.local_url}{page.media.address('clip', Footage('one', 0.0, 0.9))}"
        strange = {"Host": "org-subtle-demo.hf.space", "Origin": "https://org-subtle-demo.hf.space"}
        for address in (blocks.local_url, shown):
            with urllib.request.urlopen(urllib.request.Request(address, headers=strange), timeout=60) as answer:
                assert (answer.status, answer.headers["Content-Security-Policy"]) == (200, None)
        for path in ("/etc/passwd", small.folder / "secret.txt", small.videos["one"], SPACE / "app.py"):
            with pytest.raises(urllib.error.HTTPError, match="403"):
                urllib.request.urlopen(f"{blocks.local_url}gradio_api/file={path}", timeout=60)
        config = json.dumps(blocks.get_config_file(), default=str)
        assert not [path for path in (small.folder, SPACE, tmp_path) if str(path) in config]
    finally:
        blocks.close()


def test_the_space_needs_public_libraries_only_and_says_what_it_uses(space):
    folder = space[0].folder
    files = files_of(folder)
    assert {name.partition("/")[0] for name in files} == {
        *("README.md", "app.py", "demo.json", "requirements.txt", "vectors", "hf_datasets", "hf_models", "subtle")
    }
    check_files(files, machine_folders())
    needed = {
        name.partition(".")[0]
        for path in folder.rglob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and not node.level)
        for name in ([node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])
    } - sys.stdlib_module_names
    listed = {Requirement(line).name for line in (folder / "requirements.txt").read_text().split("\n") if line}
    with_others = {"gradio", "huggingface_hub", "numpy", "starlette", "PIL"}
    assert needed - set(publishing_demo.COPIED_PACKAGES) - with_others <= listed | {"av"}
    assert not [path for path in folder.rglob("*.py") if len(path.read_bytes()) > 25_000]
    header = yaml.safe_load((folder / "README.md").read_text().split("---")[1])
    assert (header["sdk"], header["models"], header["datasets"]) == (
        *("gradio", ["org/miniature-tfcovr"], ["org/tfcovr"]),
    )
    assert space[0].needs == ("org/miniature-tfcovr", "org/tfcovr")
    assert "ORG/" not in (folder / "README.md").read_text()


def test_someone_with_public_libraries_runs_the_space_and_finds_the_same(small, space, tmp_path, warm_python):
    published, model = space
    files = [
        {"video_id": name, "video": {"bytes": path.read_bytes(), "path": None}} for name, path in small.videos.items()
    ]
    videos = Dataset.from_list(files, Features(video_id=Value("string"), video=Video()))
    data = write_dataset(tmp_path / "data", {"mini-clips": {"test": small.clips}, "mini-videos": {"test": videos}})
    settings_file = published.folder / "demo.json"
    settings = json.loads(settings_file.read_text())
    settings_file.write_text(json.dumps(settings | {"model": str(model.folder), "dataset": str(data)}))
    shutil.rmtree(published.folder / "vectors")
    store = open_vectors(small.encoder, published.folder / "vectors")
    store.append(list(small.vectors), list(small.vectors.values()))

    environment = os.environ | {"HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1"}
    command = ["-I", VISITOR, published.folder, TEXT, small.videos["two"]]
    done = warm_python.run(command, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    for text, found in answer["found"].items():
        same(found, own_ranking(small, text))
    same(answer["upload"], own_ranking(small, TEXT, upload=small.videos["two"]))
    assert answer["title"] == settings["title"]
    assert "subtle.service.page" in answer["loaded"]
    assert not [name for name in answer["loaded"] if name.startswith(("subtle.run", "hf_models.tfcovr.model"))]


def test_the_models_code_is_run_only_if_it_is_what_the_space_was_published_with(space):
    published, model = space
    settings = json.loads((published.folder / "demo.json").read_text())
    assert settings["code"] == code_hash(model.folder)
    (model.folder / "losses.py").write_text("print('other')")
    assert settings["code"] != code_hash(model.folder)
    with pytest.raises(ValueError, match="holds other code than this page was published with"):
        load_model_of_space(str(model.folder), None, settings["code"])


def test_vectors_of_another_model_are_refused_and_those_that_ship_are_of_the_model_that_ships(small, tmp_path):
    FeatureStore(tmp_path / "vectors", {"weights": "other"}).append(["a"], [torch.zeros(2)])
    with pytest.raises(ValueError, match=r"was made with other .*weights"):
        open_vectors(small.encoder, tmp_path / "vectors")
    assert len(open_vectors(small.encoder, publishing_demo.VECTORS)) == 448


@pytest.mark.slow
def test_the_vectors_that_ship_are_made_again_from_the_miniature(small, tmp_path, monkeypatch):
    rows = list(load_split(DataConfig(), "test", clips=True))[::40]
    monkeypatch.setattr(publishing_demo, "load_split", lambda *_, **__: rows)
    made = FeatureStore(tmp_path / "vectors")
    publishing_demo.write_vectors(small.encoder, made)
    shipped = open_vectors(small.encoder, publishing_demo.VECTORS)
    assert len(made) == len(rows) > 10
    for clip_id, vector in made.items():
        torch.testing.assert_close(vector, shipped[clip_id], atol=1e-3, rtol=1e-3)
