"""The published *-FIG files as they are: counts and statistics on the real annotations, and rows that break rules."""

import json
import math
from collections import Counter

import datasets
import pytest

import hf_datasets  # noqa: F401 registers the names
from hf_datasets.fig.release import FILES, find_moment_files, read_released_moments
from hf_datasets.fig.statistics import PAPER_COUNTS, counts_of, duplicate_captions, plot_scores, statistics
from hf_datasets.paper_counts import beside_paper
from hf_datasets.records import Moment, Rejection

LATE_START = {"video": "LEOL6", "time": [7, 8], "desc_id": 12187, "duration": 6.29}
LATE_END = {"video": "AKKWU", "time": [13, 38], "desc_id": 13612, "duration": 13.2}
LONG = {"video": "5UNDJ", "time": [0.0, 80.8], "desc_id": 14365, "duration": 81.0}
CAPTIONS = {"cog_desc": "a person eats.", "fig_desc": "A person eats an apple.", "fig_desc_score": -5.38}


@pytest.fixture(scope="module")
def charades(shared, tmp_path_factory):
    return opened("charades_fig", shared / "data" / "charades_fig", cache_dir=str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="module")
def didemo(shared, tmp_path_factory):
    return opened("didemo_fig", shared / "data" / "didemo_fig", cache_dir=str(tmp_path_factory.mktemp("cache")))


def write_lines(folder, rows, name="charades_fig_test.jsonl"):
    folder.mkdir(exist_ok=True)
    lines = [row if isinstance(row, str) else json.dumps(CAPTIONS | row, ensure_ascii=False) for row in rows]
    (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def opened(name, folder, **options):
    return datasets.load_dataset(name, "release", data_dir=str(folder), **options)


def test_the_real_annotations_have_the_counts_of_the_paper(charades, didemo):
    for name, data in {"charades_fig": charades, "didemo_fig": didemo}.items():
        counts = counts_of(name, {split: rows.to_polars() for split, rows in data.items()})
        compared = beside_paper(PAPER_COUNTS, counts)
        whole = compared.pop(name)
        assert len(compared) == 2
        assert {row["moments"]["difference"] for row in compared.values()} == {0}
        if name == "charades_fig":  # of DiDeMo-FIG the training split is not at hand
            assert whole["moments"]["difference"] == 0
            assert abs(whole["span_seconds"]["difference"]) < 0.005
            assert abs(whole["score"]["difference"]) < 0.005


def test_charades_has_the_published_rows_first_middle_and_last(charades, shared):
    assert {split: len(rows) for split, rows in charades.items()} == {"train": 12_408, "test": 3_720}
    lines = (shared / "data/charades_fig/charades_fig_test.jsonl").read_text(encoding="utf-8").splitlines()
    for place in (0, 1_860, 3_719):
        published, row = json.loads(lines[place]), charades["test"][place]
        assert row == {
            "desc_id": published["desc_id"],
            "video_id": published["video"],
            "duration_seconds": published["duration"],
            "start_seconds": published["time"][0],
            "end_seconds": published["time"][1],
            "coarse_caption": published["cog_desc"],
            "fine_caption": published["fig_desc"],
            "fine_caption_score": published["fig_desc_score"],
        }


def test_didemo_keeps_texts_letter_for_letter(didemo):
    assert {split: len(rows) for split, rows in didemo.items()} == {"validation": 4_175, "test": 4_013}
    assert statistics(didemo["test"]).padded_captions == 14 + 12
    assert statistics(didemo["validation"]).padded_captions == 20 + 12
    assert any("bodhrán" in text for text in didemo["test"]["fine_caption"])
    assert "didemo_fig_train.jsonl" in didemo["test"].info.description


# Facts about the files, counted once by other code: videos, most per video, span, duration, late ends and excess,
# late starts, score, negative scores, words, repeated.
EXPECTED = {
    ("charades", "test"): (1334, 12, (7.9709, 7.1, 2.5, 24.3), (29.947, 7.20, 72.14), 543, 1.47, 0, (1.2928, 1.7890),
        (-4.949, 0.401, 1.682, 2.570, 4.367), 779, (6.23, 15.36, 5, 46), (1142, 0, 12)),
    ("charades", "train"): (5338, 10, (8.3074, 7.4, 1.0, 80.8), (31.394, 5.57, 194.42), 1770, 24.8, 1, (1.3291, 1.8169),
        (-5.383, 0.458, 1.741, 2.646, 4.449), 2520, (6.21, 15.39, 5, 53), (3214, 0, 48)),
    ("didemo", "test"): (1002, 7, (6.4852, 5, 5, 25), (50.019, 21.96, 180.06), 150, 2.95, 0, (1.6454, 1.8505),
        (-4.887, 0.566, 2.129, 3.088, 4.449), 800, (7.51, 16.29, 4, 46), (1389, 0, 0)),
    ("didemo", "validation"): (1064, 7, (6.4407, 5, 5, 25), (46.729, 21.66, 180.06), 184, 2.94, 0, (1.5415, 1.9196),
        (-5.141, 0.389, 2.057, 3.008, 4.414), 904, (7.48, 16.20, 5, 45), (1429, 1, 1)),
}  # fmt: skip


@pytest.mark.parametrize(("name", "split"), EXPECTED)
def test_the_statistics_of_the_release_are_those_of_its_files(name, split, request):
    found = statistics(request.getfixturevalue(name)[split])
    videos, most, span, duration, late, excess, late_starts, score, five, negative, words, repeated = EXPECTED[
        name, split
    ]
    assert (found.videos, found.most_per_video) == (videos, most)
    spans = found.span_seconds
    assert (spans.mean, spans.median, spans.minimum, spans.maximum) == pytest.approx(span, abs=5e-5)
    durations = found.duration_seconds
    assert (durations.mean, durations.minimum, durations.maximum) == pytest.approx(duration, abs=5e-4)
    assert (found.ends_after_video, found.starts_after_video) == (late, late_starts)
    assert found.most_seconds_after_video == pytest.approx(excess, abs=5e-3)
    scores = found.score
    assert (scores.mean, scores.deviation) == pytest.approx(score, abs=6e-5)
    quartiles = (scores.lower_quartile, scores.median, scores.upper_quartile)
    # the facts give three decimals, and their quartiles another interpolation
    assert (scores.minimum, *quartiles, scores.maximum) == pytest.approx(five, abs=5e-3)
    assert found.negative_scores == negative
    fine = found.fine_words
    assert (found.coarse_words.mean, fine.mean, fine.minimum, fine.maximum) == pytest.approx(words, abs=0.01)
    assert (found.repeated_moments, found.repeated_coarse, found.repeated_fine) == repeated


def test_statistics_of_charades_equal_table_1_and_the_duplicates_of_table_2(charades):
    both = charades["train"], charades["test"]
    found = statistics(*both)
    assert (found.moments, found.videos) == (16_128, 6_672)
    assert (found.span_seconds.mean, found.score.mean) == pytest.approx((8.2298, 1.3208), abs=5e-5)
    assert duplicate_captions(*both, caption="coarse_caption") == (1_444, 7_613)
    assert duplicate_captions(*both, caption="fine_caption") == (92, 190)


def test_the_score_histogram_of_figure_4_is_that_of_the_files(charades):
    expected = {-5: 24, -4: 84, -3: 139, -2: 233, -1: 299, 0: 482, 1: 958, 2: 914, 3: 549, 4: 38}
    bars = plot_scores({"test": charades["test"]}).axes[0].patches
    found = Counter()
    for bar in bars:
        found[math.floor(bar.get_x() + bar.get_width() / 2)] += bar.get_height()
    assert found == expected
    assert sum(bar.get_height() for bar in bars) == 3_720
    assert sum(bar.get_height() for bar in bars if bar.get_x() < 0) == 779


def test_moments_beyond_their_video_stay_unless_clipping_is_asked_for(tmp_path):
    folder = write_lines(tmp_path / "data", [LATE_START, LATE_END, LATE_END | {"desc_id": 13616}, LONG])
    kept = opened("charades_fig", folder)["test"]
    assert kept["end_seconds"] == [8.0, 38.0, 38.0, 80.8]
    assert "4 moments of 3 videos; 3 end after their video, by 24.80 s at most" in kept.info.description
    clipped = opened("charades_fig", folder, clip_to_duration=True)["test"]
    assert clipped["end_seconds"] == [13.2, 13.2, 80.8]
    assert "1 x starts after its video ends" in clipped.info.description


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("{", "unreadable line"),
        ("[" * 100_000, "unreadable line"),
        ("3", "unreadable line"),
        ({"time": [1]}, "unreadable line"),
        ({"time": [1, 2, 3]}, "unreadable line"),
        ({"desc_id": "x"}, "unreadable line"),
        ({"video": ""}, "empty video id"),
        ({"time": [5, 5]}, "the moment does not end after it starts"),
        ({"time": [-1, 5]}, "the moment does not end after it starts"),
        ({"time": [0, float("nan")]}, "unreadable line"),
        ({"duration": 0}, "the video's duration is not a positive number"),
        ({"cog_desc": " "}, "empty caption"),
        ({"fig_desc": ""}, "empty caption"),
        ({"desc_id": 13612}, "duplicate desc_id"),
        ({"video": "AKKWU", "duration": 14.0}, "second duration of a video"),
    ],
)
def test_a_bad_row_is_refused_with_its_reason_and_the_others_stay(bad, reason, tmp_path):
    bad = LATE_START | bad if isinstance(bad, dict) else bad
    rows = opened("charades_fig", write_lines(tmp_path / "data", [LATE_END, bad, LONG]))["test"]
    assert rows["desc_id"] == [13612, 14365]
    assert f"1 rows were refused (1 x {reason}" in rows.info.description


def test_a_line_of_coarse_captions_alone_is_a_moment_for_the_pipeline(tmp_path):
    row = {"video": "a", "time": [0, 1], "desc_id": 1, "duration": 2.0, "cog_desc": "A person eats."}
    (tmp_path / "x.jsonl").write_text(json.dumps(row) + "\n\n")
    assert list(read_released_moments(tmp_path / "x.jsonl")) == [
        Moment(1, "a", 2.0, 0.0, 1.0, "A person eats.", "", None)
    ]
    (tmp_path / "x.jsonl").write_text("\nno json\n")
    (rejection,) = read_released_moments(tmp_path / "x.jsonl")
    assert isinstance(rejection, Rejection)
    assert (rejection.raw, rejection.key) == ("no json\n", "x.jsonl:2")


def test_files_without_usable_rows_and_leaking_splits_are_errors(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"holds none of charades_fig_train\.jsonl.*fetch .*VERIFIED"):
        find_moment_files(tmp_path, "charades_fig")
    folder = write_lines(tmp_path / "data", [LONG])
    write_lines(folder, [LONG | {"desc_id": 2}], "charades_fig_train.jsonl")
    with pytest.raises(ValueError, match="1 videos in train and in another split, the first '5UNDJ'"):
        opened("charades_fig", folder)
    (folder / "charades_fig_train.jsonl").write_text("\n")
    with pytest.raises(ValueError, match=r"charades_fig_train\.jsonl has no usable row"):
        opened("charades_fig", folder)
    (folder / "charades_fig_train.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="is not UTF-8"):
        opened("charades_fig", folder)
    write_lines(folder / "again", [LONG])
    with pytest.raises(ValueError, match="several times"):
        find_moment_files(folder, "charades_fig")


@pytest.mark.parametrize("name", FILES)
def test_without_a_network_the_error_says_what_to_fetch_from_where(name, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    with pytest.raises(FileNotFoundError, match="could not be fetched") as caught:
        datasets.load_dataset(name, "release")
    for part in (*FILES[name].values(), "github.com/hlchen23/VERIFIED", "data_dir=DIR"):
        assert part in str(caught.value)
