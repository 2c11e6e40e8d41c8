"""Publishing a registered dataset: what is refused, what its source card and its code must be."""

import re
import shutil
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hf_datasets.publishing import generation_code
from hf_datasets.publishing.cards import kept_for
from hf_datasets.publishing.generation_code import imported_files
from hf_datasets.publishing.rebuilding import row_differences
from hf_datasets.publishing.registered_folder import write_registered
from hf_datasets.registry import BUILDERS, TITLES, task_ids
from subtle.hub.publish import prepare_dataset as prepare

CARDS = sorted((Path(__file__).parents[2] / "hf_datasets").glob("*/README.md"))
ORIGINS = ("mini", "hard", "unseen", "release", "source", "own")


def test_of_what_stands_beside_the_package_no_module_is_taken_and_of_the_package_those_that_are_imported(
    tmp_path, monkeypatch
):
    sources = {
        "hf_datasets/__init__.py": "",
        "hf_datasets/one.py": "import other\nfrom hf_datasets import two\ndef late():\n    from . import three\n",
        "hf_datasets/two.py": "",
        "hf_datasets/three.py": "",
        "hf_datasets/four.py": "",
        "other.py": "",  # as public libraries stand beside an installed package
    }
    (tmp_path / "hf_datasets").mkdir()
    for name, text in sources.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(generation_code, "PACKAGE", tmp_path / "hf_datasets")
    assert {path.as_posix() for path in imported_files(["hf_datasets.one"])} == set(list(sources)[:4])


def test_a_changed_row_a_missing_row_and_other_bytes_of_a_video_are_told_apart(tmp_path):
    media = pa.array([{"bytes": b"1", "path": "a.mp4"}, None])
    rows = pa.table({"n": [1, 2], "video": media})
    changed = {"rows": rows, "media": rows.set_column(1, "video", pa.array([{"bytes": b"2", "path": "a.mp4"}, None])),
               "value": rows.set_column(0, "n", pa.array([1, 3])), "short": rows.slice(0, 1)}  # fmt: skip
    for name, table in changed.items():
        (tmp_path / name / "mini").mkdir(parents=True)
        pq.write_table(table, tmp_path / name / "mini" / "train-00000-of-00001.parquet")
    compared = {name: row_differences(tmp_path / name, tmp_path / "rows", "mini") for name in changed}
    assert compared == {
        "rows": ([], 0),
        "media": ([], 1),
        "value": (["mini/train, row 1, n: 3 was made, 2 is published"], 0),
        "short": (["mini/train: only the published rows go on after row 0"], 0),
    }


def test_every_registered_name_has_a_title_a_card_and_tasks_of_its_own():
    assert TITLES.keys() == BUILDERS.keys()
    for module in BUILDERS.values():
        assert Path(find_spec(module).origin).with_name("README.md") in CARDS
    tasks = [task for name in BUILDERS for origin in ("mini", "release") for task in task_ids(name, origin)]
    assert len(tasks) == len({*tasks}) == 18


@pytest.mark.parametrize("path", CARDS, ids=lambda path: path.parent.name)
def test_the_marks_of_a_source_card_are_closed_and_name_configurations(path):
    text = path.read_text()
    blocks = re.findall(r"^<!-- only .*-->$", text, re.M)
    assert len(blocks) == len(re.findall(r"^<!-- end only -->$", text, re.M)) > 3
    patterns = {pattern for names in re.findall(r"<!-- only (.*?) -->", text) for pattern in names.split()}
    assert patterns <= {
        "*-clips",
        "*-videos",
        "!*-videos",
        "mini-clips",
        "package",
        *(f"{origin}{rest}" for origin in ORIGINS for rest in ("", "*")),
    }
    for origin in ("mini", "release", "source"):
        kept = kept_for([origin], text)
        assert "<!-- only" not in kept
        assert "## Limits" in kept


def test_blocks_in_blocks_are_kept_only_where_both_fit():
    text = "<!-- only *-clips -->\na\n<!-- only *-videos -->\nb\n<!-- end only -->\nc\n<!-- end only -->\nd"
    for names, kept in ((("x-clips", "x-videos"), "abcd"), (("x-clips",), "acd"), (("x-videos",), "d")):
        assert "".join(kept_for(names, text).split()) == kept


def test_a_block_for_what_is_not_published_is_kept_where_nothing_fits():
    text = "<!-- only !*-videos -->\na\n<!-- end only -->\n"
    assert [kept_for(names, text) for names in (["mini"], ["mini", "mini-videos"])] == ["a\n", ""]


def test_a_license_that_the_hub_cannot_know_is_refused(tmp_path, miniature):
    with pytest.raises(
        ValueError, match=r"license 'CC BY 4\.0' is not an identifier of the Hub; write it like cc-by-4"
    ):
        prepare("charades_fig", "org/x", tmp_path / "out", data_dir=str(miniature), license="CC BY 4.0")


def test_code_of_a_dataset_reaches_no_other_wing():
    for name, other in (
        ("tfcovr", {"comp", "fig"}),
        ("activitynet_comp", {"tfcovr", "fig"}),
        ("didemo_fig", {"tfcovr", "comp"}),
    ):
        folders = {path.parts[1] for path in imported_files([BUILDERS[name]])}
        assert not folders & other
        assert {"miniature", "builders.py"} <= folders


def test_videos_of_others_and_unknown_names_are_refused_before_anything_is_prepared(tmp_path, miniature):
    with pytest.raises(ValueError, match=r"videos of own are not this package's to pass on.*such as cc-by-4\.0"):
        write_registered("tfcovr", tmp_path / "out", configs=["own", "own-clips"], data_dir=tmp_path, videos=True)
    with pytest.raises(ValueError, match="has no configuration 'nope'; it has mini"):
        write_registered("tfcovr", tmp_path / "out", configs=["nope"])
    with pytest.raises(ValueError, match="video_dir cannot be chosen for 'mini': the miniature has its own videos"):
        write_registered("tfcovr", tmp_path / "out", data_dir=miniature, video_dir=tmp_path)
    with pytest.raises(ValueError, match="unknown dataset 'nope'"):
        write_registered("nope", tmp_path / "out")
    with pytest.raises(ValueError, match=r"nope is neither a registered dataset \(activitynet_comp, "):
        prepare("nope", "org/nope", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert not list((tmp_path / "cache" / "tfcovr").glob("mini*"))
    for path in miniature.glob("*.parquet"):
        shutil.copy(path, tmp_path)
    with pytest.raises(FileNotFoundError, match=r"holds no miniature\.json, which says how it was rendered: call"):
        write_registered("charades_fig", tmp_path / "out", data_dir=tmp_path)
