"""The action verbs of captions, and which other verb of the dataset can replace one."""

import random
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from hf_datasets.tagger import english_tagger

VERB_FORMS = {"VVZ": "VVZ", "VVG": "VVG", "VVD": "VVD", "VVN": "VVN", "VVB": "base", "VVI": "base"}
"""Tags of full verbs (CLAWS 5) and the form they are in; present and infinitive look the same."""
LIGHT = frozenset([
    "be", "have", "do", "begin", "start", "continue", "keep", "stop", "finish", "see", "show", "appear", "try",
    "seem", "use", "get", "go", "come", "make", "let", "lead", "follow", "become", "include", "contain", "wear",
    "stand", "sit", "demonstrate", "explain", "attempt", "proceed",
])  # fmt: skip
"""Verbs that carry no action of their own, or that fit any video."""
ALIKE = tuple(
    frozenset(group.split())
    for group in (
        "speak talk say tell discuss chat",
        "cut chop slice dice mince trim carve",
        "mix stir combine blend whisk beat toss fold",
        "put place add lay set insert pour drop",
        "walk move step run jog",
        "look watch stare gaze view",
        "take grab pick hold catch pull remove",
        "throw toss fling hurl cast",
        "hit strike kick punch bang",
        "cook fry saute boil bake roast grill heat simmer warm",
        "clean wash wipe scrub rinse dry",
        "spread rub brush apply coat cover sprinkle drizzle season",
        "jump leap hop flip",
        "spin turn rotate twirl roll",
        "ride drive pedal",
        "paint draw color",
        "lift raise hoist",
        "serve plate garnish top",
    )
)
"""Groups of verbs that may describe the same picture; none replaces another of its group."""


@dataclass(frozen=True, slots=True)
class ActionVerb:
    """A verb in a sentence: its position, form and lemma, and its frame (verb form, kind of the next word)."""

    index: int
    word: str
    lemma: str
    frame: tuple[str, str]


def find_actions(sentence: str) -> list[ActionVerb]:
    """The actions of a sentence, by part-of-speech tags, each with its form and what follows it.

    Example:
        >>> find_actions("She lifts a barbell to her chest.")
        [ActionVerb(index=1, word='lifts', lemma='lift', frame=('VVZ', 'object'))]
    """
    words = sentence.split()
    tagged = english_tagger().tag_sent([word.strip(".,;:!?\"'") or word for word in words])
    followers = [_follower(word, tag) for word, _, tag in tagged[1:]] + ["end"]
    return [
        ActionVerb(index, word, lemma.lower(), (VERB_FORMS[tag], follower))
        for index, ((word, lemma, tag), follower) in enumerate(zip(tagged, followers, strict=True))
        if tag in VERB_FORMS and lemma.lower() not in LIGHT and word.isalpha() and words[index].startswith(word)
    ]


class Verbs:
    """The actions of a dataset, by their frame.

    A verb is replaced by one that the dataset uses in the same form and in front of the same kind of word ("lifts a"
    by "throws a", "speaking to" by "walking to"), in proportion to how often it does.

    Args:
        sentences: Captions of the dataset. A verb seen once in a frame is left out: often it is an error of the tagger.

    Example:
        >>> verbs = Verbs(["She lifts a bar.", "He throws a ball."] * 2)
        >>> verbs.replace("He lifts a box.", random.Random(0))
        'He throws a box.'
    """

    def __init__(self, sentences: Iterable[str]) -> None:
        counts: dict[tuple[str, str], Counter[tuple[str, str]]] = defaultdict(Counter)
        for sentence in sentences:
            for action in find_actions(sentence):
                counts[action.frame][action.word.lower(), action.lemma] += 1
        self._known = {
            frame: {word: count for word, count in found.items() if count > 1} for frame, found in counts.items()
        }

    def replace(self, sentence: str, generator: random.Random) -> str | None:
        """The sentence with another action, or None where it has no action or no other verb fits."""
        for action in find_actions(sentence):
            others = {
                word: count
                for (word, lemma), count in self._known.get(action.frame, {}).items()
                if not alike(lemma, action.lemma) and word != action.word.lower()
            }
            if others:
                (word,) = generator.choices(list(others), weights=list(others.values()))
                chosen = word.capitalize() if action.word[0].isupper() else word
                words = sentence.split()
                words[action.index] = chosen + words[action.index][len(action.word) :]
                return " ".join(words)
        return None


def alike(first: str, second: str) -> bool:
    """Whether two verbs may describe the same picture."""
    return first == second or any({first, second} <= group for group in ALIKE)


def _follower(word: str, tag: str) -> str:
    if tag in {"PRP", "PRF", "AVP", "TO0"}:
        return word.lower()
    return "object" if tag[:2] in {"AT", "DP", "DT", "NN", "AJ", "PN", "CR", "NP"} else "other"
