"""Our benchmarks as tasks of mteb 2: equal to our own evaluation, with and without the query's own clip."""

import json
import shutil
from pathlib import Path

import mteb
import polars as pl
import pytest
import torch
from mteb.abstasks.retrieval_dataset_loaders import RetrievalDatasetLoader
from sentence_transformers import SentenceTransformer

from hf_datasets.comp.contrasts import SpanReader
from hf_datasets.video import VideoError, read_frames
from hf_datasets.video.pool import VideoReaderPool
from hf_models.encoders import load_encoder
from subtle.comp.scores import Scores
from subtle.evaluate import evaluate_mteb, evaluate_tfcovr
from subtle.evaluate.options import EvaluateConfig, EvaluateMTEBConfig
from subtle.mteb import (
    ActivityNetComp,
    CharadesFIGMoments,
    CharadesFIGVideos,
    ComposedBenchmark,
    TFCoVR,
    export_composed,
)
from subtle.mteb.composed import CUTS, KEPT, LEFT_OUT
from subtle.mteb.encoders import OurEncoder, RandomEncoder, SegmentEncoder
from subtle.mteb.segments import Segment
from subtle.run.models import load_encoders
from subtle.run.shared_config import EmbedConfig
from tests.fixtures.videos import number_of, numbers_of, write_video


@pytest.fixture(scope="module")
def model(tiny, tmp_path_factory):
    """A folder of a TF-CoVR model with random weights, large enough to tell clips apart."""
    folder = tmp_path_factory.mktemp("model") / "model"
    torch.manual_seed(0)
    model, processor = load_encoders(EmbedConfig(**tiny), projection_dim=16, fusion_hidden_dim=32)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def task(tiny, caches):
    """The tiny TF-CoVR of the other recipes' tests: 12 clips, 36 queries with three targets each."""
    task = TFCoVR(dataset=tiny["dataset"])
    task.load_data()
    return task


def evaluated(model, folder, **given):
    """As our own evaluation measures it."""
    folders = {"embeddings": str(folder / "embeddings"), "output_dir": str(folder / "evaluation")}
    return evaluate_tfcovr.run(EvaluateConfig(models=[model], num_workers=0, **folders | given))["two-stage"]


@pytest.fixture
def config_of(tiny, tmp_path):
    """A configuration of the recipe on the tiny TF-CoVR, unless told otherwise."""
    given = {"dataset": tiny["dataset"], "num_workers": 0, "output_dir": str(tmp_path), "device": "cpu"}
    return lambda **changes: EvaluateMTEBConfig(**given | changes)


def scores_of(model, task):
    """As mteb measures it."""
    kwargs = {"batch_size": 7, "show_progress_bar": False}
    done = mteb.evaluate(model, task, cache=None, encode_kwargs=kwargs, co2_tracker=False, show_progress_bar=False)
    (scores,) = done.task_results[0].scores["test"]
    return scores


@pytest.mark.parametrize(
    ("parts", "trained", "stored"),
    [
        ("both", "model", "embedded"),
        ("text", "model", "embedded"),
        ("both", "factored_retriever", "embedded_factored"),
    ],
)
def test_mteb_and_our_own_evaluation_agree(parts, trained, stored, task, tiny, request, tmp_path):
    model, embedded = request.getfixturevalue(trained), request.getfixturevalue(stored)
    ours = evaluated(model, tmp_path, dataset=tiny["dataset"], embeddings=embedded, query=parts)
    theirs = scores_of(OurEncoder(load_encoder(model), "tiny", parts=parts), task)
    for k in (5, 10, 25, 50):
        assert theirs[f"map_at_{k}_{LEFT_OUT}"] == pytest.approx(ours[f"map@{k}"], abs=1e-6)
    assert theirs["main_score"] == pytest.approx(ours["map@50"], abs=1e-6)
    assert (theirs["coverage_queries"], theirs["coverage_targets"], theirs["coverage_gallery"]) == (1, 1, 1)


def test_clips_without_a_video_count_as_in_our_own_evaluation(model, tiny, tmp_path):
    data = tmp_path / "one-video-gone"  # datasets caches by the folder's last name
    shutil.copytree(tiny["dataset"], data)
    path = data / "mini-clips" / "test.parquet"
    is_gone = pl.col("clip_id") == "test-red-0"
    pl.read_parquet(path).with_columns(video=pl.when(~is_gone).then("video")).write_parquet(path)
    ours = evaluated(model, tmp_path, dataset=str(data))
    theirs = scores_of(OurEncoder(load_encoder(model), "tiny"), TFCoVR(dataset=str(data)))
    for k in (5, 10, 25, 50):
        assert theirs[f"map_at_{k}_{LEFT_OUT}"] == pytest.approx(ours[f"map@{k}"], abs=1e-6)
    covered = json.loads((tmp_path / "evaluation" / "results.json").read_text())["coverage"]["two-stage"]
    assert theirs["coverage_queries"] == covered["queries_ranked"] / covered["queries"] == 33 / 36
    assert theirs["coverage_targets"] == covered["targets_in_gallery"] / covered["targets"]
    assert theirs["coverage_gallery"] == 11 / 12
    nothing = tmp_path / "all-videos-gone"
    shutil.copytree(data, nothing)
    gone = pl.read_parquet(path).with_columns(video=pl.lit(None, pl.String))
    gone.write_parquet(nothing / "mini-clips" / "test.parquet")
    with pytest.raises(ValueError, match="name the folder of videos with video_dir"):
        TFCoVR(dataset=str(nothing)).load_data()


def test_a_task_states_license_source_and_what_its_rows_and_videos_are(task):
    released = {TFCoVR: "mit", ActivityNetComp: "cc-by-4.0", CharadesFIGMoments: "cc-by-4.0"}
    for kind, license in released.items():
        metadata = kind("release").metadata
        assert (metadata.license, metadata.is_filled()) == (license, True), metadata.name
        assert "/" in metadata.dataset["path"]
        rendered = kind().metadata
        assert (rendered.license, rendered.dataset["path"]) == ("apache-2.0", kind.DATASET)
        assert "Rendered athletes, not real video" in rendered.description
    statistics = task._calculate_descriptive_statistics_from_split("test")
    assert statistics["num_samples"] == 48
    assert statistics["relevant_docs_statistics"]["average_relevant_docs_per_query"] == 3
    assert statistics["documents_video_statistics"]["total_frames"] > 0


class OneVector(RandomEncoder):
    """Everything is equal, so the order of ties decides alone."""

    def embed(self, videos, texts, *, is_query):
        return torch.ones(len(videos), 4) / 2


@pytest.mark.parametrize("encoder", [RandomEncoder, OneVector])
def test_with_the_own_clip_kept_it_is_what_trecs_program_gives(encoder, task):
    """mteb's own metrics are TREC's; with three targets, fewer than the cut, both have the same denominator."""
    scores = scores_of(encoder("baseline"), task)
    for k in (5, 10, 25, 50):
        assert scores[f"map_at_{k}_{KEPT}"] == pytest.approx(scores[f"map_at_{k}"], abs=1e-5)
    for k in CUTS:
        assert scores[f"recall_at_{k}_{KEPT}"] == pytest.approx(scores[f"recall_at_{k}"], abs=1e-5)


def test_chance_does_not_depend_on_where_the_videos_are():
    here, there, other = (Segment(path, 1.0, 2.5) for path in ("/a/vault.mp4", "/b/vault.mp4", "/a/beam.mp4"))
    vectors = RandomEncoder().embed_videos([here, there, other])
    assert torch.equal(vectors[0], vectors[1])
    assert not torch.equal(vectors[0], vectors[2])


def test_leaving_the_own_clip_out_moves_later_clips_up(task):
    ranked = ["own", "right", "wrong"]
    task = TFCoVR()
    task.own_clips, task.coverage = {"q": "own"}, {}
    results = {"q": {name: 1 - place / 10 for place, name in enumerate(ranked)}}
    scores = task.task_specific_scores({}, {"q": {"right": 1}}, results, "test", "default")
    assert (scores[f"map_at_1_{LEFT_OUT}"], scores[f"map_at_1_{KEPT}"]) == (1.0, 0.0)
    assert (scores[f"map_at_5_{LEFT_OUT}"], scores[f"map_at_5_{KEPT}"]) == (1.0, 0.5)
    assert (scores[f"recall_at_1_{LEFT_OUT}"], scores[f"recall_at_1_{KEPT}"]) == (1.0, 0.0)
    assert scores["own_clip_ranked_first"] == 1.0


def test_a_segment_is_what_mtebs_models_take_for_a_video_but_only_its_own_frames(tmp_path):
    path = write_video(tmp_path / "long.mp4", 100)
    segment = Segment(str(path), 1.0, 2.0)
    assert (len(segment), segment.metadata.num_frames) == (25, 25)
    assert segment.metadata.end_stream_seconds == pytest.approx(1.0)
    assert [number_of(frame) for frame in segment.get_frames_at([0, 24]).data] == [25, 49]
    assert segment.get_frames_at([0, 24]).pts_seconds.tolist() == pytest.approx([0.0, 0.96])
    assert [number_of(frame) for frame in segment[3:6]] == [28, 29, 30]
    collator = mteb.models.modality_collators.FramesCollator
    assert [number_of(frame) for frame in collator.resample_video(segment, num_frames=3)] == [25, 37, 49]
    assert len(collator.resample_video(segment, fps=5)) == 5
    assert numbers_of(read_frames(path, 1, 1.0, 2.0)) == [37]


def test_the_recipe_reports_both_ways_and_measures_only_what_is_missing(model, config_of, tmp_path, monkeypatch):
    config = config_of(models=[model])
    figures = evaluate_mteb.run(config)
    written = json.loads((tmp_path / "results.json").read_text())
    assert written["figures"] == figures
    assert list(figures) == [Path(model).parent.name, "random", "text-only", "video-only"]
    for scores in figures.values():
        for how in (LEFT_OUT, KEPT):
            assert {f"TFCoVRMini/{name}_{how}" for name in ("map_at_5", "map_at_50", "recall_at_1")} <= scores.keys()
    assert figures["random"]["TFCoVRMini/own_clip_ranked_first"] == 1.0

    def measure_again(model, *_, **__):
        raise AssertionError(f"{model.mteb_model_meta.name} was measured again")

    monkeypatch.setattr(mteb, "evaluate", measure_again)
    assert evaluate_mteb.run(config) == figures
    next(tmp_path.rglob("subtle__random/**/TFCoVRMini.json")).unlink()
    with pytest.raises(AssertionError, match="random was measured again"):
        evaluate_mteb.run(config)


def test_a_model_of_ours_that_sentence_transformers_loads_measures_the_same(model, task, config_of):
    """With all frames of a clip, of which its processor takes those that our own reader would."""
    loaded = {"as_sentence_transformer": True, "trust_remote_code": True}
    config = config_of(models=[model], **loaded, num_frames=None, baselines=["none"])
    (found,) = evaluate_mteb.run(config).values()
    expected = scores_of(OurEncoder(load_encoder(model), "tiny"), task)
    for name in ("map_at_50", "map_at_5", "recall_at_1"):
        for how in (LEFT_OUT, KEPT):
            assert found[f"TFCoVRMini/{name}_{how}"] == pytest.approx(expected[f"{name}_{how}"], abs=1e-6)


def test_what_was_exported_is_read_by_mteb_and_measures_the_same(model, task, tiny, embedded, tmp_path):
    folder, videos = tmp_path / "exported", Path(tiny["dataset"]).parent / "videos"
    export_composed(task, folder)
    loaded = RetrievalDatasetLoader(str(folder), revision=None).load()
    own = task.dataset["default"]["test"]
    assert list(loaded["corpus"]["id"]) == list(own["corpus"]["id"])
    assert list(loaded["queries"]["text"]) == list(own["queries"]["text"])
    assert loaded["relevant_docs"] == own["relevant_docs"]
    there = {"data_dir": str(folder), "video_dir": str(videos)}
    encoder = OurEncoder(load_encoder(model), "tiny")
    again = scores_of(encoder, ComposedBenchmark(name="Tiny-CoVR", **there))
    expected = scores_of(encoder, task)
    of_own_clips = {name: value for name, value in expected.items() if "own_clip" in name}
    assert {name: again[name] for name in of_own_clips} == of_own_clips
    measured = evaluated(model, tmp_path, dataset_config="composed", **there)
    assert measured["map@50"] == pytest.approx(again[f"map_at_50_{LEFT_OUT}"], abs=1e-6)


@pytest.mark.parametrize("kind", [ActivityNetComp, CharadesFIGVideos, CharadesFIGMoments])
def test_contrasts_and_moments_are_measured_too(kind, tiny_comp, config_of):
    """With a model of ours that compares videos with texts, on the tiny miniature."""
    (encoder, *_) = evaluate_mteb.models_and_baselines(
        config_of(models=[tiny_comp["model"]]), torch.device("cpu")
    ).values()
    task = kind(data_dir=tiny_comp["data_dir"])
    scores = scores_of(encoder, task)
    assert task.metadata.is_filled()
    assert task.metadata.name == f"{kind.__name__}Mini"
    assert 0 <= scores["main_score"] <= 1
    assert scores["coverage_rows"] == 1.0
    if kind is ActivityNetComp:  # as evaluate_comp measures it
        expected = Scores(list(task.rows(split="test")), SpanReader())(encoder.encoder)
        for name in ("comprehensive_accuracy", "accuracy/temporal_reorder", "accuracy/action_replace"):
            assert scores[name.replace("/", "_")] == pytest.approx(expected[name], abs=1e-6)


def test_a_users_mistake_is_one_line_with_the_cure(tmp_path, tiny, config_of):
    (tmp_path / "broken.mp4").write_bytes(b"not a video")
    with (
        VideoReaderPool(1, num_workers=0) as pool,
        pytest.raises(VideoError, match=r"broken.mp4.*take the file out of the folder"),
    ):
        list(SegmentEncoder.frames(RandomEncoder(""), [Segment(str(tmp_path / "broken.mp4"))], pool))
    with pytest.raises(ValueError, match="needs data_dir"):
        ComposedBenchmark()
    SentenceTransformer(tiny["text_model"]).save_pretrained(str(tmp_path / "texts"))
    for given, message in (
        ({"models": [str(tmp_path / "texts")]}, "reads text, not video; name a model of videos"),
        ({"models": [tiny["text_model"]]}, "is a 'bert' model; give a folder of tfcovr, factored_covr, "),
        ({"tasks": ["TFCovr"]}, "did you mean TFCoVR"),
    ):
        with pytest.raises(SystemExit, match=message):
            evaluate_mteb.run(config_of(**given))
