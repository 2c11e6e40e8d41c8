"""Captions of rendered clips: coarse (which skill, where) and fine (counts, shape, clothes, hall)."""

from collections.abc import Mapping

from hf_datasets.miniature.actions import Action

PLACES: Mapping[str, str] = {
    "vault": "over the vault", "floor": "on the floor", "beam": "on the balance beam",
    "bars": "on the uneven bars", "platform": "from the platform",
}  # fmt: skip
SKILL_PHRASES: Mapping[str, str] = {
    "salto": "a salto", "leap": "a leap", "pivot": "a turn on one leg", "circle": "a circle around the bar",
    "dismount": "a dismount", "vault": "a jump", "dive": "a dive",
}  # fmt: skip
ENTRY_PHRASES: Mapping[str, str] = {
    "round-off": "from a round-off", "tsukahara": "after half a turn onto the table", "handspring": "from a handspring",
    "half on": "from a round-off with half a turn onto the table",
    "full on": "from a round-off with one turn onto the table",
}  # fmt: skip
_WHOLE = ("no", "one", "two", "three", "four")


def count_in_words(number: float, noun: str) -> str:
    """A count of halves in words.

    Example:
        >>> count_in_words(2.5, "turn"), count_in_words(1, "twist"), count_in_words(0.5, "turn")
        ('two and a half turns', 'one twist', 'half a turn')
    """
    whole, half = divmod(number, 1)
    if not whole and half:
        return f"half a {noun}"
    words = _WHOLE[int(whole)] + (" and a half" if half else "")
    return f"{words} {noun}" + ("" if number == 1 else "s")


def coarse_caption(action: Action) -> str:
    """The skill and the place, nothing that tells similar actions apart."""
    return f"An athlete performs {SKILL_PHRASES[action.kind]} {PLACES[action.apparatus]}."


def fine_caption(action: Action, hall_color: str, socks_color: str) -> str:
    """Counts, direction and shape of the motion, the athlete's socks and the hall."""
    athlete = f"In a {hall_color} hall, an athlete in {socks_color} socks performs"
    return f"{athlete} {action_phrase(action)} {PLACES[action.apparatus]}."


def action_phrase(action: Action) -> str:
    """The motion in words, from its parameters.

    Example:
        >>> from hf_datasets.miniature.actions import ACTIONS
        >>> action_phrase(ACTIONS["125"])
        'a double salto backward, tucked, with one twist'
    """
    way = "forward" if action.direction > 0 else "backward"
    turn = "twist" if action.kind in {"salto", "dive"} else "turn"
    turns = f" with {count_in_words(action.turns, turn)}" if action.turns else ""
    double = "double " if action.somersaults == 2 else ""
    phrases = {
        "salto": f"{'an arabian' if action.entry else 'a'} {double}salto {way}, {action.form},{turns}".rstrip(","),
        "leap": f"a {action.form}{turns}",
        "pivot": f"{count_in_words(action.turns, 'turn')} on one leg, {action.form}",
        "circle": f"a {action.form} {way}{turns}",
        "dismount": f"a {double}salto {way}, {action.form}, as a dismount{turns}",
        "vault": f"a {action.form} salto {way} {ENTRY_PHRASES.get(action.entry)}{turns}",
        "dive": f"{'an' if action.entry[:1] in 'aeiou' else 'a'} {action.entry} dive with "
        f"{count_in_words(action.somersaults, 'somersault')}, {action.form}{turns.replace(' with', ' and')}",
    }
    return phrases[action.kind]
