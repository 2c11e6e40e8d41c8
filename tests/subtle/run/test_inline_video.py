"""Clips whose frames and seconds are known, as a page carries them."""

import base64
import io

import av
import numpy as np
import pytest

from subtle.run.inline_video import clip_data_url


def write_video(path, num_frames, frames_per_second):
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=frames_per_second)
        stream.width, stream.height, stream.pix_fmt = 32, 32, "yuv420p"
        for number in range(num_frames):
            image = np.full((32, 32, 3), number % 256, np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode())


@pytest.mark.parametrize(
    ("num_frames", "span", "seconds", "shown"),
    [
        (8, (None, None), 1, 8),
        (160, (None, None), 20, 90),
        (160, (2.0, 18.0), 16, 90),
        (160, (2.0, 4.0), 2, 16),
    ],
)
def test_an_encoded_clip_plays_at_the_speed_of_the_video(tmp_path, num_frames, span, seconds, shown):
    path = tmp_path / "video.mp4"
    write_video(path, num_frames, 8)
    url = clip_data_url({"video": str(path), "start_seconds": span[0], "end_seconds": span[1]})
    with av.open(io.BytesIO(base64.b64decode(url.removeprefix("data:video/mp4;base64,")))) as container:
        frames = list(container.decode(video=0))
        assert float(container.duration / av.time_base) == pytest.approx(seconds, rel=0.02)
    assert len(frames) == shown


def test_a_clip_without_a_readable_video_or_a_valid_span_has_no_url(tmp_path):
    write_video(tmp_path / "video.mp4", 8, 8)
    gone = {"video": str(tmp_path / "gone.mp4"), "start_seconds": None, "end_seconds": None}
    assert clip_data_url(gone) is None
    assert clip_data_url(gone | {"video": None}) is None
    assert clip_data_url({"video": str(tmp_path / "video.mp4"), "start_seconds": 1.0, "end_seconds": 1.0}) is None
