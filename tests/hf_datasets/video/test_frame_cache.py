"""Frames on disk are those of the videos, decoded once, found again, and made again when a video changes."""

import os
import pickle

import pytest
import torch

from hf_datasets.video import frame_cache, read_frames
from hf_datasets.video.frame_cache import FrameCache, FrameFile, cache_folder
from tests.fixtures.videos import write_video

SIZE = (24, 32)


@pytest.fixture
def clips(tmp_path):
    """A clip that can be read, one whose file is damaged, and one without a file."""
    write_video(tmp_path / "good.mp4", 20)
    (tmp_path / "broken.mp4").write_bytes(b"not a video")
    videos = {"good": str(tmp_path / "good.mp4"), "broken": str(tmp_path / "broken.mp4"), "absent": None}
    return [
        {"clip_id": name, "video": video, "start_seconds": None, "end_seconds": None} for name, video in videos.items()
    ]


@pytest.mark.parametrize("num_workers", [0, 1])
def test_clips_are_decoded_once_for_two_caches_and_failures_are_named(clips, tmp_path, monkeypatch, num_workers):
    cache = FrameCache(tmp_path / "cache", clips, 4, SIZE, num_workers=num_workers, also=2)
    assert cache.failures.keys() == {"broken", "absent"}
    assert cache.failures["absent"] == "no video file"
    assert torch.equal(cache["good"], read_frames(clips[0]["video"], 4, size=SIZE).frames)
    monkeypatch.setattr(frame_cache, "VideoReaderPool", None)  # no video is read again
    again = FrameCache(tmp_path / "cache", clips, 4, SIZE, num_workers=num_workers)
    assert again.failures == cache.failures
    assert torch.equal(again["good"], cache["good"])
    sent = pickle.dumps(again)
    assert len(sent) < 2000  # a spawned worker maps the file itself
    assert torch.equal(pickle.loads(sent)["good"], cache["good"])
    other = FrameCache.find(tmp_path / "cache", clips, 2, SIZE)
    assert other.failures == cache.failures
    assert torch.equal(other["good"], read_frames(clips[0]["video"], 2, size=SIZE).frames)


def test_finding_a_complete_cache_reads_the_status_of_each_file_once(clips, tmp_path, monkeypatch):
    made = FrameCache(tmp_path / "cache", clips, 2, SIZE, num_workers=0)
    looks = []
    fingerprint = frame_cache.clip_fingerprint
    monkeypatch.setattr(frame_cache, "clip_fingerprint", lambda clip: looks.append(clip) or fingerprint(clip))
    found = FrameCache.find(tmp_path / "cache", clips, 2, SIZE)
    assert (found.folder, found.places) == (made.folder, made.places)
    assert looks == clips


@pytest.mark.parametrize("share", [0, 0.5])
@pytest.mark.parametrize("name", ["frames.npy", "done.npy", "failures.json"])
def test_a_cache_of_which_a_file_is_cut_or_lost_is_made_again(clips, tmp_path, name, share):
    made = FrameCache(tmp_path / "cache", clips, 2, SIZE, num_workers=0)
    expected, failures, path = made["good"], made.failures, made.folder / name
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    assert FrameCache.find(tmp_path / "cache", clips, 2, SIZE) is None
    again = FrameCache(tmp_path / "cache", clips, 2, SIZE, num_workers=0)
    assert torch.equal(again["good"], expected)
    assert again.failures == failures
    path.unlink()
    again = FrameCache(tmp_path / "cache", clips, 2, SIZE, num_workers=0)
    assert torch.equal(again["good"], expected)


def test_an_incomplete_cache_is_not_found_and_decoding_resumes_where_it_stopped(clips, tmp_path):
    made = FrameCache(tmp_path / "cache", clips[:1], 2, SIZE, num_workers=0)
    (made.folder / FrameFile.FAILURES).unlink()
    made.frames[0] = 7  # shows that what is done is not decoded again
    assert FrameCache.find(tmp_path / "cache", clips[:1], 2, SIZE) is None
    assert (FrameCache(tmp_path / "cache", clips[:1], 2, SIZE, num_workers=0)["good"] == 7).all()


def test_a_video_that_changes_is_decoded_again(clips, tmp_path):
    FrameCache(tmp_path / "cache", clips, 2, SIZE, num_workers=0)
    os.utime(clips[0]["video"], (1, 1))
    assert FrameCache.find(tmp_path / "cache", clips, 2, SIZE) is None


def test_the_folder_name_of_a_cache_does_not_change_between_versions(tmp_path):
    clips = [{"clip_id": "a", "video": None, "start_seconds": 0.5, "end_seconds": None}]
    assert cache_folder(tmp_path, clips, 8, (16, 24)) == tmp_path / "frames-8a3f1a4c9ee4083d"
