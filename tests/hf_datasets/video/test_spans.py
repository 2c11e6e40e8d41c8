"""Frames of many clips of a video: those that each clip has alone, and none of them decoded twice."""

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
import torch
from videos import number_of, write_video

from hf_datasets.video import read_frames
from hf_datasets.video import timeline as timelines
from hf_datasets.video.failures import VideoFailure
from hf_datasets.video.pool import VideoReaderPool, VideoRequest
from hf_datasets.video.pyav import OpenVideo
from hf_datasets.video.spans import clip_keys, read_spans, request_of, timeline_of
from hf_datasets.video.worker_process import REQUESTS_PER_WORKER, WorkerProcess

NUM_FRAMES = 150
SPANS = [(start / 5, start / 5 + 1.3) for start in range(0, 24, 2)] + [(0.0, 6.0), (2.0, 2.1), (5.5, 9.0), (0.5, 0.51)]
OPEN_GOP = {"g": "12", "bf": "5", "b-pyramid": "normal", "x264-params": "open-gop=1:scenecut=0:b-adapt=0"}
VIDEOS = {
    "closed": (".mp4", {}),
    "open": (".mkv", {"options": OPEN_GOP}),
    "open-hevc": (".mp4", {"codec": "libx265", "options": {"x265-params": "keyint=12:bframes=4:log-level=none"}}),
    "transport": (".ts", {}),
    "numbered": (".avi", {}),
    "one-keyframe": (".mp4", {"options": {"g": "1000", "bf": "3", "sc_threshold": "0"}}),
    "edited": (".mp4", {"shift": -7, "container_options": {"use_editlist": "1"}}),
    "variable": (".mkv", {"ticks": [3 * n + n % 3 for n in range(NUM_FRAMES)], "time_base": Fraction(1, 75)}),
}


@pytest.fixture(scope="module", params=VIDEOS)
def video(request, tmp_path_factory):
    suffix, options = VIDEOS[request.param]
    return write_video(tmp_path_factory.mktemp("spans") / f"a{suffix}", NUM_FRAMES, **options)


@pytest.fixture(scope="module")
def alone(video):
    return [read_frames(video, 5, *span, size=48, spread="seconds").pixels for span in SPANS]


@pytest.fixture(scope="module")
def two_workers():
    with VideoReaderPool(5, num_workers=2, size=48, reader=read_spans) as pool:
        yield pool


@pytest.fixture
def decoded(monkeypatch):
    """How often the decoder gave each frame, by the number that the frame shows."""
    times = Counter()
    feed = OpenVideo._feed

    def counting(self, packet):
        frames = feed(self, packet)
        pixels = (torch.from_numpy(frame.to_ndarray(format="rgb24")).permute(2, 0, 1) for frame in frames)
        times.update(map(number_of, pixels))
        return frames

    monkeypatch.setattr(OpenVideo, "_feed", counting)
    return times


def read_all(pool, path, num_frames, spans, frames_per_read):
    """The frames of each clip, as whoever indexes a video reads them."""
    ((_, answer),) = pool.read([VideoRequest("plan", path, options={"find": "timeline"})])
    timeline = timeline_of(answer)
    keys = [clip_keys(timeline, *span, num_frames) for span in spans]
    reads = timeline.reads(sorted({key for one in keys for key in one}), frames_per_read)
    frames = {}
    requests = [request_of(number, path, read, timeline) for number, read in enumerate(reads)]
    for number, answer in pool.read_on_demand(iter(requests)):
        assert answer.indices == reads[number].keys
        frames |= zip(answer.indices, answer.pixels, strict=True)
    return reads, [np.stack([frames[key] for key in one]) for one in keys]


@pytest.mark.parametrize("frames_per_read", [4, pytest.param(60, marks=pytest.mark.slow)])
def test_each_clip_has_the_frames_that_it_has_alone_and_none_is_decoded_twice(video, alone, decoded, frames_per_read):
    with VideoReaderPool(5, num_workers=0, size=48, reader=read_spans) as pool:
        reads, together = read_all(pool, video, 5, SPANS, frames_per_read)
    assert len(reads) > 1 or frames_per_read == 60
    assert all(map(np.array_equal, alone, together))
    assert max(decoded.values()) == 1
    assert 60 < len(decoded) <= NUM_FRAMES


def test_workers_read_the_same(video, alone, two_workers):
    _, together = read_all(two_workers, video, 5, SPANS, 8)
    assert all(map(np.array_equal, alone, together))
    assert not two_workers.quarantine


def test_the_timeline_knows_the_end_and_survives_its_journey(video):
    timeline = timeline_of(read_spans(video, 1, find="timeline"))
    assert timeline.end_seconds == pytest.approx(6.0, abs=0.3)
    again = timelines.Timeline.unpacked(timeline.packed())
    for name in ("keys", "keyframes", "leading"):
        assert np.array_equal(getattr(again, name), getattr(timeline, name))
    assert (again.tick, again.origin, again.end_key) == (timeline.tick, timeline.origin, timeline.end_key)
    assert clip_keys(timeline, 9.0, 10.0, 4) == []


def test_a_read_is_small_also_where_decoding_cannot_start_anew(tmp_path, monkeypatch):
    path = write_video(tmp_path / "a.mp4", NUM_FRAMES, options={"g": "1000", "sc_threshold": "0"})
    monkeypatch.setattr(timelines, "MAX_FRAMES_TO_DECODE", 20)
    timeline = timeline_of(read_spans(path, 1, find="timeline"))
    assert len(timeline.keyframes) == 1
    reads = timeline.reads(list(map(int, timeline.keys)), 1000)
    assert len(reads) > NUM_FRAMES / 25
    assert max(len(read.keys) for read in reads) <= 25


def test_workers_read_one_clip_too(tmp_path, two_workers):
    video = write_video(tmp_path / "a.mp4", NUM_FRAMES)
    requests = [VideoRequest("one", video, 1.0, 2.0), VideoRequest("late", video, 9.0, 10.0)]
    answers = dict(two_workers.read(requests))
    assert not two_workers.quarantine
    assert len(answers["one"].frames) == 5
    assert isinstance(answers["late"], VideoFailure)


def test_requests_are_taken_when_there_is_room_and_those_of_a_lane_go_to_one_worker(tmp_path, two_workers, monkeypatch):
    video = write_video(tmp_path / "a.mp4", NUM_FRAMES)
    sent, taken, answered = [], 0, 0
    send = WorkerProcess.send

    def noting(self, number, request):
        sent.append((self.process.pid, request.lane))
        send(self, number, request)

    def requests():
        nonlocal taken
        for number in range(60):
            if number == 30 and taken > answered:
                yield None  # nothing for now
            taken += 1
            yield VideoRequest(number, video, number / 20, number / 20 + 1, lane=number % 4 or None)

    monkeypatch.setattr(WorkerProcess, "send", noting)
    for _ in two_workers.read_on_demand(requests()):
        answered += 1
        assert taken - answered <= 2 * REQUESTS_PER_WORKER + 3
    assert answered == 60
    assert len({worker for worker, _ in sent}) == 2
    assert all(len({worker for worker, lane in sent if lane == one}) == 1 for one in (1, 2, 3))
