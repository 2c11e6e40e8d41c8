"""`load_dataset("tfcovr")` in its configurations, on a small miniature and on upstream files made here."""

import json
import pickle
import sys
from pathlib import Path

import datasets
import numpy as np
import polars as pl
import pytest
from PIL import Image

import hf_datasets
from hf_datasets.__main__ import main
from hf_datasets.class_labels import with_names
from hf_datasets.publish import write_folder
from hf_datasets.tfcovr.annotations import SOURCE_HELP
from hf_datasets.tfcovr.clips import CLIP_SCHEMA, check_clips, locate_clips
from hf_datasets.tfcovr.labels import answers_of, find_label
from hf_datasets.tfcovr.triplets import TRIPLET_SCHEMA
from hf_datasets.video import VideoError, read_frames

LABELS = ("40", "41", "134", "136", "103b", "107b")
SPLITS = ("train", "validation", "test")


@pytest.fixture
def upstream(tmp_path):
    """FineGym with 20 long videos of three labels each, and 20 dives in ten competitions."""
    folder = tmp_path / "upstream"
    folder.mkdir()
    videos, lines = {}, []
    for number in range(20):
        video_id = f"-Hv_d_vqJ{number:02}"
        segments = {}
        for place, label in enumerate(("51", "41", "136")):
            segments[f"A_{place:04}_{place + 1:04}"] = {"stages": 1, "timestamps": [[place, place + 0.9]]}
            lines.append(f"{video_id}_E_000100_000110_A_{place:04}_{place + 1:04} {label}")
        videos[video_id] = {"E_000100_000110": {"event": 2, "timestamps": [[100.0, 110.0]], "segments": segments}}
    (folder / "finegym_annotation_info_v1.1.json").write_text(json.dumps(videos))
    (folder / "gym288_train_element_v1.1.txt").write_text("\n".join(lines[:30]))
    (folder / "gym288_val_element.txt").write_text("\n".join([*lines[30:], "x 1"]))
    dives = {
        (f"{place // 2:02}", place): {"action_type": ("103b", "107b")[place % 2], "frames_labels": np.zeros(3, int)}
        for place in range(20)
    }
    (folder / "FineDiving_fine-grained_annotation.pkl").write_bytes(pickle.dumps(dives))
    return folder


def test_the_miniature_has_the_schema_in_every_split(miniature):
    rows = datasets.load_dataset("tfcovr", data_dir=str(miniature))
    # Six pairs (40 and 41, 51 and 136, 103b and 107b, both ways) of three clips each, two in test.
    assert {split: len(part) for split, part in rows.items()} == {"train": 54, "validation": 6, "test": 12}
    for part in rows.values():
        assert part.features.arrow_schema.names == TRIPLET_SCHEMA.names
        assert part.features["target_clip_ids"] == datasets.List(datasets.Value("string"))
    clips = datasets.load_dataset("tfcovr", "mini-clips", data_dir=str(miniature))
    assert {split: len(part) for split, part in clips.items()} == {"train": 18, "validation": 6, "test": 12}
    assert clips["train"].features.arrow_schema.names == CLIP_SCHEMA.names
    of = {split: {clip["clip_id"]: clip for clip in part} for split, part in clips.items()}
    for split, part in rows.items():
        for row in part:
            assert of[split][row["query_clip_id"]]["label"] == row["query_label"]
            assert {of[split][target]["label"] for target in row["target_clip_ids"]} == {row["target_label"]}
            assert row["query_clip_id"] not in row["target_clip_ids"]
    assert all(len(row["target_clip_ids"]) == 2 for row in rows["test"])
    assert all(Path(clip["video"]).is_file() for clip in of["test"].values())
    first = rows["train"][0]
    assert (first["query_label"], first["target_label"], first["modification_text"]) == ("40", "41", "show with 1 turn")
    assert rows["test"][-1]["query_id"] == "test-11"
    assert rows["test"].info.description.startswith("Rendered athletes, not real video")
    assert "36 of 36 clips (1.000)" in rows["test"].info.description


def test_parameters_choose_pairs_and_caps(miniature):
    few = datasets.load_dataset("tfcovr", data_dir=str(miniature), max_triplets_per_pair=2, top_n=1, seed=5)
    pairs = pl.from_arrow(few["train"].with_format("arrow")[:]).group_by("query_label", "target_label").len()
    assert pairs["len"].to_list() == [2] * len(pairs)
    assert pairs["query_label"].n_unique() == len(pairs) == len(LABELS)
    again = datasets.load_dataset("tfcovr", data_dir=str(miniature), max_triplets_per_pair=2, top_n=1, seed=6)
    assert few["train"][:] != again["train"][:]
    assert few["test"][:] == again["test"][:]


def test_parameters_without_effect_are_refused(miniature):
    with pytest.raises(
        ValueError, match="video_dir, test_fraction cannot be chosen for 'mini': the miniature has its own"
    ):
        datasets.load_dataset("tfcovr", data_dir=str(miniature), video_dir=".", test_fraction=0.2)


def test_upstream_annotations_become_rows_split_by_long_video(upstream):
    rows = datasets.load_dataset("tfcovr", "source", data_dir=str(upstream), test_fraction=0.2, seed=1)
    clips = datasets.load_dataset("tfcovr", "source-clips", data_dir=str(upstream), test_fraction=0.2, seed=1)
    assert sum(map(len, clips.values())) == 80
    videos = {split: set(part["video_id"]) for split, part in clips.items()}
    assert [len(videos[split]) for split in SPLITS] == [21, 3, 6]
    assert sum(map(len, videos.values())) == len(set.union(*videos.values())) == 30
    leap = next(clip for clip in clips["train"] if clip["label"] == "41")
    assert (leap["start_seconds"], leap["end_seconds"], leap["video"]) == (101.0, 101.9, None)
    assert leap["description"] == find_label("41").description
    dive = next(clip for clip in clips["train"] if clip["label"] == "103b")
    assert (dive["clip_id"].rpartition("_")[0], dive["start_seconds"]) == (dive["video_id"], None)
    answers = answers_of()
    for split, part in rows.items():
        own = dict(zip(clips[split]["clip_id"], clips[split]["label"], strict=True))
        for row in part:
            assert own[row["query_clip_id"]] == row["query_label"]
            expected = [clip for clip, label in own.items() if answers[label] == answers[row["target_label"]]]
            assert row["target_clip_ids"] == (expected if split != "train" else [row["target_clip_ids"][0]])
    assert rows["train"].info.description.count("malformed line") == 0
    assert "1 x malformed clip id" in rows["train"].info.description
    assert set(with_names(rows["train"])["change_type"]) == {"temporal", "event"}
    other = datasets.load_dataset("tfcovr", "source-clips", data_dir=str(upstream), test_fraction=0.2, seed=2)
    assert set(other["test"]["video_id"]) != videos["test"]


def test_long_and_cut_videos_are_found_and_the_description_says_how_many(upstream, tmp_path):
    videos = tmp_path / "videos"
    videos.mkdir()
    (videos / "-Hv_d_vqJ00.mp4").touch()
    cut = "-Hv_d_vqJ01_E_000100_000110_A_0000_0001"
    (videos / f"{cut}.mp4").touch()
    (videos / "00_1.mp4").touch()
    loaded = datasets.load_dataset("tfcovr", "source-clips", data_dir=str(upstream), video_dir=str(videos))
    clips = {clip["clip_id"]: clip for part in loaded.values() for clip in part}
    found = {name: (Path(clip["video"]).name, clip["start_seconds"]) for name, clip in clips.items() if clip["video"]}
    assert found == {
        **{f"-Hv_d_vqJ00_E_000100_000110_A_{i:04}_{i + 1:04}": ("-Hv_d_vqJ00.mp4", 100.0 + i) for i in range(3)},
        cut: (f"{cut}.mp4", None),
        "00_1": ("00_1.mp4", None),
    }
    assert "5 of 80 clips (0.062)" in loaded["train"].info.description
    (videos / "00_1.avi").touch()
    with pytest.raises(ValueError, match="several files"):
        datasets.load_dataset("tfcovr", "source-clips", data_dir=str(upstream), video_dir=str(videos))


def test_a_span_beyond_its_video_is_rejected(upstream, miniature, tmp_path):
    videos = tmp_path / "videos"
    videos.mkdir()
    short = next((miniature / "videos").glob("*.mp4"))
    (videos / "-Hv_d_vqJ00.mp4").write_bytes(short.read_bytes())
    loaded = datasets.load_dataset("tfcovr", "source-clips", data_dir=str(upstream), video_dir=str(videos))
    assert sum(map(len, loaded.values())) == 77
    assert "3 x span outside the video" in loaded["train"].info.description


def test_a_published_folder_is_the_source_configuration(upstream, tmp_path):
    first = datasets.load_dataset("tfcovr", "source", data_dir=str(upstream))
    clips = datasets.load_dataset("tfcovr", "source-clips", data_dir=str(upstream))
    card = Path(hf_datasets.__file__).parent / "tfcovr" / "README.md"
    configurations = {
        name: {split: part.with_format("arrow").iter(1000) for split, part in parts.items()}
        for name, parts in (("source", first), ("source-clips", clips))
    }
    folder = write_folder(configurations, tmp_path / "made", card=card)
    assert datasets.load_dataset("tfcovr", "source", data_dir=str(folder))["test"][:] == first["test"][:]
    assert datasets.load_dataset("tfcovr", "source-clips", data_dir=str(folder))["train"][:] == clips["train"][:]
    (tmp_path / "videos").mkdir()
    (tmp_path / "videos" / "-Hv_d_vqJ00.mp4").touch()
    located = datasets.load_dataset("tfcovr", "source-clips", data_dir=str(folder), video_dir=str(tmp_path / "videos"))
    assert "3 of 80 clips (0.037)" in located["train"].info.description
    assert {split: len(part) for split, part in located.items()} == {split: len(part) for split, part in clips.items()}
    with pytest.raises(ValueError, match="seed cannot be chosen"):
        datasets.load_dataset("tfcovr", "source", data_dir=str(folder), seed=3)
    pl.DataFrame({"query_id": ["a"]}).write_parquet(folder / "source" / "test-00000-of-00001.parquet")
    with pytest.raises(ValueError, match="has no column query_clip_id"):
        datasets.load_dataset("tfcovr", "source", data_dir=str(folder))


def test_the_release_opens_from_a_folder(tmp_path):
    folder = tmp_path / "annotations"
    folder.mkdir()
    text = str({"41": {"modification": "Show with 1 turn."}})
    rows = {
        "query_video": ["a_1", "a_2"],
        "target_video": ["a_3", "a_3"],
        "label1": ["40", "40"],
        "label2": ["41", "41"],
    }
    pl.DataFrame(rows | {"modification": [text, text]}).write_csv(folder / "train_finegd.csv")
    queries = {"query_id": [7], "query_video": ["b_1"], "modification": ["Show it."], "target_video": ["b_2"]}
    pl.DataFrame(queries | {"target_videos_ids": ["['b_2', 'b_3']"]}).write_csv(folder / "test_finegd.csv")
    (tmp_path / "videos").mkdir()
    (tmp_path / "videos" / "b_3.mp4").touch()
    opened = datasets.load_dataset("tfcovr", "release", data_dir=str(folder))
    assert {split: len(part) for split, part in opened.items()} == {"train": 2, "test": 1}
    assert opened["train"][1]["target_clip_ids"] == ["a_3"]
    assert opened["test"][0]["query_id"] == "7"
    clips = datasets.load_dataset("tfcovr", "release-clips", data_dir=str(folder), video_dir=str(tmp_path / "videos"))
    assert [clip["clip_id"] for clip in clips["test"]] == ["b_1", "b_2", "b_3"]
    assert [clip["video"] is not None for clip in clips["test"]] == [False, False, True]
    with pytest.raises(ValueError, match="seed cannot be chosen for 'release'"):
        datasets.load_dataset("tfcovr", "release", data_dir=str(folder), seed=1)


def test_a_download_as_it_is_gives_the_clips_of_the_release_their_video(tmp_path, miniature):
    """FineGym's long videos with its annotation, FineDiving's folders of frames, one clip that somebody cut."""
    gym = "A0xAXXysHUo_E_000000_000009_A_{:04}_{:04}"
    clips = [gym.format(second, second + 1) for second in range(3)]
    lost = "-0_lostvide_E_000005_000009_A_0000_0001"
    data, videos = tmp_path / "data", tmp_path / "videos"
    for folder in (data / "finegym", data / "tfcovr", videos / "FineGym", videos / "frames/01/7", videos / "cut"):
        folder.mkdir(parents=True)
    texts = [str({label: {"modification": f"Show {label}."}}) for label in ("41", "41", "40", "103b")]
    rows = {
        "query_video": [clips[0], lost, clips[1], "01_8"],
        "target_video": [clips[1], clips[0], clips[2], "01_7"],
        "label1": ["40", "40", "41", "107b"],
        "label2": ["41", "41", "40", "103b"],
    }
    pl.DataFrame(rows | {"modification": texts}).write_csv(data / "tfcovr/train_finegd.csv")
    query = {"query_id": [0], "query_video": ["b_1"], "modification": ["Show it."], "target_video": ["b_2"]}
    pl.DataFrame(query | {"target_videos_ids": ["['b_2']"]}).write_csv(data / "tfcovr/test_finegd.csv")
    segments = {"A_0001_0002": {"timestamps": [[0.6, 1.1], [1.1, 1.4]]}}
    events = {"E_000000_000009": {"event": 3, "timestamps": [[0.2, 9.0]], "segments": segments}}
    (data / "finegym/finegym_annotation_info_v1.1.json").write_text(json.dumps({"A0xAXXysHUo": events}))
    film = next((miniature / "videos").glob("*.mp4")).read_bytes()
    for name in ("FineGym/A0xAXXysHUo.mp4", f"cut/{clips[2]}.mp4"):
        (videos / name).write_bytes(film)
    for number in range(1, 13):
        Image.new("RGB", (48, 32), (20 * number, 0, 0)).save(videos / f"frames/01/7/{number:05}.jpg")
    loaded = datasets.load_dataset("tfcovr", "release-clips", data_dir=str(data), video_dir=str(videos))
    found = {row["clip_id"]: row for row in loaded["train"]}
    folder = str(videos.resolve()) + "/"
    where = {
        name: (row["video"] and row["video"].removeprefix(folder), row["start_seconds"], row["end_seconds"])
        for name, row in found.items()
    }
    assert where == {
        clips[0]: ("FineGym/A0xAXXysHUo.mp4", 0.0, 2.0),
        clips[1]: ("FineGym/A0xAXXysHUo.mp4", pytest.approx(0.8), pytest.approx(1.6)),
        clips[2]: (f"cut/{clips[2]}.mp4", None, None),
        lost: (None, 5.0, 7.0),
        "01_7": ("frames/01/7", None, None),
        "01_8": (None, None, None),
    }
    assert "4 of 8 clips (0.500) have their video" in loaded["train"].info.description
    assert "2 clips have the whole seconds that their id tells" in loaded["train"].info.description
    for name in (*clips, "01_7"):
        row = found[name]
        assert len(read_frames(row["video"], 12, row["start_seconds"], row["end_seconds"]).frames) == 12


def test_an_id_that_leaves_the_video_folder_is_refused(tmp_path):
    (tmp_path / "videos").mkdir()
    (tmp_path / "b_1.mp4").touch()
    with pytest.raises(VideoError, match=r"'\.\./b_1' is refused"):
        locate_clips(clip_table(clip_id=["a", "b", "../b_1"]), tmp_path / "videos")


@pytest.mark.parametrize(
    ("config", "data_dir", "error", "says"),
    [
        ("release", None, FileNotFoundError, "hf download ucf-crcv/TF-CoVR --repo-type dataset.*data_dir=DIR"),
        ("release", "nowhere", FileNotFoundError, "nowhere is not a folder"),
        ("release", ".", FileNotFoundError, "ucf-crcv/TF-CoVR"),
        ("source", None, ValueError, "pass data_dir"),
        ("source", ".", FileNotFoundError, "holds no annotation"),
        ("mini", ".", FileNotFoundError, r"holds no clips\.parquet"),
    ],
)
def test_missing_files_are_named_with_what_to_fetch(config, data_dir, error, says, monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=says):
        datasets.load_dataset("tfcovr", config, data_dir=data_dir)
    assert "gym*_element*.txt" in SOURCE_HELP


def clip_table(**columns):
    rows = {
        "clip_id": ["a", "b", "c"],
        "video_id": ["v", "v", "w"],
        "label": ["40", "41", "103b"],
        "start_seconds": [0.0, 1.0, None],
        "end_seconds": [1.0, 2.5, None],
        "split": ["train", "train", "test"],
    }
    return pl.DataFrame(rows | columns, strict=False)


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"clip_id": ["a", "a", "c"]}, "duplicate clip id: row 2 of clips.parquet, clip_id 'a'"),
        ({"clip_id": ["a", None, "c"]}, "empty id: row 2"),
        ({"label": ["40", "24", "103b"]}, "unknown label: row 2"),
        ({"label": ["40", None, "103b"]}, "unknown label: row 2"),
        ({"start_seconds": [0.0, 2.5, None]}, "unusable span: row 2"),
        ({"start_seconds": [0.0, -1.0, None]}, "unusable span: row 2"),
        ({"start_seconds": [0.0, None, None]}, "unusable span: row 2"),
        ({"end_seconds": [1.0, float("nan"), None]}, "unusable span: row 2"),
        ({"end_seconds": [1.0, float("inf"), None]}, "unusable span: row 2"),
        ({"end_seconds": [1.0, 12.0, None]}, "span outside the video: row 2"),
    ],
)
def test_a_bad_clip_is_rejected_with_its_row_and_the_others_stay(columns, reason):
    accepted, rejections = check_clips(clip_table(**columns), source="clips.parquet", durations={"v": 10.0})
    assert accepted["clip_id"].to_list() == ["a", "c"]
    assert len(rejections) == 1
    assert rejections[0].reason.startswith(reason)
    assert "; " in rejections[0].reason, "a cure is named"
    assert rejections[0].key == str(columns.get("clip_id", "abc")[1] or "row 2 of clips.parquet")


def test_tables_without_usable_clips_or_with_leaking_splits_are_errors():
    with pytest.raises(ValueError, match=r"clips\.parquet has no column label, split"):
        check_clips(clip_table().drop("label", "split"), source="clips.parquet")
    with pytest.raises(ValueError, match="1 videos in two splits, the first 'v' in test and train"):
        check_clips(clip_table(split=["train", "test", "test"]), source="clips.parquet")
    with pytest.raises(ValueError, match="no usable row among 3; the first: unknown label: row 1"):
        check_clips(clip_table(label=["x", "y", "z"]), source="clips.parquet")


@pytest.mark.slow
def test_the_command_prepares_and_opens_it_in_a_process_that_imports_only_datasets(miniature, monkeypatch, capsys):
    # On the small miniature: the default one takes a minute to render.
    monkeypatch.setattr("hf_datasets.miniature.prepare_miniature", lambda: miniature)
    monkeypatch.setattr(sys, "argv", ["hf_datasets", "prepare", "tfcovr"])
    assert main() == 0
    assert "tfcovr mini-clips: train 18, validation 6, test 12" in capsys.readouterr().out


def test_a_dataset_that_cannot_be_prepared_is_reported_without_traceback(monkeypatch, capsys):
    def fail():
        raise ValueError("the disk is full")

    monkeypatch.setattr("hf_datasets.miniature.prepare_miniature", fail)
    monkeypatch.setattr(sys, "argv", ["hf_datasets", "prepare", "tfcovr"])
    assert main() == 1
    assert capsys.readouterr().err.splitlines()[-1] == "tfcovr: the disk is full"
