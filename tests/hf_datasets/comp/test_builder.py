"""`activitynet_comp` and `youcook2_comp`: rendered, as published, and from real annotations."""

import json
import re
from collections import Counter
from pathlib import Path

import datasets
import pyarrow.parquet as pq
import pytest
from comp_entries import entry
from datasets import load_dataset, load_dataset_builder

import hf_datasets  # noqa: F401 (registers the names)
from hf_datasets.class_labels import with_names
from hf_datasets.comp.counterfactuals import counterfactual_of
from hf_datasets.comp.miniature import read_clips
from hf_datasets.comp.paragraphs import keeps_words, word_overlap
from hf_datasets.comp.release import read_released_pairs
from hf_datasets.miniature import MiniatureConfig, prepare_miniature

LABELS = ("119", "118", "117", "126", "45", "93", "241", "103b", "205c", "10", "15")
KINDS = {"temporal_reorder", "action_replace", "segment_mismatch"}


@pytest.fixture(scope="module", autouse=True)
def datasets_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))
        yield


@pytest.fixture(scope="module")
def rendered(tmp_path_factory):
    config = MiniatureConfig(
        labels=LABELS,
        clips_per_label={"train": 3, "validation": 2, "test": 2},
        videos_per_split={"train": 3, "validation": 2, "test": 2},
        size=32,
        fps=8,
    )
    return prepare_miniature(tmp_path_factory.mktemp("mini"), config=config, num_workers=0, progress=False)


@pytest.fixture(scope="module")
def mini(rendered):
    return with_names(load_dataset("activitynet_comp", data_dir=str(rendered)))


def test_the_miniature_has_every_disruption_and_several_at_once_in_training_only(mini):
    assert set(mini) == {"train", "validation", "test"}
    assert set(mini["train"]["disruption_type"]) == KINDS | {"multi"}
    for split in ("validation", "test"):
        assert set(mini[split]["disruption_type"]) == KINDS
    for split in mini.values():
        assert len(set(split["key"])) == len(split)


def test_stretches_are_consecutive_clips_described_in_order_inside_their_video(mini, rendered):
    clips = pq.read_table(rendered / "clips.parquet").to_pylist()
    for row in mini["train"]:
        inside = [
            clip
            for clip in clips
            if clip["video_id"] == row["video_id"]
            and row["original_start_seconds"] <= clip["start_seconds"] < row["original_end_seconds"]
        ]
        assert 2 <= len(inside) <= 5
        assert Path(row["video"]).is_file()
        if row["disruption_type"] == "segment_mismatch":
            shown = json.loads(row["decision"])["shown"]
            assert row["query_start_seconds"] == inside[shown[0]]["start_seconds"]
            assert row["query_end_seconds"] == inside[shown[1] - 1]["end_seconds"]
            assert len(re.split(r"(?<=\.) ", row["positive_text"])) == shown[1] - shown[0]
        else:
            assert row["query_start_seconds"] == row["original_start_seconds"]
            assert row["query_end_seconds"] == row["original_end_seconds"]
            assert len(re.split(r"(?<=\.) ", row["positive_text"])) == len(inside)


def test_a_mismatched_text_describes_the_counterfactual_stretch(mini, rendered):
    clips = read_clips(rendered, "activitynet")["test"]
    pairs = [pair for row in mini["test"] if (pair := counterfactual_of(row))]
    assert len(pairs) == mini["test"]["disruption_type"].count("segment_mismatch") > 0
    for pair in pairs:
        assert pair.videos[0] != pair.videos[1]
        for video, text in zip(pair.videos, pair.texts, strict=True):
            captions = [
                clip["caption"].partition("performs ")[2]
                for clip in clips
                if clip["video"] == video.path and video.start_seconds <= clip["start_seconds"] < video.end_seconds
            ]
            assert [part.partition("performs ")[2] for part in re.split(r"(?<=\.) ", text)] == captions


def test_a_reordered_text_has_the_sentences_and_another_order(mini):
    def bare(text):
        """The actions, without what leads to them."""
        return [sentence.partition("performs ")[2] for sentence in re.split(r"(?<=\.) ", text)]

    for row in mini["test"].filter(lambda row: row["disruption_type"] == "temporal_reorder"):
        positive, negative = bare(row["positive_text"]), bare(row["negative_text"])
        assert positive != negative
        assert [positive[index] for index in json.loads(row["decision"])["order"]] == negative


def test_a_replaced_action_is_another_action_of_its_place_and_nothing_else_changes(mini):
    rows = mini["train"].filter(lambda row: row["disruption_type"] == "action_replace")
    for row in rows:
        pairs = zip(
            re.split(r"(?<=\.) ", row["positive_text"]), re.split(r"(?<=\.) ", row["negative_text"]), strict=True
        )
        changed = [pair for pair in pairs if pair[0] != pair[1]]
        assert len(changed) == 1
        assert changed[0][0].split()[-1] == changed[0][1].split()[-1]  # "vault.", "floor.", ...
        assert keeps_words(row["negative_text"], row["positive_text"])
    assert len(rows) == 9


def test_the_question_has_both_texts_and_the_answer_points_to_the_right_one(mini):
    answers = Counter(mini["train"]["answer"])
    assert min(answers["1"], answers["2"]) > len(mini["train"]) / 4
    for row in mini["validation"]:
        line = row["question"].splitlines()[int(row["answer"])]
        assert line == f"Candidate {row['answer']}: {row['positive_text']}"


def test_rows_depend_on_the_seed_and_the_same_seed_repeats_them(rendered):
    def texts(**options):
        return load_dataset("youcook2_comp", data_dir=str(rendered), split="test", streaming=True, **options)

    first, again, other = (list(texts(**options)) for options in ({}, {"seed": 0}, {"seed": 1}))
    assert first == again != other
    assert all("perform " in row["positive_text"] for row in first)


def older(number):
    """An entry as in an older revision."""
    found = {key: value for key, value in entry(number).items() if "/" not in key}
    times = {"original_video/start_time": 0, "original_video/end_time": 90_000_000}
    return found | times | {"positive_start_time": 2_000_000, "positive_end_time": 40_000_000}


@pytest.fixture
def published(tmp_path):
    train = [
        entry(0),
        entry(1, type="Segment-Mismatch", **{"query_video/end_time": 30_000_000}),
        older(2),
        entry(3, type="colour"),
        entry(4, negative_text="A man runs 4. He sits."),
        entry(5, positive_text=" "),
        entry(6, **{"query_video/end_time": 500_000}),
        entry(7, **{"query_video/end_time": "late"}),
        "nothing",
        entry(0),
        entry(8, type="mixed: reorder+action", video_id="v_abc"),
        entry(9, answer="A"),
    ]
    (tmp_path / "activitynet_comp_train.json").write_text(json.dumps(train))
    (tmp_path / "activitynet_comp_val.json").write_text(json.dumps([entry(0, type="action_replacement")]))
    return tmp_path


def test_the_release_is_read_in_all_its_spellings(published):
    found = with_names(load_dataset("activitynet_comp", "release", data_dir=str(published)))
    train = found["train"]
    assert train["key"] == ["k0", "k1", "k2", "k8"]
    assert train["video_id"] == ["v_abc"] * 4
    assert train["disruption_type"] == ["temporal_reorder", "segment_mismatch", "temporal_reorder", "multi"]
    assert train["query_end_seconds"] == [90.5, 30.0, 40.0, 90.5]
    assert train["original_end_seconds"] == [90.5, 90.5, 90.0, 90.5]
    assert train["answer"] == ["2"] * 4
    assert train["video"] == [None] * 4
    assert found["validation"]["disruption_type"] == ["action_replace"]


def test_every_invalid_entry_of_the_release_is_rejected_with_its_reason(published):
    found = list(read_released_pairs(published / "activitynet_comp_train.json"))
    reasons = [(one.key, one.reason) for one in found if not isinstance(one, dict)]
    assert reasons == [
        ("k3", "unknown type: 'colour': activitynet_comp_train.json[3]"),
        ("k4", "the negative reads as the positive: activitynet_comp_train.json[4]"),
        ("k5", "missing or empty: positive_text: activitynet_comp_train.json[5]"),
        ("k6", "the interval does not end after it starts: activitynet_comp_train.json[6]"),
        ("k7", reasons[4][1]),
        (None, "no object: activitynet_comp_train.json[8]"),
        ("k0", "duplicate key: activitynet_comp_train.json[9]"),
        ("k9", "the answer 'A' is not 1 or 2: activitynet_comp_train.json[11]"),
    ]
    assert reasons[4][1].startswith("unreadable times: ")
    assert reasons[4][1].endswith(": activitynet_comp_train.json[7]")


def test_seconds_are_taken_as_seconds(tmp_path):
    path = tmp_path / "x.json"
    seconds = {key: value / 1e6 for key, value in entry(0).items() if key.endswith("_time")}
    path.write_text(json.dumps([entry(0) | seconds]))
    (row,) = read_released_pairs(path)
    assert row["original_end_seconds"] == 90.5
    (row,) = read_released_pairs(path, time_unit="us")
    assert row["original_end_seconds"] == pytest.approx(90.5e-6)


@pytest.mark.parametrize(
    ("config", "options", "message"),
    [
        ("release", {"seed": 3}, "seed cannot be chosen for 'release'"),
        ("mini", {"max_iou": 0.3}, "max_iou cannot be chosen for 'mini'"),
        ("source", {}, "pass data_dir"),
        ("source", {"data_dir": "EMPTY"}, "holds no train.json"),
        ("release", {"data_dir": "EMPTY"}, "youcook2_comp_train.json"),
    ],
)
def test_an_option_without_effect_or_a_wrong_folder_is_an_error_with_the_fix(tmp_path, config, options, message):
    options = {key: str(tmp_path) if value == "EMPTY" else value for key, value in options.items()}
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        load_dataset("youcook2_comp", config, **options)


@pytest.fixture
def annotated(tmp_path):
    """Captions with every kind of error."""
    run, sit, jump = "A man runs along the beach.", "She lifts a heavy barbell.", "He throws a red ball."
    videos = {
        "v_good": {"duration": 30, "timestamps": [[20, 30], [0, 9], [10, 19]], "sentences": [jump, run, sit]},
        "v_one": {"duration": 9, "timestamps": [[0, 9]], "sentences": [run]},
        "v_overlap": {"duration": 9, "timestamps": [[0, 8], [0, 9]], "sentences": [run, sit]},
        "v_empty": {"duration": 9, "timestamps": [[0, 4], [5, 9]], "sentences": [run, " "]},
        "v_outside": {"duration": 9, "timestamps": [[0, 4], [15, 19]], "sentences": [run, sit]},
        "v_same": {"duration": 9, "timestamps": [[0, 4], [5, 9]], "sentences": [run, run]},
    }
    (tmp_path / "train.json").write_text(json.dumps(videos))
    return tmp_path


def test_bad_annotations_are_rejected_with_their_reason_and_never_become_rows(annotated):
    builder = load_dataset_builder("activitynet_comp", "source", data_dir=str(annotated))
    builder.download_and_prepare()
    rows = with_names(builder.as_dataset(split="train"))
    assert {row["video_id"] for row in rows if row["disruption_type"] != "action_replace"} == {"v_good"}
    reasons = Counter((one.reason, (one.key or "").partition("/")[0]) for one in builder.rejections)
    for expected in (
        ("fewer than two events", "v_one"),
        ("fewer than two events", "v_overlap"),
        ("overlaps a longer event", "v_overlap"),
        ("empty caption: train.json", "v_empty"),
        ("the event is outside the video: train.json", "v_outside"),
        ("the reordered captions are the same", "v_same"),
        ("the two intervals have the same captions", "v_same"),
    ):
        assert reasons[expected] == 1, (expected, reasons)
    refused = pq.read_table(Path(builder.cache_dir, "rejections.parquet"))
    assert len(refused) == len(builder.rejections)
    assert f"{len(refused)} rows were refused" in builder.info.description
    reordered = next(row for row in rows if row["disruption_type"] == "temporal_reorder")
    assert reordered["positive_text"].startswith("A man runs along the beach.")
    assert (reordered["original_start_seconds"], reordered["original_end_seconds"]) == (0.0, 30.0)


def test_real_annotations_give_every_disruption(shared, tmp_path):
    whole = json.loads((shared / "data" / "youcook2" / "val.json").read_text())
    (tmp_path / "val.json").write_text(json.dumps(dict(list(whole.items())[:30])))
    rows = with_names(load_dataset("youcook2_comp", "source", data_dir=str(tmp_path), split="validation"))
    assert Counter(rows["disruption_type"]) == dict.fromkeys(KINDS, 30)
    assert rows[0]["video_id"] == next(iter(whole))
    for row in rows:
        if row["disruption_type"] != "segment_mismatch":
            assert min(word_overlap(row["negative_text"], row["positive_text"])) >= 0.64, row["key"]


def test_a_folder_written_by_the_recipe_or_from_a_dataset_is_opened_with_its_videos(tmp_path, rendered):
    folder, videos = tmp_path / "built", tmp_path / "videos"
    (folder / "source").mkdir(parents=True)
    videos.mkdir()
    labeled = load_dataset("activitynet_comp", data_dir=str(rendered), split="test")
    rows = labeled.select(range(6)).remove_columns("video")
    for number in range(2):  # as a large split is written
        part = rows.select(range(3 * number, 3 * number + 3))
        part.to_parquet(folder / "source" / f"validation-{number:05d}-of-00002.parquet")
    (videos / f"{rows[0]['video_id']}.mp4").touch()
    options = {"data_dir": str(folder), "video_dir": str(videos), "split": "validation"}
    opened = load_dataset("activitynet_comp", "source", **options)
    assert opened["key"] == rows["key"]
    assert opened["disruption_type"] == rows["disruption_type"]
    assert opened.features["disruption_type"] == rows.features["disruption_type"]
    expected = [str(videos / f"{one}.mp4") if one == rows[0]["video_id"] else None for one in rows["video_id"]]
    assert opened["video"] == expected
    assert "videos are in video_dir" in opened.info.description


def test_the_single_actions_are_a_dataset_of_short_clips(rendered):
    clips = load_dataset("youcook2_comp", "mini-clips", data_dir=str(rendered))
    assert {split: len(rows) for split, rows in clips.items()} == {"train": 33, "validation": 22, "test": 22}
    assert all(Path(path).is_file() for path in clips["train"]["video"])
    assert all(caption.startswith("perform ") for caption in clips["train"]["caption"])
    with pytest.raises(ValueError, match="seed cannot be chosen for 'mini-clips'"):
        load_dataset("youcook2_comp", "mini-clips", seed=1)
