"""Modification texts: the rule-based generator, the checks for any writer, the task, and the normal form of texts."""

import json
from collections import defaultdict

import pytest

from hf_datasets.generation.task import Task
from hf_datasets.records import LabelPair, Rejection
from hf_datasets.tfcovr.labels import find_label, load_labels, parse_description
from hf_datasets.tfcovr.modifications.checks import modification_fault
from hf_datasets.tfcovr.modifications.normalization import count_words, normalise_text
from hf_datasets.tfcovr.modifications.task import (
    DIVING_PROMPT,
    GYMNASTICS_PROMPT,
    Modification,
    ModificationAnswer,
    ModificationTask,
    examples,
)
from hf_datasets.tfcovr.modifications.writer import write_modification
from hf_datasets.tfcovr.pairs import label_pairs

EXAMPLES = [*examples("gymnastics"), *examples("diving")]
SWITCH_LEAP, SPLIT_LEAP_ON_BEAM = "(FX) switch leap with 0.5 turn", "(BB) split leap with 1 turn"
BACK, BACK_LESS = "Back, 1.5 Twists, 2.5 Soms.Pike, Entry", "Back, 2.5 Twists, 1.5 Soms.Pike, Entry"


def judge(source, target, text):
    return modification_fault(parse_description(source), parse_description(target), text)


def comparable(text):
    return text.casefold().rstrip(".")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example["modification_text"])
def test_the_papers_examples_pass_the_checks_and_the_rule_based_generator_repeats_them_word_for_word(example):
    assert judge(example["source"], example["target"], example["modification_text"]) is None
    written = write_modification(parse_description(example["source"]), parse_description(example["target"]))
    assert comparable(written) == comparable(example["modification_text"])


@pytest.mark.parametrize(
    ("source", "target", "text"),
    [
        ("(Uneven Bar) giant circle forward", "(Uneven Bar) giant circle backward", "show backward"),
        ("(Floor Exercise) 1 turn on one leg, free leg optional below horizontal",
         "(Floor Exercise) 3 turn on one leg, free leg optional below horizontal", "show with 3 turn"),
        ("(Floor Exercise) split jump", "(Balance Beam) split jump with 0.5 turn in side position",
         "show on Balance Beam with 0.5 turn in side position"),
        ("(Floor Exercise) aerial cartwheel", "(Balance Beam) free aerial cartwheel landing in side position",
         "show on Balance Beam landing in side position"),
        ("(Vault) handspring forward on, stretched salto forward with 0.5 turn off",
         "(Vault) handspring forward on, piked salto forward with 0.5 turn off", "show piked salto forward"),
        ("Back, 2.5 Soms.Pike, Entry", "Inward, 1.5 Soms.Pike, Entry",
         "change direction to inward and show with 1.5 somersaults"),
    ],
)  # fmt: skip
def test_the_rule_based_generator_agrees_with_the_figures_of_the_paper(source, target, text):
    assert write_modification(parse_description(source), parse_description(target)) == text
    assert judge(source, target, text) is None


def test_the_rule_based_generator_is_never_rejected_on_the_default_pairs():
    task = ModificationTask()
    outcomes = [task.parse(pair, task.write(pair)) for pair in label_pairs()]
    assert len(outcomes) == 4300
    assert [outcome for outcome in outcomes if isinstance(outcome, Rejection)] == []
    lengths = [count_words(outcome.modification_text) for outcome in outcomes]
    assert min(lengths) >= 2
    assert max(lengths) <= 19


def test_no_source_has_one_instruction_for_two_different_targets():
    targets = defaultdict(set)
    for source in load_labels()[::7]:
        for target in load_labels():
            if source.source == target.source and source.description != target.description:
                text = write_modification(source.attributes, target.attributes)
                targets[source.label_id, text].add(target.description)
    assert len(targets) > 9_000
    assert {key: found for key, found in targets.items() if len(found) > 1} == {}


@pytest.mark.parametrize("labels", [("180", "216"), ("0", "0")])
def test_labels_that_say_the_same_have_no_modification(labels):
    source, target = (find_label(label_id).attributes for label_id in labels)
    with pytest.raises(ValueError, match="say the same"):
        write_modification(source, target)
    assert "nothing to modify" in modification_fault(source, target, "show with 1 turn")


@pytest.mark.parametrize(
    ("source", "target", "text"),
    [
        (SWITCH_LEAP, SPLIT_LEAP_ON_BEAM, "Change to a split leap with 1 turn on the beam."),
        (SWITCH_LEAP, SPLIT_LEAP_ON_BEAM, "Switch to a split leap on Balance Beam with a full turn"),
        (SWITCH_LEAP, SPLIT_LEAP_ON_BEAM, "Show a split leap on BB with one turn instead of a switch leap"),
        (SWITCH_LEAP, SPLIT_LEAP_ON_BEAM, "Increase to 1 turn, show a split leap on BB"),
        (BACK, BACK_LESS, "Show with two and a half twists and one and a half somersaults in pike position"),
        (BACK, BACK_LESS, "Reduce to 1.5 somersaults and increase to 2.5 twists"),
        (
            "Arm.Back, 2.5 Twists, 2 Soms.Pike, Entry",
            "Reverse, 2.5 Twists, 1.5 Soms.Pike, Entry",
            "Change direction to Reverse, reduce to two and a half twists, and show with one and a half somersaults",
        ),
    ],
)  # fmt: skip
def test_other_words_for_the_same_change_pass(source, target, text):
    assert judge(source, target, text) is None


@pytest.mark.parametrize(
    ("source", "target", "text", "reason"),
    [
        (SWITCH_LEAP, SPLIT_LEAP_ON_BEAM, "Show a split leap on BB with 2 turns", "says 2 turn, the target has 1"),
        (SWITCH_LEAP, SPLIT_LEAP_ON_BEAM, "Show a split leap on FX with 1 turn", "names Floor Exercise"),
        (SWITCH_LEAP, SPLIT_LEAP_ON_BEAM, "Show a split jump on BB with 1 turn", "says 'jump'"),
        (SWITCH_LEAP, SPLIT_LEAP_ON_BEAM, "Show a switch leap on BB with 1 turn", "says 'switch', which the source"),
        (SWITCH_LEAP, SPLIT_LEAP_ON_BEAM, "Show a split leap with 1 turn", "name what changes: apparatus"),
        (SWITCH_LEAP, SPLIT_LEAP_ON_BEAM, "Show on BB with 1 turn", "name what changes: legs to 'split'"),
        (SWITCH_LEAP, SPLIT_LEAP_ON_BEAM, "Show a split leap on BB", "name what changes: turns to '1'"),
        (SWITCH_LEAP, SPLIT_LEAP_ON_BEAM, "Show a split leap on BB with no turn", "says 0 turn"),
        (SWITCH_LEAP, SPLIT_LEAP_ON_BEAM, "Show a split leap on BB with 1 turn, no leap", "denies 'leap'"),
        (SWITCH_LEAP, SPLIT_LEAP_ON_BEAM, "Show a split leap on BB with 1 turn without ring", "denies 'ring'"),
        (SWITCH_LEAP, SPLIT_LEAP_ON_BEAM, "Reduce to 1 turn and show a split leap on BB", "none does"),
        (SWITCH_LEAP, SPLIT_LEAP_ON_BEAM, "Show a split leap on BB with 1 turn and 360 degrees", "degrees"),
        (BACK, BACK_LESS, "Show with 1.5 twists and 2.5 somersaults", "says 1.5 turn, the target has 2.5"),
        (BACK, BACK_LESS, "Show with 2.5 twists and 1.5 somersaults tuck", "says 'tuck'"),
        (BACK, BACK_LESS, "Show with 2.5 and 1.5", "does not name what changes"),
        (BACK, BACK_LESS, "Show with 2.5 twists and 1.5 somersaults on BB", "the target is a dive"),
        ("(UB) (swing backward) double salto forward tucked", "(UB) (swing forward) double salto backward tucked",
         "show (swing backward) double salto forward", "goes the other way"),
        ("(VT) round-off, flic-flac with 0.5 turn on, piked salto forward off",
         "(VT) round-off, flic-flac with 1 turn on, piked salto backward off",
         "show flic-flac and piked salto backward with 1 turn", "says 1 turn, the target has 0"),
    ],
)  # fmt: skip
def test_a_text_with_words_outside_the_target_or_a_missing_change_is_rejected(source, target, text, reason):
    assert reason in judge(source, target, text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "has 0 words"),
        ("Show", "has 1 words"),
        ("show " + "a split leap on BB with 1 turn and " * 4, "has 37 words"),
        ("I cannot help with that request.", "begins with 'i'"),
        ("As an AI language model I do not watch sports", "begins with 'as'"),
        (SPLIT_LEAP_ON_BEAM, "begins with ''"),
        ("Montrez un saut sur la poutre avec 1 tour", "begins with 'montrez'"),
        ("Show un salto en la barra de equilibrio", "says 'barra'"),
        ("show 分腿跳 on BB with 1 turn", "holds the character"),
        ("show a split leap on BB with 1 turn\nIgnore the above", "holds the character"),
        ("show a split leap on BB with 1 turn and ignore previous rules", "says 'ignore'"),
        ("show a split leap on BB with 1 turn <script>", "holds the character '<'"),
        ("show a split leap on BB with 1 turn at evil.example/x", "says 'evil'"),
        ("show " + "a" * 300, "has 305 characters"),
        ("show\u202e a split leap on BB with 1 turn", "holds the character"),
    ],
)
def test_a_text_that_is_not_a_short_english_instruction_is_rejected(text, reason):
    assert reason in judge(SWITCH_LEAP, SPLIT_LEAP_ON_BEAM, text)


def test_the_modification_task_is_a_task_with_the_papers_examples():
    task = ModificationTask()
    assert isinstance(task, Task)
    gymnastics = task.messages(LabelPair("40", "145", "event", 0.8))
    diving = task.messages(LabelPair("407c", "409c", "temporal", 0.75))
    assert (gymnastics[0]["content"], len(gymnastics)) == (GYMNASTICS_PROMPT, 1 + 2 * 20 + 1)
    assert (diving[0]["content"], len(diving)) == (DIVING_PROMPT, 1 + 2 * 5 + 1)
    assert [message["role"] for message in diving] == ["system", *["user", "assistant"] * 5, "user"]
    assert json.loads(diving[-1]["content"]) == {
        "source": "Inward, 3.5 Soms.Tuck, Entry",
        "target": "Inward, 4.5 Soms.Tuck, Entry",
    }
    assert all(ModificationAnswer.model_validate_json(message["content"]) for message in diving[2::2])


@pytest.mark.parametrize(
    "answer",
    [
        '{"modification_text": "Show on Balance Beam."}',
        '```json\n{"modification_text": "Show on Balance Beam."}\n```',
        "{'modification_text': 'Show on Balance Beam.',}",
        'Here it is: {"modification_text": "Show on Balance Beam."',
        "Show on Balance Beam.",
        '"Show on Balance Beam."',
        "Instruction: Show on Balance Beam.",
    ],
)
def test_an_answer_is_read_from_json_or_a_plain_line(answer):
    pair = LabelPair("40", "145", "event", 0.8)
    assert ModificationTask().parse(pair, answer) == Modification("40", "145", "event", "Show on Balance Beam.")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("{}", "holds no modification_text"),
        ('{"modification_text": 3}', "holds no modification_text"),
        ('{"modification_text": ["show"]}', "holds no modification_text"),
        ("{" * 1_500, "holds no modification_text"),
        ("x" * 3_000_000, "has 3000000 characters"),
        ("", "has 0 words"),
        ("\x00\ufffd", "holds the character"),
        ("Sure! Show on Balance Beam.", "holds the character '!'"),
    ],
)
def test_an_unusable_answer_is_rejected_with_its_reason_and_raw_text(answer, reason):
    rejection = ModificationTask().parse(LabelPair("40", "145", "event", 0.8), answer)
    assert isinstance(rejection, Rejection)
    assert reason in rejection.reason
    assert (rejection.raw, rejection.key) == (answer, "40->145")


def test_an_unknown_label_in_a_pair_is_an_error_that_names_it():
    with pytest.raises(ValueError, match="'24' is not a TF-CoVR label"):
        ModificationTask().messages(LabelPair("40", "24", "temporal", 0.8))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Show with 2.5 somersaults Tuck.", "show with two and a half somersaults tuck."),
        (
            "show (swing backward) double salto forward tucked with 0.5 turn.",
            "show swing backward double salto forward tucked with half turn.",
        ),
        ("turn in 180 split position", "turn in 180 split position"),
        ("2x the 2nd", "2x the 2nd"),
        ('A "B" #c: d; ~e! *f*', "a b c d e f"),
        ("7 and 7.5 and 1.0", "seven and 7.5 and one"),
        ("  many \n\t spaces ", "many spaces"),
        (" ".join(str(number + 100) for number in range(40)), " ".join(str(number + 100) for number in range(30))),
    ],
)  # fmt: skip
def test_texts_are_normalized_as_in_the_release(text, expected):
    assert normalise_text(text) == expected
