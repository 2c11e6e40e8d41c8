"""Captions scored by the label grammar, against verdicts worked out by hand, the paper's own examples among them."""

import pytest

from hf_datasets.tfcovr.caption_scores import (
    ATTRIBUTES,
    CaptionTally,
    chance,
    majority,
    read_caption,
    score_caption,
    stated_by,
)
from hf_datasets.tfcovr.captions import caption_of
from hf_datasets.tfcovr.free_text import own_labels
from hf_datasets.tfcovr.labels import find_label, load_labels, sport_of

C1_AND_C2 = [
    # label id, LaViLa, Video-XL, what Video-XL says right and wrong
    ("1", "#O A man Y walks around the game", "Action: Back Handstand, Turns: 2", "", "direction turns"),
    ("11", "#O person X runs on the ground", "Action: Flip, Turns: 3", "", "turns"),
    ("40", "#O The woman A runs towards the woman Y", "Action: Flip on the floor, Turns: 3", "apparatus", "turns"),
    ("41", "#O The man Y jumps down from the wall", "Action: Handstand walk with hand release, Turns: 3", "", "turns"),
    ("52", "#O The man Y runs towards the man X", "Action: Flip, Turns: 0, Action: Dive, Turns: 0", "", "turns"),
    ("88", "#O The woman B falls to the floor", "Action: Twirl, Turns: 0", "", "turns"),
    ("91", "#O The woman Y walks away from the woman X", "Action: Flip, Turns: 1", "", "turns"),
    ("101", "#O The woman A raises her hands up", "Action: Handstand, Turns: 4", "", "turns"),
    ("107", "#O The woman X throws the ball with the tennis", "Action: Handstand on Rungs, Turns: 15", "", "turns"),
    ("116", "#O The man Y throws the slate in his right hand to the ground", "Action: Jump from Bar, Turns: 2", "",
     "apparatus skill turns"),
    ("612b", "#O The man X jumps down from the playground slide",
     "Action: Diving, Backflip, Half Turn, T-Walk, Kick flip, Headstand, Handstand, Turns: 3", "armstand",
     "takeoff twists"),
    ("6243d", "#O The girl X jumps down from the playhouse", "Action: Flip, Turns: 2", "", "twists"),
    ("6245d", "#O The man X walks down a stair with the rope in his right hand", "Action: Gymnasty Turn, Turns: 4", "",
     "twists"),
    ("407b", "#C C looks at the person in the swimming", "Action: Backflip, Turns: 2", "", "takeoff twists"),
    ("107b", "#C C shakes his right hand", "Action: Dive, Turns: 2", "", "twists"),
]  # fmt: skip
"""Tables C1 and C2 of the TF-CoVR paper, all rows."""


@pytest.mark.parametrize(("label_id", "lavila", "video_xl", "right", "wrong"), C1_AND_C2)
def test_the_papers_captions_of_tables_c1_and_c2_say_what_is_found_by_hand(label_id, lavila, video_xl, right, wrong):
    label = find_label(label_id)
    nothing = score_caption(lavila, label)
    assert (nothing.right, nothing.wrong) == ((), ())
    found = score_caption(video_xl, label)
    assert (found.right, found.wrong) == (tuple(right.split()), tuple(wrong.split()))
    stated = {name for name in ATTRIBUTES[sport_of(label)] if stated_by(label)[name]}
    assert set(found.not_said) == stated - {*found.right, *found.wrong}


def test_the_papers_captions_of_tables_c1_and_c2_add_up_to_the_figures_of_the_results_page():
    tallies = {(sport, model): CaptionTally(sport) for sport in ATTRIBUTES for model in ("LaViLa", "Video-XL")}
    for label_id, lavila, video_xl, *_ in C1_AND_C2:
        label = find_label(label_id)
        for model, caption in (("LaViLa", lavila), ("Video-XL", video_xl)):
            tallies[sport_of(label), model].add(score_caption(caption, label))
    for sport, stated in (("gymnastics", 49), ("diving", 21)):
        nothing = tallies[sport, "LaViLa"].figures()
        assert (nothing["attributes/not_said"], nothing["all_right"]) == (1.0, 0.0)
        assert sum(tallies[sport, "LaViLa"].verdicts.values()) == stated
    gymnastics, diving = (tallies[sport, "Video-XL"] for sport in ATTRIBUTES)
    # 49 stated attributes, and the turns of a salto that has none; 21, and the 2 twists of two dives without any.
    assert sum(gymnastics.verdicts.values()) == 50
    assert sum(diving.verdicts.values()) == 23
    assert gymnastics.figures()["attributes/right"] == pytest.approx(1 / 50)
    assert gymnastics.figures()["attributes/wrong"] == pytest.approx(13 / 50)
    assert diving.figures()["attributes/right"] == pytest.approx(1 / 23)
    assert diving.figures()["attributes/wrong"] == pytest.approx(7 / 23)
    assert gymnastics.figures()["turns/right"] == diving.figures()["twists/right"] == 0.0


@pytest.mark.parametrize(
    ("label_id", "caption", "right", "wrong", "not_said"),
    [
        # (Floor Exercise) double salto backward tucked with 1 twist; the round-off before it is not in the label
        ("125", "Round-off, flic-flac, double tuck salto with 1.5 twist. (Apparatus: FX)",
         "apparatus skill saltos position", "turns", "direction"),
        # (Balance Beam) salto backward stretched with 1 twist
        ("222", "Back handspring to layout salto with full twist. (Apparatus: BB)",
         "apparatus skill saltos turns position", "", "direction"),
        # (Vault) round-off, flic-flac on, stretched salto backward with 2.5 turn off
        ("14", "Stretched salto backward with 2.5 twists. (Apparatus: VT)",
         "apparatus skill direction saltos turns position", "", "entry"),
        # (Vault) tsukahara stretched without salto: none is said right, one is wrong
        ("23", "Tsukahara stretched without salto.", "entry saltos position", "", "apparatus"),
        ("23", "Tsukahara stretched with salto.", "entry position", "saltos", "apparatus"),
        # (Floor Exercise) switch leap: a turn that the label does not have is wrong, its absence right
        ("45", "Switch leap with 1 turn on floor", "apparatus skill position", "turns", ""),
        ("45", "Switch leap with no turn on floor", "apparatus skill turns position", "", ""),
        ("45", "She leaps across the floor.", "", "", "apparatus skill position"),
        # (Floor Exercise) 2 turn in back attitude, ...
        ("88", "Double pirouette in attitude (FX)", "apparatus skill position", "", "turns"),
        ("88", "2 turns in attitude (FX)", "apparatus skill turns position", "", ""),
        # (Uneven Bar) giant circle backward with hop 1 turn to handstand
        ("238", "Back giant with a 360 degree turn on the bars", "apparatus skill direction turns", "", ""),
        ("238", "Stalder backward, full turn, high bar", "apparatus direction turns", "skill", ""),
        # Back, 1.5 Twists, 2.5 Soms.Pike, Entry
        ("5253b", "Back takeoff, 2 1/2 somersaults, 540° twist, free", "takeoff somersaults twists", "position", ""),
        # Back, 2.5 Twists, 1.5 Soms.Pike, Entry: a dive number that ends in d has the free position
        ("5235d", "Backward, 1.5 somersaults, 2.5 twists, free. (Platform: 3m)", "takeoff somersaults twists position",
         "", ""),
        # Arm.Forward, 1 Twist, 2 Soms.Pike, 3.5 Twists: either twist, or both
        ("6142d", "Armstand forward, 2 somersaults, 3.5 twists, pike", "takeoff armstand somersaults twists position",
         "", ""),
        ("6142d", "Armstand, 2.5 somersaults, layout. (Platform: Unknown)", "armstand", "somersaults position",
         "takeoff twists"),
        # Forward, 3.5 Soms.Pike, Entry: an armstand is wrong where there is none
        ("107b", "Armstand forward, 3.5 somersaults", "takeoff somersaults", "armstand", "position"),
    ],
)  # fmt: skip
def test_verdicts_worked_out_by_hand(label_id, caption, right, wrong, not_said):
    found = score_caption(caption, find_label(label_id))
    assert tuple(map(" ".join, (found.right, found.wrong, found.not_said))) == (right, wrong, not_said)
    assert found.all_right == (not wrong and not not_said)


def test_the_label_captions_of_all_labels_say_everything_right():
    for label in load_labels():
        assert score_caption(caption_of(label), label).all_right, label.description


def test_the_text_of_every_label_is_read_as_its_attributes_say():
    for label in load_labels():
        attributes = label.attributes
        if sport_of(label) == "diving":
            said = read_caption(label.description, "diving")
            assert said["takeoff"] == {attributes.takeoff}
            assert said["somersaults"] == {attributes.somersaults}
            assert said["twists"] == {attributes.twists_before, attributes.twists_after} - {0.0}
            assert (said["position"], bool(said["armstand"])) == ({attributes.shape}, attributes.armstand)
            continue
        said = stated_by(label)
        assert said["apparatus"] == {attributes.apparatus}
        assert (said["saltos"] or {0.0}) == {attributes.somersaults}
        assert (said["turns"] or {0.0}) == {attributes.turns, attributes.entry_turns} - {0.0} or not attributes.turns
        directions = {"backward": "back"}
        assert said["direction"] <= {directions.get(attributes.direction, attributes.direction)}


def test_a_label_of_another_vocabulary_cannot_be_scored():
    (serve,) = own_labels({"serve": "serve wide with slice"})
    with pytest.raises(ValueError, match="'serve wide with slice' is no label of TF-CoVR"):
        score_caption("Serve wide", serve)


def test_majority_and_chance_are_those_found_by_hand():
    # Three dives: Inward 3.5 tuck twice, Forward 3.5 pike once.
    labels = [find_label("407c"), find_label("407c"), find_label("107b")]
    most = majority(labels, "diving").figures()
    assert (most["takeoff/right"], most["somersaults/right"], most["position/wrong"]) == (2 / 3, 1.0, 1 / 3)
    assert most["twists/right"] == 1.0  # it says that there are none
    assert "armstand/right" not in most
    assert most["all_right"] == 2 / 3
    drawn = chance(labels, "diving").figures()
    assert drawn["all_right"] == drawn["takeoff/right"] == pytest.approx(4 / 9 + 1 / 9)
    assert drawn["somersaults/right"] == pytest.approx(1.0)
    assert "twists/right" not in drawn  # neither a label nor a drawn caption says any
    assert majority([], "diving").figures() == chance([], "diving").figures() == {}
