"""Search agrees with a stable sort of all scores, in bounded memory, and leaves out what is excluded."""

import numpy as np
import pytest
import torch
from transformers import PreTrainedConfig, PreTrainedModel

from hf_models import best_rows, retrieval
from hf_models.retrieval import encode, ranked_ids, recall_both_ways, search


def brute_force(queries, corpus, k, exclude=None):
    scores = queries @ corpus.T
    for query, rows in enumerate(exclude or []):
        scores[query, [row for row in rows if row >= 0]] = -torch.inf
    values, rows = scores.sort(dim=1, descending=True, stable=True)
    return rows[:, :k].masked_fill(values[:, :k].isneginf(), -1), values[:, :k]


def assert_sorted(queries, corpus, k, exclude=None):
    """The search finds the rows and scores that a stable sort of all scores gives."""
    found = search(queries, corpus, k, exclude=exclude)
    assert all(map(torch.equal, found, brute_force(queries, corpus, k, exclude)))


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(retrieval, "QUERY_BLOCK", 7)
    monkeypatch.setattr(retrieval, "CORPUS_BLOCK", 32)
    monkeypatch.setattr(best_rows, "TIED_BLOCK", 2)


def integers(rows, columns, high, seed):
    """Small whole numbers: their dot products are exact, so equal scores are equal however they are computed."""
    return torch.randint(0, high, (rows, columns), generator=torch.Generator().manual_seed(seed)).float()


@pytest.mark.parametrize("k", [1, 5, 50, 200])
@pytest.mark.parametrize("corpus_size", [3, 32, 33, 130])
@pytest.mark.parametrize("high", [2, 50])
def test_search_equals_a_stable_sort_of_all_scores(k, corpus_size, high):
    queries, corpus = integers(20, 6, high, 0), integers(corpus_size, 6, high, 1)
    exclude = [[i % corpus_size, -1, (3 * i) % corpus_size] for i in range(20)]
    assert_sorted(queries, corpus, k, exclude)


@pytest.mark.parametrize("most_candidates", [0, 60, 2**18])  # never, in some blocks, always
@pytest.mark.parametrize("order", [torch.arange(400), torch.arange(400).flip(0), torch.arange(400) % 7])
def test_scores_that_rise_or_fall_or_tie_along_the_corpus_are_found_in_every_block(order, most_candidates, monkeypatch):
    monkeypatch.setattr(best_rows, "MOST_CANDIDATES", most_candidates)
    monkeypatch.setattr(retrieval, "CORPUS_BLOCK", 60)
    corpus = torch.stack([order.float(), torch.ones(400)], dim=1)
    queries = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]])
    exclude = [[399], [0], [-1]]
    assert_sorted(queries, corpus, 10, exclude)


@pytest.mark.parametrize("most_candidates", [40, 400, 2**18])
def test_a_corpus_in_the_order_of_its_clusters_is_searched_exactly(most_candidates, monkeypatch):
    monkeypatch.setattr(best_rows, "MOST_CANDIDATES", most_candidates)
    centers = integers(20, 5, 9, 4)
    corpus = centers.repeat_interleave(40, dim=0) + integers(800, 5, 2, 5)
    for k in (1, 6, 100):
        assert_sorted(centers, corpus, k)


def test_zeros_of_either_sign_are_equal():
    corpus = torch.tensor([[-1.0], [0.0], [-1.0], [0.0], [-2.0], [0.0]])
    rows, _ = search(torch.tensor([[0.0], [-0.0]]), corpus, 5)
    assert torch.equal(rows, torch.arange(5).expand(2, 5))


@pytest.mark.parametrize("late", [0, 90])
def test_scores_that_overflow_are_refused(late):
    corpus = integers(100, 2, 9, 0)
    corpus[late] = torch.tensor([3e38, -3e38])
    for query in ([3.0, 0.0], [3.0, 3.0]):  # infinity, and infinity less infinity
        with pytest.raises(ValueError, match="overflow float32"):
            search(torch.tensor([query]), corpus, 3)


def test_finite_rows_whose_sum_alone_overflows_are_ranked():
    corpus = torch.full((4, 2), 3e38)
    assert search(torch.tensor([[1.0, 0.0]]), corpus, 2)[0].tolist() == [[0, 1]]


def test_a_memory_mapped_corpus_gives_the_same_answer(tmp_path):
    queries, corpus = integers(5, 8, 9, 2), integers(70, 8, 9, 3)
    np.save(tmp_path / "corpus.npy", corpus.numpy())
    mapped = np.load(tmp_path / "corpus.npy", mmap_mode="r")
    assert torch.equal(search(queries.numpy(), mapped, 9)[0], search(queries, corpus, 9)[0])


def test_an_excluded_row_is_never_returned_and_leaves_no_gap():
    corpus = torch.eye(3)
    rows, scores = search(corpus, corpus, 3, exclude=torch.arange(3))
    assert ranked_ids(rows, ["a", "b", "c"]) == [["b", "c"], ["a", "c"], ["a", "b"]]
    assert (rows[:, 2] == -1).all()
    assert scores[:, 2].isneginf().all()


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("wrong", [torch.nan, torch.inf, -torch.inf])
def test_a_corpus_row_that_is_not_finite_is_named_also_in_a_late_block(wrong, k):
    corpus = integers(100, 4, 9, 0)
    corpus[90, 1] = wrong
    for exclude in (None, [[90], [90]]):  # also where no query would have found it
        with pytest.raises(ValueError, match=r"row 90 of the corpus is not finite"):
            search(torch.ones(2, 4), corpus, k, exclude=exclude)


def test_a_query_that_is_not_finite_is_named():
    queries = torch.eye(3)
    queries[2, 0] = -torch.inf
    with pytest.raises(ValueError, match=r"row 2 of the queries is not finite"):
        search(queries, torch.eye(3), 2)


@pytest.mark.parametrize(
    "exclude",
    [
        [np.int64(0), np.int64(1), np.int64(2)],
        [[np.int64(0)], (1,), np.array([2])],
        [torch.tensor(0), torch.tensor([1]), 2],
        np.arange(3),
        np.arange(3, dtype=np.uint8),
        torch.arange(3)[:, None],
    ],
    ids=str,
)
def test_every_form_of_integers_excludes(exclude):
    rows, _ = search(torch.eye(3), torch.eye(3), 1, exclude=exclude)
    assert rows[:, 0].tolist() == [1, 0, 0]


@pytest.mark.parametrize(
    ("exclude", "message"),
    [
        ([0.5, 1, 2], "0.5"),
        (["a", "b", "c"], "'a'"),
        ([None, 1, 2], "None"),
        (np.ones((3, 1)), "1.0"),
        ([[0], [3], [1]], "row 3 .* 3 rows"),
        ([0, -2, 1], "-2"),
        ([0, 1], "2 entries for 3 queries"),
    ],
    ids=str,
)
def test_an_exclusion_that_names_no_row_for_each_query_is_refused(exclude, message):
    with pytest.raises(ValueError, match=message):
        search(torch.eye(3), torch.eye(3), 1, exclude=exclude)


@pytest.mark.parametrize(
    ("queries", "corpus", "k", "message"),
    [
        (torch.ones(2, 3), torch.ones(2, 4), 1, "one D"),
        (torch.ones(2, 3), torch.ones(0, 3), 1, "corpus is empty"),
        (torch.ones(2, 3), torch.ones(2, 3), 0, "at least 1"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(queries, corpus, k, message):
    with pytest.raises(ValueError, match=message):
        search(queries, corpus, k)


class Doubling(PreTrainedModel):
    config_class = PreTrainedConfig

    def __init__(self):
        super().__init__(PreTrainedConfig())
        self.layer = torch.nn.Linear(2, 2)
        self.dropout = torch.nn.Dropout(0.5)

    def get_target_features(self, pixel_values):
        return 2 * self.dropout(pixel_values)


def test_encode_keeps_the_order_and_leaves_the_mode_as_it_was():
    model = Doubling().train()
    loader = [
        {"clip_id": ["b", "a"], "pixel_values": torch.eye(2)},
        {"clip_id": ["c"], "pixel_values": torch.ones(1, 2)},
        {"clip_id": torch.tensor([7]), "pixel_values": torch.zeros(1, 2)},
    ]
    ids, embeds = encode(model, loader)
    assert ids == ["b", "a", "c", 7]
    assert torch.equal(embeds, 2 * torch.tensor([[1.0, 0], [0, 1], [1, 1], [0, 0]]))
    assert model.training


@pytest.mark.parametrize(
    ("loader", "message"),
    [
        ([], "nothing to encode"),
        ([{"clip_id": ["a"], "pixel_values": torch.eye(2)}], "1 ids and 2 embeddings"),
        ([{"clip_id": ["a"], "unknown": torch.eye(1)}], "unexpected keyword argument"),
    ],
)
def test_encode_leaves_the_mode_of_each_part_as_it_was_also_after_a_failure(loader, message):
    model = Doubling().train()
    model.layer.eval()
    encode(model, [{"clip_id": ["a"], "pixel_values": torch.ones(1, 2)}])
    assert (model.training, model.layer.training) == (True, False)
    with pytest.raises((ValueError, TypeError), match=message):
        encode(model, loader)
    assert (model.training, model.layer.training) == (True, False)


@pytest.mark.parametrize("scale", [None, 3.0])
def test_recall_both_ways_equals_a_plain_sort(scale, monkeypatch):
    monkeypatch.setattr(retrieval, "QUERY_BLOCK", 4)
    scores = torch.randint(0, 4, (9, 12), generator=torch.Generator().manual_seed(0)).float()  # with ties
    pairs = [(video, text) for video in range(9) for text in (video, (2 * video) % 12)]
    pairs = list(dict.fromkeys(pairs))
    texts = sorted({text for _, text in pairs})

    found = recall_both_ways(
        lambda videos, texts: scores[videos[:, 0].long()][:, texts[:, 0].long()],
        torch.arange(9)[:, None].float(),
        torch.arange(12)[:, None].float(),
        pairs,
        cutoffs=(1, 2),
        dual_softmax=scale,
        batch_size=2,
    )
    table = scores.double().numpy()[:, texts]
    exponents = np.exp((scale or 0) * table)
    of_videos = table * exponents / exponents.sum(0) if scale else table
    of_texts = table * exponents / exponents.sum(1, keepdims=True) if scale else table

    def rank(scores, right):
        order = sorted(range(len(scores)), key=lambda place: -np.round(scores[place], 6))
        return 1 + min(order.index(place) for place in right)

    places = [(video, texts.index(text)) for video, text in pairs]
    ranks = [rank(of_videos[video], [text for one, text in places if one == video]) for video in range(9)]
    assert (found["v2t_recall@2"], found["v2t_median_rank"]) == (np.mean(np.array(ranks) <= 2), np.median(ranks))
    ranks = [rank(of_texts[:, text], [video for video, one in places if one == text]) for _, text in places]
    assert (found["t2v_recall@1"], found["t2v_median_rank"]) == (np.mean(np.array(ranks) <= 1), np.median(ranks))
    assert found["retrieval_corpus"] == 9
