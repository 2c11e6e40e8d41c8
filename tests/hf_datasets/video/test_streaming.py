"""Clips with frames from a stream of whole videos: from our builders, and from a published folder with bytes."""

import json
import os
import pickle
import tempfile
from pathlib import Path

import datasets
import numpy as np
import pytest
from datasets import Dataset, Features, Value, Video

from hf_datasets.publish import write_folder
from hf_datasets.video import VideoError, read_frames, streaming
from hf_datasets.video.streaming import stream_clips

CARD = Path(__file__).parents[3] / "hf_datasets/tfcovr/README.md"
CHECKOUT = Path(__file__).parents[3]
READING = {"num_frames": 3, "size": (16, 24), "num_workers": 0}
WORKERS = """
import json, sys
from datasets import load_dataset
from datasets.distributed import split_dataset_by_node
from torch.utils.data import DataLoader
from hf_datasets.video.streaming import stream_clips

def load(part, **options):
    return load_dataset(sys.argv[1], f"mini-{part}", split="train", **options)

videos = load("videos", streaming=True)
stream = stream_clips(load("clips"), videos, num_frames=3, size=(16, 24))
stream = stream.shuffle(seed=1, buffer_size=3, max_buffer_input_shards=1)
nodes = []
for rank in range(2):
    node = split_dataset_by_node(stream, rank, world_size=2)
    loader = DataLoader(node, batch_size=None, num_workers=2, timeout=60, multiprocessing_context="fork")
    nodes.append([(row["clip_id"], int(row["frames"].sum())) for row in loader])
print(json.dumps([videos.num_shards, nodes]))
"""


@pytest.fixture(scope="module")
def loaded(miniature, tmp_path_factory):
    """The clips and long videos of the training split of a small miniature."""
    options = {"data_dir": str(miniature), "split": "train", "cache_dir": str(tmp_path_factory.mktemp("cache"))}
    return {part: datasets.load_dataset("tfcovr", f"mini-{part}", **options) for part in ("clips", "videos")}


@pytest.fixture(scope="module")
def published(loaded, tmp_path_factory):
    """A folder with the videos' bytes, several files for the split."""
    folder = tmp_path_factory.mktemp("published") / "tfcovr"
    tables = {f"mini-{part}": {"train": rows.with_format("arrow").iter(100)} for part, rows in loaded.items()}
    return write_folder(tables, folder, card=CARD)


def opened(folder, part, **options):
    return datasets.load_dataset(str(folder), f"mini-{part}", split="train", **options)


@pytest.fixture(scope="module")
def clips(published, tmp_path_factory):
    return opened(published, "clips", cache_dir=str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def stream(published, clips):
    return stream_clips(clips, opened(published, "videos", streaming=True), **READING)


@pytest.fixture(scope="module")
def rows(published, clips):
    return list(stream_clips(clips, opened(published, "videos", streaming=True), **READING))


@pytest.fixture
def temporary_files(tmp_path, monkeypatch):
    """Lists the videos among the temporary files of this test."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return lambda: list(tmp_path.rglob("*.mp4"))


def test_every_clip_comes_once_with_the_frames_that_read_frames_gives(rows, loaded):
    expected = sorted(loaded["clips"], key=lambda clip: (clip["video_id"], clip["start_seconds"]))
    assert [row["clip_id"] for row in rows] == [clip["clip_id"] for clip in expected]
    for row, clip in zip(rows, expected, strict=True):
        assert {name: value for name, value in row.items() if name != "frames"} == {
            name: value for name, value in clip.items() if name != "video"
        }
        read = read_frames(clip["video"], 3, clip["start_seconds"], clip["end_seconds"], size=(16, 24))
        assert row["frames"].shape == (3, 16, 24, 3)
        assert row["frames"].dtype == np.uint8
        assert np.array_equal(row["frames"], read.frames.permute(0, 2, 3, 1))


def test_files_on_this_machine_are_read_where_they_lie(rows, loaded, temporary_files):
    stream = stream_clips(loaded["clips"], loaded["videos"].select_columns(["video_id", "video"]), **READING)
    assert stream.num_shards == len(loaded["videos"])
    for row, other in zip(stream, rows, strict=True):
        assert row["clip_id"] == other["clip_id"]
        assert np.array_equal(row["frames"], other["frames"])
        assert not temporary_files()


def test_one_published_video_at_a_time_lies_on_the_disk(stream, rows, temporary_files, monkeypatch):
    monkeypatch.setattr(streaming, "CLIPS_IN_MEMORY", 4)
    seen = set()
    for _ in stream:
        assert len(temporary_files()) <= 1
        seen |= set(temporary_files())
    assert len(seen) == len({row["video_id"] for row in rows}), "each was written once"
    assert not temporary_files()
    iterator = iter(stream)
    next(iterator)
    assert temporary_files()
    del iterator  # given up
    assert not temporary_files()


def test_shards_that_a_shuffle_reads_in_turns_come_whole(stream, rows, temporary_files, monkeypatch):
    monkeypatch.setattr(datasets.config, "SLEEP_TIME_ON_THREADS_SHUTDOWN", 0)  # seconds, after every epoch
    shuffled = stream.shuffle(seed=1, buffer_size=6)
    found = list(shuffled)
    assert [row["clip_id"] for row in found] != [row["clip_id"] for row in rows]
    frames = {row["clip_id"]: row["frames"] for row in rows}
    assert len(found) == len(frames)
    assert all(np.array_equal(row["frames"], frames.pop(row["clip_id"])) for row in found)
    assert not temporary_files()


def test_a_stream_goes_on_where_its_state_was_taken(stream, rows):
    iterator = iter(stream)
    for _ in range(7):
        next(iterator)
    state = stream.state_dict()
    copy = pickle.loads(pickle.dumps(stream))
    copy.load_state_dict(state)
    assert [row["clip_id"] for row in copy] == [row["clip_id"] for row in rows[7:]]


def test_workers_on_nodes_share_the_clips_and_leave_nothing_behind(published, rows, tmp_path, warm_python):
    environment = os.environ | {"TMPDIR": str(tmp_path), "HF_DATASETS_CACHE": str(tmp_path / "cache")}
    command = ["-c", WORKERS, published]
    done = warm_python.run(command, cwd=CHECKOUT, env=environment | {"HF_HUB_OFFLINE": "1"})
    assert done.returncode == 0, done.stderr[-3000:]
    num_shards, nodes = json.loads(done.stdout)
    assert num_shards == 2
    assert all(nodes), "each node has clips"
    found = sorted(tuple(row) for node in nodes for row in node)
    assert found == sorted((row["clip_id"], int(row["frames"].sum())) for row in rows)
    assert not list(tmp_path.glob("subtle-*"))


def test_clips_of_other_videos_are_not_in_the_stream(loaded):
    videos = loaded["videos"].select([0])
    found = {row["video_id"] for row in stream_clips(loaded["clips"], videos, **READING)}
    assert found == set(videos["video_id"])


def test_errors_name_the_clip_and_the_cure(loaded, tmp_path):
    clip = {"video_id": "dive", "start_seconds": 0.0, "end_seconds": 1.0}
    (tmp_path / "dive.mp4").write_bytes(b"no video")

    def videos(value, **features):
        return Dataset.from_dict({"video_id": ["dive"], "video": [value]}, features=Features(features) or None)

    bytes_of = {"video_id": Value("string"), "video": Video()}
    for source, says in (
        (videos(str(tmp_path / "dive.mp4")), r"0\.0 to 1\.0 s of video 'dive' does not decode: .*; or leave it out"),
        (videos({"bytes": b"no video", "path": "x.mp4"}, **bytes_of), r"of video 'dive' does not decode: dive: "),
        (
            videos(None, **bytes_of),
            r"video 'dive' has clips but neither bytes nor a path; leave it out with videos\.filter",
        ),
    ):
        with pytest.raises(VideoError, match=says):
            list(stream_clips([clip], source, **READING))
    with pytest.raises(ValueError, match="videos has no column video, but video_id, file"):
        stream_clips([clip], Dataset.from_dict({"video_id": ["dive"], "file": ["x"]}), num_frames=1)
    with pytest.raises(ValueError, match="clips has no column end_seconds, but video_id, start_seconds"):
        stream_clips([{"video_id": "dive", "start_seconds": 0.0}], loaded["videos"], num_frames=1)
    with pytest.raises(ValueError, match="num_frames=0"):
        stream_clips([clip], loaded["videos"], num_frames=0)
