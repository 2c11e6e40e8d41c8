"""Ids come from annotation files and are not trusted."""

import os

import pytest

from hf_datasets.video import VideoError, VideoStore


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "videos"
    (root / "train").mkdir(parents=True)
    for name in [
        "-dash_E_001.mp4",
        "58792004@N06_8544469262.mov",
        "with.dots.1.MP4",
        "notes.txt",
        "train/nested.webm",
        "twice.mp4",
        "train/twice.avi",
    ]:
        (root / name).touch()
    return root


@pytest.mark.parametrize(
    ("video_id", "file"),
    [
        ("-dash_E_001", "-dash_E_001.mp4"),
        ("58792004@N06_8544469262", "58792004@N06_8544469262.mov"),
        ("with.dots.1", "with.dots.1.MP4"),
        ("with.dots.1.MP4", "with.dots.1.MP4"),
        ("nested", "train/nested.webm"),
        ("train/nested", "train/nested.webm"),
        ("train/twice", "train/twice.avi"),
        ("twice.mp4", "twice.mp4"),
    ],
)
def test_an_id_is_a_file_by_its_stem(root, video_id, file):
    assert VideoStore(root).path(video_id) == root / file


@pytest.mark.parametrize("video_id", ["Nested", "with", "with.dots", "notes", "", ".", "nested.mp4"])
def test_an_id_without_a_file_is_an_error_that_names_the_folder(root, video_id):
    with pytest.raises(VideoError, match=f"is not under {root}"):
        VideoStore(root).path(video_id)


def test_two_files_of_one_id_are_refused(root):
    with pytest.raises(VideoError, match=r"'twice' is ambiguous: .*train/twice\.avi, .*twice\.mp4"):
        VideoStore(root).path("twice")


@pytest.mark.parametrize(
    "video_id",
    [
        "../secret",
        "train/../../secret",
        "..",
        "/etc/passwd",
        "C:\\secret",
        "C:secret",
        "a\\b",
        "a\x00b",
        "a\nb",
        "a\x1b[0m",
        "\x85",
    ],
)
def test_an_id_that_could_leave_the_folder_is_refused(root, video_id):
    (root.parent / "secret.mp4").touch()
    store = VideoStore(root)
    with pytest.raises(VideoError, match="is refused"):
        store.path(video_id)
    with pytest.raises(VideoError, match="is refused"):
        store.coverage(["nested", video_id])


def test_links_out_of_the_folder_are_refused(root):
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "secret.mp4").touch()
    (root / "link.mp4").symlink_to(outside / "secret.mp4")
    (root / "folder").symlink_to(outside)
    store = VideoStore(root)
    with pytest.raises(VideoError, match=r"link\.mp4 is a link that leaves"):
        store.path("link")
    with pytest.raises(VideoError, match="is not under"):
        store.path("secret")
    with pytest.raises(VideoError, match="is not under"):
        store.path("folder/secret")


def test_a_loop_of_links_is_an_error_that_names_it(root):
    (root / "loop.mp4").symlink_to(root / "pool.mp4")
    (root / "pool.mp4").symlink_to(root / "loop.mp4")
    store = VideoStore(root)
    with pytest.raises(VideoError, match=r"loop\.mp4: cannot be followed \(.*symbolic links\)"):
        store.path("loop")
    with pytest.raises(VideoError, match=r"loop\.mp4"):
        store.coverage(["nested", "loop"])


def test_a_link_within_the_folder_is_the_file_it_names(root):
    (root / "train" / "-dash_E_001.mp4").symlink_to(root / "-dash_E_001.mp4")
    assert VideoStore(root).path("-dash_E_001").resolve() == root / "-dash_E_001.mp4"


def test_coverage_counts_each_id_once_as_found_missing_or_ambiguous(root):
    coverage = VideoStore(root).coverage(["nested", "gone", "twice", "nested", "-dash_E_001"])
    assert coverage.found == ("nested", "-dash_E_001")
    assert coverage.missing == ("gone",)
    assert coverage.ambiguous == ("twice",)
    assert coverage.fraction == 0.5
    assert VideoStore(root).coverage([]).fraction == 1.0


def test_the_folder_is_listed_once(root, monkeypatch):
    listings = []
    walk = os.walk
    monkeypatch.setattr(os, "walk", lambda *args: listings.append(args) or walk(*args))
    store = VideoStore(root)
    assert not listings
    store.coverage(str(number) for number in range(100))
    store.path("nested")
    assert len(listings) == 1


def test_a_root_that_is_not_a_folder_is_refused(tmp_path):
    with pytest.raises(VideoError, match="no such folder of videos"):
        VideoStore(tmp_path / "none")
