"""Small copies of clips: their frames, size and seconds; and files of an index, which never lie outside its folder."""

import shutil

import av
import numpy as np
import pytest
from colored_videos import write_colored_video

from hf_datasets.footage.files import path_of_video
from hf_datasets.video import VideoError, read_frames
from hf_datasets.video.pool import VideoReaderPool, VideoRequest
from hf_datasets.video.spans import read_spans, timeline_of

RED, GREEN, BLUE = (250, 20, 20), (20, 250, 20), (20, 20, 250)


def test_a_copy_has_the_frames_of_its_seconds_and_ends_where_the_video_does(tmp_path):
    video, copy = write_colored_video(tmp_path / "video.mp4", [RED, GREEN, BLUE]), tmp_path / "copy.mp4"
    with VideoReaderPool(1, num_workers=1, reader=read_spans) as pool:
        request = VideoRequest("copy", video, 1.5, 9.0, {"preview": str(copy)})
        ((_, made),) = pool.read([request])
        ((_, end),) = pool.read([VideoRequest("end", video, options={"find": "timeline"})])
        ((_, read),) = pool.read([VideoRequest("read", video, 0.0, 1.0, {"num_frames": 3, "size": [8, 6]})])
    assert made.timestamps_seconds == pytest.approx((1.5, 3.0))
    assert timeline_of(end).end_seconds == pytest.approx(3.0)
    assert tuple(read.frames.shape) == (3, 3, 8, 6)
    shown, whole = read_frames(copy, 99), read_frames(video, 99, 1.5, 3.0)
    assert shown.num_frames_in_clip == whole.num_frames_in_clip == 12
    assert shown.timestamps_seconds == pytest.approx([seconds - 1.5 for seconds in whole.timestamps_seconds])
    assert (shown.frames.float() - whole.frames.float()).abs().mean() < 12


def test_a_large_video_is_shown_small_and_with_fewer_frames(tmp_path):
    with av.open(str(tmp_path / "large.mp4"), "w") as container:
        stream = container.add_stream("libx264", rate=60)
        stream.width, stream.height, stream.pix_fmt = 600, 1000, "yuv420p"
        for _ in range(30):
            frame = np.zeros((1000, 600, 3), np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())
    copy = tmp_path / "copy.mp4"
    times = read_spans(tmp_path / "large.mp4", 1, 0.0, 9.0, preview=str(copy)).timestamps_seconds
    assert times == pytest.approx((0.0, 0.5))
    shown = read_frames(copy, 1)
    assert (shown.num_frames_in_clip, tuple(shown.frames.shape[2:])) == (15, (480, 288))


def test_videos_of_one_name_are_told_apart_and_paths_that_leave_the_folder_refused(tmp_path):
    root = tmp_path / "videos"
    for name in ("one.mp4", "sub/one.mp4"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(name.encode())
    (tmp_path / "secret.mp4").write_bytes(b"secret")
    (root / "out").symlink_to(tmp_path)
    assert path_of_video(root, "one.mp4").read_bytes() == b"one.mp4"
    assert path_of_video(root, "sub/one.mp4").read_bytes() == b"sub/one.mp4"
    shutil.copy(tmp_path / "secret.mp4", root / "sub/two.mp4")
    assert path_of_video(root, "sub/two.mp4").is_file()
    absolute = str(tmp_path / "secret.mp4")
    for video in ("../secret.mp4", absolute, "sub/../../secret.mp4", "sub\\..\\one.mp4", "out/secret.mp4", "sub", ""):
        with pytest.raises(VideoError, match="is refused: it "):
            path_of_video(root, video)
    with pytest.raises(VideoError, match=r"sub/none\.mp4 is no longer in the folder of videos"):
        path_of_video(root, "sub/none.mp4")
