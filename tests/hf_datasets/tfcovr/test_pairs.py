"""Pairs of labels: counts that follow from the label table, types, thresholds, and errors."""

import re
from collections import Counter, defaultdict

import numpy as np
import pytest

from hf_datasets.records import LabelPair, Rejection
from hf_datasets.tfcovr.labels import find_label, load_labels
from hf_datasets.tfcovr.pairs import attribute_similarities, label_pairs, propose_pairs, text_encoder

TURNS = re.compile(r"(?: with)?(?: hop)? \d+(?:\.\d+)? (?:turn|twist)(?: or more)?")


def gymnastics():
    return [label for label in load_labels() if label.source == "finegym"]


def grouped(key):
    groups = defaultdict(list)
    for label in gymnastics():
        groups[key(label)].append(label)
    return [group for group in groups.values() if len(group) > 1]


def ordered_pairs(group):
    return [(one, other) for one in group for other in group if one is not other]


@pytest.fixture(scope="module")
def pairs():
    return {(pair.source, pair.target): pair for pair in label_pairs()}


def test_the_41_skills_of_two_apparatuses_are_event_changes(pairs):
    groups = grouped(lambda label: label.description.partition(") ")[2])
    across = [
        (one.label_id, other.label_id)
        for group in groups
        for one, other in ordered_pairs(group)
        if one.attributes.apparatus != other.attributes.apparatus
    ]
    assert len(across) == 2 * 41
    assert all(pairs[key].change_type == "event" for key in across)


def test_the_57_groups_that_differ_in_turns_are_temporal_changes(pairs):
    groups = grouped(lambda label: TURNS.sub("", label.description))
    within = [pair for group in groups for pair in ordered_pairs(group)]
    assert (len(groups), len(within)) == (57, 460)
    differing = [(one.label_id, other.label_id) for one, other in within if one.description != other.description]
    assert all(pairs[key].change_type == "temporal" for key in differing)


def test_every_label_has_a_partner_and_none_has_itself(pairs):
    assert {source for source, _ in pairs} == {label.label_id for label in load_labels()}
    assert all(source != target for source, target in pairs)
    assert all(find_label(s).source == find_label(t).source for s, t in pairs)


def test_pairs_of_identical_text_are_rejected_with_the_reason(pairs):
    rejections = [found for found in propose_pairs() if isinstance(found, Rejection)]
    assert {found.key for found in rejections} == {
        f"{one}->{other}"
        for first, second in [("180", "216"), ("181", "217"), ("185", "222"), ("5253b", "5251b")]
        for one, other in [(first, second), (second, first)]
    }
    assert {found.reason for found in rejections} == {"identical description: no text can tell the two labels apart"}
    assert not any(tuple(found.key.split("->")) in pairs for found in rejections)


def test_targets_are_ordered_by_similarity_and_capped():
    best = defaultdict(list)
    for pair in label_pairs(top_n=3):
        best[pair.source].append(pair.similarity)
    assert max(map(len, best.values())) == 3
    assert all(found == sorted(found, reverse=True) for found in best.values())


def test_a_higher_threshold_keeps_fewer_pairs():
    assert len(label_pairs(threshold=1.0)) == 0
    assert 0 < len(label_pairs(threshold=0.8)) < len(label_pairs(threshold=0.6))
    assert min(pair.similarity for pair in label_pairs(threshold=0.75)) >= 0.75


def test_attribute_similarity_is_symmetric_and_one_for_equals():
    similarities = attribute_similarities(load_labels())
    assert np.array_equal(similarities, similarities.T)
    assert np.all(np.diag(similarities) == 1)


def test_embeddings_decide_instead_of_attributes():
    labels = [find_label(label_id) for label_id in ("45", "148", "407c", "40")]
    vectors = np.array([[1, 0], [3, 0.1], [1, 0], [0, 1]])
    found = list(propose_pairs(labels, embeddings=vectors, threshold=0.9))
    assert [(pair.source, pair.target, pair.change_type) for pair in found if isinstance(pair, LabelPair)] == [
        ("45", "148", "event"),
        ("148", "45", "event"),
    ]
    assert Counter(pair.reason.split(":")[0] for pair in found if isinstance(pair, Rejection)) == {
        "different sports": 4
    }


def test_an_encoder_gets_the_descriptions():
    encoded = []

    def encode(texts):
        encoded.extend(texts)
        return np.eye(len(texts))

    assert label_pairs(embeddings=encode) == []
    assert encoded == [label.description for label in load_labels()]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threshold": 1.5}, "threshold is 1.5"),
        ({"top_n": 0}, "top_n is 0"),
        ({"embeddings": np.ones((3, 4))}, r"shape \(3, 4\), expected \(306, d\)"),
        ({"embeddings": np.zeros((306, 4))}, "a zero vector"),
        ({"embeddings": np.full((306, 4), np.nan)}, "NaN"),
    ],
)
def test_bad_options_are_refused_with_their_value(options, message):
    with pytest.raises(ValueError, match=message):
        label_pairs(**options)


@pytest.fixture
def tokenizer_folder(tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    words = sorted({word for label in load_labels() for word in re.findall(r"\w+|[^\w\s]", label.description)})
    vocabulary = {word: index for index, word in enumerate(["<pad>", "<unk>", "<bos>", "<eos>", *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> $A <eos>", special_tokens=[("<bos>", 2), ("<eos>", 3)]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>", bos_token="<bos>", eos_token="<eos>"
    ).save_pretrained(tmp_path)
    return tmp_path, len(vocabulary)


def test_a_clip_text_model_encodes_labels(tokenizer_folder):
    from transformers import CLIPConfig, CLIPModel

    folder, size = tokenizer_folder
    text = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    text |= {"vocab_size": size, "max_position_embeddings": 40, "bos_token_id": 2, "eos_token_id": 3, "pad_token_id": 0}
    vision = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    vision |= {"image_size": 8, "patch_size": 8}
    CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=12)).save_pretrained(folder)

    encode = text_encoder(str(folder), batch_size=100)
    vectors = encode([label.description for label in load_labels()])
    assert vectors.shape == (306, 12)
    alone = encode([load_labels()[17].description])[0]
    assert np.allclose(vectors[17], alone, atol=1e-5), "padding must not change a text's features"
    assert 0 < len(label_pairs(embeddings=encode, threshold=-1, top_n=2)) <= 612


def test_a_sentence_encoder_is_averaged_over_words(tokenizer_folder):
    from transformers import BertConfig, BertModel

    folder, size = tokenizer_folder
    config = BertConfig(
        vocab_size=size, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    BertModel(config).save_pretrained(folder)
    encode = text_encoder(str(folder))
    vectors = encode([label.description for label in load_labels()[:70]])
    assert vectors.shape == (70, 16)
    assert np.allclose(vectors[3], encode([load_labels()[3].description])[0], atol=1e-5)
