"""all-MiniLM-L6-v2 on published captions and labels."""

import json

import numpy as np
import pytest

from hf_datasets.fig.clusters import embed_sentences
from hf_datasets.tfcovr.labels import load_labels
from hf_datasets.tfcovr.pairs import text_encoder
from subtle.evaluate.analyse_fig import run
from subtle.evaluate.options import AnalyzeFIGConfig
from subtle.tfcovr.label_pairs import compare_pairs

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]

PAPER = {"coarse": (1393, 8805), "fine": (194, 422)}
"""Table 2 of VERIFIED: clusters and the captions in them."""


def test_the_clusters_of_charades_fig_are_those_of_table_2(sentence_encoder, shared, tmp_path):
    config = AnalyzeFIGConfig(
        release=str(shared / "data/charades_fig"), encoder=sentence_encoder, output_dir=str(tmp_path)
    )
    found = run(config)["table_2"]
    assert {name: (row["clusters"], row["clustered"]) for name, row in found.items()} == PAPER
    assert (tmp_path / "captions.png").stat().st_size > 100_000  # Figure 5
    assert json.loads((tmp_path / "results.json").read_text())["undrawn"] == {}


def test_both_readers_of_a_sentence_encoder_give_what_its_library_gives(sentence_encoder):
    library = pytest.importorskip("sentence_transformers")
    texts = [label.description for label in load_labels()[::20]]
    expected = library.SentenceTransformer(sentence_encoder, device="cpu").encode(texts, normalize_embeddings=True)
    np.testing.assert_allclose(embed_sentences(texts, sentence_encoder), expected, atol=1e-5)
    vectors = text_encoder(sentence_encoder)(texts)
    np.testing.assert_allclose(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), expected, atol=1e-5)


def test_sentences_and_attributes_choose_other_pairs_because_sentences_read_numbers_badly(sentence_encoder):
    found = compare_pairs(load_labels(), text_encoder(sentence_encoder)).summary()
    assert found["pairs"] == {"both": 2728, "attributes": 1572, "texts": 1572, "neither": 63104}
    changes = {row["change"]: row for row in found["changes"]}
    # Numbers move a sentence least, and the apparatus, which an event change changes alone, most.
    assert changes["numbers"]["cosine"] > 0.94
    assert changes["numbers"]["cosine"] > changes["apparatus"]["cosine"] + 0.15
    assert (changes["apparatus"]["attributes"], changes["apparatus"]["texts"]) == (36, 0)
    assert changes["numbers and words"]["texts"] > 1_400
    assert found["changed_attributes"]["texts"] > found["changed_attributes"]["attributes"] + 0.9
    assert found["labels_without_a_partner"] == {"attributes": 0, "texts": 5}
