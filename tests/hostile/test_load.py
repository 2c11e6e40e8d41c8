"""A thousand videos of which a fifth is damaged, hangs or kills its reader: all are named, the rest is as ever."""

import json
import sys
from collections import Counter
from functools import partial

import psutil
import pytest
import torch
from colored_videos import write_colored_video
from datasets import Dataset
from small_datasets import write_dataset

from hf_datasets.video.pool import VideoReaderPool
from hf_models.feature_store import FeatureStore
from subtle.embedding import embed_clips
from tests.hf_datasets.video.test_pool import HOSTILE_READER
from tests.subtle.conftest import CLIP_FEATURES

VIDEOS, DISTINCT = 1000, 24
# Each that hangs costs two time limits: one in its turn, one alone at the end.
BAD = {"hang": 4, "crash": 56, "leave": 40, "segfault": 40, "text": 30, "absent": 30}
LARGEST_GROWTH_MEGABYTES = 40

pytestmark = [pytest.mark.hostile, pytest.mark.timeout(900)]


def names():
    """All names, the bad ones spread evenly."""
    kinds = [kind for kind, count in BAD.items() for _ in range(count)]
    bad = {5 * number: kind for number, kind in enumerate(kinds)}
    return [f"{number:04d}-{bad.get(number, 'good')}" for number in range(VIDEOS)]


@pytest.fixture
def data(tiny, tmp_path):
    """The names as hard links to a few distinct videos, and a dataset of them."""
    (tmp_path / "videos").mkdir()
    for number in range(DISTINCT):
        color = (10 * number, 250 - 10 * number, 7 * number)
        write_colored_video(tmp_path / f"{number}.mp4", [color], seed=number)
    clips = []
    for number, name in enumerate(names()):
        path = tmp_path / "videos" / f"{name}.mp4"
        if name.endswith("text"):
            path.write_text("no video")
        elif not name.endswith("absent"):
            path.hardlink_to(tmp_path / f"{number % DISTINCT}.mp4")
        clip = dict.fromkeys(CLIP_FEATURES) | {"clip_id": name, "video": str(path), "label": "red", "split": "test"}
        clips.append(clip)
    queries = Dataset.from_parquet(f"{tiny['dataset']}/mini/test.parquet")
    rows = Dataset.from_list(clips, CLIP_FEATURES)
    return write_dataset(tmp_path / "many", {"mini": {"test": queries}, "mini-clips": {"test": rows}})


@pytest.fixture
def hostile_reader(tmp_path, monkeypatch):
    """What the videos' names promise happens to their readers."""
    (tmp_path / "hostile_reader_of_many.py").write_text(HOSTILE_READER)
    monkeypatch.syspath_prepend(tmp_path)
    import hostile_reader_of_many

    yield hostile_reader_of_many.read
    del sys.modules["hostile_reader_of_many"]


def test_a_thousand_videos_of_which_200_are_bad_are_encoded_and_named(
    data, tiny, hostile_reader, tmp_path, monkeypatch
):
    used, process = [], psutil.Process()

    class Watched(VideoReaderPool):
        def read(self, requests):
            for answer in super().read(requests):
                used.append(process.memory_info().rss / 2**20)
                yield answer

    options = {**tiny, "dataset": str(data), "splits": ["test"], "num_workers": 2, "device": "cpu"}
    options |= {"timeout_seconds": 5.0, "shard_size": 64, "cache_dir": str(tmp_path / "frames")}
    monkeypatch.setattr("subtle.embedding.loop.VideoReaderPool", partial(Watched, reader=hostile_reader))
    config = embed_clips.EmbedConfig(**options, output_dir=str(tmp_path / "embeddings"))
    coverage = embed_clips.run(config)
    failures = json.loads((tmp_path / "embeddings" / "results.json").read_text())["coverage"]["failures"]
    assert Counter(name[5:] for name in failures) == BAD
    assert (coverage["clips"], coverage["encoded"]) == (VIDEOS, VIDEOS - sum(BAD.values()))
    assert all(failures[name] for name in failures)

    monkeypatch.undo()
    clean = embed_clips.EmbedConfig(**options | {"num_workers": 0}, output_dir=str(tmp_path / "clean"))
    monkeypatch.setattr(embed_clips, "load_split", partial(without_bad, embed_clips.load_split))
    embed_clips.run(clean)
    found, expected = (
        dict(zip(*FeatureStore(tmp_path / name / "video").load(), strict=True)) for name in ("embeddings", "clean")
    )
    assert found.keys() == expected.keys()
    assert len(found) == VIDEOS - sum(BAD.values())
    torch.testing.assert_close(
        torch.stack([found[name] for name in expected]), torch.stack(list(expected.values())), rtol=1e-5, atol=1e-5
    )
    assert len({tuple(row.tolist()) for row in expected.values()}) >= DISTINCT
    assert len(used) == VIDEOS
    growth = max(used[100:]) - used[100]
    assert growth < LARGEST_GROWTH_MEGABYTES, f"the program grew by {growth:.0f} MB over 900 videos"


def without_bad(load_split, config, split, *, clips=False):
    rows = load_split(config, split, clips=clips)
    return [row for row in rows if row["clip_id"].endswith("good")] if clips else rows
