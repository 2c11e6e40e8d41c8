"""Paths that are not videos are refused by all that open videos, without waiting for them."""

import os
import socket
import threading

import av
import pytest

from hf_datasets.tfcovr import clips
from hf_datasets.video import VideoError, VideoLimits, read_frames
from hf_datasets.video.pyav import FORMATS
from hf_models.tfcovr import video_processing_aim as processor
from tests.fixtures.videos import write_video

PATIENCE_SECONDS = 20
READERS = {
    "frames": lambda path: read_frames(path, 2),
    "length": lambda path: clips.read_header(str(path))[0],
    "processor": lambda path: processor.decode_frames(str(path)),
}


def refuses(read, path):
    """Whether reading is refused at once: by an error that names the file, or as a length that is not known."""
    outcome = []

    def attempt():
        try:
            outcome.append(read(path) is None)
        except (VideoError, FileNotFoundError, ValueError) as error:
            outcome.append(path.name in str(error))

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    thread.join(PATIENCE_SECONDS)
    return outcome == [True]


def listening_socket(path):
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(path.name)  # relative, because such an address must be short


def link_to_a_device(path):
    path.symlink_to("/dev/zero")


def loop(path):
    path.symlink_to(path)


@pytest.mark.parametrize("make", [os.mkfifo, listening_socket, link_to_a_device, loop, os.mkdir])
@pytest.mark.parametrize("reader", READERS)
def test_a_path_that_is_not_an_ordinary_file_is_refused_without_opening_it(tmp_path, monkeypatch, reader, make):
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "wrong.mp4")
    assert refuses(READERS[reader], tmp_path / "wrong.mp4")


@pytest.mark.parametrize("content", ["ffconcat version 1.0\nfile good.mp4\n", "#EXTM3U\n#EXTINF:1,\ngood.mp4\n"])
@pytest.mark.parametrize("reader", READERS)
def test_a_file_that_points_to_other_files_is_refused(tmp_path, reader, content):
    write_video(tmp_path / "good.mp4", 5)
    (tmp_path / "wrong.mp4").write_text(content)
    assert not refuses(READERS[reader], tmp_path / "good.mp4")
    assert refuses(READERS[reader], tmp_path / "wrong.mp4")


LENIENT = {"metadata_errors": "surrogateescape"} if int(av.__version__.split(".")[0]) < 19 else {}


def as_pyav_19_opens(path, *, options, opened=av.open):
    """It lost the arguments about the encoding of metadata, and reads any."""
    return opened(path, options=options, **LENIENT)


@pytest.mark.parametrize("is_19", [False, True], ids=["installed", "19"])
@pytest.mark.parametrize("reader", READERS)
def test_a_video_whose_metadata_have_another_encoding_is_read_by_every_version_of_pyav(
    tmp_path, monkeypatch, reader, is_19
):
    path = write_video(tmp_path / "film.mp4", 5)
    path.write_bytes(path.read_bytes().replace(b"Lavf", b"L\xe9vf"))  # the name of the program that wrote it
    if is_19:
        monkeypatch.setattr(av, "open", as_pyav_19_opens)
        monkeypatch.setattr(av, "__version__", "19.0.2")
    assert READERS[reader](path) is not None


def test_a_path_that_cannot_be_accessed_is_an_error_about_the_video(tmp_path):
    (tmp_path / "loop.mp4").symlink_to("loop.mp4")
    with pytest.raises(VideoError, match=r"loop\.mp4: no such video file \(Too many levels of symbolic links\)"):
        read_frames(tmp_path / "loop.mp4", 2)
    with pytest.raises(VideoError, match="no such video file \\(File name too long\\)"):
        read_frames(tmp_path / ("a" * 300 + ".mp4"), 2)
    for path in (f"{tmp_path}/a\0.mp4", tmp_path / "none.mp4", "http://localhost/a.mp4"):
        with pytest.raises(VideoError, match="no such video file"):
            read_frames(path, 2)


def test_the_processor_and_the_reader_have_the_same_limits(tmp_path, monkeypatch):
    assert processor.FORMATS == FORMATS
    assert VideoLimits().max_pixels == processor.MAX_PIXELS
    assert VideoLimits().max_duration_seconds == processor.MAX_DURATION_SECONDS
    path = str(write_video(tmp_path / "video.mp4", 50))
    monkeypatch.setattr(processor, "MAX_DURATION_SECONDS", 1)
    with pytest.raises(ValueError, match=r"video\.mp4': 128 x 96 pixels and 2 s exceed"):
        processor.decode_frames(path)
    monkeypatch.setattr(processor, "MAX_PIXELS", 128 * 96 - 1)
    with pytest.raises(ValueError, match="exceed 12287 pixels"):
        processor.decode_frames(path)
