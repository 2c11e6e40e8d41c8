"""FineDiving's pickles: read without running them, hostile ones refused."""

import os
import pickle
from collections import OrderedDict

import numpy as np
import pytest

from hf_datasets.records import Clip, Rejection
from hf_datasets.sources.finediving import read_finediving, read_pickle

DESCRIPTIONS = {"207c": "Back, 3.5 Soms.Tuck, Entry", "5253b": "Back, 1.5 Twists, 2.5 Soms.Pike, Entry"}


def dive(action_type):
    return {
        "action_type": action_type,
        "sub-action_types": {2: "Back", 25: "3.5 Soms.Tuck", 36: "Entry"},
        "judge_scores": [8.5, 9.0],
        "dive_score": np.float64(80.5),
        "difficulty": 3.3,
        "frames_labels": np.array([2, 2, 25, 36]),
        "steps_transit_frames": np.array([[2, 3]], dtype=np.int16),
    }


class Asks:
    """Pickles as a call, as hostile pickles do."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def write(path, value, protocol=None):
    path.write_bytes(pickle.dumps(value, protocol))
    return path


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_containers_and_arrays_of_numbers_are_read_in_every_protocol(tmp_path, protocol):
    value = {
        ("a", 1): dive("207c"),
        "more": (OrderedDict(x=1), {1, 2}, frozenset("b"), b"\xff\x00", None, True, 1 << 70),
    }
    value["more"] += (np.asfortranarray(np.arange(6, dtype=">i4").reshape(2, 3)), np.array([], dtype=bool))
    read = read_pickle(write(tmp_path / "a.pkl", value, protocol))
    assert read["a", 1]["frames_labels"] == [2, 2, 25, 36]
    assert read["a", 1]["steps_transit_frames"] == [[2, 3]]
    assert read["a", 1]["dive_score"] == 80.5
    assert read["more"][:7] == value["more"][:7]
    assert read["more"][7:] == ([[0, 1, 2], [3, 4, 5]], [])


@pytest.mark.parametrize(
    ("hostile", "named"),
    [
        (Asks(os.system, "touch hacked"), "system"),
        (Asks(eval, "open('hacked', 'w')"), "builtins.eval"),
        (Asks(getattr, dict, "__class__"), "builtins.getattr"),
        (Asks(np._core.multiarray._reconstruct, os.PathLike, (0,), b"b"), "PathLike"),
        (Asks(np._core.multiarray._reconstruct, np.dtype, (0,), b"b"), "_reconstruct of"),
        (Asks(np._core.multiarray._reconstruct, dict, (0,), b"b"), "dict"),
        (np.array([Asks(os.system, "touch hacked")], dtype=object), "array of 'O8'"),
        (np.zeros(1, dtype=[("a", "i4")]), "array of 'V4'"),
        (np.array(["text"]), "array of 'U4'"),
        (np.load, "numpy"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_malicious_pickle_is_refused_and_not_run(tmp_path, monkeypatch, hostile, named):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=rf"a\.pkl is refused: .*{named}") as refusal:
        read_pickle(write(tmp_path / "a.pkl", {"x": hostile}))
    assert "FineDiving's authors" in str(refusal.value)
    assert not (tmp_path / "hacked").exists()


def test_a_pickle_cannot_change_what_the_reader_calls(tmp_path):
    # GLOBAL _codecs.encode, then BUILD with (None, {"__defaults__": ()}): sets attributes of the function.
    program = b"c_codecs\nencode\n(N}(V__defaults__\n)ut" + b"b."
    path = tmp_path / "a.pkl"
    path.write_bytes(program)
    with pytest.raises(ValueError, match="sets attributes of _encoded"):
        read_pickle(path)


@pytest.mark.parametrize("data", [b"", b"not a pickle", pickle.dumps([1] * 100)[:-20], b"Pid\n."])
def test_an_empty_damaged_or_foreign_file_is_refused(tmp_path, data):
    path = tmp_path / "a.pkl"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"a\.pkl"):
        read_pickle(path)


def test_a_large_file_is_refused_before_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr("hf_datasets.sources.finediving.MAX_PICKLE_BYTES", 10)
    with pytest.raises(ValueError, match="1 to 10"):
        read_pickle(write(tmp_path / "a.pkl", [0] * 100))


def test_dives_become_clips_without_span_and_the_rest_is_rejected(tmp_path):
    dives = {
        ("FINADivingWorldCup2021_Men3m_final_r1", 0): dive("207c"),
        ("01", 7): dive("5253b"),
        ("01", 8): dive("999z"),
        ("01", 9): {"difficulty": 3.0},
        ("01", "7"): dive("207c"),
        "01_10": dive("207c"),
    }
    records = list(read_finediving(write(tmp_path / "fine.pkl", dives), descriptions=DESCRIPTIONS))
    assert records[0] == Clip(
        "FINADivingWorldCup2021_Men3m_final_r1_0", "FINADivingWorldCup2021_Men3m_final_r1", "207c"
    )
    assert records[1] == Clip("01_7", "01", "5253b")
    reasons = [record.reason for record in records if isinstance(record, Rejection)]
    assert [reason.partition(":")[0] for reason in reasons] == [
        "class outside the label set",
        "no action type",
        "duplicate clip id",
        "malformed key",
    ]
    assert "01_8 of fine.pkl has '999z'" in reasons[0]
    assert [record.key for record in records if isinstance(record, Rejection)] == ["01_8", "01_9", "01_7", "'01_10'"]


def test_a_rejection_of_values_with_shared_references_stays_short(tmp_path):
    laughs = ["ha"] * 10
    for _ in range(12):
        laughs = [laughs] * 10
    records = list(read_finediving(write(tmp_path / "fine.pkl", {("01", 1): laughs}), descriptions=DESCRIPTIONS))
    assert records[0].reason.startswith("no action type")
    assert len(records[0].raw) < 2000
