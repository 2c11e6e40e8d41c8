"""The frames of the moments of many videos: decoded once, in the same batches whoever decodes, in little memory."""

import subprocess
import sys
from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from videos import number_of, write_video

from hf_datasets.footage.files import VideoFile, find_videos
from hf_datasets.footage.moments import VideoMoment, Windows, cut_moments
from hf_datasets.video import read_frames
from hf_datasets.video.pool import VideoReaderPool
from hf_datasets.video.pyav import OpenVideo
from hf_datasets.video.spans import read_spans
from hf_datasets.video.timeline import Timeline
from subtle.footage.planning import FilePlan, ReadFile
from subtle.footage.reading import GroupEnd, GroupReader, MomentBatch, read_ahead
from subtle.footage.sources import WantedFile, folder_source

NUM_FRAMES, RATE = 110, 25
SIZE = 48


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("videos")
    for number, suffix in enumerate((".mp4", ".mkv", ".avi", ".ts", ".mp4")):
        write_video(folder / f"{number}{suffix}", NUM_FRAMES)
    (folder / "3a.mp4").write_bytes((folder / "0.mp4").read_bytes()[:2000])
    return folder


def read(files, *, num_workers=0, batch_size=3, moments_per_read=2, per_group=2):
    groups = [files[start : start + per_group] for start in range(0, len(files), per_group)]
    with VideoReaderPool(4, num_workers=num_workers, size=SIZE, reader=read_spans) as pool:
        reader = GroupReader(pool, 4, batch_size=batch_size, moments_per_read=moments_per_read)
        return list(read_ahead(reader, groups))


def batches(messages):
    return [message for message in messages if isinstance(message, MomentBatch)]


def ends(messages):
    return [[file.wanted.file.video for file in message.files] for message in messages if isinstance(message, GroupEnd)]


def test_each_frame_of_a_folder_is_decoded_once_and_each_moment_has_its_own(folder, monkeypatch):
    decoded = Counter()
    feed = OpenVideo._feed

    def counting(self, packet):
        frames = feed(self, packet)
        for frame in frames:
            pixels = torch.from_numpy(frame.to_ndarray(format="rgb24")).permute(2, 0, 1)
            decoded[self.path, number_of(pixels)] += 1
        return frames

    files = folder_source(folder, Windows(1.0, 0.2)).files
    with monkeypatch.context() as patched:
        patched.setattr(OpenVideo, "_feed", counting)
        messages = read(files)
    assert max(decoded.values()) == 1
    assert len({path for path, _ in decoded}) == 5
    moments = [one for batch in batches(messages) for one in zip(batch.moments, batch.frames, strict=True)]
    assert len(moments) == 5 * 18
    for moment, frames in moments[::7]:
        alone = read_frames(
            folder / moment.video, 4, moment.start_seconds, moment.end_seconds, size=SIZE, spread="seconds"
        )
        assert torch.equal(frames, alone.frames)
        assert frames.stride() == alone.frames.stride(), "models see the same memory"
    assert ends(messages) == [["0.mp4", "1.mkv"], ["2.avi", "3.ts"], ["3a.mp4", "4.mp4"]]


def test_batches_are_the_same_whoever_decodes(folder):
    files = folder_source(folder, Windows(1.0, 0.2)).files
    expected = read(files)
    for options in ({"num_workers": 2}, {"num_workers": 2, "moments_per_read": 30}):
        found = read(files, **options)
        for one, other in zip(batches(expected), batches(found), strict=True):
            assert one.moments == other.moments
            assert all(map(torch.equal, one.frames, other.frames))
        assert ends(found) == ends(expected)


def test_a_group_has_the_same_batches_whatever_was_read_before(folder):
    files = folder_source(folder, Windows(1.0, 0.2)).files
    last = [[moment.moment_id for moment in batch.moments] for batch in batches(read(files[4:]))]
    whole = [[moment.moment_id for moment in batch.moments] for batch in batches(read(files))]
    assert whole[-len(last) :] == last


def test_a_broken_file_is_named_and_the_others_are_read(folder):
    messages = read(folder_source(folder, Windows(1.0, 0.2)).files)
    files = [file for message in messages if isinstance(message, GroupEnd) for file in message.files]
    assert [file.wanted.file.video for file in files if file.reason] == ["3a.mp4"]


def test_frames_that_do_not_decode_leave_the_moments_what_reading_them_alone_gives(tmp_path):
    path = write_video(tmp_path / "a.ts", NUM_FRAMES)
    content = bytearray(path.read_bytes())
    for place in range(len(content) // 2 // 188 * 188, len(content) // 2 // 188 * 188 + 188 * 6, 188):
        content[place + 12 : place + 188] = bytes(176)
    path.write_bytes(content)
    messages = read(folder_source(tmp_path, Windows(1.0, 0.2)).files)
    (end,) = (message for message in messages if isinstance(message, GroupEnd))
    moments = [one for batch in batches(messages) for one in zip(batch.moments, batch.frames, strict=True)]
    assert len(moments) + len(end.files[0].failures) == len(end.files[0].moments)
    for moment, frames in moments:
        alone = read_frames(path, 4, moment.start_seconds, moment.end_seconds, size=SIZE, spread="seconds")
        assert torch.equal(frames, alone.frames), moment


def test_a_file_that_was_cut_off_is_indexed_as_far_as_it_goes_and_named(tmp_path):
    whole = write_video(tmp_path / "a.mp4", NUM_FRAMES, container_options={"movflags": "faststart"})
    whole.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    messages = read(folder_source(tmp_path, Windows(1.0, 0.5)).files)
    (end,) = (message for message in messages if isinstance(message, GroupEnd))
    assert 0 < end.files[0].as_row()["num_moments"] < 7
    assert any("its header says 4.4 s" in reason for reason in end.files[0].failures.values())


def test_two_hours_of_windows_wait_for_few_frames():
    """Planned and put together with frames of one pixel that show their number."""
    num_frames = 2 * 3600 * RATE
    keyframes = np.arange(0, num_frames, 250)
    timeline = Timeline(
        np.arange(num_frames), keyframes, keyframes, num_frames, Fraction(1, RATE), Fraction(0), Fraction(RATE),
        by_number=False, promised_seconds=7200.0,
    )  # fmt: skip
    moments = cut_moments("a.mp4", Windows(4.0, 2.0).spans(7200.0))
    moments.append(VideoMoment("whole", "a.mp4", 0.0, 7200.0))
    assert len(moments) == 3600
    file = ReadFile(WantedFile(VideoFile("a.mp4", Path("a.mp4"), 1, 1)), moments=moments)
    plan = FilePlan(file, timeline, 12, 96)
    keys = [key for one in plan.reads for key in one.keys]
    assert keys == sorted(set(keys)), "each frame is read once"
    assert max(len(one.keys) for one in plan.reads) <= 2 * 96
    complete, most = [], 0
    for number, one in enumerate(plan.reads):
        pixels = {key: np.array([[[key]]], np.int64) for key in one.keys}
        complete += plan.add(number, pixels)
        most = max(most, len(plan.kept))
    assert len(complete) == 3600
    assert most <= 12 + 3 * 12
    moment, frames = complete[1000]
    first = round(moment.start_seconds * RATE)
    assert frames.flatten().tolist() == [first + index for index in (3, 11, 20, 28, 36, 45, 53, 61, 70, 78, 86, 95)]
    assert complete[-1][0].moment_id in {"whole", moments[-2].moment_id}


def test_a_file_that_vanishes_before_it_is_read_is_left_for_the_next_run(tmp_path):
    write_video(tmp_path / "a.mp4", 30)
    files, _ = find_videos(tmp_path)
    (tmp_path / "a.mp4").unlink()
    (end,) = read([WantedFile(file, windows=Windows(1.0, 0.5)) for file in files])
    assert not end.files[0].is_lasting


def test_a_worker_process_imports_neither_torch_nor_transformers(folder):
    program = (
        "import sys; sys.argv[0] = ''\n"
        "from hf_datasets.video import worker\n"
        "worker._imported_reader({'reader': 'hf_datasets.video.spans:read_spans', 'options': {'backend': 'auto'}})\n"
    )
    command = [sys.executable, "-X", "importtime", "-c", program]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in run.stderr.splitlines()}
    assert {"av", "numpy", "hf_datasets"} <= imported
    assert not imported & {"torch", "torchvision", "transformers", "datasets", "pandas", "pyarrow", "polars", "lancedb"}
