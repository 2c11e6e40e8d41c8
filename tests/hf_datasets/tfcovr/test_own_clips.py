"""`load_dataset("tfcovr", "own")`: a table and a folder of videos, labels of any vocabulary, and rejections."""

import json
from collections import Counter
from itertools import permutations
from pathlib import Path

import datasets
import polars as pl
import pytest
from colored_videos import write_colored_video

import hf_datasets  # noqa: F401 - registers the names
from hf_datasets.class_labels import with_names
from hf_datasets.records import LabelPair, Rejection
from hf_datasets.tfcovr import own_clips, statistics
from hf_datasets.tfcovr.clips import CLIP_SCHEMA
from hf_datasets.tfcovr.free_text import free_rejection_reason, own_labels
from hf_datasets.tfcovr.labels import find_label
from hf_datasets.tfcovr.modifications.task import Modification, ModificationTask
from hf_datasets.tfcovr.own_clips import find_table, read_own_clips
from hf_datasets.tfcovr.pairs import label_pairs
from hf_datasets.tfcovr.splitting import held_out_videos
from hf_datasets.tfcovr.triplets import TRIPLET_SCHEMA

LABELS = ("rolls left slowly", "rolls left quickly", "rolls right slowly", "drops", "bounces_twice")
SPLITS = ("train", "validation", "test")


def table(num_videos=10, clips_per_video=4):
    """Clips of two seconds, one after the other, whose labels take turns."""
    numbers = range(num_videos * clips_per_video)
    places = [divmod(number, clips_per_video) for number in numbers]
    return {
        "clip_id": [f"c{number}" for number in numbers],
        "video_id": [f"v{video}" for video, _ in places],
        "start_seconds": [2.0 * place for _, place in places],
        "end_seconds": [2.0 * place + 2 for _, place in places],
        "label": [LABELS[number % len(LABELS)] for number in numbers],
    }


def write(folder, columns, name="clips.csv"):
    folder.mkdir(exist_ok=True)
    pl.DataFrame(columns, strict=False).write_csv(folder / name)
    return folder


def load(folder, name="own", **options):
    return with_names(datasets.load_dataset("tfcovr", name, data_dir=str(folder), **options))


@pytest.fixture(scope="module")
def videos(tmp_path_factory):
    """Two videos of two seconds, one of them in a subfolder, and one beside the folder."""
    root = tmp_path_factory.mktemp("own")
    (root / "videos" / "day1").mkdir(parents=True)
    for place in ("videos/v0.mp4", "videos/day1/v1.mp4", "secret.mp4"):
        write_colored_video(root / place, [(250, 20, 20), (20, 20, 250)])
    return root / "videos"


def test_forty_clips_of_five_free_labels_become_rows_in_three_splits(tmp_path):
    folder = write(tmp_path / "mine", table())
    rows, clips = load(folder), load(folder, "own-clips")
    assert rows["train"].features.arrow_schema.names == TRIPLET_SCHEMA.names
    assert clips["train"].features.arrow_schema.names == CLIP_SCHEMA.names
    assert [len(clips[split]) for split in SPLITS] == [24, 8, 8]
    found = {split: set(part["video_id"]) for split, part in clips.items()}
    assert [len(found[split]) for split in SPLITS] == [6, 2, 2]
    assert len(set.union(*found.values())) == 10
    for split, part in clips.items():
        assert set(part["label"]) == set(LABELS), split
        assert dict(zip(part["label"], part["description"], strict=True))["bounces_twice"] == "bounces twice"
        of_label = {label: [one["clip_id"] for one in part if one["label"] == label] for label in LABELS}
        wanted = Counter()
        for source, target in permutations(LABELS, 2):
            if split == "train":
                wanted[source, target] = len(of_label[source]) * len(of_label[target])
            else:
                wanted[source, target] = len(of_label[source])
        assert Counter(zip(rows[split]["query_label"], rows[split]["target_label"], strict=True)) == wanted
        for row in rows[split]:
            answers = of_label[row["target_label"]]
            assert row["query_clip_id"] in of_label[row["query_label"]]
            assert set(row["target_clip_ids"]) <= set(answers)
            assert len(row["target_clip_ids"]) == (1 if split == "train" else len(answers))
    texts = {(row["query_label"], row["target_label"]): row["modification_text"] for row in rows["train"]}
    assert texts["rolls left slowly", "bounces_twice"] == "show bounces twice instead of rolls left slowly"
    assert set(rows["train"]["change_type"]) == {"temporal"}


@pytest.mark.parametrize("suffix", ["tsv", "jsonl", "parquet"])
def test_every_format_gives_the_same_rows(tmp_path, suffix):
    columns = table()
    columns["start_seconds"][0] = columns["end_seconds"][0] = None
    (tmp_path / "other").mkdir()
    frame, path = pl.DataFrame(columns), tmp_path / "other" / f"any name.{suffix}"
    match suffix:
        case "tsv":
            frame.write_csv(path, separator="\t")
        case "jsonl":
            frame.write_ndjson(path)
        case "parquet":
            frame.write_parquet(path)
    expected = read_own_clips(write(tmp_path / "csv", columns))
    found = read_own_clips(path.parent)
    assert found.clips.equals(expected.clips)
    assert found.labels == expected.labels
    assert not found.rejections
    assert expected.clips.row(0)[3:5] == (None, None)


def test_the_users_split_and_description_take_precedence(tmp_path):
    columns = table(num_videos=3, clips_per_video=5)
    given = [("train", "val", "Test")[number // 5] for number in range(15)]
    described = [{"drops": "the ball falls to the ground"}.get(label, "") for label in columns["label"]]
    described[8] = "it drops"
    columns |= {"split": given, "description": described, "camera": "left"}
    found = read_own_clips(write(tmp_path / "mine", columns))
    assert found.clips["split"].to_list() == [name for name in SPLITS for _ in range(5)]
    texts = dict(found.clips.select("label", "description").iter_rows())
    assert texts["drops"] == "the ball falls to the ground"
    assert texts["bounces_twice"] == "bounces twice"
    assert {label.label_id: label.description for label in found.labels} == texts
    assert [one.reason.partition(":")[0] for one in found.rejections] == ["unknown column", "conflicting description"]
    assert "'it drops'; the first is kept" in found.rejections[1].reason


def test_splits_are_the_same_with_and_without_videos_and_differ_by_seed(tmp_path, videos):
    folder = write(tmp_path / "mine", table())
    without, with_videos = (read_own_clips(folder, video_dir=one) for one in (None, videos))
    assert set(with_videos.clips["video_id"]) == {"v0", "v1"}
    both = with_videos.clips.join(without.clips, on="clip_id")
    assert both["split"].equals(both["split_right"], check_names=False)
    assert with_videos.labels == without.labels
    tests = {
        tuple(read_own_clips(folder, seed=seed).clips.filter(pl.col("split") == "test")["clip_id"]) for seed in range(5)
    }
    assert len(tests) > 1


@pytest.mark.parametrize(
    ("place", "value", "reason"),
    [
        ("clip_id", "a", "duplicate clip id: row 2 of"),
        ("clip_id", " ", "empty clip_id, video_id or label: row 2 of"),
        ("video_id", None, "empty clip_id, video_id or label: row 2"),
        ("video_id", "v9", "missing video: clip 'b' of"),
        ("video_id", "../secret", "missing video: clip 'b' of"),
        ("video_id", "/etc/passwd", "missing video: clip 'b' of"),
        ("label", "17.5", "label without words: row 2"),
        ("start_seconds", "0:01", "time that is not a number: row 2"),
        ("start_seconds", "nan", "unusable span: row 2"),
        ("end_seconds", "inf", "unusable span: row 2"),
        ("end_seconds", None, "unusable span: row 2"),
        ("end_seconds", "-3", "unusable span: row 2"),
        ("end_seconds", "90", "span outside the video: row"),
        ("split", "holdout", "unknown split: row 2"),
        ("split", None, "unknown split: row 2"),
    ],
)
def test_a_bad_row_is_rejected_with_the_fix_and_the_others_stay(tmp_path, videos, place, value, reason):
    rows = {
        "clip_id": ["a", "b", "c"],
        "video_id": ["v0", "v1", "v1.mp4"],
        "start_seconds": ["0", "0", None],
        "end_seconds": ["1", "1", None],
        "label": ["drops", "rolls", "rolls"],
        "split": ["train", "test", "test"],
    }
    rows[place][1] = value
    found = read_own_clips(write(tmp_path / "mine", rows), video_dir=videos)
    assert found.clips["clip_id"].to_list() == ["a", "c"]
    assert [Path(video).name for video in found.clips["video"]] == ["v0.mp4", "v1.mp4"]
    (rejection,) = found.rejections
    assert rejection.reason.startswith(reason)
    assert "; " in rejection.reason, "a cure is named"
    json.loads(rejection.raw)


def test_messages_name_the_columns_as_the_table_does(tmp_path):
    rows = {"video": ["v0", "", "v1", "v2"], "label": ["drops", "rolls", "drops", "rolls"]}
    found = read_own_clips(write(tmp_path / "mine", rows), validation_fraction=0.0, test_fraction=0.0)
    assert [one.reason.partition(":")[0] for one in found.rejections] == ["empty clip_id, video or label"]
    with pytest.raises(ValueError, match=r"has no column label; it has video$"):
        read_own_clips(write(tmp_path / "unlabeled", {"video": ["v0"]}))
    with pytest.raises(ValueError, match=r"has no column video_id \(or video, path\); it has label$"):
        read_own_clips(write(tmp_path / "nowhere", {"label": ["drops"]}))


def test_columns_may_be_called_as_in_a_table_of_moments_and_only_video_and_label_are_needed(tmp_path):
    columns = table()
    renamed = {"video": columns["video_id"], **{name: columns[name] for name in ("start_seconds", "end_seconds")}}
    renamed |= {"label": columns["label"], "path": columns["video_id"]}
    rows = [dict(zip(renamed, row, strict=True)) for row in zip(*renamed.values(), strict=True)]
    (tmp_path / "moments.json").write_text(json.dumps(rows), encoding="utf-8")
    found = read_own_clips(tmp_path / "moments.json")
    expected = read_own_clips(write(tmp_path / "csv", columns))
    assert found.clips.drop("clip_id").equals(expected.clips.drop("clip_id"))
    assert found.clips["clip_id"].to_list()[:2] == ["v0#t=0,2", "v0#t=2,4"]
    assert [one.reason for one in found.rejections] == [
        f"unknown column: 'path' of {tmp_path}/moments.json is left out"
    ]
    whole = write(tmp_path / "whole", {"video": [f"v{n}" for n in range(8)], "label": ["drops", "rolls"] * 4})
    assert read_own_clips(whole).clips["clip_id"].to_list()[:2] == ["v0#t=,", "v1#t=,"]
    (tmp_path / "one.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ValueError, match="is not a list of JSON objects; write one object per clip"):
        read_own_clips(tmp_path / "one.json")


def test_a_line_that_is_not_json_is_rejected_and_counted_in_the_description(tmp_path):
    columns = table()
    lines = [json.dumps(dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)]
    (tmp_path / "clips.jsonl").write_text("\n".join([*lines[:3], "{broken", "[1]", *lines[3:]]), encoding="utf-8")
    assert "2 x not a JSON object" in load(tmp_path)["train"].info.description


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        (table(num_videos=2), "the clips are of 2 videos, and a split by video needs 3 at least"),
        (table(num_videos=1), "of 1 video, and a split by video needs 3 at least: one each"),
        (table() | {"label": ["one thing"] * 40}, "all clips read the same, 'one thing'"),
        (table(num_videos=5, clips_per_video=1), "no video can be held out for test, because each of the 5"),
        (table() | {"split": ["train", "test"] * 20}, "10 videos in two splits, the first 'v0' in test and train"),
        (
            table() | {"label": [str(number % 5) + "00" for number in range(40)]},
            "no usable row among 40; the first: label",
        ),
        ({key: value for key, value in table().items() if key != "label"}, "has no column label; it has clip_id"),
        (table() | {"label": ["a jump", "A jump!", "a jump,", "a  jump"] * 10}, "all clips read the same, 'A jump!'"),
    ],
)  # fmt: skip
def test_insufficient_or_contradicting_data_is_one_error_with_the_fix(tmp_path, columns, says):
    with pytest.raises((ValueError, datasets.exceptions.DatasetGenerationError), match=says):
        load(write(tmp_path / "mine", columns))


def test_a_threshold_that_no_pair_reaches_is_an_error(tmp_path):
    with pytest.raises(ValueError, match=r"no pair of the 5 labels is as similar as 0\.99"):
        load(write(tmp_path / "mine", table()), threshold=0.99)


def test_a_split_without_rows_is_rejected_and_the_others_are_opened(tmp_path):
    columns = table(num_videos=3, clips_per_video=5)
    columns |= {"split": ["train" if video != "v2" else "test" for video in columns["video_id"]]}
    rows = load(write(tmp_path / "mine", columns))
    assert {split: len(part) for split, part in rows.items()} == {"train": 80, "test": 20}
    assert "1 x no rows in validation" in rows["train"].info.description
    clips = load(tmp_path / "mine", "own-clips")
    assert {split: len(part) for split, part in clips.items()} == {"train": 10, "test": 5}


def test_several_tables_are_an_error_unless_one_is_named_clips(tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"has no table of clips: .*columns video_id and label and, optionally, clip_id"
    ):
        find_table(tmp_path)
    first = tmp_path / "monday.csv"
    first.touch()
    assert find_table(tmp_path) == first
    (tmp_path / "tuesday.csv").touch()
    with pytest.raises(ValueError, match=r"several tables \(monday.csv, tuesday.csv\); keep one, or name"):
        find_table(tmp_path)
    (tmp_path / "clips.jsonl").touch()
    assert find_table(tmp_path).name == "clips.jsonl"
    with pytest.raises(ValueError, match="pass data_dir: the own configuration reads"):
        datasets.load_dataset("tfcovr", "own")


def test_ids_of_the_306_labels_take_their_texts_and_generator(tmp_path, caplog):
    own_clips._warn_of_known_labels.cache_clear()
    columns = table() | {"label": [("40", "41", "51", "136", "45")[number % 5] for number in range(40)]}
    rows, clips = (load(write(tmp_path / "mine", columns), name) for name in ("own", "own-clips"))
    assert set(clips["test"]["description"]) == {find_label(one).description for one in set(columns["label"])}
    texts = {(row["query_label"], row["target_label"]): row["modification_text"] for row in rows["train"]}
    assert texts["40", "41"] == "show with 1 turn"
    assert "event" in rows["train"]["change_type"]
    assert caplog.text.count("ids of TF-CoVR") == 1  # of two readings
    described = read_own_clips(write(tmp_path / "other", columns | {"description": columns["label"][0] + " m race"}))
    assert {label.source for label in described.labels} == {"own"}


def test_clips_of_labels_with_the_same_text_are_targets_of_each_other(tmp_path):
    columns = table() | {
        "description": [("Drops  Down", "drops down", "rolls", "jumps", "spins")[n % 5] for n in range(40)]
    }
    rows, clips = (load(write(tmp_path / "mine", columns), name) for name in ("own", "own-clips"))
    same = {one["clip_id"] for one in clips["test"] if one["label"] in LABELS[:2]}
    to_same = [row for row in rows["test"] if row["target_label"] in LABELS[:2]]
    assert to_same
    assert all(set(row["target_clip_ids"]) == same for row in to_same)
    assert not [row for row in to_same if row["query_label"] in LABELS[:2]]


def test_free_labels_are_paired_by_character_similarity_or_by_an_encoder():
    labels = own_labels({name: name for name in LABELS})
    nearest = {pair.source: pair.target for pair in label_pairs(labels, threshold=0.0, top_n=1)}
    assert nearest["rolls left quickly"] == nearest["rolls right slowly"] == "rolls left slowly"
    vectors = [[1, 0], [0, 1], [1, 0.1], [0.1, 1], [1, 1]]
    nearest = {one.source: one.target for one in label_pairs(labels, embeddings=lambda _: vectors, top_n=1)}
    assert nearest["rolls left slowly"] == "rolls right slowly"
    assert nearest["rolls left quickly"] == "drops"


def test_every_rule_based_instruction_passes_the_checks():
    texts = [
        "the ball rolls from left to right",
        "the ball rolls from right to left",
        "the ball rolls from left to right twice",
        "the red ball rolls, then stops",
        "跳",
        "跑",
        "a 2.5 m jump",
        "a 3 m jump",
    ]
    task = ModificationTask({label.label_id: label for label in own_labels({text: text for text in texts})})
    for source, target in permutations(texts, 2):
        pair = LabelPair(source, target, "temporal", 0.5)
        found = task.parse(pair, task.write(pair))
        assert isinstance(found, Modification), found
        assert task.messages(pair)[-1]["content"] == json.dumps(
            {"source": source, "target": target}, ensure_ascii=False
        )
    long = " ".join(f"word{number}" for number in range(40))
    assert isinstance(task.parse(LabelPair("跳", "跑", "temporal", 0), f"show {long}"), Rejection)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("show the ball", "does not name what changes"),
        ("show it\nright", "line break"),
        ("right", "has 1 words"),
        ("show it right " + "and on " * 20, "has 43 words"),
        ("show right " + "x" * 400, "characters"),
    ],
)
def test_an_answer_that_is_not_an_instruction_is_rejected(text, reason):
    assert reason in free_rejection_reason("the ball rolls left", "the ball rolls right", text)


def test_holding_out_covers_labels_first_and_never_takes_the_last_clip_of_one():
    clips = pl.DataFrame(
        {"video_id": [f"v{n}" for n in range(20)], "label": ["a"] * 14 + ["b"] * 3 + ["c"] * 2 + ["d"]}
    )
    for seed in range(10):
        held = held_out_videos(clips, 3, seed=seed)
        assert {clips["label"][int(one[1:])] for one in held} == {"a", "b", "c"}
        everything = held_out_videos(clips, 20, seed=seed)
        left = clips.filter(~pl.col("video_id").is_in(everything))["label"]
        assert sorted(left) == ["a", "b", "c", "d"]


def test_statistics_count_own_labels(tmp_path):
    clips = load(write(tmp_path / "mine", table()), "own-clips", split="train")
    counts = statistics.clips_per_label(clips)
    assert dict(counts.select("label", "clips").iter_rows()) == Counter(clips["label"])
    assert set(counts["source"]) == {"own"}
    axes = statistics.plot_clips_per_label(clips, "own").axes[0]
    assert axes.get_title() == "own labels: 24 clips of 5 labels"


@pytest.mark.parametrize("name", ["clips.jsonl", "clips.json"])
def test_half_a_character_is_refused_in_a_line(tmp_path, name):
    row = {"video_id": "v", "label": "a\ud800"}
    (tmp_path / name).write_text(json.dumps(row if name == "clips.jsonl" else [row]))
    with pytest.raises(ValueError, match="half a character"):
        read_own_clips(tmp_path / name)
