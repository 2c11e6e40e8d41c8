"""Compositionality and retrieval of a model that knows the truth, except for chosen mistakes and ties."""

import math

import pytest
import torch

from hf_datasets.comp.contrasts import Span
from hf_datasets.comp.counterfactuals import Counterfactual
from subtle.comp.scores import Scores, draw_confidence

KINDS = ("temporal_reorder", "action_replace", "segment_mismatch")


def make_rows():
    """Two videos with three disruptions each; the mismatch of the second shows a part of it."""
    rows = []
    for video in ("a", "b"):
        for kind in KINDS:
            start, shown = (5.0, "part") if kind == "segment_mismatch" else (0.0, "whole")
            span = {"video": video, "query_start_seconds": start, "query_end_seconds": 9.0}
            texts = {"positive_text": f"{video} {shown}", "negative_text": f"{video} {kind}"}
            rows.append({"disruption_type": kind, **span, **texts})
    return rows


class Oracle:
    """Knows which text is right for which video, except for the chosen mistakes and ties."""

    num_frames = 1
    spread = "middles"

    def __init__(self, wrong=(), tied=()):
        self.wrong, self.tied, self.seen = set(wrong), set(tied), {}

    def _row(self, name):
        return torch.tensor([float(self.seen.setdefault(name, len(self.seen)))])

    def encode_video(self, frames):
        return torch.stack([frame.reshape(-1)[:1].float() for frame in frames])

    def encode_text(self, texts):
        return torch.stack([self._row(text) for text in texts])

    def compare(self, videos, texts):
        known = {number: name for name, number in self.seen.items()}
        answers = []
        for video in videos[:, 0].tolist():
            read = [known[int(text)] for text in texts[:, 0].tolist()]
            answers.append([self.similarity("ab"[int(video) // 10], int(video) % 10, text) for text in read])
        return torch.tensor(answers)

    def similarity(self, video, is_part, text):
        right = text == f"{video} {'part' if is_part else 'whole'}"
        if text in self.wrong:
            return 2.0
        return 1.0 if right or text in self.tied else 0.0


class FakeReader:
    """Frames whose first pixel says which video, and whether a part of it, is shown."""

    def read_all(self, spans, num_frames, spread="middles", *, num_workers=0):
        for span in spans:
            value = 10 * "ab".index(span.path) + (span.start_seconds > 0)
            yield torch.full((num_frames, 3, 2, 2), value, dtype=torch.uint8)


def test_a_model_that_ranks_every_text_right_has_accuracy_1():
    measured = Scores(make_rows(), FakeReader())(Oracle())
    assert measured["comprehensive_accuracy"] == 1.0
    assert measured["t2v_recall@1"] == measured["v2t_recall@1"] == 1.0
    assert measured["retrieval_corpus"] == 2  # cropped videos are not retrieved


def test_a_wrong_kind_of_pair_and_a_tie_lower_the_comprehensive_accuracy():
    oracle = Oracle(wrong=["a temporal_reorder"], tied=["b segment_mismatch"])
    measured = Scores(make_rows(), FakeReader())(oracle)
    assert measured["accuracy/temporal_reorder"] == 0.5
    assert measured["accuracy/action_replace"] == 1.0
    assert measured["accuracy/segment_mismatch"] == 0.5  # a tie is wrong
    assert measured["comprehensive_accuracy"] == 0.25
    assert measured["similarities"][0] == {"positive": 1.0, "negative": 2.0}


@pytest.mark.parametrize("last_bit", [6e-8, -6e-8])
def test_texts_that_differ_by_the_rounding_of_their_batches_are_a_tie(last_bit):
    oracle = Oracle(tied=["b segment_mismatch"])
    compare = oracle.compare
    oracle.compare = lambda videos, texts: compare(videos, texts) + last_bit * torch.arange(len(texts))
    assert Scores(make_rows(), FakeReader())(oracle)["accuracy/segment_mismatch"] == 0.5


def test_a_wrong_text_lowers_the_recall_of_both_directions():
    measured = Scores(make_rows(), FakeReader())(Oracle(wrong=["b whole"]))
    # Every video takes the text of b, and b's text the first video.
    assert measured["v2t_recall@1"] == 0.5
    assert measured["t2v_recall@1"] == 0.5


PAIRS = [
    Counterfactual("1", (Span("a", 0.0, 9.0), Span("b", 0.0, 9.0)), ("a whole", "b whole"), "video"),
    Counterfactual("2", (Span("a", 5.0, 9.0), Span("a", 0.0, 9.0)), ("a part", "a whole"), "part"),
]


def test_pairs_of_videos_give_text_video_and_group_score():
    measured = Scores(make_rows(), FakeReader(), pairs=PAIRS)(Oracle(), threshold=0.5)
    assert measured["pair_similarities"] == [[[1.0, 0.0], [0.0, 1.0]]] * 2
    assert [measured[name] for name in ("text_score", "video_score", "group_score")] == [1.0] * 3
    assert measured["strict_vle"] == measured["strict_vle/segment_mismatch"] == 1.0
    assert "classic_vle" not in measured  # of rows it is the accuracy
    measured = Scores(make_rows(), FakeReader(), pairs=PAIRS)(Oracle(wrong=["a whole"]), threshold=0.5)
    # Every video takes the whole of a, so only the first pair's texts still find a video, and not all of them.
    assert measured["pair_similarities"] == [[[2.0, 0.0], [2.0, 1.0]], [[1.0, 2.0], [0.0, 2.0]]]
    assert [measured[name] for name in ("text_score", "video_score", "group_score")] == [0.0, 0.0, 0.0]
    assert measured["text_score/part"] == 0.0
    assert set(measured["intervals"]) == {"text_score", "video_score", "group_score"}


def test_pairs_alone_are_measured_by_kind():
    measured = Scores([], FakeReader(), pairs=PAIRS)(Oracle(tied=["b whole"]), threshold=0.5)
    assert measured["pair_similarities"] == [[[1.0, 1.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]]]
    found = {name: measured[name] for name in ("text_score/video", "text_score/part", "classic_vle", "strict_vle")}
    assert found == {"text_score/video": 0.0, "text_score/part": 1.0, "classic_vle": 0.75, "strict_vle": 0.75}
    assert measured["counterfactual_signature"].startswith("counterfactual_accuracy|groups:part=1,video=1|videos:2|")
    assert "comprehensive_accuracy" not in measured


def test_the_threshold_is_fitted_between_true_and_false_texts():
    assert Scores(make_rows(), FakeReader()).fit_threshold(Oracle()) == 0.5


def test_a_bar_is_the_mean_confidence_in_the_text_that_fits():
    columns = {"disruption_type": ["multi", "temporal_reorder", "multi"], "m/negative": [0.3, 0.3, 0.3]}
    columns["m/positive"] = [0.3, 0.32, 0.31]
    (axes,) = draw_confidence(["m"], columns).axes
    of_one, of_two = 1 / (1 + math.exp(-2)), 1 / (1 + math.exp(-1))
    assert [bar.get_height() for bar in axes.patches] == pytest.approx([of_one, (0.5 + of_two) / 2], rel=1e-4)
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["temporal reorder", "multi"]
