"""Items of labeled clips are decided by their seed, and the same from a cache and from the video."""

import pytest
import torch

from hf_datasets.video import VideoError
from hf_datasets.video.frame_cache import FrameCache
from hf_datasets.video.training_clips import Augmentation, LabeledClips
from tests.fixtures.videos import write_video

SIZE = (24, 32)


@pytest.fixture(scope="module")
def clips(tmp_path_factory):
    path = write_video(tmp_path_factory.mktemp("videos") / "a.mp4", 40)
    return [
        {"clip_id": str(start), "video": str(path), "start_seconds": start, "end_seconds": start + 0.5}
        for start in (0.0, 0.5, 1.0)
    ]


def training_clips(clips, **options):
    augmentation = Augmentation(SIZE, crop_scale=0.6)
    return LabeledClips(clips, [2, 1, 0], 4, SIZE, augmentation=augmentation, frames_per_part=2, **options)


def test_cached_and_decoded_frames_are_the_same(clips, tmp_path):
    decoded = training_clips(clips)
    cached = training_clips(clips, cache=FrameCache(tmp_path, clips, 8, SIZE, num_workers=0))
    for item in ((0, None), (2, 11)):
        assert torch.equal(cached[item]["frames"], decoded[item]["frames"])
    assert decoded[2, 11]["labels"] == 0


def test_an_item_depends_on_its_seed_alone(clips):
    data = training_clips(clips)
    torch.manual_seed(1)
    first = data[0, 5]["frames"]
    torch.manual_seed(2)
    assert torch.equal(first, data[0, 5]["frames"])
    assert not torch.equal(first, data[0, 6]["frames"])


def test_augmentation_is_drawn_once_per_clip_or_for_each_frame():
    frames = torch.arange(16 * 16, dtype=torch.uint8).reshape(1, 1, 16, 16).repeat(6, 3, 1, 1)
    torch.manual_seed(0)
    same = Augmentation((16, 16), crop_scale=0.5)(frames)
    assert all(torch.equal(same[0], frame) for frame in same)
    different = Augmentation((16, 16), crop_scale=0.5, per_frame=True)(frames)
    assert not all(torch.equal(different[0], frame) for frame in different)


def test_a_clip_that_does_not_decode_is_named(clips, tmp_path):
    (tmp_path / "broken.mp4").write_bytes(b"not a video")
    broken = [{**clips[0], "clip_id": "broken", "video": str(tmp_path / "broken.mp4")}]
    with pytest.raises(VideoError, match=r"clip 'broken' does not decode: .*broken\.mp4: "):
        LabeledClips(broken, [0], 4, SIZE)[0, None]
