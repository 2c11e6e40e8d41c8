"""Folders of numbered pictures, read as the videos that they were; the gray of a picture is its number."""

import numpy as np
import pytest
import torch
from PIL import Image

from hf_datasets.footage.files import file_fingerprint, find_videos, path_of_video
from hf_datasets.video import VideoError, VideoStore, read_frames
from hf_datasets.video.cutting import encode_clip
from hf_datasets.video.frame_cache import FrameCache
from hf_datasets.video.pool import VideoReaderPool, VideoRequest
from hf_datasets.video.pyav import OpenVideo

FRAMES = 60


def write_frames(folder, numbers=range(1, FRAMES + 1), form="{:05d}.jpg"):
    folder.mkdir(parents=True)
    for number in numbers:
        Image.fromarray(np.full((32, 48, 3), 4 * number, np.uint8)).save(folder / form.format(number), quality=95)
    return folder


@pytest.fixture
def dive(tmp_path):
    """As FineDiving's frames lie: a folder for each competition, in it one for each dive."""
    return write_frames(tmp_path / "100% frames/01/7")


def numbers_of(frames):
    return [round(float(frame.float().mean()) / 4) for frame in frames]


@pytest.mark.parametrize(
    ("span", "expected"), [((None, None), [5, 15, 25, 35, 45, 55]), ((1.0, 1.4), [32, 34, 36, 38, 40, 42])]
)
def test_a_folder_of_frames_is_a_video_of_30_frames_a_second(dive, span, expected, monkeypatch):
    fed, feed = [], OpenVideo._feed
    monkeypatch.setattr(OpenVideo, "_feed", lambda video, packet: [fed.append(packet), feed(video, packet)][1])
    read = read_frames(dive, 6, *span)
    assert sum(packet is not None for packet in fed) == 6  # no picture between them is decoded
    found = numbers_of(read.frames)
    assert len(found) == 6
    assert np.abs(np.array(found) - expected).max() <= 1
    assert read.timestamps_seconds == pytest.approx([(number - 1) / 30 for number in found])
    assert read.missing_seconds == 0


def test_png_frames_that_begin_at_any_number_are_read(tmp_path):
    folder = write_frames(tmp_path / "dive", range(17, 29), "{:04d}.PNG")
    assert numbers_of(read_frames(folder, 12).frames) == list(range(17, 29))


def test_a_worker_and_the_cache_read_a_folder_and_notice_that_it_changed(dive, tmp_path):
    with VideoReaderPool(4, num_workers=1) as pool:
        ((_, read),) = pool.read([VideoRequest("dive", dive)])
    assert torch.equal(read.frames, read_frames(dive, 4).frames)
    clips = [{"clip_id": "01_7", "video": str(dive), "start_seconds": None, "end_seconds": None}]
    cache = FrameCache(tmp_path / "cache", clips, 4, (32, 48), num_workers=0)
    assert torch.equal(cache["01_7"], read.frames)
    (dive / "00060.jpg").unlink()
    assert FrameCache.find(tmp_path / "cache", clips, 4, (32, 48)) is None


def test_an_id_of_finediving_names_its_folder(dive, tmp_path):
    store = VideoStore(tmp_path)
    assert store.path("01_7") == store.path("100% frames/01/7") == dive
    assert store.coverage(["01_7", "01_8"]).missing == ("01_8",)


def test_an_index_takes_folders_of_frames_as_videos(dive, tmp_path):
    (file,), rejections = find_videos(tmp_path)
    assert (file.video, file.path, rejections) == ("100% frames/01/7", dive, [])
    assert path_of_video(tmp_path, file.video) == dive
    before = file_fingerprint(dive)
    assert file.is_unchanged
    (dive / "00060.jpg").unlink()
    assert not file.is_unchanged
    assert file_fingerprint(dive) != before


def test_a_clip_of_a_folder_of_frames_is_cut(dive, tmp_path):
    encode_clip(dive, tmp_path / "clip.mp4", 1.0, 1.2)
    assert np.abs(np.array(numbers_of(read_frames(tmp_path / "clip.mp4", 6).frames)) - range(31, 37)).max() <= 1


@pytest.mark.parametrize(
    ("numbers", "form", "message"),
    [
        ((), "", "a folder without numbered frames"),
        ((1, 2, 3), "{:d}.jpg", "a folder without numbered frames"),
        ((1, 2, 5), "{:05d}.jpg", r"2 of the frames 00001\.jpg to 00005\.jpg are missing, the first 00003\.jpg"),
    ],
)
def test_frames_that_cannot_be_put_in_order_are_refused_with_what_is_missing(tmp_path, numbers, form, message):
    with pytest.raises(VideoError, match=message):
        read_frames(write_frames(tmp_path / "dive", numbers, form), 2)


def test_frames_of_two_forms_links_and_other_decoders_are_refused(dive, tmp_path):
    with pytest.raises(VideoError, match="only PyAV reads a folder of frames"):
        read_frames(dive, 2, backend="torchcodec")
    (dive / "00061.JPG").write_bytes((dive / "00060.jpg").read_bytes())
    with pytest.raises(VideoError, match=r"named in several ways, such as 00001\.jpg and 00061\.JPG"):
        read_frames(dive, 2)
    (dive / "00061.JPG").unlink()
    (dive / "00061.jpg").symlink_to(tmp_path / "secret.jpg")
    with pytest.raises(VideoError, match=r"00061\.jpg is a link or a folder"):
        read_frames(dive, 2)


def test_a_damaged_picture_costs_its_own_frame(dive):
    (dive / "00030.jpg").write_bytes(b"not a picture")
    read = read_frames(dive, FRAMES)
    assert 30 not in numbers_of(read.frames)
    assert read.num_frames_in_clip == FRAMES - 1
