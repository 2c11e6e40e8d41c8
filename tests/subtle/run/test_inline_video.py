"""Clips whose frames and seconds are known, as a page carries them."""

import base64
import io

import av
import pytest
from colored_videos import write_colored_video

from subtle.run.inline_video import clip_data_url


def write_video(path, seconds):
    return write_colored_video(path, [(number, number, number) for number in range(seconds)])  # eight frames a second


@pytest.mark.parametrize(
    ("whole", "span", "seconds", "shown"),
    [(1, (None, None), 1, 8), (20, (None, None), 20, 90), (20, (2.0, 18.0), 16, 90), (20, (2.0, 4.0), 2, 16)],
)
def test_an_encoded_clip_plays_at_the_speed_of_the_video(tmp_path, whole, span, seconds, shown):
    path = write_video(tmp_path / "video.mp4", whole)
    url = clip_data_url({"video": str(path), "start_seconds": span[0], "end_seconds": span[1]})
    with av.open(io.BytesIO(base64.b64decode(url.removeprefix("data:video/mp4;base64,")))) as container:
        frames = list(container.decode(video=0))
        assert float(container.duration / av.time_base) == pytest.approx(seconds, rel=0.02)
    assert len(frames) == shown


def test_a_clip_without_a_readable_video_or_a_valid_span_has_no_url(tmp_path):
    path = write_video(tmp_path / "video.mp4", 1)
    gone = {"video": str(tmp_path / "gone.mp4"), "start_seconds": None, "end_seconds": None}
    assert clip_data_url(gone) is None
    assert clip_data_url(gone | {"video": None}) is None
    assert clip_data_url({"video": str(path), "start_seconds": 1.0, "end_seconds": 1.0}) is None
