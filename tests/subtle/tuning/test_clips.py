"""Whether clips are enough to tune on: each thing that is missing is one line with its number and the cure."""

import polars as pl
import pytest

from subtle.tuning.clips import count


def clips(num_clips=60, num_labels=6, num_videos=12):
    """Clips whose labels take turns in every video."""
    of_video = -(-num_clips // num_videos)
    return pl.DataFrame(
        {
            "video_id": [f"v{number // of_video}" for number in range(num_clips)],
            "description": [f"jump {number % num_labels}" for number in range(num_clips)],
        }
    )


def test_sixty_clips_are_enough_and_nothing_is_said():
    found = count(clips(), min_clips=50, has_splits=False)
    assert (found.clips, found.labels, found.videos) == (60, 6, 12)
    assert not found.missing
    assert not found.little


LITTLE = {
    "23 clips can be used, and 50 are needed: label 27 more, or try it with fewer by --min_clips 23": clips(23, 3, 4),
    "all clips have 1 label, 'jump 0', and 2 are needed": clips(60, 1, 12),
    "the clips are of 1 video, and 3 are needed, one each to train": clips(60, 6, 1),
    "the clips are of 2 videos, and 3 are needed": clips(60, 6, 2),
    "each of the 60 labels has 1 clip, and 3 are needed, of 3 videos": clips(60, 60, 12),
    "0 of 12 labels are shown in 3 videos or more, and 2 are needed": clips(60, 12, 12).with_columns(
        video_id=pl.col("description")
    ),
}


@pytest.mark.parametrize("says", LITTLE)
def test_what_is_missing_is_one_line_with_the_number_and_the_cure(says):
    found = count(LITTLE[says], min_clips=50, has_splits=False)
    assert len(found.missing) == 1
    assert found.missing[0].startswith(says)
    assert "\n" not in found.missing[0]
    assert ": " in found.missing[0]


def test_several_things_are_named_at_once_and_each_cure_helps():
    found = count(clips(5, 1, 1), min_clips=50, has_splits=False)
    assert len(found.missing) == 3
    assert not count(clips(5, 1, 1), min_clips=5, has_splits=False).missing[0].startswith("5 clips")
    assert not count(clips(50, 2, 3), min_clips=50, has_splits=False).missing
    divided = count(
        LITTLE["0 of 12 labels are shown in 3 videos or more, and 2 are needed"], min_clips=50, has_splits=True
    )
    assert not divided.missing


def test_what_is_little_is_said_and_goes_on():
    rare = pl.DataFrame({"video_id": ["v1", "v2", "v2", "v0", "v1"], "description": ["a", "b", "b", "c", "C!"]})
    found = count(pl.concat([clips(60, 6, 4), rare]), min_clips=50, has_splits=False)
    assert not found.missing
    assert found.labels == 9, "labels that differ in case and marks alone are one"
    assert [line.partition(" with")[0].partition(" in one")[0] for line in found.little] == [
        "1 label ('a')",
        "1 label ('b')",
        "2 labels ('b', 'c')",
        "4 videos, so that few are held out and the results are uncertain; 10 would tell more",
    ]
