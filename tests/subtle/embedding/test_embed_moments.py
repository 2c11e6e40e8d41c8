"""Clip and token features of moments, in the form that `hf_models.feature_store` reads."""

import shutil

import av
import numpy as np
import pytest
import torch
from datasets import Dataset
from small_datasets import write_dataset

from hf_datasets.video import read_frames
from hf_datasets.video.pool import VideoReaderPool
from hf_models.feature_store import FeatureStore, open_features
from hf_models.moments.feature_encoders import ClipEncoder
from subtle.embedding.embed_moments import run
from subtle.embedding.options import EmbedMomentsConfig
from subtle.fig.data import load_moments
from subtle.run.encoded_data import digest
from subtle.run.shared_config import MomentDataConfig
from subtle.train import vcmr

FRAME_RATE = 10


def write_video(path, seconds):
    """Frames whose grey says which second it is: 10, 22, 34, ..."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=FRAME_RATE, options={"crf": "10"})
        stream.width, stream.height, stream.pix_fmt = 32, 32, "yuv420p"
        for number in range(round(seconds * FRAME_RATE)):
            grey = np.full((32, 32, 3), 10 + 12 * (number // FRAME_RATE), np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(grey, format="rgb24")))
        container.mux(stream.encode())


@pytest.fixture(scope="module")
def moments(tmp_path_factory):
    """Videos of 18.5 s and of 3 s (40 s by its annotation), one damaged, and one that is missing."""
    root = tmp_path_factory.mktemp("moments")
    write_video(root / "long.mp4", 18.5)
    write_video(root / "short.mp4", 3)
    (root / "bad.mp4").write_bytes(b"no video")
    videos = [
        {"video_id": name, "video": None if name == "gone" else str(root / f"{name}.mp4")}
        | {"duration_seconds": seconds, "split": "test"}
        for name, seconds in (("bad", 5.0), ("gone", 5.0), ("long", 18.5), ("short", 40.0))
    ]
    captions = ["show red", "show green blue", "grey"]
    rows = [
        {"desc_id": number, "video_id": "long", "duration_seconds": 18.5, "start_seconds": 0.0, "end_seconds": 2.0,
         "coarse_caption": "show", "fine_caption": caption, "fine_caption_score": None}
        for number, caption in enumerate(captions)
    ]  # fmt: skip
    return str(write_dataset(root / "data", {"mini": {"test": rows}, "mini-videos": {"test": videos}}))


def embed_config(tiny, dataset, folder, **options):
    """How moments are embedded in this process by the tiny CLIP."""
    models = {"vision_model": tiny["vision_model"].replace("aim", "clip"), "text_model": tiny["text_model"]}
    options = {**models, "num_workers": 0, "device": "cpu", **options}
    return EmbedMomentsConfig(dataset=str(dataset), output_dir=str(folder), **options)


@pytest.fixture
def config(moments, tiny, tmp_path):
    return embed_config(tiny, moments, tmp_path / "features", clip_seconds=1.0, shard_size=1)


def test_features_are_one_vector_per_second_and_per_token(config, tmp_path):
    coverage = run(config)
    assert coverage["missing"] == {"no video file": 1, "does not decode": 1}
    assert set(coverage["failures"]) == {"bad", "gone"}
    videos = open_features(tmp_path / "features", "video")
    assert {one: tuple(videos[one].shape) for one in sorted(videos)} == {"long": (19, 16), "short": (3, 16)}
    assert videos.details["clip_seconds"] == 1.0
    fine, coarse = (open_features(tmp_path / "features", f"query-{kind}") for kind in ("fine", "coarse"))
    assert [fine.length(str(number)) for number in range(3)] == [4, 5, 3]  # with [CLS] and [SEP]
    assert [coarse.length(str(number)) for number in range(3)] == [3, 3, 3]
    assert coverage["fine"] == {"captions": 3, "cut": 0}


def test_a_clip_is_the_maximum_over_four_frames_of_its_second(config, tmp_path):
    run(config)
    encoder = ClipEncoder(config.vision_model)
    read = read_frames(config.dataset.replace("/data", "/short.mp4"), 4, 1.0, 2.0)
    single = [encoder(frame[None, None])[0] for frame in read.frames]
    expected = torch.stack(single).amax(0)
    found = open_features(tmp_path / "features", "video")["short"][1]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_a_second_run_encodes_what_is_missing_and_another_model_is_refused(config, tmp_path, monkeypatch, tiny):
    run(config)
    video = tmp_path / "features" / "video"
    before = {path.name for path in video.glob("shard-*")}
    assert len(before) == 2
    next(iter(video.glob("shard-*"))).unlink()
    run(config)
    assert len({path.name for path in video.glob("shard-*")} & before) == 1
    assert set(FeatureStore(video)) == {"long", "short"}
    config.vision_model = tiny["vision_model"]
    with pytest.raises(ValueError, match=r"was made with other .*weights"):
        run(config)


def test_other_captions_or_videos_under_the_same_ids_are_refused(config, moments, tmp_path):
    run(config)
    other = tmp_path / "other"
    shutil.copytree(moments, other)
    rows = Dataset.from_parquet(f"{moments}/mini/test.parquet", cache_dir=str(tmp_path / "read"))
    rows.map(lambda row: {"duration_seconds": row["duration_seconds"] + 1}).to_parquet(other / "mini" / "test.parquet")
    config.dataset = str(other)
    with pytest.raises(SystemExit, match=r"of other data: 1 of 1 videos .* such as long; name another --output_dir"):
        run(config)


def test_features_of_the_miniature_are_made_of_the_folder_that_is_named(monkeypatch, tmp_path):
    made = []
    monkeypatch.setattr(vcmr, "embed", made.append)
    config = MomentDataConfig(data_dir=str(tmp_path / "drawn"), features=str(tmp_path / "features"))
    vcmr.make_features(config, "cpu", 0)
    (tmp_path / "features").mkdir()
    (tmp_path / "features" / "results.json").touch()
    vcmr.make_features(config, "cpu", 0)
    assert [one.data_dir for one in made] == [config.data_dir]


def test_features_of_other_moments_are_not_trained_on(config, moments, tmp_path):
    run(config)
    data = {"dataset": moments, "features": config.output_dir, "preset": "miniature"}
    moment_split = load_moments(MomentDataConfig(**data), "test", granularity="fine", long_videos="pool")
    assert len(moment_split) == 3
    path = tmp_path / "features" / "encoded_data.json"
    path.write_text(path.read_text().replace(digest("long", "grey"), digest("long", "gray")))
    with pytest.raises(SystemExit, match=r"1 of 3 fine captions .* such as 2; name another folder with --features"):
        load_moments(MomentDataConfig(**data), "test", granularity="fine", long_videos="pool")


def test_reads_may_come_in_any_order(config, tmp_path, monkeypatch):
    class Pool(VideoReaderPool):
        def read(self, requests):
            yield from reversed(list(super().read(requests)))

    run(config)
    in_order = dict(open_features(tmp_path / "features", "video").items())
    monkeypatch.setattr("subtle.fig.video_features.VideoReaderPool", Pool)
    config.output_dir = str(tmp_path / "again")
    assert run(config)["missing"] == {"no video file": 1, "does not decode": 1}
    again = open_features(tmp_path / "again", "video")
    assert set(again) == set(in_order)
    for one, features in in_order.items():
        torch.testing.assert_close(again[one], features)


def test_clips_of_the_miniature_last_half_a_second_and_all_others_one():
    assert EmbedMomentsConfig().clip_seconds == 0.5
    assert EmbedMomentsConfig(dataset_config="release").clip_seconds == 1.0


@pytest.mark.parametrize("fields", [{"clip_seconds": 0.0}, {"frames_per_clip": 0}])
def test_a_wrong_configuration_is_refused(fields):
    with pytest.raises(ValueError, match="must be positive and --frames_per_clip at least 1"):
        EmbedMomentsConfig(**fields)


def test_a_dataset_that_cannot_be_read_is_an_error_without_traceback(config, tmp_path):
    config.dataset, config.dataset_config = "charades_fig", "source"
    with pytest.raises(SystemExit, match="'source-videos', cannot be read: pass data_dir"):
        run(config)
