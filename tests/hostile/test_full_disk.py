"""A full disk under each recipe that measures, judges or draws: one line, no half result, the earlier one stays."""

import json
import re
from dataclasses import replace
from functools import partial

import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

from subtle.building import caption_select
from subtle.evaluate import analyse_fig, evaluate_comp, evaluate_tfcovr, evaluate_vcmr, judge, report
from subtle.run import build
from subtle.train import noise_evaluator, vcmr
from tests.hostile.full_disk import complete_where_there_is_room, fill, one_line, refused, run_into
from tests.hostile.kill_harness import differences
from tests.subtle.evaluate.test_analyse_fig import write_release
from tests.subtle.train import test_noise_evaluator

pytestmark = pytest.mark.hostile


def left(folder):
    """Every file that counts by name: tables and weights by value, the metrics of results.json, all else as bytes."""
    found = {}
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if path.is_dir() or name.startswith(("checkpoints", "frames")) or path.name == "run.json":
            continue
        if path.suffix == ".parquet":
            found[name] = pq.read_table(path).to_pylist()
        elif path.suffix == ".safetensors":
            found |= {f"{name} {key}": value for key, value in load_file(path).items()}
        elif path.name == "results.json":
            found[name] = json.loads(path.read_text())["figures"]
        else:
            found[name] = re.sub(
                rb"data:video/[^\"']*", b"", path.read_bytes()
            )  # an encoder's bytes are not always the same
    return found


@pytest.fixture
def evaluating(tiny, embedded, trained_models):
    config = evaluate_tfcovr.EvaluateConfig(
        dataset=tiny["dataset"], models=trained_models, embeddings=embedded, num_workers=0, device="cpu"
    )
    return evaluate_tfcovr.main, config


@pytest.fixture
def reporting(evaluating, tmp_path):
    main, config = evaluating
    main(replace(config, output_dir=str(tmp_path / "evaluation")))
    return report.main, report.ReportConfig(evaluation_dir=str(tmp_path / "evaluation"), num_queries=2)


@pytest.fixture
def comparing(tiny_comp):
    config = evaluate_comp.EvaluateCompConfig(
        models=[tiny_comp["model"]], data_dir=tiny_comp["data_dir"], num_frames=4, device="cpu"
    )
    return evaluate_comp.main, config


@pytest.fixture
def finding_moments(moment_features, tmp_path):
    data = {"dataset": str(moment_features), "features": f"{moment_features}/features", "device": "cpu"}
    data |= {"min_clips": 1, "max_clips": 4, "max_video_clips": 12, "nms_threshold": 0.5}
    vcmr.run(vcmr.VCMRConfig(**data, epochs=1, batch_size=50, output_dir=str(tmp_path / "vcmr")))
    return evaluate_vcmr.main, evaluate_vcmr.EvaluateVCMRConfig(**data, models=[str(tmp_path / "vcmr" / "model")])


@pytest.fixture
def analysing(tmp_path):
    return analyse_fig.main, analyse_fig.AnalyzeFIGConfig(release=write_release(tmp_path / "release"))


@pytest.fixture
def judging(tiny_comp, tmp_path):
    config = judge.JudgeConfig(data_dir=tiny_comp["data_dir"], cache=str(tmp_path / "answers.sqlite"), quiet=True)
    return partial(build.run_build, judge.main), config


@pytest.fixture
def training_an_evaluator(built_moments, tiny, text_clip, tmp_path):
    config = test_noise_evaluator.config_of(built_moments, tiny, text_clip, tmp_path, epochs=1)
    return noise_evaluator.main, config


@pytest.fixture
def selecting(training_an_evaluator, tmp_path):
    main, config = training_an_evaluator
    main(replace(config, output_dir=str(tmp_path / "evaluator")))
    options = {"build": config.build, "video_dir": config.video_dir, "num_frames": 2, "device": "cpu"}
    return caption_select.main, caption_select.CaptionSelectConfig(
        **options, model=str(tmp_path / "evaluator" / "model")
    )


RECIPES = ("evaluating", "reporting", "comparing", "finding_moments", "analysing", "judging", "training_an_evaluator",
           "selecting")  # fmt: skip


@pytest.mark.parametrize("name", RECIPES)
def test_a_full_disk_is_one_line_and_the_earlier_result_stays_whole(name, request, small_disk, tmp_path, capsys):
    main, config = request.getfixturevalue(name)
    assert run_into(tmp_path / "whole", main, config) == 0
    expected = left(tmp_path / "whole")
    results = next(one for one in ("results.json", "index.html", "README.md") if (tmp_path / "whole" / one).exists())
    folder = small_disk / "run"
    complete_where_there_is_room(small_disk, lambda: run_into(folder, main, config), folder / results, capsys)
    assert not differences(expected, left(folder), 1e-5)
    capsys.readouterr()
    with fill(small_disk, 0):
        status = run_into(folder, main, config)
    if name == "selecting":  # it never writes where there is something
        assert status == 2
        assert "is not empty" in one_line(capsys)
    elif name == "training_an_evaluator":  # what is complete is not trained again
        assert status == 0
    else:
        refused(small_disk, status, capsys)
    assert not differences(expected, left(folder), 1e-5)
