"""A linear classifier in which classes share what their labels have in common."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from .composed_labels import words_of_label

LabelFactors = Sequence[Sequence[str]]


class FactoredClassifier(nn.Module):
    """Classes whose weights are the sum of the weights of their factors.

    "salto backward, 1.5 turns" and "salto backward, 2 turns" share all weights but those of the number of turns and of
    the label itself, so that every clip of either trains what tells a salto backward from others. A plain linear
    classifier has to learn that for each class anew, from its few clips.

    Args:
        size: of the input.
        label_factors: the factors of each class in its order, such as `["direction backward", "turns 1.5"]`; classes
            with the same factors get the same logits.

    Example:
        >>> classifier = FactoredClassifier(8, [["salto", "1 turn"], ["salto", "2 turns"], ["leap", "1 turn"]])
        >>> classifier(torch.zeros(5, 8)).shape, classifier.linear.out_features
        (torch.Size([5, 3]), 4)
    """

    membership: Tensor

    def __init__(self, size: int, label_factors: LabelFactors) -> None:
        super().__init__()
        self.label_factors = label_factors
        membership = self.make_membership()
        self.linear = nn.Linear(size, membership.shape[1])
        self.register_buffer("membership", membership)

    @property
    def factors(self) -> list[str]:
        """All factors, in the order of the weights of `linear`."""
        return list(dict.fromkeys(name for factors in self.label_factors for name in factors))

    def make_membership(self) -> Tensor:
        """Which class has which factor, `(num_labels, num_factors)`, 0 or 1."""
        places = {name: place for place, name in enumerate(self.factors)}
        membership = torch.zeros(len(self.label_factors), len(places))
        for row, factors in zip(membership, self.label_factors, strict=True):
            row[[places[name] for name in factors]] = 1
        return membership

    def forward(self, embeds: Tensor) -> Tensor:
        """Logits.

        Args:
            embeds: `(..., size)`.

        Returns:
            `(..., num_labels)`.
        """
        logits: Tensor = self.linear(embeds) @ self.membership.T
        return logits


def factors_of(text: str) -> list[str]:
    """What a label consists of: its words, the pairs of neighboring words, and itself.

    A number counts with the word after it, so that "1.5 turn" is a factor.

    Args:
        text: The label in words.

    Example:
        >>> factors_of("(Beam) leap, 0.5 turn")
        ['beam', 'leap', '0.5', 'turn', 'beam leap', 'leap 0.5', '0.5 turn', 'beam leap 0.5 turn']
    """
    words = words_of_label(text)
    pairs = [" ".join(pair) for pair in pairwise(words)]
    return list(dict.fromkeys([*words, *pairs, " ".join(words)]))
