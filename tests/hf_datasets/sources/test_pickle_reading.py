"""Hostile pickles are refused, and plain values of any shape come back."""

import pickle
import random
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from odd_values import LONG_RUN

from hf_datasets.records import Rejection
from hf_datasets.sources.finediving import read_finediving
from hf_datasets.sources.pickle_reading import interpret_pickle

TEXT = struct.Struct("<cI")


def unicode(text):
    return TEXT.pack(b"X", len(text)) + text.encode()


def dtype(code):
    return b"cnumpy\ndtype\n(" + unicode(code) + b"tR"


def array(shape, data=b"", code="u1"):
    empty = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tC\x01btR"
    sizes = b"".join(struct.pack("<ci", b"J", size) for size in shape)
    return empty + b"(K\x01(" + sizes + b"t" + dtype(code) + b"I00\n" + pickle.dumps(data, 3)[2:-1] + b"tb"


def doubled(times):
    """A tuple of two references to a tuple of two references, and so on: 2 ** `times` leaves."""
    return b")q\x00" + b"".join(b"h%c\x86q%c" % (n, n + 1) for n in range(times))


BOMBS = {
    "an array without numbers but many rows": (b"\x80\x02" + array((2**28 - 1, 0, 0)) + b".", "an array of 0 bytes"),
    "an array of a negative size": (b"\x80\x02" + array((-1, 5), b"abcde") + b".", "shape"),
    "a number type made one of objects": (
        b"\x80\x02" + dtype("u1") + b"(K\x03" + unicode("|") + unicode("O") + b"NNJ\xff\xff\xff\xff\x89K\x3ftb.",
        "fields",
    ),
    "bytes as many as a number says": (b"cbuiltins\nbytes\nJ\xff\xff\xff\x7f\x85R.", "damaged"),
    "an integer of millions of digits": (b"L" + b"9" * 4_000_000 + b"L\n.", "integer"),
    "a text that is said to be larger than memory": (b"\x8d" + struct.pack("<Q", 2**62) + b"a.", "expected"),
    "a memo of many places": (b"]r" + struct.pack("<I", 2**31) + b".", "a memo of 2,147,483,648 places"),
    "an array without a type to hold it": (b"cnumpy\nndarray\n(K\x05tR.", "damaged"),
}


@pytest.mark.parametrize(("data", "message"), BOMBS.values(), ids=BOMBS)
def test_a_hostile_pickle_is_refused(data, message):
    with pytest.raises(ValueError, match=message):
        interpret_pickle(data)


@pytest.mark.parametrize("data", [b"]" * 200_001 + b"a" * 200_000 + b".", b"]q\x00h\x00a.", b"]" + doubled(40) + b"a."])
def test_lists_of_any_depth_and_in_themselves_hold_no_dives(tmp_path, data):
    (tmp_path / "fine.pkl").write_bytes(data)
    with pytest.raises(ValueError, match="holds no dives"):
        list(read_finediving(tmp_path / "fine.pkl", descriptions={}))


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
keys = scalars.filter(lambda key: type(key) is not int or key.bit_length() <= 64) | st.tuples(
    st.text(), st.integers(0, 99)
)
values = st.recursive(
    scalars | st.sets(keys),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(keys, inner),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(values, st.integers(0, pickle.HIGHEST_PROTOCOL))
def test_plain_values_of_any_shape_come_back_equal(value, protocol):
    assert interpret_pickle(pickle.dumps([value, value], protocol)) == [value, value]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
@pytest.mark.parametrize("code", ["?", "u1", ">i2", "<f4", "f8"])
def test_arrays_of_every_layout_come_back_equal(order, code):
    value = np.arange(24).reshape(2, 3, 4).astype(code).transpose(order)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert interpret_pickle(pickle.dumps(value, protocol)) == value.tolist()


def test_an_annotation_as_large_as_the_real_one_is_read_whole():
    rng = np.random.default_rng(0)
    dives = {
        ("FINADivingWorldCup2021", number): {
            "action_type": "207c",
            "sub-action_types": {2: "Back", 25: "3.5 Soms.Tuck", 36: "Entry"},
            "judge_scores": rng.random(7).tolist(),
            "dive_score": np.float64(80.5),
            "frames_labels": rng.integers(0, 37, 104),
            "steps_transit_frames": rng.integers(0, 104, (3, 2)),
        }
        for number in range(3000)
    }
    for protocol in (2, 4):
        read = interpret_pickle(pickle.dumps(dives, protocol))
        assert list(read) == list(dives)
        last = dives["FINADivingWorldCup2021", 2999]
        assert read["FINADivingWorldCup2021", 2999]["frames_labels"] == last["frames_labels"].tolist()


def rejections(path, dives):
    path.write_bytes(pickle.dumps(dives))
    return [row for row in read_finediving(path, descriptions={"207c": "Back"}) if isinstance(row, Rejection)]


def test_what_rejections_quote_is_short_however_large_the_dive_is(tmp_path):
    large = {"bytes": b"\xff" * 10**6, "set": set(range(10**5)), **{n: n for n in range(10**5)}}
    dives = {("01", number): large for number in range(300)}  # one value, shared
    dives |= {("02", number): {"action_type": "9" * 10**6} for number in range(3)}
    found = rejections(tmp_path / "fine.pkl", dives)
    assert len(found) == 303
    assert max(len(rejection.raw) + len(rejection.reason) for rejection in found) < 2000


def test_a_competition_too_long_for_the_name_of_a_file_is_rejected(tmp_path):
    (found,) = rejections(tmp_path / "fine.pkl", {("a" * 10**6, 1): {"action_type": "207c"}})
    assert "at most 200 characters" in found.reason
    assert len(found.reason) < 500


def fuzz(seed, times):
    rng = random.Random(seed)
    dive = {
        "action_type": "207c",
        "scores": [8.5, 9.0],
        "more": {1, 2},
        "labels": np.array([2, 25]),
        "score": np.float64(3),
    }
    contents = [pickle.dumps({("01", 1): dive}, protocol) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
    operations = b"()]}[l.0123abdeginoqrstuR\x80\x85\x86\x87\x8f\x90\x91\x93\x94\x8a\x8b\xff\x00"
    for number in range(times):
        content = bytearray(rng.choice(contents))
        for _ in range(rng.choice((1, 1, 3, 20))):
            start = rng.randrange(len(content))
            content[start : start + rng.choice((0, 1, 1, 4))] = bytes(
                rng.choices(operations, k=rng.choice((0, 1, 1, 9)))
            )
            content = content or bytearray(b".")
        try:
            interpret_pickle(bytes(content))
        except ValueError:
            continue
        except Exception as error:
            pytest.fail(f"seed {seed!r}, input {number} gave {type(error).__name__} {error}: {bytes(content)!r}")


def test_mutated_pickles_are_read_or_refused():
    fuzz("short", 500)


@pytest.mark.hostile
@pytest.mark.timeout(0)
def test_many_mutated_pickles_are_read_or_refused(record_property):
    record_property("inputs", LONG_RUN)
    fuzz("long", LONG_RUN)
