"""An index as a library: what `subtle search` finds, from Python, with the model loaded once."""

import json
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("lancedb")

from small_index import build_index

import subtle
from hf_datasets.video import VideoError
from hf_datasets.video.pyav import OpenVideo
from hf_models.index.feedback import rocchio
from subtle.footage import index as index_recipe
from subtle.footage import search
from subtle.footage.annotating import write_tasks
from subtle.footage.models import load_again
from subtle.footage.options import SearchConfig
from subtle.footage.output import as_json, as_table, moments_as_csv


@pytest.fixture(scope="module")
def made(tiny, tmp_path_factory):
    return build_index(tiny, tmp_path_factory.mktemp("library"))


@pytest.fixture
def opened(made):
    with subtle.open_index(made.output, device="cpu") as index:
        yield index


def clip_of(made):
    return {"clip": Path(made.video_dir, "first/two.mp4"), "start_seconds": 1.0, "end_seconds": 2.0}


def test_it_finds_what_the_command_finds(made, opened):
    for asked in (
        {"text": "show red"},
        clip_of(made),
        {"text": "show red", **clip_of(made), "exclude_same_video": True, "folder": "first"},
        {"text": "show red", "where": "label = 'blue'", "limit": 3, "min_score": -2.0},
    ):
        typed = {name: str(value) if name == "clip" else value for name, value in asked.items()}
        rows = search.find(SearchConfig(index=made.output, device="cpu", **typed))
        found = opened.search(**asked)
        assert [one.moment_id for one in found] == [row["moment_id"] for row in rows]
        assert [one.score for one in found] == pytest.approx([row["score"] for row in rows], abs=1e-5)
    assert len(opened) == 16


def test_a_moment_says_where_it_is(made, opened):
    moment = opened.search(**clip_of(made))[0]
    assert (moment.video, moment.start_seconds, moment.end_seconds) == ("first/two.mp4", 1.0, 2.0)
    assert moment.score == pytest.approx(1, abs=1e-4)
    assert moment.path == Path(made.video_dir, "first/two.mp4")
    described = json.loads(json.dumps(moment.to_dict()))
    assert described["label"] == moment.label
    assert "rerank_score" not in described


def test_many_queries_at_once_find_what_each_finds_alone(made, opened):
    queries = [{"text": "show red"}, clip_of(made), {"text": "show blue", **clip_of(made)}]
    queries += [{"text": "show red", "more_like": [opened.search(text="show blue")[0].moment_id]}]
    queries += [{"more_like": queries[-1]["more_like"]}]
    alone = [opened.search(**query, limit=5, where="label != 'green'") for query in queries]
    for times in (1, 3):  # few, and so many that they are encoded together
        together = opened.search_many(queries * times, limit=5, where="label != 'green'")
        for found, expected in zip(together, alone * times, strict=True):
            assert [one.moment_id for one in found] == [one.moment_id for one in expected]
            assert [one.score for one in found] == pytest.approx([one.score for one in expected], abs=1e-5)
    assert opened.search_many([]) == []
    with pytest.raises(ValueError, match="search_many has no rerank"):
        opened.search_many(queries, rerank="model")
    with pytest.raises(ValueError, match="a query of search_many has no min_score; it has text, clip"):
        opened.search_many([{"text": "show red", "min_score": 0.5}])


def test_marked_moments_move_a_query_and_are_still_found(made, opened):
    before = opened.search(**clip_of(made), limit=16)
    wanted = next(one for one in before if one.label != before[0].label)
    after = opened.search(**clip_of(made), limit=16, more_like=[wanted], less_like=before[0])
    assert {one.moment_id for one in after} == {one.moment_id for one in before}
    vectors = opened.store.vectors_of(opened.model.key, [one.moment_id for one in after])
    marked = opened.store.vectors_of(opened.model.key, [wanted.moment_id, before[0].moment_id])
    query = rocchio(opened.embedded(opened.asking(clip_of(made))), marked[:1], marked[1:])
    assert [one.score for one in after] == pytest.approx((vectors @ query).tolist(), abs=1e-5)
    assert [one.score for one in after] != pytest.approx([one.score for one in before], abs=1e-5)
    (alone,) = opened.search(more_like=wanted.moment_id, limit=1)  # without the model
    assert alone.label == wanted.label
    assert alone.score == pytest.approx(1, abs=1e-5)
    (together,) = opened.search_many([{**clip_of(made), "more_like": [wanted], "less_like": before[:1]}], limit=16)
    assert [one.moment_id for one in together] == [one.moment_id for one in after]


def test_marks_that_cannot_be_are_refused(opened):
    known = opened.search(text="show red", limit=1)
    for asked, told in (
        ({"text": "show red", "more_like": ["none"]}, "has no moment 'none'"),
        ({"less_like": known}, "say what to look for"),
        ({"more_like": known, "less_like": known}, "is in --more_like and in --less_like"),
        ({"text": "show red", "more_like": known, "nothing_fits": True}, "calibrated for queries without"),
        ({"more_like": known, "rerank": "model"}, "--rerank reads --text"),
    ):
        with pytest.raises(ValueError, match=told):
            opened.search(**asked)


def test_replays_are_beneath_the_moment_that_is_shown(made, tmp_path):
    videos = tmp_path / "videos"
    videos.mkdir()
    for name in ("one", "again"):  # the same broadcast twice
        (videos / f"{name}.mp4").write_bytes(Path(made.video_dir, "first/one.mp4").read_bytes())
    with subtle.create_index(tmp_path / "index", device="cpu") as index:
        index.update(videos, model=made.model, window_seconds=1.0, stride_seconds=1.0, num_workers=0)
        query = {"clip": videos / "one.mp4", "end_seconds": 1.0}
        found = index.search(**query, limit=4, group_replays=0.999999)
        every = index.search(**query, limit=8)
        assert index.search(**query, limit=1, group_replays=True)[0].replays
        with pytest.raises(ValueError, match="--group_replays must be above 0"):
            index.search(**query, group_replays=1.5)
    assert [(one.video, [replay.video for replay in one.replays]) for one in found] == [("again.mp4", ["one.mp4"])] * 4
    assert [row.moment_id for one in found for row in (one, *one.replays)] == [one.moment_id for one in every]
    assert json.loads(json.dumps(found[0].to_dict()))["replays"][0]["video"] == "one.mp4"
    rows = search.find(
        SearchConfig(index=str(tmp_path / "index"), clip=str(videos / "one.mp4"), limit=2, group_replays=0.999999)
    )
    assert [line.split(",")[-1] for line in moments_as_csv(rows).splitlines()] == ["replay_of", "", "1", "", "2"]
    replay = json.loads(as_json(rows))[1]["replays"][0]
    assert (replay["video"], replay["moment_id"]) == ("one.mp4", rows[1]["replays"][0]["moment_id"])
    assert len(as_table(rows).splitlines()) == 5


class Fields(dict):
    """Stands in for FiftyOne's documents: fields by name, set as items, too."""

    def add_samples(self, samples):
        self["samples"] = samples


def test_fiftyone_gets_a_sample_for_each_video_with_its_moments(made, opened, monkeypatch):
    names = ("VideoMetadata", "TemporalDetection", "TemporalDetections", "Sample")
    fiftyone = SimpleNamespace(Dataset=lambda name: Fields(name=name), **dict.fromkeys(names, Fields))
    monkeypatch.setitem(sys.modules, "fiftyone", fiftyone)
    found = opened.search(text="show red", limit=16)
    dataset = subtle.to_fiftyone(found, "reds")
    assert dataset["name"] == "reds"
    assert [sample["filepath"] for sample in dataset["samples"]] == list(dict.fromkeys(str(one.path) for one in found))
    detections = {
        one["moment_id"]: (sample["metadata"], one)
        for sample in dataset["samples"]
        for one in sample["moments"]["detections"]
    }
    for moment in found:
        metadata, detection = detections[moment.moment_id]
        first, last = detection["support"]
        assert (first - 1) / metadata["frame_rate"] == pytest.approx(moment.start_seconds)
        assert last / metadata["frame_rate"] == pytest.approx(moment.end_seconds)
        assert metadata["total_frame_count"] >= last
        assert (detection["label"], detection["confidence"]) == (moment.label, moment.score)
    with pytest.raises(ValueError, match="give video_dir to open_index"):
        subtle.to_fiftyone([replace(found[0], path=None)])
    monkeypatch.setattr(OpenVideo, "promised_seconds", 1e15)
    with pytest.raises(VideoError, match="exceed max_duration_seconds"):
        subtle.to_fiftyone(found)
    monkeypatch.setitem(sys.modules, "fiftyone", None)
    with pytest.raises(ImportError, match=r"subtle-video\[fiftyone\]"):
        subtle.to_fiftyone(found)


def test_tasks_for_annotators_are_not_written_of_a_video_that_claims_too_much(opened, tmp_path, monkeypatch):
    found = opened.search(text="show red", limit=1)
    rows = [one.to_dict() | {"path": one.path, "frame_rate": 8} for one in found]
    monkeypatch.setattr(OpenVideo, "promised_seconds", 1e15)
    with pytest.raises(VideoError, match="exceed max_duration_seconds"):
        write_tasks(rows, tmp_path)


def test_the_model_is_loaded_once_for_all_threads(made, opened, monkeypatch):
    loads = []
    monkeypatch.setattr(
        "subtle.footage.models.load_again", lambda *a, **k: loads.append(threading.get_ident()) or load_again(*a, **k)
    )
    expected = [one.moment_id for one in subtle.open_index(made.output, device="cpu").search(**clip_of(made))]
    loads.clear()
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: opened.search(**clip_of(made)), range(8)))
    assert [[one.moment_id for one in found] for found in answers] == [expected] * 8
    assert len(loads) == 1


def test_what_is_wrong_has_a_type(made, opened, tmp_path):
    with pytest.raises(FileNotFoundError):
        subtle.open_index(tmp_path / "none")
    with pytest.raises(ValueError, match="a search has no txt; it has"):
        opened.search(txt="show red")
    with pytest.raises(ValueError, match="say what to look for"):
        opened.search()
    with pytest.raises(subtle.VideoError):
        opened.search(clip=tmp_path / "none.mp4")


def test_a_new_index_is_filled_searched_and_exported_without_a_word(made, tmp_path, capfd):
    with subtle.create_index(tmp_path / "index", device="cpu") as index:
        with pytest.raises(ValueError, match="is empty; fill it"):
            index.search(text="show red")
        counts = index.update(made.video_dir, model=made.model, window_seconds=2.0, stride_seconds=2.0, num_workers=0)
        assert counts["moments_in_index"] == len(index) == 8
        found = index.search(**clip_of(made), limit=2)
        assert index.export(found, tmp_path / "out", exact=True) == []
    assert len(list((tmp_path / "out/clips").iterdir())) == 2
    assert capfd.readouterr().out == ""


def test_what_another_process_adds_is_found_by_the_next_search(made, tmp_path):
    videos = tmp_path / "videos"
    videos.mkdir()
    (videos / "one.mp4").write_bytes(Path(made.video_dir, "first/one.mp4").read_bytes())
    config = replace(made, source=str(videos), video_dir=None, output=str(tmp_path / "index"), window_seconds=2.0)
    index_recipe.run(config, None)
    with subtle.open_index(tmp_path / "index", device="cpu") as index:
        assert {one.video for one in index.search(text="show red")} == {"one.mp4"}
        (videos / "two.mp4").write_bytes(Path(made.video_dir, "first/two.mp4").read_bytes())
        index_recipe.run(config, None)
        assert {one.video for one in index.search(text="show red")} == {"one.mp4", "two.mp4"}


def test_the_program_of_the_first_page_runs(made, tmp_path, monkeypatch, capsys):
    (program,) = re.findall(
        r"```python\n(import subtle .*?)```",
        (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8"),
        re.DOTALL,
    )
    assert len(program.splitlines()) <= 15
    (tmp_path / "archive").symlink_to(made.output)
    (tmp_path / "query.mp4").symlink_to(Path(made.video_dir, "first/two.mp4"))
    monkeypatch.chdir(tmp_path)
    exec(program.replace("start_seconds=3.2, end_seconds=5.0", "start_seconds=1.0, end_seconds=2.0"), {})
    assert re.match(r"\w+/\w+\.mp4 \d\.0 \d\.0 -?0\.\d+\n", capsys.readouterr().out)
    assert len(list((tmp_path / "found/clips").iterdir())) == 3


def test_importing_the_package_imports_nothing_heavy():
    code = (
        "import subtle, sys; subtle.Moment; print([name for name in ('torch', 'transformers') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout.strip() == "[]"
