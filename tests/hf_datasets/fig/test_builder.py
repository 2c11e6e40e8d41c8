"""`load_dataset` of the three *-FIG names: the miniature, a built folder, parameters and the corpus of videos."""

import json
from pathlib import Path

import datasets
import polars as pl
import pyarrow as pa
import pytest

import hf_datasets  # noqa: F401 registers the names
from hf_datasets.fig.builder import FIG
from hf_datasets.fig.moments import MOMENT_SCHEMA, VIDEO_SCHEMA, check_moments, locate_videos
from hf_datasets.long_videos import with_paths
from hf_datasets.publish import write_folder
from hf_datasets.video import VideoError

NAMES = ("charades_fig", "didemo_fig", "activitynet_fig")
SPLITS = ("train", "validation", "test")
ROW = {
    "video": "58792004@N06_8544469262_fd25eddb2e",
    "time": [25, 30],
    "desc_id": 29447,
    "duration": 38.57,
    "cog_desc": "a baby shakes",
    "fig_desc": "A baby in white shakes.",
    "fig_desc_score": 2.375,
}


@pytest.fixture
def didemo(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "didemo_fig_test.jsonl").write_text(json.dumps(ROW) + "\n")
    return tmp_path / "data"


@pytest.fixture
def built(tmp_path, card):
    """A folder as `recipes/build.py fig` writes it."""
    schema = MOMENT_SCHEMA.append(pa.field("kind", pa.string())).append(pa.field("candidates", pa.list_(pa.string())))
    row = {"desc_id": 1, "video_id": "a", "duration_seconds": 9.0, "start_seconds": 1.0, "end_seconds": 4.0}
    row |= {"coarse_caption": "A.", "fine_caption": "A b.", "fine_caption_score": None, "kind": "static"}
    row |= {"candidates": ["A b.", "A c."]}
    second = row | {"desc_id": 2, "video_id": "b", "fine_caption": " "}
    tables = {
        "train": [pa.Table.from_pylist([row, second], schema=schema)],
        "test": [pa.Table.from_pylist([row | {"desc_id": 3, "video_id": "c"}], schema=schema)],
    }
    return write_folder({"source": tables}, tmp_path / "built", card=card)


@pytest.mark.parametrize("name", NAMES)
def test_the_miniature_has_the_schema_in_every_split(name, miniature):
    rows = datasets.load_dataset(name, data_dir=str(miniature))
    assert {split: len(one) for split, one in rows.items()} == {"train": 18, "validation": 6, "test": 12}
    assert all(one.column_names == MOMENT_SCHEMA.names for one in rows.values())
    ids = [desc_id for one in rows.values() for desc_id in one["desc_id"]]
    assert len(set(ids)) == 36
    assert "Rendered athletes, not real video" in rows["test"].info.description
    assert rows["test"]["fine_caption_score"] == [None] * 12


def test_coarse_captions_say_the_action_and_fine_ones_the_details(miniature):
    clips = pl.read_parquet(miniature / "clips.parquet")
    rows = datasets.load_dataset("charades_fig", data_dir=str(miniature))["train"].to_polars()
    for row in rows.iter_rows(named=True):
        clip = clips.row(row["desc_id"], named=True)
        assert (row["video_id"], row["start_seconds"]) == (clip["video_id"], clip["start_seconds"])
        assert clip["socks_colour"] in row["fine_caption"]
        assert clip["hall_colour"] in row["fine_caption"]
        assert clip["socks_colour"] not in row["coarse_caption"]
        assert 0 <= row["start_seconds"] < row["end_seconds"] <= row["duration_seconds"]
    assert rows["fine_caption"].n_unique() > rows["coarse_caption"].n_unique()


@pytest.mark.parametrize("granularity", ["fine", "coarse"])
def test_granularity_gives_the_column_caption(granularity, miniature):
    rows = datasets.load_dataset("charades_fig", data_dir=str(miniature), granularity=granularity)["test"]
    assert rows.column_names == [*MOMENT_SCHEMA.names, "caption"]
    assert rows["caption"] == rows[f"{granularity}_caption"]


def test_the_corpus_has_every_video_once_with_its_file(miniature):
    videos = with_paths(datasets.load_dataset("charades_fig", "mini-videos", data_dir=str(miniature)))
    moments = datasets.load_dataset("charades_fig", data_dir=str(miniature))
    for split in SPLITS:
        assert videos[split].column_names == VIDEO_SCHEMA.names
        assert videos[split]["video_id"] == sorted(set(moments[split]["video_id"]))
        assert all(Path(path).is_file() for path in videos[split]["video"])
    assert "(1.000) are there" in videos["test"].info.description


def test_parameters_without_effect_or_with_an_unknown_value_are_refused(miniature, tmp_path):
    for config, parameters, says in (
        ("mini", {"video_dir": str(tmp_path)}, "video_dir cannot be chosen for 'mini'"),
        ("mini-videos", {"granularity": "fine"}, "granularity cannot be chosen for 'mini-videos'"),
        ("mini", {"granularity": "fig"}, "granularity='fig' is none of fine, coarse"),
        ("mini", {"data_dir": str(tmp_path)}, r"holds no clips\.parquet and no videos\.parquet"),
        ("mini", {"data_dir": str(tmp_path / "nowhere")}, "is not a folder"),
        ("source", {}, "pass data_dir"),
    ):
        with pytest.raises((ValueError, FileNotFoundError), match=says):
            datasets.load_dataset(
                "charades_fig", config, **({"data_dir": str(miniature)} if config != "source" else {}) | parameters
            )


@pytest.mark.parametrize("extension", [".mp4", ".avi", ".mov", ".3gp"])
def test_a_video_is_found_by_its_stem(extension, didemo, tmp_path):
    (tmp_path / "videos").mkdir()
    (tmp_path / "videos" / f"{ROW['video']}{extension}").touch()
    parameters = {"data_dir": str(didemo), "video_dir": str(tmp_path / "videos")}
    rows = datasets.load_dataset("didemo_fig", "release", **parameters)["test"]
    assert rows.column_names == [*MOMENT_SCHEMA.names, "video"]
    assert rows["video"] == [str(tmp_path / "videos" / f"{ROW['video']}{extension}")]
    videos = with_paths(datasets.load_dataset("didemo_fig", "release-videos", **parameters))["test"]
    assert videos["video"] == rows["video"]
    assert "1 of 1 videos (1.000) are there" in videos.info.description


def test_a_missing_video_is_null_an_ambiguous_one_an_error(didemo, tmp_path):
    (tmp_path / "videos").mkdir()
    parameters = {"data_dir": str(didemo), "video_dir": str(tmp_path / "videos")}
    rows = datasets.load_dataset("didemo_fig", "release", **parameters)["test"]
    assert rows["video"] == [None]
    assert "0 of 1 videos (0.000) are there" in rows.info.description
    for extension in (".mp4", ".mov"):
        (tmp_path / "videos" / f"{ROW['video']}{extension}").write_bytes(extension.encode())
    with pytest.raises(Exception, match="several files"):
        datasets.load_dataset("didemo_fig", "release", **parameters)


def test_activitynet_videos_are_found_with_and_without_their_prefix(tmp_path):
    for name in ("v_--a_B.mp4", "-c_D.mkv"):
        (tmp_path / name).touch()
    rows, coverage = locate_videos(pl.DataFrame({"video_id": ["v_--a_B", "v_-c_D", "v_none"]}), tmp_path)
    assert rows["video"].to_list() == [str(tmp_path / "v_--a_B.mp4"), str(tmp_path / "-c_D.mkv"), None]
    assert "2 of 3 videos" in coverage
    with pytest.raises(VideoError, match="refused"):
        locate_videos(pl.DataFrame({"video_id": ["../x"]}), tmp_path)


def test_a_built_folder_is_the_source_configuration(built):
    rows = datasets.load_dataset("charades_fig", "source", data_dir=str(built), granularity="coarse")
    assert {split: one["desc_id"][:] for split, one in rows.items()} == {"train": [1], "test": [3]}
    assert rows["train"][0] == dict(
        zip([*MOMENT_SCHEMA.names, "caption"], (1, "a", 9.0, 1.0, 4.0, "A.", "A b.", None, "A."), strict=True)
    )
    assert "1 rows were refused (1 x empty caption)" in rows["train"].info.description
    assert len(datasets.load_dataset(str(built))["train"]) == 2  # with all columns, as any Parquet folder


def test_a_folder_that_was_not_built_is_refused(tmp_path):
    (tmp_path / "folder" / "source").mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match=r"`subtle build fig` makes such a folder"):
        datasets.load_dataset("charades_fig", "source", data_dir=str(tmp_path / "folder"))
    (tmp_path / "folder" / "source" / "train-0.parquet").write_text("x")
    with pytest.raises(ValueError, match="is not a Parquet file"):
        datasets.load_dataset("charades_fig", "source", data_dir=str(tmp_path / "folder"))


def test_the_two_test_sets_of_activitynet_may_share_videos():
    row = {"video_id": "v_a", "duration_seconds": 9.0, "start_seconds": 0.0, "end_seconds": 1.0}
    row |= {"coarse_caption": "a", "fine_caption": "b", "fine_caption_score": 0.0}
    rows = pl.DataFrame([row | {"desc_id": 1, "split": "validation"}, row | {"desc_id": 2, "split": "test"}])
    assert len(check_moments(rows, source="here")[0]) == 2


def test_the_configurations_are_three_origins_with_their_videos():
    assert list(FIG.builder_configs) == [
        f"{origin}{part}" for origin in ("mini", "release", "source") for part in ("", "-videos")
    ]
