"""Hostile pickles: each is refused in little time and memory, and none ends the process that reads it."""

import math
import pickle
import random
import re
import struct
import subprocess
import sys

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


SAME_HASH = 2**61 - 1  # the modulus of Python's hash of numbers
BOMBS = {
    "a tuple 200,000 deep as a key": (b"})" + b"\x85" * 200_000 + b"Ns.", "a tuple is a key"),
    "doubled tuples as a key": (b"}" + doubled(40) + b"Ns.", "a tuple is a key"),
    "doubled tuples as a value": (b"]" + doubled(40) + b"a.", "deep"),
    "doubled tuples in a set": (b"\x8f(" + doubled(40) + b"\x90.", "a tuple is a key"),
    "doubled tuples as a name": (unicode("a") + doubled(40) + b"\x93.", "names a tuple of 'a'"),
    "an array without numbers but many rows": (b"\x80\x02" + array((2**28 - 1, 0, 0)) + b".", "items"),
    "an array of a negative size": (b"\x80\x02" + array((-1, 5), b"abcde") + b".", "shape"),
    "one text of bytes made an array many times": (
        b"\x80\x02" + pickle.dumps(b"a" * 900_000, 3)[2:-1] + dtype("u1") + b"\x94"
        b"]("
        + (
            b"cnumpy.core.numeric\n_frombuffer\n(h\x00h\x01J"
            + struct.pack("<i", 900_000)
            + b"\x85"
            + unicode("C")
            + b"tR"
        )
        * 900
        + b"e.",
        "items",
    ),
    "a list 200,000 deep": (b"]" * 200_001 + b"a" * 200_000 + b".", "deep"),
    "a list in itself": (b"]q\x00h\x00a.", "deep"),
    "many open marks": (b"(" * 200_000 + b".", "deep"),
    "keys of one hash": (
        b"}(" + b"".join(pickle.dumps(SAME_HASH * n, 2)[2:-1] + b"N" for n in range(1, 50_000)) + b"u.",
        "an? int is a key",
    ),
    "a long tuple as a key again and again": (
        b"}((" + unicode("a") + b"N" * 50_000 + b"tq\x00N" + b"h\x00N" * 50_000 + b"u.",
        "a tuple is a key",
    ),
    "a long list made a set again and again": (
        b"](" + b"K\x01" * 50_000 + b"eq\x000cbuiltins\nset\nq\x01" + b"h\x01h\x00\x85R0" * 5000 + b".",
        "items",
    ),
    "a long text encoded again and again": (
        unicode("a" * 4_000_000) + b"q\x00" + unicode("latin1") + b"q\x01"
        b"c_codecs\nencode\nq\x02](" + b"h\x02h\x00h\x01\x86R" * 2000 + b"e.",
        "items",
    ),
    "an integer of millions of digits": (b"L" + b"9" * 4_000_000 + b"L\n.", "integer"),
    "a key given twice": (b"}(" + unicode("a") + b"N" + unicode("a") + b"Nu.", "gives a key twice"),
    "a text that is said to be larger than memory": (b"\x8d" + struct.pack("<Q", 2**62) + b"a.", "expected"),
}

CHILD = """
import resource, sys
from pathlib import Path
from hf_datasets.sources.finediving import read_pickle
used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
resource.setrlimit(resource.RLIMIT_AS, (int(open("/proc/self/statm").read().split()[0]) * 4096 + 2**30,) * 2)
for path in map(Path, sys.argv[1:]):
    try:
        read_pickle(path)
        print("read", flush=True)
    except ValueError as error:
        print(str(error).replace("\\n", " "), flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits the memory of a process as Linux does")
def test_hostile_pickles_are_refused_within_a_gigabyte_and_a_time_limit(tmp_path):
    paths = []
    for number, (data, _) in enumerate(BOMBS.values()):
        paths.append(tmp_path / f"{number}.pkl")
        paths[-1].write_bytes(data)
    child = subprocess.run(
        [sys.executable, "-c", CHILD, *map(str, paths)],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    answers = child.stdout.splitlines()
    for path, answer, (name, (_, message)) in zip(paths, answers, BOMBS.items(), strict=False):
        assert f"{path} is refused" in answer, name
        assert re.search(message, answer), (name, answer)
    assert len(answers) == len(BOMBS), (
        child.returncode,
        list(BOMBS)[len(answers) :][:1],
        child.stderr[-500:],
    )


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


def test_integers_of_more_than_400_digits_are_infinite_as_in_json():
    value = [10**400 - 1, 10**5000, -(10**5000)]
    assert interpret_pickle(pickle.dumps(value)) == [10**400 - 1, math.inf, -math.inf]


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
