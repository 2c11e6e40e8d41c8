"""What a rule writes between labels of any sport and language."""

from itertools import permutations

import pytest

from hf_datasets.tfcovr.free_text import free_rejection_reason, write_free_modification

WRITTEN = {
    "weightlifting": {
        ("back squat 3 reps", "back squat 5 reps"): "show 5 reps instead of 3",
        ("back squat 3 reps", "front squat 5 reps"): "show front instead of back and 5 reps instead of 3",
        ("back squat", "back squat 5 reps"): "add 5 reps",
        ("back squat 5 reps", "back squat"): "remove 5 reps",
        ("back squat", "deadlift"): "show deadlift instead of back squat",
    },
    "tennis": {
        ("forehand topspin down the line", "forehand topspin cross-court"): "show cross-court instead of down the line",
        ("serve wide with slice", "serve (2nd) wide, with slice."): "add (2nd)",
        ("serve", "serve with slice"): "show it with slice",
        ("serve, then volley", "volley, then serve"): "show volley, then serve instead of serve, then volley",
        ("1/2 volley", "1 1/2 volley"): "show 1 1/2 volley instead of 1/2",
    },
    "volleyball in Spanish": {
        ("saque flotante", "saque con salto y efecto"): "show con salto y efecto instead of flotante",
        ("saque con salto", "saque con salto y efecto"): "add efecto",
        ("remate por zona 4", "remate por zona 2"): "show zona 2 instead of 4",
        ("saque con salto", "remate con efecto"): "show remate con efecto instead of saque con salto",
        ("¡bloqueo doble!", "bloqueo triple"): "show triple instead of doble",
    },
    "skating in German": {
        ("Doppelaxel", "Dreifacher Axel"): "show Dreifacher Axel instead of Doppelaxel",
        ("Pirouette mit 3 Umdrehungen", "PIROUETTE mit 5 Umdrehungen"): "show 5 Umdrehungen instead of 3",
        ("Dreifacher Toeloop", "Dreifacher Toeloop mit Auftippen"): "add mit Auftippen",
        ("Lutz und Axel", "Lutz"): "remove Axel",
    },
    "tumbling in Chinese, Japanese and Russian": {
        ("后空翻", "前空翻"): "show 前 instead of 后",
        ("后空翻", "后空翻两周"): "add 两周",
        ("バク転2回", "バク転3回"): "show 3回 instead of 2",
        ("двойной аксель", "тройной аксель"): "show тройной instead of двойной",
    },
    "none, with words that are composed of letters and marks in two ways": {
        ("service lifte\u0301", "service lift\u00e9 court"): "add court"
    },
}


@pytest.mark.parametrize("sport", WRITTEN)
def test_what_differs_is_named_in_the_words_of_the_labels(sport):
    for (source, target), expected in WRITTEN[sport].items():
        assert write_free_modification(source, target) == expected
        assert free_rejection_reason(source, target, expected) is None
    texts = {text for pair in WRITTEN[sport] for text in pair}
    for source, target in permutations(texts, 2):
        back_and_forth = {write_free_modification(source, target), write_free_modification(target, source)}
        assert len(back_and_forth) == 2
        assert not [text for text in back_and_forth if free_rejection_reason(source, target, text)]


def test_a_long_description_is_named_without_the_one_that_it_replaces():
    source, target = (" ".join(f"{side}{number}" for number in range(20)) for side in "ab")
    assert write_free_modification(source, target) == f"show {target}"
