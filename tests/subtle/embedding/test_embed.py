"""Embeddings are made once, survive a kill, do not mix, and say what is missing."""

import json
import os
import shutil
import signal
import time
from pathlib import Path

import polars as pl
import pytest
import torch
from datasets import Dataset
from small_datasets import write_dataset

from hf_datasets.video import read_frames
from hf_datasets.video.frame_cache import FrameCache
from hf_models.feature_store import FeatureStore
from subtle.embedding import embed_clips
from subtle.embedding.embed_clips import EmbedConfig
from subtle.run.models import load_encoders
from subtle.tfcovr import clip_embeddings
from subtle.tfcovr.batches import EmbeddingSource
from tests.fixtures.verbs import typed


def load(folder, kind="video"):
    ids, values = FeatureStore(Path(folder) / kind).load()
    return dict(zip(ids, values, strict=True))


def arguments(options):
    return [part for name, value in options.items() for part in (f"--{name}", str(value))]


def test_a_stored_embedding_is_the_models_output_for_the_frames(tiny, embedded):
    model, processor = load_encoders(EmbedConfig(**tiny), fusion_hidden_dim=1)
    stored, rows = load(embedded), Dataset.from_parquet(f"{tiny['dataset']}/mini-clips/test.parquet")
    assert len(stored) == 36
    for row in (rows[0], rows[-1]):
        frames = read_frames(row["video"], 4, size=(16, 16)).frames
        pixels = processor(videos=[frames], do_sample_frames=False)["pixel_values"]
        torch.testing.assert_close(stored[row["clip_id"]], model.encode_video(pixels)[0], atol=1e-4, rtol=1e-4)
    text = load(embedded, "text")
    assert sorted(text) == ["show blue", "show green", "show grey", "show red"]
    torch.testing.assert_close(
        text["show red"], model.encode_text(**processor(text="show red"))[0], atol=1e-5, rtol=1e-4
    )


@pytest.fixture
def no_reading(monkeypatch):
    """No clip may be read."""

    def refuse(clips, *_, **__):
        assert not clips, f"{len(clips)} clips are read again"
        yield from ()

    monkeypatch.setattr(clip_embeddings, "read_clip_frames", refuse)


@pytest.mark.usefixtures("no_reading")
def test_clips_that_stage_1_decoded_are_not_decoded_again(tiny, embedded, tmp_path):
    rows = {
        split: list(Dataset.from_parquet(f"{tiny['dataset']}/mini-clips/{split}.parquet"))
        for split in ("train", "test")
    }
    folder = tmp_path / "frames"
    FrameCache(folder, rows["train"], 8, (16, 16), num_workers=0, also=4)  # as stage 1 does in training
    FrameCache(folder, rows["test"], 4, (16, 16), num_workers=0)

    config = EmbedConfig(**tiny, output_dir=str(tmp_path / "made"), cache_dir=str(folder))
    config.splits = ["train", "test"]
    embed_clips.run(config)
    made, expected = load(config.output_dir), load(embedded)
    assert made.keys() == {row["clip_id"] for split in rows.values() for row in split}
    for clip_id, embedding in made.items():
        torch.testing.assert_close(embedding, expected[clip_id], atol=1e-5, rtol=1e-5)


@pytest.mark.usefixtures("no_reading")
def test_a_second_run_opens_no_video(tiny, embedded):
    before = sorted(Path(embedded).rglob("shard-*"))
    embed_clips.run(EmbedConfig(**tiny, output_dir=embedded))
    assert sorted(Path(embedded).rglob("shard-*")) == before


def test_a_killed_run_goes_on_where_it_stopped(tiny, embedded, tmp_path, warm_python):
    options = {**tiny, "output_dir": tmp_path / "store", "batch_size": 1, "shard_size": 1}
    environment = os.environ | {"HF_DATASETS_CACHE": str(tmp_path / "cache")}
    process = warm_python.start([*typed("embed_clips"), *arguments(options)], env=environment)
    while process.poll() is None and len(list(tmp_path.glob("store/video/shard-*.safetensors"))) < 3:
        time.sleep(0.001)
    process.kill()
    assert process.wait(60) == -signal.SIGKILL
    before = load(tmp_path / "store")
    assert 3 <= len(before) < 36
    embed_clips.run(EmbedConfig(**{**options, "output_dir": str(tmp_path / "store")}))
    after, expected = load(tmp_path / "store"), load(embedded)
    assert after.keys() == expected.keys()
    for clip_id, values in expected.items():
        torch.testing.assert_close(after[clip_id], values, atol=1e-5, rtol=1e-4)
        if clip_id in before:
            assert torch.equal(after[clip_id], before[clip_id])


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"shuffle_frames": True}, "frames"),
        ({"number_words": True}, "tokenizer"),
        ({"vision_model": "clip", "num_frames": 4}, "weights"),
    ],
)
def test_embeddings_made_in_another_way_are_refused(tiny, embedded, changes, names):
    if "vision_model" in changes:
        changes = {**changes, "vision_model": str(Path(tiny["vision_model"]).with_name("clip"))}
    with pytest.raises(ValueError, match=f"made with other {names} than this run uses"):
        embed_clips.run(EmbedConfig(**{**tiny, **changes}, output_dir=embedded))


def test_another_number_of_frames_than_the_model_takes_is_refused(tiny, tmp_path):
    with pytest.raises(SystemExit, match=r"takes 4 frames, not 3; leave --num_frames out"):
        embed_clips.run(EmbedConfig(**tiny, num_frames=3, output_dir=str(tmp_path)))


def test_missing_and_damaged_videos_are_counted_and_named(tiny, tmp_path):
    (tmp_path / "damaged.mp4").write_bytes(b"no video")
    data = shutil.copytree(tiny["dataset"], tmp_path / "incomplete")  # datasets caches by the folder's last name
    path = data / "mini-clips/test.parquet"
    rows = pl.read_parquet(path)
    videos = [None, str(tmp_path / "damaged.mp4"), str(tmp_path / "absent.mp4"), *rows["video"][3:]]
    rows.with_columns(video=pl.Series(videos)).write_parquet(path)
    options = {**tiny, "dataset": str(data), "splits": ["test"], "output_dir": str(tmp_path / "store")}
    options["num_workers"] = 1
    coverage = embed_clips.run(EmbedConfig(**options))
    assert (coverage["clips"], coverage["encoded"]) == (12, 9)
    assert coverage["missing"] == {"no video file": 1, "does not decode": 2}
    written = json.loads((tmp_path / "store" / "results.json").read_text())["coverage"]
    assert set(written["failures"]) == {"test-red-0", "test-red-1", "test-red-2"}
    assert "damaged.mp4" in written["failures"]["test-red-1"]


def test_other_clips_under_the_same_ids_are_refused(tiny, embedded, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(tiny["dataset"], other)
    path = other / "mini-clips" / "test.parquet"
    pl.read_parquet(path).with_columns(video_id=pl.lit("another video")).write_parquet(path)
    with pytest.raises(SystemExit, match=r"of other data: \d+ of 36 clips with the same id differ"):
        embed_clips.run(EmbedConfig(**{**tiny, "dataset": str(other)}, output_dir=str(embedded)))


def test_an_empty_split_is_refused(tiny, tmp_path):
    rows = Dataset.from_parquet(f"{tiny['dataset']}/mini-clips/test.parquet")
    data = write_dataset(tmp_path / "empty", {"mini-clips": {"test": rows.select(range(0))}})
    options = {**tiny, "dataset": str(data), "splits": ["test"], "output_dir": str(tmp_path / "store")}
    with pytest.raises(SystemExit, match=r"split 'test' .* cannot be read: .*no data"):
        embed_clips.run(EmbedConfig(**options))


def test_a_folder_of_embeddings_that_was_emptied_says_how_to_make_them(tiny, embedded, tmp_path):
    config = EmbedConfig(**tiny, output_dir=str(tmp_path))
    (tmp_path / "results.json").write_text("{}")
    model, processor = load_encoders(config, fusion_hidden_dim=1)
    with pytest.raises(
        FileNotFoundError, match=r"video holds no features; make them with `python recipes/embed\.py clips`"
    ):
        EmbeddingSource.open(config, model, processor, torch.device("cpu"), make=embed_clips.run)
