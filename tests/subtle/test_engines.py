"""The same rows from the workers of a Ray cluster as from this process; here with the workers' classes, without Ray."""

import contextlib
import importlib
import json
import sys
from dataclasses import asdict, replace
from types import SimpleNamespace

import pyarrow as pa
import pytest
import torch
from colored_videos import write_colored_video
from small_index import index_config

from hf_models.feature_store import FeatureStore
from hf_models.index.store import MomentIndex
from subtle import engines
from subtle.embedding import embed_clips, embed_moments
from subtle.embedding.embed_clips import EmbedConfig
from subtle.engines import Actors, actors_of
from subtle.footage import engines as indexing_engines
from subtle.footage import index, planning, reading
from subtle.options import run_recipe
from subtle.run import shards
from subtle.run.shared_config import ActorConfig
from subtle.tfcovr import clip_embeddings
from tests.subtle.embedding.test_embed_moments import embed_config, moments  # noqa: F401 a fixture

RED, GREEN, BLUE = (250, 20, 20), (20, 250, 20), (20, 20, 250)


@pytest.fixture
def without_ray(monkeypatch):
    """The classes of the workers, in this process; what travels is JSON and Arrow, the last piece of work first."""

    def run(factory, arguments, works, config, **limits):
        module, _, name = factory.partition(":")
        worker = getattr(importlib.import_module(module), name)(**json.loads(json.dumps(arguments)))
        for number, work in reversed(list(enumerate(works))):
            sink, table = pa.BufferOutputStream(), worker(json.loads(json.dumps(work)))
            with pa.ipc.new_stream(sink, table.schema) as stream:
                stream.write_table(table)
            yield number, pa.ipc.open_stream(sink.getvalue()).read_all()

    for module in (indexing_engines, shards):
        monkeypatch.setattr(module, "run_on_ray", run)
    for module in (index, embed_clips, embed_moments):
        monkeypatch.setattr(module, "running", lambda *_, **__: contextlib.nullcontext())


@pytest.fixture
def footage(tmp_path, monkeypatch):
    """Five videos, one of them damaged, of which two are committed together."""
    monkeypatch.setattr(reading, "FILES_PER_GROUP", 2)
    folder = tmp_path / "videos"
    folder.mkdir()
    for seed, colors in enumerate(((RED, GREEN, BLUE), (BLUE, RED), (GREEN,), (GREEN, BLUE))):
        write_colored_video(folder / f"{seed}'s.mp4", colors, seed=seed)
    (folder / "1b.mp4").write_bytes(b"no video")
    return folder


@pytest.fixture
def config(footage, tmp_path, tiny):
    windows = {"window_seconds": 1.0, "stride_seconds": 0.5, "batch_size": 2}
    return index_config(footage, tmp_path / "local", tiny["vision_model"], **windows)


def contents(path):
    """All rows of an index, of moments and of files."""
    opened = MomentIndex(path)
    key = opened.find(None).key
    rows = opened.moments(key).to_arrow().to_pylist()
    rows = [{**row, "vector": tuple(row["vector"])} for row in rows]
    return sorted(rows, key=lambda row: row["moment_id"]), opened.files(key)


def test_workers_give_an_index_the_same_rows_and_vectors(config, tmp_path, without_ray, footage):
    counts = index.run(config)
    other = replace(config, output=str(tmp_path / "ray"), engine="ray")
    assert index.run(other) == counts
    assert counts["files_quarantined"] == 1
    assert contents(other.output) == contents(config.output)
    assert index.run(other)["files_unchanged"] == 5
    table = tmp_path / "moments.csv"
    table.write_text("video,start_seconds,end_seconds,label\n0's.mp4,0.5,2.5,turn\n0's.mp4,9,10,late\n3's.mp4,0,1,\n")
    config, other = (
        replace(one, source=str(table), video_dir=str(footage), output=f"{one.output} table") for one in (config, other)
    )
    assert index.run(other) == index.run(config)
    assert contents(other.output) == contents(config.output)


def test_workers_cut_videos_with_the_detector_that_was_asked_for(config, without_ray, monkeypatch):
    asked = []

    def noted(name):
        asked.append(name)
        return SimpleNamespace(size=16, add=lambda frames: None, cuts=list)

    for module in (index, planning):
        monkeypatch.setattr(module, "shot_detector", noted)
    index.run(replace(config, cut="transnetv2", engine="ray"))
    assert set(asked) == {"transnetv2"}


def test_a_worker_with_another_model_or_without_the_videos_refuses_the_work(config, tiny, footage, tmp_path):
    with pytest.raises(ValueError, match=r"another model on .* than where the run was started"):
        indexing_engines.GroupEncoder(asdict(config), str(footage), "0123456789ab")
    with pytest.raises(ValueError, match=r"has no folder .*absent; mount the storage"):
        indexing_engines.GroupEncoder(asdict(config), str(tmp_path / "absent"), "0123456789ab")
    options = EmbedConfig(**tiny, device="cpu")
    model, processor = clip_embeddings.load_encoders(options, fusion_hidden_dim=1)
    origin = clip_embeddings.made_by(model, processor, options)["video"]
    with pytest.raises(ValueError, match=r"another model than .* \(other weights\)"):
        clip_embeddings.ClipWorker(asdict(options), origin | {"weights": "8c1f"})


def test_when_workers_stop_all_that_was_done_is_in_the_index(config, without_ray, monkeypatch, footage):
    whole = indexing_engines.run_on_ray

    def stops(*arguments, **limits):
        done = whole(*arguments, **limits)
        yield next(done)
        yield next(done)
        raise OSError("the disk of a worker is full")

    monkeypatch.setattr(indexing_engines, "run_on_ray", stops)
    config = replace(config, engine="ray")
    with pytest.raises(OSError, match="the disk of a worker is full"):
        index.run(config)
    assert set(contents(config.output)[1]) == {"1b.mp4", "2's.mp4", "3's.mp4"}
    monkeypatch.setattr(indexing_engines, "run_on_ray", whole)
    counts = index.run(config)
    assert (counts["files_unchanged"], counts["files_in_index"]) == (3, 4)


def test_workers_give_the_same_embeddings_and_the_same_failures(tiny, embedded, tmp_path, without_ray):
    config = EmbedConfig(**tiny, output_dir=str(tmp_path / "made"), shard_size=10, engine="ray", device="cpu")
    coverage = embed_clips.run(config)
    assert (coverage["clips"], coverage["encoded"]) == (36, 36)
    assert len(list((tmp_path / "made" / "video").glob("shard-*"))) == 4
    assert_same(tmp_path / "made" / "video", f"{embedded}/video")
    assert embed_clips.run(config) == coverage


def test_workers_give_the_same_features_second_by_second(moments, tiny, tmp_path, without_ray):  # noqa: F811
    config = embed_config(tiny, moments, tmp_path / "local", clip_seconds=1.0, shard_size=2)
    coverage = embed_moments.run(config)
    config.engine, config.output_dir = "ray", str(tmp_path / "ray")
    assert embed_moments.run(config) == coverage
    assert coverage["missing"] == {"no video file": 1, "does not decode": 1}
    assert_same(tmp_path / "ray" / "video", tmp_path / "local" / "video")


def assert_same(folder, expected):
    made, wanted = FeatureStore(folder), FeatureStore(expected)
    assert set(made) == set(wanted)
    assert made.details == wanted.details
    for one in wanted:
        torch.testing.assert_close(made[one], wanted[one], atol=1e-5, rtol=1e-5)


def test_without_ray_one_line_names_what_to_install(config, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert run_recipe(index.main, replace(config, engine="ray")) == 2
    shown = capsys.readouterr().err.strip()
    assert shown == "error: --engine ray needs Ray: pip install 'subtle-video[ray]'"


def test_addresses_and_launchers_that_cannot_work_are_refused(config, monkeypatch):
    class Ray:
        is_initialized = staticmethod(lambda: False)

    monkeypatch.setattr(engines, "import_ray", Ray)
    monkeypatch.setenv("RAY_ADDRESS", "ray://head:10001")
    with pytest.raises(ValueError, match="RAY_ADDRESS=auto"), engines.running(replace(config, engine="ray")):
        pass
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="without accelerate launch"), engines.running(replace(config, engine="ray")):
        pass
    with pytest.raises(ValueError, match="--num_actors must be at least 1, not 0"):
        ActorConfig(num_actors=0)
    with pytest.raises(ValueError, match="--gpus_per_actor must be above 0"):
        ActorConfig(gpus_per_actor=0.0)


def test_there_are_as_many_actors_as_the_cluster_has_room_for():
    cluster = {"CPU": 16.0, "GPU": 2.0}
    assert actors_of(ActorConfig(), cluster, "auto", num_decoders=4) == Actors(2, 5, 1)
    assert actors_of(ActorConfig(gpus_per_actor=0.5), cluster, "cuda", num_decoders=1) == Actors(4, 2, 0.5)
    assert actors_of(ActorConfig(), cluster, "cpu", num_decoders=3) == Actors(4, 4, 0)
    assert actors_of(ActorConfig(gpus_per_actor=1), {"CPU": 2.0}, "auto", num_decoders=3) == Actors(1, 4, 0)
    assert actors_of(ActorConfig(num_actors=3, cpus_per_actor=1), {"CPU": 2.0}, "auto", num_decoders=3) == Actors(
        3, 1, 0
    )
    with pytest.raises(ValueError, match="--device cuda: the Ray cluster has no GPU"):
        actors_of(ActorConfig(), {"CPU": 2.0}, "cuda", num_decoders=0)
