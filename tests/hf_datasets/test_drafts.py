"""Atomic writes: a new file or folder replaces the old one as a whole, or leaves it unchanged."""

import errno
import json
import os

import pytest
from safetensors import SafetensorError

from hf_datasets.drafts import replacing, replacing_files, write_json, writing


def test_a_file_or_a_folder_replaces_the_old_one_whole(tmp_path):
    write_json(tmp_path / "new" / "value.json", {"a": tmp_path})
    write_json(tmp_path / "new" / "value.json", {"b": 1})
    assert json.loads((tmp_path / "new" / "value.json").read_text()) == {"b": 1}
    for name in ("first", "second"):
        with replacing(tmp_path / "folder") as unfinished:
            unfinished.mkdir()
            (unfinished / name).touch()
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["folder", "new", "second", "value.json"]


def write_two_files(folder, error=None):
    with replacing_files(folder) as unfinished:
        write_json(unfinished / "results.json", 2)
        write_json(unfinished / "tables" / "rows.json", 2)
        if error:
            raise error


def test_several_files_take_their_places_together_or_not_at_all_and_others_stay(tmp_path):
    for name in ("results.json", "other.json"):
        write_json(tmp_path / name, 1)
    with pytest.raises(KeyError):
        write_two_files(tmp_path, KeyError("a fault"))
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"results.json": "1", "other.json": "1"}
    write_two_files(tmp_path)
    found = {str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("*.json")}
    assert found == {"results.json": "2", "tables/rows.json": "2", "other.json": "1"}


def fail_halfway(path, error):
    with replacing(path) as unfinished:
        unfinished.write_text("half")
        raise error


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        SafetensorError("I/O error"),
        RuntimeError("unexpected pos"),
        Exception("No space left on device (os error 28)"),  # of tokenizers
    ],
)
def test_a_failed_write_leaves_the_old_file_and_names_it_with_the_cure(tmp_path, error):
    path = tmp_path / "value.json"
    path.write_text("old")
    message = r"value\.json cannot be written .*see that its disk has room"
    with pytest.raises(OSError, match=message):
        fail_halfway(path, error)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("value.json", "old")]


def test_an_error_that_is_none_of_the_disk_stays_what_it_is(tmp_path):
    with pytest.raises(LookupError, match="no such row"):
        fail_halfway(tmp_path / "value.json", LookupError("no such row"))
    assert not list(tmp_path.iterdir())


def test_an_error_of_too_many_open_files_does_not_name_the_folder(tmp_path):
    error = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    with pytest.raises(OSError, match="Too many open files") as caught, writing(tmp_path):
        raise error
    assert caught.value is error
