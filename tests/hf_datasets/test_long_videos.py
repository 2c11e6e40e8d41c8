"""The configurations `*-videos`: one row for each long video, with a file or with bytes, to join clips to."""

import json
from pathlib import Path

import datasets
import polars as pl
import pytest
from datasets import ClassLabel, Dataset, Features, Value, Video

from hf_datasets.builders import BUILDERS, prepare
from hf_datasets.long_videos import VIDEO_FEATURES, with_paths
from hf_datasets.publish import write_folder

SPLITS = ("train", "validation", "test")
CARD = Path(__file__).parents[2] / "hf_datasets/tfcovr/README.md"
JOIN = """
import io, json, sys
import av
from datasets import Video, load_dataset

clips = load_dataset(sys.argv[1], "mini-clips", split="test")
videos = load_dataset(sys.argv[1], "mini-videos", split="test").cast_column("video", Video(decode=False))
files = {row["video_id"]: row for row in videos}
seconds = []
for clip in clips:
    with av.open(io.BytesIO(files[clip["video_id"]]["video"]["bytes"])) as file:
        seconds.append(file.duration / 1e6)
        assert clip["end_seconds"] <= seconds[-1] + 0.1
        assert abs(files[clip["video_id"]]["duration_seconds"] - seconds[-1]) < 0.1
assert not any(name.startswith(("hf_datasets", "hf_models")) for name in sys.modules)
streamed = load_dataset(sys.argv[1], "mini-videos", split="test", streaming=True).decode(False)
assert [row["video"]["bytes"][4:8] for row in streamed] == [b"ftyp"] * len(videos)
print(json.dumps([len(clips), len(videos), videos.features["split"].int2str(videos[0]["split"])]))
"""


@pytest.mark.parametrize("name", BUILDERS)
def test_the_miniature_of_every_name_has_each_long_video_once(name, miniature):
    videos = datasets.load_dataset(name, "mini-videos", data_dir=str(miniature))
    table = pl.read_parquet(miniature / "videos.parquet").sort("video_id")
    for split in SPLITS:
        part = videos[split].cast_column("video", Video(decode=False))
        assert videos[split].features == VIDEO_FEATURES
        expected = table.filter(pl.col("split") == split)
        assert part["video_id"][:] == expected["video_id"].to_list()
        assert part["duration_seconds"][:] == expected["duration_seconds"].to_list()
        assert part["frame_rate"][:] == [20.0] * len(part)
        assert part["video"][:] == [
            {"bytes": None, "path": str(miniature / "videos" / f"{video_id}.mp4")} for video_id in part["video_id"]
        ]
        assert set(part.features["split"].int2str(part["split"])) == {split}


def test_a_process_that_imports_nothing_of_ours_joins_published_clips_to_their_videos(miniature, tmp_path, warm_python):
    parts = {
        f"mini-{part}": {
            "test": datasets.load_dataset("tfcovr", f"mini-{part}", data_dir=str(miniature), split="test")
            .with_format("arrow")
            .iter(100)
        }
        for part in ("clips", "videos")
    }
    folder = write_folder(parts, tmp_path / "tfcovr", card=CARD)
    files = list((folder / "mini-videos").glob("test-*.parquet"))
    assert files
    assert not any(str(miniature).encode() in path.read_bytes() for path in files)
    done = warm_python.run(["-c", JOIN, folder], cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout) == [12, 2, "test"]


def test_own_videos_are_the_files_of_the_own_clips(miniature, tmp_path):
    (tmp_path / "own").mkdir()
    columns = ["clip_id", "video_id", "start_seconds", "end_seconds", "label", "split"]
    pl.read_parquet(miniature / "clips.parquet").select(columns).write_csv(tmp_path / "own" / "clips.csv")
    options = {"data_dir": str(tmp_path / "own"), "video_dir": str(miniature / "videos")}
    own = with_paths(datasets.load_dataset("tfcovr", "own-videos", **options))
    mini = with_paths(datasets.load_dataset("tfcovr", "mini-videos", data_dir=str(miniature)))
    for split in SPLITS:
        assert (
            own[split].remove_columns("duration_seconds").to_dict()
            == mini[split].remove_columns("duration_seconds").to_dict()
        )
        assert own[split]["duration_seconds"][:] == pytest.approx(mini[split]["duration_seconds"][:], abs=0.05)
    del options["video_dir"]
    with pytest.raises(ValueError, match="pass video_dir: the folder of the videos, of which 'own-videos'"):
        datasets.load_dataset("tfcovr", "own-videos", **options)


def test_options_without_effect_on_the_videos_are_refused(miniature):
    for name, options in (
        ("tfcovr", {"seed": 1}),
        ("activitynet_comp", {"seed": 1}),
        ("didemo_fig", {"video_dir": "."}),
    ):
        with pytest.raises(ValueError, match=f"{next(iter(options))} cannot be chosen for 'mini-videos'"):
            datasets.load_dataset(name, "mini-videos", data_dir=str(miniature), **options)


def test_the_videos_are_prepared_with_the_default_configuration(miniature, monkeypatch):
    monkeypatch.setattr("hf_datasets.miniature.prepare_miniature", lambda: miniature)
    assert set(prepare("tfcovr")) == set(prepare("youcook2_comp")) == {"mini", "mini-clips", "mini-videos"}


def test_paths_stand_in_place_of_videos_in_any_order_and_bytes_have_none(tmp_path):
    videos = ["/a.mp4", None, {"bytes": b"x", "path": "b.mp4"}, "/c.mp4"]
    features = Features(n=Value("int64"), video=Video(), split=ClassLabel(names=["a"]))
    rows = Dataset.from_dict({"n": range(4), "video": videos, "split": [0] * 4}, features=features)
    found = with_paths(rows)
    assert found["video"][:] == ["/a.mp4", None, None, "/c.mp4"]
    assert found.column_names == rows.column_names
    assert found.features["split"] == features["split"]
    assert with_paths(rows.select([3, 0]))["video"][:] == ["/c.mp4", "/a.mp4"]
    assert with_paths(found) is found
