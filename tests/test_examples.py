"""The examples run as they stand, offline, and print what they promise."""

import json
import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.py") if path.stem != "drawn_videos")
# One process for all, for importing torch takes longer than what most of them do.
RUN_ALL = """
import contextlib, io, json, runpy, sys, warnings
from pathlib import Path

examples, arguments = json.loads(sys.argv[1])
sys.path.insert(0, str(Path(examples[0]).parent))
# An example that imports from a place that has moved.
warnings.filterwarnings("error", category=DeprecationWarning, module="__main__$")
printed = {}
for path in examples:
    sys.argv = [path, *arguments.get(Path(path).stem, [])]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        runpy.run_path(path, run_name="__main__")
    printed[Path(path).stem] = out.getvalue()
print(json.dumps(printed))
"""
MODEL = str(ROOT / "recipes" / "weights" / "miniature-clip")


def run(python, *arguments, home):
    environment = {**os.environ, "HF_HOME": str(home), "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
    process = python.run(["-c", RUN_ALL, *arguments], env=environment, cwd=home)
    assert process.returncode == 0, process.stderr
    return process.stdout


@pytest.fixture(scope="module")
def printed(tmp_path_factory, warm_python):
    """What each example prints, by name; `measure_clip` and `stream_from_hub` read a small miniature."""
    from datasets import load_dataset

    from hf_datasets.miniature import MiniatureConfig, prepare_miniature
    from hf_datasets.publish import write_folder

    home = tmp_path_factory.mktemp("examples")
    small = MiniatureConfig(
        labels=("119", "45", "93", "241", "103b", "10"),
        clips_per_label={"train": 1, "validation": 1, "test": 2},
        videos_per_split={"train": 2, "validation": 2, "test": 4},
    )
    data = prepare_miniature(home / "miniature", config=small, num_workers=0, progress=False)
    options = {"data_dir": str(data), "split": "train", "cache_dir": str(home / "cache")}
    published = write_folder(
        {
            f"mini-{part}": {"train": load_dataset("tfcovr", f"mini-{part}", **options).with_format("arrow").iter(100)}
            for part in ("clips", "videos")
        },
        home / "published",
        card=ROOT / "hf_datasets/tfcovr/README.md",
    )
    arguments = {
        "measure_clip": [MODEL, str(data)],
        "stream_from_hub": ["--repo", str(published), "--steps", "30", "--workers", "0"],
    }
    paths = [str(path) for path in EXAMPLES]
    return json.loads(run(warm_python, json.dumps([paths, arguments]), home=home).splitlines()[-1])


def test_own_clips_gives_queries_of_every_split(printed):
    lines = printed["own_clips"].splitlines()
    assert [line.partition(",")[0] for line in lines[::2]] == [
        "train: 12 clips",
        "validation: 3 clips",
        "test: 3 clips",
    ]
    assert all(" + 'show " in line and " -> " in line for line in lines[1::2])


def test_own_features_finds_the_video_with_the_same_order_of_colors_first(printed):
    cosines, names = zip(*(line.split() for line in printed["own_features"].splitlines()), strict=True)
    assert names[0] == "lamp3"
    assert float(cosines[0]) > float(cosines[1])


def test_moment_search_finds_the_true_moments(printed):
    lines = printed["moment_search"].splitlines()
    assert len(lines) == 3
    for line in lines:
        found, true = line.partition(": ")[2].rstrip(")").split(" (true: ")
        assert found == true


def test_search_archive_searches_marks_and_exports(printed):
    lines = printed["search_archive"].splitlines()
    assert lines[0] == "18 moments"
    assert [re.fullmatch(r"  lamp\d\.mp4 \d-\d s \d\.\d{3}", line) is not None for line in lines[1:4]] == [True] * 3
    assert lines[5].startswith("1000 queries in ")
    assert lines[6].startswith("3 clips, 0 failures: ")


def test_measure_clip_prints_an_accuracy_per_disruption(printed):
    for name in ("accuracy/temporal_reorder", "accuracy/action_replace", "comprehensive_accuracy"):
        assert f"{name}: 0." in printed["measure_clip"] or f"{name}: 1." in printed["measure_clip"]


def test_counterfactual_pairs_prints_every_score(printed):
    lines = printed["counterfactual_pairs"].splitlines()
    names = ["text_score", "video_score", "group_score", "classic_vle", "signature"]
    assert [line.partition(": ")[0] for line in lines[:-1]] == names
    assert lines[-1] == "0 rows left out"


def test_stream_from_hub_trains_on_a_published_folder(printed):
    losses = [float(line.rpartition(" ")[2]) for line in printed["stream_from_hub"].splitlines()]
    assert len(losses) == 30
    assert sum(losses[-10:]) < sum(losses[:10])


def test_metric_alone_prints_both_systems_and_imports_no_other_package(printed):
    lines = printed["metric_alone"].splitlines()
    assert lines[:2] == ["A: mAP@1 1.000, mAP@5 0.917", "B: mAP@1 0.333, mAP@5 0.630"]
    assert lines[3].startswith("map@k|protocol:standard|")
    text = (ROOT / "examples/metric_alone.py").read_text(encoding="utf-8")
    assert re.findall(r"^(?:import|from) (\w+)", text, re.MULTILINE) == ["evaluate", "metrics"]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short_says_what_it_shows_and_imports_no_recipe(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 55
    assert f"python examples/{path.name}" in text.split('"""')[1]
    for name in ("from subtle", "import subtle.", "from recipes", "import recipes"):
        assert name not in text
