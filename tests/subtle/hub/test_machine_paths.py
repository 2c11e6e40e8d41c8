"""What is taken out of results before they are published, and what stays as it is."""

import json
import platform
from pathlib import Path

import pytest

from subtle.hub.machine_paths import PLACEHOLDER, without_paths

WEIGHTS = Path(__file__).parents[3] / "recipes" / "weights"


@pytest.mark.parametrize(
    "text",
    [
        *("/home/alice/videos", "/data", "~/videos", "~alice/videos", "../videos", "../../videos/one.mp4", "./videos"),
        *("C:\\Users\\alice\\videos", "D:/videos", "\\\\server\\share", "file:///home/alice/one.mp4"),
    ],
)
def test_a_path_of_a_machine_is_replaced_alone_and_inside_a_text(text):
    assert without_paths(text) == PLACEHOLDER
    for before, after in (("no file in ", ", so it was left out"), ("'", "'"), ("(", ")"), ("", " is empty")):
        assert without_paths(f"{before}{text}{after}") == f"{before}{PLACEHOLDER}{after}"


@pytest.mark.parametrize(
    "text",
    [
        *("", "outputs/stage1/model", "openai/clip-vit-base-patch16", "validation/accuracy/temporal_reorder"),
        "https://huggingface.co/org/name/blob/main/results.json",
        "hf://datasets/org/name@main/train.parquet",
        "map@k|protocol:standard|denominator:min(relevant,k)|version:1.0.0",
        "and/or, 1/2, 12/11/2026, frames/s, a / b, I/O",
        *("...and so on", "C: a letter; n:m", "<path>", "</s> ends a text", "2.15.0+cpu"),
    ],
)
def test_a_text_without_a_path_stays_as_it_is(text):
    assert without_paths(text) == text


def test_nested_values_lose_paths_folders_of_the_run_and_the_name_of_the_machine():
    found = without_paths(
        {
            "config": {"base": str(WEIGHTS / "miniature-clip"), "output_dir": "outputs", "steps": 3, "rate": 0.1},
            "coverage": {"/data/one.mp4": ["/data/two.mp4", None, {"source": "x", "reason": "~/three.mp4 is empty"}]},
            "source": "/data",
            "host": f"ran on {platform.node()}.",
        },
        shipped=lambda name: f"org/{name}",
    )
    assert found["config"] == {"base": "org/miniature-clip", "steps": 3, "rate": 0.1}
    assert found["coverage"] == {PLACEHOLDER: [PLACEHOLDER, None, {"reason": f"{PLACEHOLDER} is empty"}]}
    assert "source" not in found
    assert len(platform.node()) < 2 or platform.node() not in json.dumps(found)


def test_a_folder_with_blanks_is_known_inside_a_text_where_it_is_an_option():
    results = {
        "config": {"video_dir": "/data/my (own) videos"},
        "reasons": ["/data/my (own) videos/one.mp4 is empty", "my videos"],
    }
    found = without_paths(results)
    assert found == {"config": {"video_dir": PLACEHOLDER}, "reasons": [f"{PLACEHOLDER} is empty", "my videos"]}


def test_no_value_is_lost_where_two_keys_become_the_same():
    assert list(without_paths({"/data/one": 1, "/data/two": 2, "three": 3}).values()) == [1, 2, 3]
