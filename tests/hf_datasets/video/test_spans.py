"""Several clips of a video in one reading: the frames of each are those of reading it alone, none decoded twice."""

import numpy as np
import pytest
from colored_videos import write_colored_video

from hf_datasets.video.failures import VideoFailure, VideoSpanError
from hf_datasets.video.pool import VideoReaderPool, VideoRequest
from hf_datasets.video.pyav import OpenVideo
from hf_datasets.video.reading import read_pixels
from hf_datasets.video.spans import read_spans

COLORS = [(250, 10, 10), (10, 250, 10), (10, 10, 250), (250, 250, 10), (10, 250, 250)]
SPANS = [(0.0, 2.0), (1.0, 3.0), (2.0, 4.0), (2.3, 2.9), (4.5, 5.0)]


@pytest.fixture(scope="module", params=[".mp4", ".mkv", ".avi"])
def video(request, tmp_path_factory):
    return write_colored_video(tmp_path_factory.mktemp("spans") / f"a{request.param}", COLORS)


def test_each_clip_has_the_frames_that_it_has_alone(video):
    together = read_spans(video, 4, size=24, spans=SPANS)
    alone = [read_pixels(video, 4, *span, size=24) for span in SPANS]
    assert np.array_equal(together.pixels, np.concatenate([clip.pixels for clip in alone]))
    assert together.timestamps_seconds == tuple(time for clip in alone for time in clip.timestamps_seconds)
    assert together.num_frames_in_clip == sum(clip.num_frames_in_clip for clip in alone)


def test_no_frame_is_decoded_twice(video, monkeypatch):
    decoded = []
    decode = OpenVideo.decode

    def counting(self, keys, **options):
        for key, frame in decode(self, keys, **options):
            decoded.append(key)
            yield key, frame

    monkeypatch.setattr(OpenVideo, "decode", counting)
    read_spans(video, 8, spans=SPANS)
    assert len(decoded) == len(set(decoded)) > 20


def test_the_end_is_where_the_last_frame_ends(video):
    assert read_spans(video, 1, find="end").timestamps_seconds == pytest.approx((5.0,), abs=0.01)


def test_a_span_after_the_end_is_an_error(video):
    with pytest.raises(VideoSpanError, match="no frame in"):
        read_spans(video, 4, spans=[(0.0, 1.0), (7.0, 8.0)])


def test_workers_read_several_clips_too(tmp_path):
    video = write_colored_video(tmp_path / "a.mp4", COLORS)
    requests = [
        VideoRequest("several", video, options={"spans": SPANS}),
        VideoRequest("end", video, options={"find": "end"}),
        VideoRequest("one", video, 1.0, 2.0),
        VideoRequest("late", video, options={"spans": [[9.0, 10.0]]}),
    ]
    with VideoReaderPool(4, num_workers=1, size=24, reader=read_spans) as pool:
        answers = dict(pool.read(requests))
        assert not pool.quarantine
    assert np.array_equal(
        answers["several"].frames.permute(0, 2, 3, 1).numpy(), read_spans(video, 4, size=24, spans=SPANS).pixels
    )
    assert answers["end"].timestamps_seconds == pytest.approx((5.0,), abs=0.01)
    assert len(answers["one"].frames) == 4
    assert isinstance(answers["late"], VideoFailure)
