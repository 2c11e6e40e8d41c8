"""The noise evaluator's training data: positives and negatives; and the choice of the best candidate."""

import re

import polars as pl
import pyarrow as pa
import pytest
import torch

from hf_datasets.fig.miniature import miniature_examples
from hf_datasets.fig.moments import MOMENT_SCHEMA
from hf_datasets.fig.noise import as_moment, built_examples, choose, judge_moments
from hf_datasets.publish import write_folder
from hf_datasets.records import Moment, Rejection

FRAMES = torch.zeros(2, 3, 4, 4, dtype=torch.uint8)
ROW = {
    "desc_id": 7, "video_id": "a", "duration_seconds": 9.0, "start_seconds": 1.0, "end_seconds": 4.0,
    "coarse_caption": "A man sits.", "fine_caption": "A man sits down.", "fine_caption_score": None,
}  # fmt: skip


def by_length(frames, texts):
    return [float(len(text)) for text in texts]


@pytest.fixture
def built(tmp_path, card):
    """A built folder: moment 7 with all rewritings, moment 8 with positives only."""
    second = ROW | {"desc_id": 8, "video_id": "b"}
    rewritings = [
        {"desc_id": 7, "kind": "positives", "captions": ["A man takes a seat.", "A man sits."]},
        {"desc_id": 7, "kind": "static_negatives", "captions": ["A woman sits.", "A man sits."]},
        {"desc_id": 7, "kind": "dynamic_negatives", "captions": ["A man stands."]},
        {"desc_id": 8, "kind": "positives", "captions": ["A man takes a seat."]},
    ]
    configurations = {
        "source": {"train": [pa.Table.from_pylist([ROW, second], schema=MOMENT_SCHEMA)]},
        "rewritings": {"train": [pa.Table.from_pylist(rewritings)]},
    }
    return write_folder(configurations, tmp_path / "built", card=card)


def test_miniature_negatives_change_the_colors_or_the_skill_and_nothing_else(miniature):
    clips = pl.read_parquet(miniature / "clips.parquet")
    examples = [one for split in miniature_examples(miniature).values() for one in split]
    assert len(examples) == len(clips) == 6 * 6
    wordings = (
        re.compile(r"In a (?P<hall>\w+) hall, an athlete in (?P<socks>\w+) socks performs (?P<skill>.*)\."),
        re.compile(r"(?P<skill>.*), by an athlete in (?P<socks>\w+) socks in a (?P<hall>\w+) hall\."),
    )

    def parts_of(text):
        (match,) = (found for found in (wording.fullmatch(text) for wording in wordings) if found)
        return match["hall"], match["socks"], match["skill"].lower()

    for one in examples:
        clip = clips.row(one.desc_id, named=True)
        caption, rewrite = one.positives
        assert caption == clip["fine_caption"]
        hall, socks, skill = parts_of(caption)
        assert parts_of(rewrite) == (hall, socks, skill) == (clip["hall_colour"], clip["socks_colour"], skill)
        for text in one.static_negatives:
            other_hall, other_socks, other_skill = parts_of(text)
            assert other_skill == skill
            assert (other_hall, other_socks) != (hall, socks)
        for text in one.dynamic_negatives:
            other_hall, other_socks, other_skill = parts_of(text)
            assert (other_hall, other_socks) == (hall, socks)
            assert other_skill != skill
        assert len(one.static_negatives) >= 2
        assert one.dynamic_negatives
        assert not set(one.positives) & set(one.negatives)
    negatives = [text for one in examples for text in one.negatives]
    share = sum(wordings[0].fullmatch(text) is not None for text in negatives) / len(negatives)
    assert 0.4 < share < 0.6  # the wording does not show which texts fit


def test_miniature_examples_are_the_same_each_time(miniature):
    assert miniature_examples(miniature) == miniature_examples(miniature)


def test_built_examples_join_moments_and_rewritings(built):
    examples, rejections = built_examples(built)
    (one,) = examples["train"]
    assert one.positives == ("A man sits.", "A man takes a seat.")
    assert one.static_negatives == ("A woman sits.",)  # the caption itself is not a negative
    assert one.dynamic_negatives == ("A man stands.",)
    assert (one.video_id, one.start_seconds, one.end_seconds) == ("a", 1.0, 4.0)
    assert [rejection.reason for rejection in rejections] == ["no negative caption: desc_id 8"]


def test_a_folder_without_rewritings_is_refused(built):
    for path in (built / "rewritings").iterdir():
        path.unlink()
    with pytest.raises(FileNotFoundError, match="--rewritings"):
        built_examples(built)


def test_the_best_candidate_and_its_score_are_kept():
    assert choose(by_length, FRAMES, ["ab", "abc", "xyz"]) == ("abc", 3.0)
    moment = as_moment(ROW | {"kind": "static"})
    (judged,) = judge_moments([(moment, ["short", "the longest one"])], by_length, lambda _: FRAMES)
    assert (judged.fine_caption, judged.fine_caption_score) == ("the longest one", 15.0)
    assert judged.coarse_caption == "A man sits."


@pytest.mark.parametrize(
    ("evaluator", "candidates", "says"),
    [
        (by_length, [], "there is no candidate"),
        (lambda frames, texts: [1.0], ["a", "b"], "must give one finite number for each"),
        (lambda frames, texts: [float("nan"), 1.0], ["a", "b"], "must give one finite number for each"),
    ],
)
def test_an_evaluator_without_a_finite_score_for_each_candidate_is_an_error(evaluator, candidates, says):
    with pytest.raises(ValueError, match=says):
        choose(evaluator, FRAMES, candidates)


def test_a_moment_that_cannot_be_judged_is_named_and_the_others_go_on():
    def frames_of(moment):
        if moment.desc_id == 8:
            raise RuntimeError("no such video")
        return FRAMES

    moments = [(as_moment(ROW | {"desc_id": number}), ["text"]) for number in (7, 8, 9)]
    found = list(judge_moments(moments, by_length, frames_of))
    assert [type(one) for one in found] == [Moment, Rejection, Moment]
    assert (found[1].reason, found[1].key) == ("not judged: no such video", "8")
