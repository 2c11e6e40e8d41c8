"""The threshold below which nothing fits: by hand, per kind of query, kept until the index changes."""

from dataclasses import replace

import datasets
import numpy as np
import pytest
from colored_videos import write_colored_video
from small_index import index_config

from hf_datasets.video import read_frames
from hf_models.encoders import load_encoder
from hf_models.index.store import MomentIndex
from subtle.footage import calibration, index, search
from subtle.footage.calibration import SENTENCES, query_kind, threshold_of
from subtle.footage.options import SearchConfig
from subtle.options import run_recipe
from subtle.run.model_folders import MINIATURE_CLIP, MINIATURE_TFCOVR

COLORS = [(250, 20, 20), (20, 250, 20), (20, 20, 250), (245, 245, 245), (20, 20, 20)]


def make_index(root, model, name, **options):
    config = index_config(root / "videos", root / name, model, window_seconds=2, stride_seconds=2, **options)
    index.run(config)
    return config


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("calibrated")
    (root / "videos/deep").mkdir(parents=True)
    for number in range(4):
        colors = [COLORS[(number + step * (number + 1)) % len(COLORS)] for step in range(6)]
        write_colored_video(root / "videos" / ("deep" if number == 3 else "") / f"{number}.mp4", colors, seed=number)
    make_index(root, MINIATURE_CLIP, "index", num_frames=2)
    return root


@pytest.fixture(scope="module")
def encoder():
    return load_encoder(MINIATURE_CLIP, num_frames=2)


def opened(root, name="index"):
    found = MomentIndex(root / name)
    rows = found.moments(found.active.key).to_arrow()
    return found, np.stack(rows["vector"].to_pylist()).astype(np.float32), rows


def test_of_texts_it_is_a_quantile_of_the_best_scores_of_sentences(root, encoder, tmp_path, monkeypatch):
    found, vectors, _ = opened(root)
    best = [float((vectors @ encoder.query(text=sentence)).max()) for sentence in SENTENCES]
    for share in (0.1, 0.4):
        monkeypatch.setitem(calibration.MISFITS_SHOWN, "text", share)
        made = threshold_of(found, found.active, encoder, "text", cache=tmp_path, root=str(root / "videos"))
        assert made.score == pytest.approx(np.quantile(best, 1 - share), abs=1e-5)
        assert f"{share:.0%} of 64 sentences" in made.why
    assert len(set(SENTENCES)) == 64


def test_filters_have_a_threshold_of_their_own(root, encoder, tmp_path):
    found, vectors, rows = opened(root)
    deep = np.array([video.startswith("deep/") for video in rows["video"].to_pylist()])
    best = [float((vectors[deep] @ encoder.query(text=sentence)).max()) for sentence in SENTENCES]
    made = threshold_of(found, found.active, encoder, "text", cache=tmp_path, root=str(root / "videos"), folder="deep")
    assert made.score == pytest.approx(np.quantile(best, 0.9), abs=1e-5)


def test_of_clips_it_is_what_moments_find_in_other_videos(root, encoder, tmp_path):
    found, vectors, rows = opened(root)
    files = np.array(rows["fingerprint"].to_pylist())
    scores = np.where(files[:, None] == files[None], -np.inf, vectors @ vectors.T).max(1)
    made = threshold_of(found, found.active, encoder, "clip", cache=tmp_path, root=str(root / "videos"))
    assert made.score == pytest.approx(np.quantile(scores, 0.01), abs=1e-5)
    with pytest.raises(ValueError, match="moments of several videos"):
        threshold_of(
            found, found.active, encoder, "clip", cache=tmp_path, root=str(root / "videos"), where="video = '0.mp4'"
        )


def test_of_composed_queries_it_comes_from_clips_of_the_index_with_sentences(root, tmp_path):
    make_index(root, MINIATURE_TFCOVR, "composed")
    composer = load_encoder(MINIATURE_TFCOVR)
    found, vectors, rows = opened(root, "composed")
    best = []
    for row, sentence in zip(rows.to_pylist(), SENTENCES, strict=False):
        span = row["start_seconds"], row["end_seconds"]
        read = read_frames(root / "videos" / row["video"], composer.num_frames, *span, size=composer.frame_size)
        best.append(float((vectors @ composer.query(read.frames, sentence)).max()))
    made = threshold_of(found, found.active, composer, "both", cache=tmp_path, root=str(root / "videos"))
    assert made.score == pytest.approx(np.quantile(best, 0.7), abs=1e-5)
    assert len(best) == 12
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="only 0 can be read below"):
        threshold_of(found, found.active, composer, "both", cache=tmp_path / "other", root=str(tmp_path / "empty"))


@pytest.mark.parametrize(("model", "fits"), [(MINIATURE_CLIP, {"text", "clip"}), (MINIATURE_TFCOVR, {"both", "clip"})])
def test_kinds_whose_scores_tell_nothing_are_refused(model, fits):
    made = load_encoder(model)
    for kind, parts in {"text": (False, True), "clip": (True, False), "both": (True, True)}.items():
        if kind in fits:
            assert query_kind(made, clip=parts[0], text=parts[1]) == kind
        else:
            with pytest.raises(ValueError, match="give a --min_score"):
                query_kind(made, clip=parts[0], text=parts[1])


def test_it_is_computed_once_until_the_index_changes(root, encoder, tmp_path, monkeypatch):
    made = make_index(root, MINIATURE_CLIP, "changing", num_frames=2)
    calls = []
    real = calibration.misfits
    monkeypatch.setattr(calibration, "misfits", lambda *given: calls.append(1) or real(*given))

    def threshold():
        found = MomentIndex(root / "changing")
        return threshold_of(found, found.active, encoder, "text", cache=tmp_path, root=str(root / "videos"))

    first = threshold()
    assert threshold() == first
    assert len(calls) == 1
    (kept,) = tmp_path.glob("threshold-*.json")
    kept.write_text('{"version": 1, "scores": {"": ["x"]}}')  # damaged, or somebody else's
    assert threshold() == first
    assert len(calls) == 2
    index.run(replace(made, source=str(root / "videos/deep"), keep_missing=False, output=str(root / "changing2")))
    found = MomentIndex(root / "changing")
    found.moments(found.active.key).delete("video = '0.mp4'")
    threshold()
    assert len(calls) == 3


def test_a_search_below_it_finds_nothing_and_says_why(root, encoder, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    query = SearchConfig(index=str(root / "index"), text="show red", device="cpu", nothing_fits=True)
    said = []
    monkeypatch.setitem(calibration.MISFITS_SHOWN, "text", 0.999)
    low = search.find(query, say=said.append)
    plain = search.find(replace(query, nothing_fits=False))  # its text is embedded without the model
    assert [row["moment_id"] for row in low] == [row["moment_id"] for row in plain]  # though some score less
    assert [row["score"] for row in low] == pytest.approx([row["score"] for row in plain], abs=1e-5)
    assert not said
    _, vectors, _ = opened(root)
    best = {sentence: float((vectors @ encoder.query(text=sentence)).max()) for sentence in SENTENCES}
    worst = min(best, key=best.get)
    monkeypatch.setitem(calibration.MISFITS_SHOWN, "text", 0.001)
    assert search.find(replace(query, text=worst), say=said.append) == []
    assert said[0].startswith(f"nothing fits: the best score is {best[worst]:.3f}, below {max(best.values()):.3f}"[:-1])
    assert "0% of 64 sentences about something else find a better one" in said[0]
    clip = {"clip": str(root / "videos/0.mp4"), "end_seconds": 2.0}
    assert run_recipe(search.main, replace(query, **clip)) == 2
    assert "--nothing_fits needs a text alone or a clip alone with this model" in capsys.readouterr().err
