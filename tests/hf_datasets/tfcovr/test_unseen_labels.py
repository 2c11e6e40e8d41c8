"""Labels that are held out from training: which, what they share with the others, and the groups of queries."""

from collections import Counter
from dataclasses import fields

import datasets
import polars as pl
import pytest

from hf_datasets.miniature import ACTIONS, HARD, plan_competitions
from hf_datasets.miniature.competitions import clip_rows, video_row
from hf_datasets.tfcovr.free_text import own_labels
from hf_datasets.tfcovr.labels import find_label, folded_text
from hf_datasets.tfcovr.pairs import kind
from hf_datasets.tfcovr.seen_groups import seen_groups
from hf_datasets.tfcovr.splitting import hold_out_labels

COLORS, SHAPES = ("red", "green", "blue", "black", "white"), ("ball", "cube", "cone", "ring")
LABELS = own_labels({f"{color}_{shape}": f"a {color} {shape}" for color in COLORS for shape in SHAPES})
CLIPS = pl.DataFrame(
    [(label.label_id, split) for split in ("train", "validation", "test") for label in LABELS],
    ["label", "split"],
    orient="row",
)


@pytest.fixture(scope="module")
def unseen(tmp_path_factory):
    """The tier from the plan of its videos, which are not drawn."""
    folder = tmp_path_factory.mktemp("planned")
    plans = plan_competitions(HARD)
    pl.DataFrame([row for plan in plans for row in clip_rows(plan, HARD.fps)]).write_parquet(folder / "clips.parquet")
    pl.DataFrame([video_row(plan, HARD.fps) for plan in plans]).write_parquet(folder / "videos.parquet")
    (folder / "videos").mkdir()
    options = {"data_dir": str(folder), "cache_dir": str(folder / "cache")}
    return {part: datasets.load_dataset("tfcovr", f"unseen{part}", **options) for part in ("", "-clips")}


def labels_of(clips):
    return {split: set(rows["label"]) for split, rows in clips.items()}


def test_a_quarter_of_the_labels_is_tested_on_alone_and_a_tenth_validated_on_alone(unseen):
    labels = labels_of(unseen["-clips"])
    trained = labels["train"]
    tested, validated = labels["test"] - trained, labels["validation"] - trained
    assert (len(trained), len(tested), len(validated)) == (134, 59, 20)
    assert not tested & validated
    assert not (tested | validated) & ACTIONS.keys()
    assert trained <= labels["test"] & labels["validation"]
    assert {"98", "3", "109c", "20"} <= tested  # chosen by the seed, on every machine
    assert "59 have clips in test alone" in unseen["-clips"]["test"].info.description


def test_what_a_held_out_label_is_made_of_occurs_in_labels_that_train(unseen):
    labels = labels_of(unseen["-clips"])
    trained = [find_label(label) for label in labels["train"]]
    held_out = [find_label(label) for label in (labels["test"] | labels["validation"]) - labels["train"]]

    def words(label):
        return set(folded_text(label.description).split())

    def attributes(label):
        values = label.attributes
        return {(kind(values), slot.name, getattr(values, slot.name)) for slot in fields(values) if slot.compare}

    for parts in (words, attributes):
        known = set().union(*map(parts, trained))
        assert not {part for label in held_out for part in parts(label) - known}


def test_training_rows_are_of_seen_labels_and_queries_of_all_four_groups(unseen):
    clips = {split: rows.to_polars() for split, rows in unseen["-clips"].items()}
    groups = {split: Counter(seen_groups(clips, rows)) for split, rows in unseen[""].items()}
    order = ("seen_to_seen", "seen_to_unseen", "unseen_to_seen", "unseen_to_unseen")
    counts = {split: [found[group] for group in order] for split, found in groups.items()}
    assert counts == {"train": [50200, 0, 0, 0], "validation": [1506, 135, 150, 45], "test": [2510, 580, 775, 495]}
    assert list(seen_groups(clips, [{"query_label": None, "target_label": "40"}])) == [None]


def test_labels_of_ones_own_are_held_out_by_their_words_and_the_seed():
    kept, sentence = hold_out_labels(CLIPS, LABELS, 0.2)
    labels = {split: set(rows["label"]) for (split,), rows in kept.group_by("split")}
    assert [len(labels[split]) for split in ("train", "validation", "test")] == [15, 16, 19]
    assert "of 20 labels 4 have clips in test alone and 1 in validation alone" in sentence
    assert "their other clips, 10, are left out" in sentence
    assert {word for label in labels["train"] for word in label.split("_")} == {*COLORS, *SHAPES}
    assert kept.equals(hold_out_labels(CLIPS.clone(), LABELS[::-1], 0.2)[0])
    assert not kept.equals(hold_out_labels(CLIPS, LABELS, 0.2, seed=1)[0])


def test_labels_that_read_the_same_are_held_out_together():
    texts = {label.label_id: label.description for label in LABELS}
    twice = own_labels(texts | {f"{label}_again": f"{text.upper()}." for label, text in texts.items()})
    again = CLIPS.with_columns(pl.col("label") + "_again")
    kept, _ = hold_out_labels(pl.concat([CLIPS, again]), twice, 0.2)
    trained = set(kept.filter(pl.col("split") == "train")["label"])
    assert len(trained) == 30
    assert {label.removesuffix("_again") for label in trained} == {label for label in trained if "_again" not in label}


def test_a_label_without_test_clips_is_not_held_out_for_test():
    shown = {label.label_id for label in LABELS[:10]}
    clips = CLIPS.filter((pl.col("split") == "train") | pl.col("label").is_in(shown))
    kept, _ = hold_out_labels(clips, LABELS, 0.2)
    assert set(kept["label"]) == {label.label_id for label in LABELS}


@pytest.mark.parametrize("share", [0.0, 1.0, -0.2, float("nan")])
def test_a_share_of_labels_out_of_range_is_refused(share):
    with pytest.raises(ValueError, match=r"unseen_labels is .*above 0 and below 1"):
        hold_out_labels(CLIPS, LABELS, share)


def test_labels_that_have_no_word_in_common_cannot_be_held_out():
    labels = own_labels({"serve": "serve", "smash": "smash"})
    clips = CLIPS.with_columns(label=pl.Series(["serve", "smash"] * 30))
    with pytest.raises(ValueError, match="of the 2 labels none can be held out: each has a word"):
        hold_out_labels(clips, labels, 0.5)
