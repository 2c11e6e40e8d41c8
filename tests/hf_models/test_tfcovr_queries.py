"""Queries and triplets by position, what could not be placed, and the ranking of a gallery."""

import polars as pl
import pytest
import torch

from hf_models.tfcovr.queries import index_of, place_queries, place_triplets
from hf_models.tfcovr.ranking import rank_clips

CLIPS, TEXTS = index_of(["a", "b", "c"]), index_of(["slower", "faster"])


def query(clip, text, targets, label="x"):
    return {"query_clip_id": clip, "modification_text": text, "target_clip_ids": targets, "target_label": label}


class Sum:
    """Composes a query as the sum of its halves."""

    def get_query_features(self, video_embeds=0, text_embeds=0):
        return video_embeds + text_embeds

    def get_target_features(self, video_embeds):
        return video_embeds


def test_a_triplet_is_made_of_each_target_and_counted_where_it_cannot_be_placed():
    rows = pl.DataFrame([query("b", "faster", ["a", "gone", "c"]), query("a", "unknown", ["b"], "y")])
    triplets = place_triplets(rows, CLIPS, TEXTS)
    assert (triplets.query.tolist(), triplets.text.tolist(), triplets.target.tolist()) == ([1, 1], [1, 1], [0, 2])
    assert triplets.label.unique().numel() == 1
    assert len(triplets) == 2
    assert triplets.coverage == {"triplets": 4, "usable": 2}


def test_a_query_without_clip_text_or_other_target_is_left_out_and_counted():
    rows = [
        query("a", "slower", ["a", "b", "gone"]),
        query("gone", "slower", ["b"]),
        query("b", "unknown", ["a"]),
        query("c", "faster", ["c"]),  # its only target is its own clip
    ]
    queries = place_queries(rows, ["b", "a", "gone", "a"], CLIPS, TEXTS)
    assert [row["target_clip_ids"] for row in queries.rows] == [["b", "gone"]]
    assert (queries.query.tolist(), queries.text.tolist()) == ([0], [0])
    assert (queries.gallery_ids, queries.gallery.tolist()) == (["b", "a", "a"], [1, 0, 0])
    assert queries.exclude == [[1, 2]]
    assert queries.coverage == {
        "queries": 4,
        "queries_ranked": 1,
        "targets": 2,
        "targets_in_gallery": 1,
        "gallery_clips": 4,
        "gallery_clips_ranked": 3,
    }


def test_labels_have_the_numbers_that_are_given_and_one_without_is_refused():
    rows = pl.DataFrame([query("b", "faster", ["a", "c"]), query("a", "slower", ["b"], "y")])
    assert place_triplets(rows, CLIPS, TEXTS).label.tolist() == [1, 1, 2]
    assert place_triplets(rows, CLIPS, TEXTS, {"y": 0, "x": 5}).label.tolist() == [5, 5, 0]
    with pytest.raises(ValueError, match=r"1 target labels are none of the model's 1, such as 'y'; train stage 1"):
        place_triplets(rows, CLIPS, TEXTS, {"x": 5})


def test_rows_of_which_none_can_be_placed_are_refused():
    with pytest.raises(ValueError, match=r"of 1 triplets none has both clips and its text.*subtle embed clips"):
        place_triplets(pl.DataFrame([query("gone", "slower", ["a"])]), CLIPS, TEXTS)
    with pytest.raises(ValueError, match=r"none of 1 queries has its clip and text.*subtle embed clips"):
        place_queries([query("gone", "slower", ["a"])], ["a"], CLIPS, TEXTS)


def test_the_gallery_is_ranked_without_the_querys_own_clip_and_ends_with_it_under_the_official_protocol():
    video = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]])
    queries = place_queries([query("a", "slower", ["b"])], ["c", "a", "b"], CLIPS, TEXTS)
    ids, scores = rank_clips(Sum(), queries, video, torch.zeros(2, 2))
    assert ids == [["b", "c"]]
    assert scores[0] == pytest.approx([0.8, 0.0])
    assert rank_clips(Sum(), queries, video, torch.zeros(2, 2), k=1)[0] == [["b"]]
    assert rank_clips(Sum(), queries, video, torch.zeros(2, 2), protocol="tfcovr-official")[0] == [["b", "c", "a"]]
    text = torch.tensor([[0.0, 1.0], [0.0, 0.0]])
    assert rank_clips(Sum(), queries, video, text, parts="text")[0] == [["c", "b"]]
