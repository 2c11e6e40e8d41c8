"""`subtle check` on the data that the rehearsal draws: what it counts is what a run would get, and what it names."""

import json
import re
import shlex
import shutil
from pathlib import Path

import datasets
import pytest

import hf_datasets  # noqa: F401 registers the names
from subtle.checking.check import main
from subtle.checking.options import CheckConfig
from subtle.commands import SECOND_WORDS
from subtle.options import parse_config
from subtle.table.options import options_of_kind
from tests.fixtures.verbs import options_of


@pytest.fixture
def check(tmp_path, monkeypatch, capsys):
    """Checks folders: the exit status, what is printed, and what `results.json` holds."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")

    def run(paper, data_dir, video_dir=None):
        config = CheckConfig(str(tmp_path / "out"), video_dir and str(video_dir), str(data_dir))
        status = main(paper, config)
        written = json.loads((tmp_path / "out" / paper / "results.json").read_text())
        return status, capsys.readouterr().out, written

    return run


@pytest.mark.parametrize(
    ("paper", "part", "name", "config", "data", "videos"),
    [
        ("tfcovr", "TF-CoVR, release", "tfcovr", "release-clips", "tfcovr", "videos"),
        ("comp", "activitynet_comp", "activitynet_comp", "release", "video_comp", "activitynet_videos"),
        ("fig", "charades_fig", "charades_fig", "release", "charades_fig", "charades_fig_videos"),
        *(
            pytest.param(*row, marks=pytest.mark.slow)
            for row in (
                ("tfcovr", "FineGym and FineDiving", "tfcovr", "source-clips", "tfcovr", "videos"),
                ("comp", "youcook2_comp", "youcook2_comp", "release", "video_comp", "youcook2_videos"),
                ("fig", "activitynet_fig", "activitynet_fig", "release", "activitynet_fig", "activitynet_fig_videos"),
            )
        ),
    ],
)
def test_it_counts_what_the_dataset_loads(check, drawn, paper, part, name, config, data, videos):
    folders = {"data_dir": str(drawn / "data" / data), "video_dir": str(drawn / "data" / videos)}
    status, _, results = check(paper, *folders.values())
    splits = datasets.load_dataset(name, config, **folders).values()
    rows = [row for split in splits for row in split]
    found = results["videos"][part]
    damaged = {path for path in found["damaged"] if paper == "tfcovr"}
    assert status == 0
    assert results["figures"][part]["items"] == len(rows)
    assert found["items"] == sum(row["video"] is not None and row["video"] not in damaged for row in rows)
    assert found["found"] == len({row["video"] for row in rows} - {None})


def test_the_ids_of_videos_that_are_gone_are_a_file(check, drawn, tmp_path):
    check("tfcovr", drawn / "data/tfcovr", drawn / "data/videos")
    check("fig", drawn / "data/activitynet_fig", drawn / "data/activitynet_fig_videos")
    assert (tmp_path / "out/tfcovr/missing_videos.txt").read_text() == "GONEvideo_0\n"
    assert (tmp_path / "out/fig/missing_videos.txt").read_text() == "ANETfigs_13\n"


@pytest.mark.parametrize(
    ("paper", "data", "videos"),
    [("tfcovr", "tfcovr", "videos"), ("comp", ".", "activitynet_videos"), ("fig", "didemo_fig", "didemo_fig_videos")],
)
def test_each_table_comes_with_a_command_that_can_be_typed(check, drawn, paper, data, videos):
    _, printed, results = check(paper, drawn / "data" / data, drawn / "data" / videos)
    assert "US dollars" in printed
    assert all("no" not in row["can be filled"] for row in results["tables"] if "youcook2" not in row["rows"])
    for row in results["tables"]:
        typed = re.sub(r"^accelerate launch \$\(subtle path (\w+)\)", r"subtle \1", row["command"])
        _, verb, *words = shlex.split(typed)
        name = f"{verb}_{words.pop(0)}" if verb in SECOND_WORDS else verb
        config = parse_config(options_of_kind(words) if verb == "table" else options_of(name), None, words)
        assert str(drawn) in {str(value)[: len(str(drawn))] for value in vars(config).values()}


def cut_in_the_middle(videos):
    """A video whose table of frames comes first, of which the download stopped without a trace in its name."""
    import av

    path = videos / "FineGym/TRAINvid_02.mkv"
    with (
        av.open(str(path)) as source,
        av.open(str(path.with_suffix(".mp4")), "w", options={"movflags": "faststart"}) as copy,
    ):
        stream = copy.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(source.streams.video[0]):
            if packet.size:
                packet.stream = stream
                copy.mux(packet)
    path.unlink()
    whole = path.with_suffix(".mp4").read_bytes()
    path.with_suffix(".mp4").write_bytes(whole[: len(whole) * 3 // 4])


def other_version(data):
    path = data / "FineGym/finegym_annotation_info_v1.1.json"
    path.rename(path.with_name("finegym_annotation_info_v1.0.json")).write_text(
        path.with_name("finegym_annotation_info_v1.0.json").read_text().replace("A_0003", "A_0009")
    )


def test_what_is_wrong_is_named_with_its_number(check, drawn, tmp_path):
    data, videos = (Path(shutil.copytree(drawn / "data" / name, tmp_path / name)) for name in ("tfcovr", "videos"))
    dives = videos / "FINADiving_MTL_256s/01"
    shutil.copy(videos / "FineGym/TRAINvid_03.mp4", videos / "FineGym/TRAINvid_01.mp4")  # beside TRAINvid_01.MP4
    cut_in_the_middle(videos)
    (dives / "0/00005.jpg").unlink()
    for frame in (dives / "1").iterdir():
        frame.rename(frame.with_name(f"frame{frame.name}"))
    other_version(data)
    (data / "FineDiving/FineDiving_fine-grained_annotation.pkl").write_bytes(b"half")
    status, printed, results = check("tfcovr", data, videos)
    assert status == 0
    said = results["videos"]["TF-CoVR, release"]
    assert said["ambiguous"] == ["TRAINvid_01"]
    for what in (
        "several files: ",
        "HALFvideo_0.mp4: cannot be opened",
        "TRAINvid_02.mp4: ends after",
        "1 of the frames 00001.jpg to 00012.jpg are missing, the first 00005.jpg",
        "downloads that have not ended; fetch them again: 1: ",
        f"folders of pictures that are not read; name them 00001.jpg, 00002.jpg, ...: 1: {dives / '1'}",
        "of 60 gymnastics clips are not in ",
        "cannot be used: ",
    ):
        assert what in printed, what


def test_annotations_that_are_not_there_or_not_readable_are_named(check, tmp_path):
    status, printed, _ = check("comp", tmp_path)
    assert status == 1
    assert "activitynet_comp_train.json" in printed
    (tmp_path / "charades_fig_test.jsonl").write_text("{}\n")
    status, printed, _ = check("fig", tmp_path)
    assert status == 1
    assert "cannot be used: " in printed
    for data_dir in (str(tmp_path / "nowhere"), None):
        with pytest.raises(ValueError, match="no such folder of annotations; give it with --data_dir"):
            main("fig", CheckConfig(data_dir=data_dir))


@pytest.mark.parametrize(
    ("paper", "folder", "counts"),
    [
        ("fig", "charades_fig", {"charades_fig/train": (12_408, 12_408), "charades_fig/test": (3_720, 3_720)}),
        ("fig", "didemo_fig", {"didemo_fig/validation": (4_175, 4_175), "didemo_fig/test": (4_013, 4_013)}),
    ],
)
def test_the_published_annotations_have_the_counts_of_the_papers(check, shared, paper, folder, counts):
    _, _, results = check(paper, shared / "data" / folder)
    found = {of: tuple(row["moments"][key] for key in ("paper", "here")) for of, row in results["statistics"].items()}
    assert {of: found[of] for of in counts} == counts
