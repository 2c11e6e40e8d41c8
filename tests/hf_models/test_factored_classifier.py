"""A classifier whose classes share factors, against a loop over them; the factors of a label, by hand."""

import pytest
import torch

from hf_models.tfcovr.factored_classifier import FactoredClassifier, factors_of

FACTORS = [["salto", "1 turn"], ["salto", "2 turns"], ["leap", "1 turn"], ["1 turn", "salto"], ["leap"]]


def test_logits_are_the_sums_over_the_factors_of_each_class():
    torch.manual_seed(0)
    classifier, embeds = FactoredClassifier(8, FACTORS), torch.randn(3, 2, 8)
    places = {name: place for place, name in enumerate(dict.fromkeys(name for factors in FACTORS for name in factors))}
    assert classifier.linear.out_features == len(places) == 4
    expected = torch.zeros(3, 2, len(FACTORS))
    for label, factors in enumerate(FACTORS):
        for name in factors:
            weight, bias = classifier.linear.weight[places[name]], classifier.linear.bias[places[name]]
            expected[..., label] += (embeds * weight).sum(-1) + bias
    torch.testing.assert_close(classifier(embeds), expected)


def test_a_factor_named_twice_counts_once():
    assert FactoredClassifier(8, [["leap", "leap"]]).membership.tolist() == [[1.0]]


@pytest.mark.parametrize(
    ("text", "factors"),
    [
        ("leap", ["leap"]),
        ("Split Leap", ["split", "leap", "split leap"]),
        (
            "(Beam) leap, 0.5 turn",
            ["beam", "leap", "0.5", "turn", "beam leap", "leap 0.5", "0.5 turn", "beam leap 0.5 turn"],
        ),
        ("turn turn turn", ["turn", "turn turn", "turn turn turn"]),
        ("(,)", ["(,)"]),
    ],
)
def test_a_label_consists_of_its_words_their_pairs_and_itself(text, factors):
    assert factors_of(text) == factors
