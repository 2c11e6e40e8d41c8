"""CompPretrain's stacks: any video-caption dataset, map-style or streaming, and its negatives."""

import datasets
import pytest
from datasets import Dataset, IterableDataset

from hf_datasets.comp.stacking import ClipColumns, disrupt, frames_per_clip, stack_clips
from hf_datasets.seeds import generator_for


def clips(count=12):
    return Dataset.from_dict(
        {
            "video": [f"video{index}" for index in range(count)],
            "caption": [f"An athlete performs action {index}" for index in range(count)],
            "start": [float(index) for index in range(count)],
            "end": [index + 1.5 for index in range(count)],
            "other": list(range(count)),
        }
    )


COLUMNS = ClipColumns(start="start", end="end")


def number_of(sentence):
    return int(sentence.rstrip(".").split()[-1])


def numbers(text):
    return [number_of(sentence) for sentence in text.split(". ")]


@pytest.mark.parametrize("size", range(1, 9))
def test_stacks_hold_each_clip_once_with_its_caption_in_order(size):
    stacks = stack_clips(clips(17), size=size, columns=COLUMNS)
    assert len(stacks) == 17 // size
    used = [video for row in stacks for video in row["videos"]]
    assert len(used) == len(set(used)) == 17 // size * size
    for row in stacks:
        shown = [int(video.removeprefix("video")) for video in row["videos"]]
        assert numbers(row["positive_text"]) == shown == row["start_seconds"]
        assert row["end_seconds"] == [index + 1.5 for index in shown]


@pytest.mark.parametrize(("size", "levels"), [(1, []), (2, [1, 1]), (3, [1, 1, 2]), (8, [1, 1, 2])])
def test_negatives_are_shuffled_partial_and_both(size, levels):
    for row in stack_clips(clips(48), size=size, columns=COLUMNS):
        assert row["negative_levels"] == levels
        positive = numbers(row["positive_text"])
        for text, kind in zip(row["negative_texts"], ("shuffled", "partial", "both"), strict=False):
            negative = numbers(text)
            in_order = [number for number in positive if number in negative]
            assert set(negative) <= set(positive)
            assert (len(negative) < len(positive)) == (kind != "shuffled")
            assert (negative == in_order) == (kind == "partial")


def test_streaming_gives_rows_of_the_same_form():
    whole = stack_clips(clips(), size=4, columns=COLUMNS)
    stream = stack_clips(clips().to_iterable_dataset(num_shards=2), size=4, columns=COLUMNS)
    assert isinstance(stream, IterableDataset)
    rows = list(stream)
    assert len(rows) == len(whole) == 3
    assert rows[0].keys() == whole[0].keys()
    assert len({video for row in rows for video in row["videos"]}) == 12
    assert rows == list(stream)


def test_a_stream_without_known_columns_works():
    def rows():
        yield from ({"video": f"v{index}", "caption": f"Action {index}"} for index in range(8))

    (first, _) = stack_clips(IterableDataset.from_generator(rows), size=4)
    assert first["start_seconds"] == [None] * 4


def test_the_seed_decides_the_stacks_and_repeats():
    def texts(seed):
        return [(row["positive_text"], row["negative_texts"]) for row in stack_clips(clips(), size=3, seed=seed)]

    assert texts(0) == texts(0) != texts(1)


def test_encoded_videos_stay_undecoded(tmp_path):
    rows = Dataset.from_dict({"video": [{"bytes": b"x", "path": None}] * 4, "caption": list("abcd")})
    rows = rows.cast_column("video", datasets.Video())
    (row,) = stack_clips(rows, size=4)
    assert [video["bytes"] for video in row["videos"]] == [b"x"] * 4


def test_equal_captions_give_no_negative_equal_to_the_positive():
    assert disrupt(["A.", "A."], generator_for("x", 0)) == [("A.", 1)]
    for seed in range(50):
        negatives = disrupt(["A.", "A.", "B."], generator_for("x", seed))
        assert "A. A. B." not in [text for text, _ in negatives]


def test_an_empty_caption_is_an_error_that_says_how_to_leave_it_out():
    rows = Dataset.from_dict({"video": ["good", "bad"], "caption": ["Action", "  "]})
    with pytest.raises(ValueError, match=r"video 'bad' is empty.*dataset.filter"):
        stack_clips(rows, size=2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0}, "size is 0; a stack has 1 to 8"),
        ({"size": 9}, "size is 9"),
        ({"columns": ClipColumns(caption="text")}, "no column text"),
    ],
)
def test_a_wrong_size_or_column_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        stack_clips(clips(), **options)


def test_frames_are_shared_equally():
    assert [sum(frames_per_clip(16, count)) for count in range(1, 17)] == [16] * 16
    assert frames_per_clip(16, 5) == [4, 3, 3, 3, 3]
    with pytest.raises(ValueError, match="cannot show 5 clips"):
        frames_per_clip(4, 5)
