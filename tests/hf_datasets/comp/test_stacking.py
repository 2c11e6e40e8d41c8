"""CompPretrain's stacks of clips, their captions and negatives."""

import pytest
from datasets import Dataset, Video

from hf_datasets.comp.contrasts import Stacks
from hf_datasets.comp.stacking import disrupt, frames_per_clip
from hf_datasets.seeds import generator_for


def clips(count):
    return Dataset.from_dict(
        {
            "video": [f"video{index}" for index in range(count)],
            "caption": [f"An athlete performs action {index}" for index in range(count)],
            "start_seconds": [float(index) for index in range(count)],
            "end_seconds": [index + 1.5 for index in range(count)],
            "other": list(range(count)),
        }
    )


def numbers(text):
    return [int(sentence.rstrip(".").split()[-1]) for sentence in text.split(". ")]


@pytest.mark.parametrize("size", range(1, 9))
def test_stacks_hold_each_clip_once_with_its_caption_in_order(size):
    stacks = Stacks(clips(17), size=size, seed=0)
    assert len(stacks) == 17 // size
    used = [span.path for stack in stacks for span in stack.spans]
    assert len(used) == len(set(used)) == 17 // size * size
    for stack in stacks:
        shown = [int(span.path.removeprefix("video")) for span in stack.spans]
        assert numbers(stack.positive) == shown == [span.start_seconds for span in stack.spans]
        assert [span.end_seconds for span in stack.spans] == [index + 1.5 for index in shown]


@pytest.mark.parametrize(("size", "levels"), [(1, ()), (2, (1, 1)), (3, (1, 1, 2)), (8, (1, 1, 2))])
def test_negatives_are_shuffled_partial_and_both(size, levels):
    for stack in Stacks(clips(48), size=size, seed=0):
        assert stack.levels == levels
        positive = numbers(stack.positive)
        for text, kind in zip(stack.negatives, ("shuffled", "partial", "both"), strict=False):
            negative = numbers(text)
            in_order = [number for number in positive if number in negative]
            assert set(negative) <= set(positive)
            assert (len(negative) < len(positive)) == (kind != "shuffled")
            assert (negative == in_order) == (kind == "partial")


def test_the_seed_decides_the_stacks_and_repeats():
    first, again, other = (list(Stacks(clips(12), size=3, seed=seed)) for seed in (0, 0, 1))
    assert first == again != other


def test_encoded_videos_stay_undecoded():
    rows = Dataset.from_dict({"video": [{"bytes": None, "path": "a.mp4"}] * 4, "caption": list("abcd")})
    (stack,) = Stacks(rows.cast_column("video", Video()), size=4, seed=0)
    assert [(span.path, span.start_seconds) for span in stack.spans] == [("a.mp4", None)] * 4


def test_equal_captions_give_no_negative_equal_to_the_positive():
    assert disrupt(["A.", "A."], generator_for("x", 0)) == [("A.", 1)]
    for seed in range(50):
        negatives = disrupt(["A.", "A.", "B."], generator_for("x", seed))
        assert "A. A. B." not in [text for text, _ in negatives]


def test_an_empty_caption_is_an_error_that_says_how_to_leave_it_out():
    rows = Dataset.from_dict({"video": ["good", "bad"], "caption": ["Action", "  "]})
    with pytest.raises(ValueError, match=r"video 'bad' is empty.*dataset.filter"):
        list(Stacks(rows, size=2, seed=0))


@pytest.mark.parametrize("size", [0, 9])
def test_a_wrong_size_is_refused(size):
    with pytest.raises(ValueError, match=f"size is {size}; a stack has 1 to 8"):
        Stacks(clips(12), size=size, seed=0)


def test_frames_are_shared_equally():
    assert [sum(frames_per_clip(16, count)) for count in range(1, 17)] == [16] * 16
    assert frames_per_clip(16, 5) == [4, 3, 3, 3, 3]
    with pytest.raises(ValueError, match="cannot show 5 clips"):
        frames_per_clip(4, 5)
