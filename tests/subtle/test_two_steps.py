"""The second step of a search: spans of a model of moments, and another order by a cross-encoder or a chat model."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import datasets
import pytest
import torch
from small_datasets import write_dataset
from small_footage import SECONDS, footage_in, loaded_once, shortlist
from torch.nn import functional as F

from hf_datasets.drafts import write_json
from hf_datasets.video import read_frames
from hf_models import XMLConfig, XMLForMomentRetrieval
from hf_models.feature_store import open_features
from hf_models.moments.feature_encoders import TokenEncoder
from hf_models.video_text_matching import Scorer, load_matcher
from subtle.embedding.embed_moments import run as embed
from subtle.evaluate import evaluate_vcmr
from subtle.evaluate.options import EvaluateVCMRConfig
from subtle.fig.data import FEATURES_FILE, feature_origins
from subtle.footage import refining, search
from subtle.footage.options import SearchConfig
from subtle.footage.refining import Refiner, overlap
from subtle.options import run_recipe
from subtle.run.model_folders import MINIATURE_CLIP
from subtle.run.shared_config import MomentDataConfig
from tests.subtle.embedding.test_embed_moments import embed_config

CLIP_SECONDS = 0.5


@pytest.fixture(scope="module")
def footage(tmp_path_factory):
    return footage_in(tmp_path_factory.getbasetemp())


@pytest.fixture(scope="module")
def trained(footage, tiny, tmp_path_factory):
    """Features of the videos as `embed moments` makes them, and an XML that reads them, with random weights."""
    root = tmp_path_factory.mktemp("trained")
    videos = [
        {"video_id": path.stem, "video": str(path), "duration_seconds": float(SECONDS), "split": "test"}
        for path in sorted((footage / "videos").iterdir())
    ]
    row = {"desc_id": 0, "video_id": "0", "duration_seconds": 11.0, "start_seconds": 0.0, "end_seconds": 2.0}
    row |= {"coarse_caption": "show", "fine_caption": "show red", "fine_caption_score": None}
    write_dataset(root / "data", {"mini": {"test": [row]}, "mini-videos": {"test": videos}})
    shutil.copytree(tiny["vision_model"].replace("aim", "clip"), root / "clip")
    clips = {"vision_model": str(root / "clip"), "clip_seconds": CLIP_SECONDS, "frames_per_clip": 2}
    embed(embed_config(tiny, root / "data", root / "features", **clips))
    write_model(root / "model", root, max_video_clips=40)
    return root


def write_model(folder, root, *, max_video_clips):
    torch.manual_seed(5)
    sizes = {"video_feature_size": 16, "query_feature_size": 16, "hidden_size": 16, "num_attention_heads": 2}
    model = XMLForMomentRetrieval(XMLConfig(**sizes, max_query_tokens=8, max_video_clips=max_video_clips))
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight), alpha=0.2)
    model.save_pretrained(folder)
    config = MomentDataConfig(dataset=str(root / "data"), features=str(root / "features"), preset="miniature")
    write_json(folder / FEATURES_FILE, feature_origins(config, "fine"))


@pytest.fixture
def config(footage, tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    options = {"limit": 100, "device": "cpu", "num_workers": 0, "num_frames": 2}
    return SearchConfig(index=str(footage / "index"), text="show red", **options)


def refiner_of(trained, cache, model="model", **options):
    return Refiner(trained / model, cache, torch.device("cpu"), num_workers=0, **options)


@pytest.fixture(scope="module", autouse=True)
def encoder_loaded_once():
    with loaded_once():
        yield


def paths(footage):
    return lambda row: footage / "videos" / row["video"]


def test_the_features_are_those_that_the_model_was_trained_on(config, footage, trained, tmp_path):
    refiner = refiner_of(trained, tmp_path)
    rows = shortlist(config)
    assert not refiner.encode_videos(rows, paths(footage))
    expected = open_features(trained / "features", "video")
    for row in rows:
        made = refiner.features(refiner.stretch_of(row))
        torch.testing.assert_close(made, F.normalize(expected[Path(row["video"]).stem], dim=-1))


def best_by_hand(trained, model, row, query):
    """The best span of the model whose middle lies in a window, by its forward pass over the whole video."""
    video = F.normalize(open_features(trained / "features", "video")[Path(row["video"]).stem], dim=-1)[None]
    with torch.no_grad():
        output = model(query, torch.ones(query.shape[:2]), video, torch.ones(video.shape[:2]))
    start, end = (logits[0, 0].log_softmax(-1) for logits in (output.start_logits, output.end_logits))
    video_score = model.config.score_scale * float(output.video_scores[0, 0])
    spans = [
        (float(start[first] + end[first + more]) + video_score, first * CLIP_SECONDS, (first + more + 1) * CLIP_SECONDS)
        for first in range(len(start))
        for more in range(1, 5)  # two to five clips
        if first + more < len(end)
        and row["window_start_seconds"] <= (2 * first + more + 1) * CLIP_SECONDS / 2 <= row["window_end_seconds"]
    ]
    return max(spans)


def test_a_refined_moment_has_the_best_span_in_its_window_and_says_both(config, trained, tiny):
    found = search.find(replace(config, refine=str(trained / "model")))
    assert [row["score"] for row in found] == sorted((row["score"] for row in found), reverse=True)
    first = {(row["video"], row["start_seconds"], row["end_seconds"]): row["score"] for row in shortlist(config)}
    model = XMLForMomentRetrieval.from_pretrained(trained / "model").eval()
    query = F.normalize(TokenEncoder(tiny["text_model"])(["show red"])[0], dim=-1)[None]
    for row in found:
        window = row["window_start_seconds"], row["window_end_seconds"]
        assert row["vector_score"] == first[row["video"], *window]
        expected = best_by_hand(trained, model, row, query)
        assert row["score"] == row["span_score"] == pytest.approx(expected[0], abs=1e-4)
        assert (row["start_seconds"], row["end_seconds"]) == expected[1:]
    spans = [(row["video"], row["start_seconds"], row["end_seconds"]) for row in found]
    assert 4 < len(set(spans)) == len(spans) < len(first)


def test_the_table_shows_where_a_moment_was(config, trained, capsys):
    search.main(replace(config, refine=str(trained / "model"), limit=2))
    names = capsys.readouterr().out.splitlines()[0].split()
    assert names == [
        *("video", "start_seconds", "end_seconds", "score", "label"),
        *("window_start_seconds", "window_end_seconds", "vector_score", "span_score"),
    ]


def test_no_video_is_read_twice(config, trained, monkeypatch):
    query = replace(config, refine=str(trained / "model"))
    found = search.find(query)
    monkeypatch.setattr(refining, "VideoReaderPool", None)
    assert search.find(query) == found
    search.find(replace(query, text="show green"))


def test_of_a_long_video_the_model_reads_a_stretch_around_the_moment(config, footage, trained, tmp_path):
    write_model(trained / "short", trained, max_video_clips=10)
    refiner = refiner_of(trained, tmp_path, "short")
    rows = shortlist(config)
    read = []
    encode = refiner.vision

    def counting(clips):
        read.append(len(clips))
        return encode(clips)

    counting.frames_per_clip, counting.size = encode.frames_per_clip, encode.size
    refiner.vision = counting
    assert not refiner.encode_videos(rows, paths(footage))
    assert sum(read) == 4 * SECONDS / CLIP_SECONDS  # each clip once, though the stretches overlap
    for row in rows:
        stretch = refiner.stretch_of(row)
        assert stretch.stop - stretch.first == 10
        assert stretch.first * CLIP_SECONDS <= row["start_seconds"]
        assert row["end_seconds"] <= stretch.stop * CLIP_SECONDS
        whole = open_features(trained / "features", "video")[Path(row["video"]).stem]
        torch.testing.assert_close(refiner.features(stretch), F.normalize(whole[stretch.first : stretch.stop], dim=-1))
    refined, _ = refiner("show red", rows, paths(footage))
    assert all(row["window_start_seconds"] <= (row["start_seconds"] + row["end_seconds"]) / 2 for row in refined)
    assert all((row["start_seconds"] + row["end_seconds"]) / 2 <= row["window_end_seconds"] for row in refined)


def test_features_of_another_encoder_are_refused_and_the_cure_works(config, trained, tmp_path, capsys):
    moved = tmp_path / "moved"
    shutil.copytree(trained, moved)
    made = json.loads((moved / "model" / FEATURES_FILE).read_text())
    (moved / "model" / FEATURES_FILE).write_text(json.dumps(made | {"vision_model": MINIATURE_CLIP}))
    query = replace(config, refine=str(moved / "model"))
    assert run_recipe(search.main, query) == 2
    error = capsys.readouterr().err
    assert "is not the vision model that made the features of --refine (other processor, weights)" in error
    assert "--refine_vision_model" in error
    assert search.find(replace(query, refine_vision_model=str(moved / "clip")))
    assert run_recipe(search.main, replace(query, refine_text_model=MINIATURE_CLIP)) == 2


@pytest.mark.parametrize(
    ("described", "message"),
    [
        (None, "does not say which features it reads; train it again"),
        ({"video": {}, "query": {}}, "features that this package did not make"),
    ],
)
def test_a_model_whose_features_are_unknown_is_refused(config, trained, tmp_path, capsys, described, message):
    folder = tmp_path / "model"
    shutil.copytree(trained / "model", folder)
    (folder / FEATURES_FILE).unlink()
    if described is not None:
        write_json(folder / FEATURES_FILE, described)
    assert run_recipe(search.main, replace(config, refine=str(folder))) == 2
    assert message in capsys.readouterr().err


def test_moments_of_a_video_that_is_gone_or_changed_keep_their_place(config, footage, trained, tmp_path):
    shutil.copytree(footage / "videos", tmp_path / "videos")
    (tmp_path / "videos/1.mp4").unlink()
    shutil.copy(tmp_path / "videos/0.mp4", tmp_path / "videos/2.mp4")
    said = []
    query = replace(config, refine=str(trained / "model"), video_dir=str(tmp_path / "videos"), shortlist=8)
    found = search.find(query, say=said.append)
    first = shortlist(config)[:8]
    unread = [row for row in found if row["span_score"] is None]
    assert unread
    assert {row["video"] for row in unread} == {row["video"] for row in first} & {"1.mp4", "2.mp4"}
    assert [row["moment_id"] for row in unread] == [
        row["moment_id"] for row in first if row["video"] in {"1.mp4", "2.mp4"}
    ]
    assert all(row["score"] == row["vector_score"] for row in unread)
    assert "keep their place" in said[0]
    assert "changed since it was indexed" in said[0] or "is not under" in said[0]


@pytest.fixture(scope="module")
def matcher(tmp_path_factory):
    folder = tmp_path_factory.mktemp("matcher") / "model"
    torch.manual_seed(0)
    Scorer(*load_matcher(MINIATURE_CLIP, num_frames=2)).save_pretrained(folder)
    return str(folder)


def test_a_cross_encoder_orders_by_its_own_scores(config, footage, matcher):
    found = search.find(replace(config, rerank=matcher, shortlist=9))
    made = load_matcher(matcher)
    made[0].eval()
    scorer = Scorer(*made)
    for row in found:
        span = row["start_seconds"], row["end_seconds"]
        frames = read_frames(footage / "videos" / row["video"], 2, *span, size=scorer.frame_size).frames
        assert row["score"] == row["rerank_score"] == pytest.approx(scorer(frames, ["show red"])[0], abs=1e-5)
    assert [row["score"] for row in found] == sorted((row["score"] for row in found), reverse=True)
    first = shortlist(config)[:9]
    assert {row["moment_id"] for row in found} == {row["moment_id"] for row in first}


def test_both_steps_in_one_search(config, trained, matcher):
    found = search.find(replace(config, refine=str(trained / "model"), rerank=matcher, limit=3))
    assert len(found) == 3
    assert all(row["window_start_seconds"] <= row["end_seconds"] for row in found)
    assert [row["score"] for row in found] == [row["rerank_score"] for row in found]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rerank": MINIATURE_CLIP}, "its matching head is untrained"),
        ({"refine": MINIATURE_CLIP}, "holds a CLIPModel; --refine takes what"),
        ({"refine": "gone"}, "gone is not a folder"),
        ({"rerank": "MATCHER", "max_usd": 1.0}, "is a folder, so it runs here"),
        ({"rerank": "MATCHER", "text": " ".join(["show"] * 200)}, "shorten it"),
        ({"refine": "MODEL", "text": "show red green blue grey red green"}, "has more tokens than"),
    ],
)
def test_a_mistake_of_the_second_step_is_one_line(config, trained, matcher, capsys, change, message):
    known = {"MATCHER": matcher, "MODEL": str(trained / "model")}
    change = {name: known.get(value, value) for name, value in change.items()}
    try:
        assert run_recipe(search.main, replace(config, **change)) == 2
        error = capsys.readouterr().err
    except SystemExit as stop:
        error = str(stop)
    assert message in error


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"text": None, "clip": "a.mp4", "refine": "m"}, "--refine finds moments by a text"),
        ({"dry_run": True}, "are of --rerank"),
        ({"refine_vision_model": "m"}, "are of --refine"),
        ({"rerank": "m", "base_url": "http://user:word@host/v1"}, "carries a password"),
        ({"shortlist": 0}, "must be at least 1"),
        ({"min_score": 0.5, "nothing_fits": True}, "not both"),
    ],
)
def test_options_that_contradict_each_other_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        SearchConfig(**{"text": "show red", **given})


def test_what_each_step_adds_is_measured_with_its_spread(config, footage, trained, matcher, tmp_path, capsys):
    output = tmp_path / "steps"
    places = {"dataset": str(trained / "data"), "features": str(trained / "features"), "output_dir": str(output)}
    steps = {"models": [str(trained / "model")] * 2, "matchers": [matcher], "shortlist": 12, "rerank_shortlist": 3}
    measured = evaluate_vcmr.run(EvaluateVCMRConfig(two_step=True, **places, **steps, device="cpu"))
    assert list(measured) == ["vectors", "vectors + matcher", "vectors + model", "vectors + model + matcher"]
    truth = {"video": "0.mp4", "start_seconds": 0.0, "end_seconds": 2.0}
    query = replace(config, index=str(output / "index"), shortlist=12)
    for name, steps in {"vectors": {}, "vectors + model": {"refine": str(trained / "model")}}.items():
        found = search.find(replace(query, **steps, limit=12))
        for k in (1, 5, 10):
            hit = any(row["video"] == "0.mp4" and overlap(row, truth) >= 0.7 for row in found[:k])
            assert measured[name][f"vcmr_recall@{k}_iou@0.7"] == float(hit)
            assert measured[name][f"vcmr_recall@{k}_iou@0.7_error"] == 0.0  # of one query
    assert "vcmr_recall@1_iou@0.5_std" in measured["vectors + model"]
    written = json.loads((output / "results.json").read_text())
    assert len(written["by_seed"]["vectors + model"]) == 2
    assert written["coverage"] == {"queries": 1, "queries_used": 1}
    assert "vectors + model + matcher" in capsys.readouterr().out
