"""Statistics against counts by hand, and plots that show them."""

import datasets
import pyarrow as pa
import pytest
from matplotlib.figure import Figure

from hf_datasets.tfcovr import statistics

CLIPS = datasets.Dataset(
    pa.table(
        {
            "clip_id": list("abcdef"),
            "label": ["40", "40", "40", "41", "103b", None],
            "start_seconds": [0.0, 1.0, 2.0, 3.0, None, None],
            "end_seconds": [1.0, 3.0, 2.03, 32.0, None, None],
        }
    )
)
ROWS = datasets.Dataset(
    pa.table(
        {
            "modification_text": ["Show with 2.5 twists.", "show with 1 turn, and 1 turn", "show off", "show off"],
            "target_clip_ids": [["a"], ["a", "b", "c"], [], ["a", "b"]],
        }
    )
)


def test_clips_are_counted_for_each_of_the_306_labels():
    counts = statistics.clips_per_label(CLIPS)
    assert len(counts) == 306
    assert counts.rows()[0][:2] == ("40", "finegym")
    assert counts["clips"].to_list()[:4] == [3, 1, 1, 0]
    assert counts["clips"].sum() == 5


def test_targets_are_counted_per_query():
    assert statistics.targets_per_query(ROWS).to_list() == [1, 3, 0, 2]


def test_words_are_counted_once_numbers_are_spelled_out():
    assert statistics.modification_lengths(ROWS).to_list() == [7, 7, 2, 2]


def test_durations_are_seconds_and_unknown_ones_are_missing():
    summary = statistics.summarise_values(statistics.durations(CLIPS))
    assert (summary.count, summary.missing) == (6, 2)
    assert summary.minimum == pytest.approx(0.03)
    assert summary.maximum == 29.0
    assert summary.mean == pytest.approx((1 + 2 + 0.03 + 29) / 4)


def test_counts_have_the_names_of_the_papers_and_leave_out_what_is_unknown():
    videos = datasets.Dataset(CLIPS.data.append_column("video_id", pa.array(["v", "v", "w", "w", None, None])))
    counts = statistics.counts_of({"train": ROWS, "test": ROWS.to_polars()}, videos.to_polars())
    assert counts["test"] == {"rows": 4, "targets_mean": 1.5}
    assert counts["texts"] == {"words_minimum": 2, "words_mean": 4.5, "words_maximum": 7}
    assert counts["finegym"]["labels"] == counts["finegym"]["videos"] == 2
    assert counts["finediving"] == {"labels": 1, "clips": 1, "videos": 0}
    assert counts["clips"]["seconds_maximum"] == 29.0
    paper = statistics.PAPER_COUNTS
    assert paper["finegym"]["labels"] + paper["finediving"]["labels"] == paper["clips"]["labels"] == 306
    assert {name for figures in counts.values() for name in figures} >= {
        name for figures in paper.values() for name in figures
    }


def test_the_lexicon_counts_texts_not_repetitions_and_leaves_function_words_out():
    lexicon = statistics.modification_lexicon(ROWS)
    assert lexicon.rows()[0] == ("show", 4, 1.0)
    assert dict(lexicon.select("word", "texts").iter_rows()) == {
        "show": 4,
        "half": 1,
        "one": 1,
        "turn": 1,
        "twists": 1,
        "two": 1,
    }


def test_plots_show_what_was_counted():
    figure = statistics.plot_clips_per_label(CLIPS, "finegym")
    axes = figure.axes[0]
    assert axes.get_yscale() == "log"
    assert [bar.get_height() for bar in axes.patches] == [3, 1]
    assert axes.get_title() == "FineGym: 4 clips of 2 labels"
    assert "FineDiving: 1 clips of 1 labels" in statistics.plot_clips_per_label(CLIPS, "finediving").axes[0].get_title()
    lengths = statistics.plot_text_lengths(ROWS).axes[0]
    assert sorted((bar.get_x() + 0.4, bar.get_height()) for bar in lengths.patches) == [(2, 2), (7, 2)]
    assert statistics.plot_targets_per_query(ROWS).axes[0].get_title() == "Targets per query: 0 to 3, mean 1.50"
    assert "2 unknown" in statistics.plot_durations(CLIPS).axes[0].get_title()
    assert len(statistics.plot_modification_lexicon(ROWS, top=3).axes[0].patches) == 3


def test_nothing_to_plot_is_an_empty_plot(tmp_path):
    empty = CLIPS.select([])
    figures = [
        statistics.plot_clips_per_label(empty, "finegym"),
        statistics.plot_durations(empty),
        statistics.plot_text_lengths(ROWS.select([])),
        statistics.plot_modification_lexicon(ROWS.select([])),
    ]
    for number, figure in enumerate(figures):
        assert isinstance(figure, Figure)
        figure.savefig(tmp_path / f"{number}.png")
