"""Video files of a folder: at any depth, never outside it."""

import hashlib
import os
import shutil

import pytest

from hf_datasets.footage.files import file_fingerprint, find_videos, path_of_video
from hf_datasets.video import VideoError


def test_videos_are_found_at_any_depth_in_order(tmp_path):
    for name in ("b.MP4", "a/c.mkv", "a/it's.webm", "notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"12345")
    files, rejections = find_videos(tmp_path)
    assert [(file.video, file.size) for file in files] == [("a/c.mkv", 5), ("a/it's.webm", 5), ("b.MP4", 5)]
    assert not rejections
    assert all(file.is_unchanged for file in files)
    (tmp_path / "b.MP4").write_bytes(b"1")
    (tmp_path / "a/c.mkv").unlink()
    assert [file.is_unchanged for file in files] == [False, True, False]


def test_what_leads_out_of_the_folder_is_refused(tmp_path):
    (tmp_path / "secret.mp4").write_bytes(b"1")
    folder = tmp_path / "videos"
    folder.mkdir()
    (folder / "link.mp4").symlink_to(tmp_path / "secret.mp4")
    (folder / "loop.mp4").symlink_to(folder / "loop.mp4")
    (folder / "nothing.mp4").symlink_to(folder / "gone.mp4")
    (folder / "elsewhere").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe.mp4")
    files, rejections = find_videos(folder)
    assert not files
    kinds = sorted(rejection.reason.partition(":")[0] for rejection in rejections)
    unreachable = "file that cannot be reached"
    assert kinds == [unreachable, unreachable, "link out of the folder", "unusable video"]
    with pytest.raises(OSError, match="a pipe, socket or device"):
        file_fingerprint(folder / "pipe.mp4")


@pytest.mark.parametrize("name", ["two\nlines.mp4", "bell\x07.mp4", "back\\slash.mp4"])
def test_a_name_that_no_search_could_open_is_refused_with_the_cure(tmp_path, name):
    (tmp_path / name).touch()
    (tmp_path / "good.mp4").touch()
    files, (rejection,) = find_videos(tmp_path)
    assert [file.video for file in files] == ["good.mp4"]
    assert rejection.reason == f"file name with a control character or a backslash: {name!r}; rename it"


def test_a_fingerprint_is_of_the_whole_content(tmp_path):
    path = tmp_path / "a.mp4"
    content = bytes(range(256)) * 10_000
    path.write_bytes(content)
    assert file_fingerprint(path) == f"{hashlib.blake2b(content, digest_size=20).hexdigest()}-{len(content)}"


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(NotADirectoryError, match="is not a folder"):
        find_videos(tmp_path / "videos")


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
