"""Labels that nobody has trained on, put together from the words of those that somebody has."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise, takewhile

LONGEST = 3
"""Words that are replaced at once, and that replace them, at most."""
MAX_REPLACEMENTS = 2
"""Replacements that lead from a label to another, at most."""
MOST = 2000
"""Labels to put together, which are so many numbers of an embedding."""

Words = tuple[str, ...]


def words_of_label(text: str) -> Words:
    """The words of a label in order, in lower case; brackets and commas do not count.

    Example:
        >>> words_of_label("(Beam) leap, 0.5 turn")
        ('beam', 'leap', '0.5', 'turn')
    """
    words = tuple(text.lower().translate(str.maketrans("(),", "   ")).split())
    return words or (text,)  # a label of marks alone


def shared_words(labels: Sequence[Words]) -> list[list[str]]:
    """The words of each label that another has, too, each once; all of its words where no other has any of them.

    A word of one label alone tells of that label as a whole, and of no other.

    Example:
        >>> shared_words([("salto", "tucked"), ("salto", "piked"), ("wolf", "hop")])
        [['salto'], ['salto'], ['wolf', 'hop']]
    """
    number = Counter(word for label in labels for word in set(label))
    shared = ([word for word in dict.fromkeys(label) if number[word] > 1] for label in labels)
    return [own or list(dict.fromkeys(label)) for own, label in zip(shared, labels, strict=True)]


def compose_labels(labels: Sequence[Words]) -> list[Words]:
    """Labels that are not there, by analogy: what changes one label into another changes a third one.

    Two labels that differ in up to three words in one place say that these words may stand for each other between the
    same neighbors, nothing being words, too; a single word also where only one of its neighbors is the same. Other
    labels with such words there give new ones, and these again; none has a word twice in a row.

    Args:
        labels: The words of each.

    Returns:
        New labels, at most `MOST`: first those between the same neighbors, and of each kind those that one replacement
        makes, in alphabetical order.

    Example:
        >>> labels = [("salto", "tucked"), ("salto", "piked"), ("arabian", "salto", "tucked")]
        >>> compose_labels(labels)
        [('arabian', 'salto', 'piked')]
    """
    strict = _composed(labels, LONGEST, lambda left, right: [(left, right)])
    loose = _composed(labels, 1, lambda left, right: [(left, None), (None, right)])
    return list(dict.fromkeys([*strict, *loose]))[:MOST]


Places = Callable[[Words, Words], list[tuple[Words | None, Words | None]]]


def _composed(labels: Sequence[Words], longest: int, places: Places) -> list[Words]:
    """New labels by replacements of so many words; `places` are where neighbors count as the same."""
    replaced = defaultdict(set)
    for one in labels:
        for other in labels:
            start = shared_start(one, other)
            end = shared_start(one[start:][::-1], other[start:][::-1])
            ours, theirs = one[start : len(one) - end], other[start : len(other) - end]
            if ours != theirs and max(len(ours), len(theirs)) <= longest:
                for place in places(one[:start][-1:], one[len(one) - end :][:1]):
                    replaced[place, ours].add(theirs)
    known, latest = set(labels), sorted(set(labels))
    composed: list[Words] = []
    for _ in range(MAX_REPLACEMENTS):
        made = {
            label[:start] + words + label[end:]
            for label in latest
            for start in range(len(label) + 1)
            for end in range(start, min(len(label), start + longest) + 1)
            for place in places(label[:start][-1:], label[end : end + 1])
            for words in replaced.get((place, label[start:end]), ())
        }
        latest = sorted(label for label in made - known - {()} if all(one != next_ for one, next_ in pairwise(label)))
        known.update(latest)
        composed += latest
        if len(composed) >= MOST:
            break
    return composed


def shared_start(one: Words, other: Words) -> int:
    """How many words both begin with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
