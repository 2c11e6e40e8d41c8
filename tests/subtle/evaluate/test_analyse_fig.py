"""The analyses of fine-grained moments: tables on the real release, clusters and pictures."""

import json
import re
from collections import Counter

import numpy as np
import pytest

from hf_datasets.fig.clusters import CaptionMap
from subtle.evaluate import analyse_fig
from subtle.evaluate.analyse_fig import dataset_in, run
from subtle.evaluate.options import AnalyzeFIGConfig


def write_release(folder, rows=40):
    folder.mkdir(exist_ok=True)
    lines = [
        {"video": f"v{number // 4}", "time": [0.0, 1.5], "desc_id": number, "duration": 2.0,
         "cog_desc": f"person {number % 2}.",
         "fig_desc": f"person {number} with thing {number * 7}.", "fig_desc_score": number / 8 - 2}
        for number in range(rows)
    ]  # fmt: skip
    (folder / "charades_fig_test.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    return str(folder)


def test_the_tables_of_real_rows_are_those_of_their_file(shared, tmp_path, capsys):
    lines = (shared / "data/didemo_fig/didemo_fig_test.jsonl").read_text(encoding="utf-8").splitlines()[:1000]
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "didemo_fig_test.jsonl").write_text("\n".join(lines), encoding="utf-8")
    rows = [json.loads(line) for line in lines]
    config = AnalyzeFIGConfig(release=str(tmp_path / "data"), output_dir=str(tmp_path / "out"))
    tables = run(config)
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["config"]["dataset"] == "didemo_fig"
    compared = json.loads((tmp_path / "out" / "statistics.json").read_text())
    assert compared["didemo_fig/test"]["moments"]["difference"] == 1_000 - 4_013
    assert "coarse_clusters" not in compared["didemo_fig"], "word statistics are no embeddings"
    whole = tables["table_1"]["all"]
    assert whole["negative_scores"] == sum(row["fig_desc_score"] < 0 for row in rows)
    assert whole["score"]["mean"] == pytest.approx(np.mean([row["fig_desc_score"] for row in rows]))
    for granularity, key in (("coarse", "cog_desc"), ("fine", "fig_desc")):
        counts = Counter(row[key] for row in rows).values()
        found = tables["table_2"][granularity]
        assert found["with_an_equal_text"] == sum(count for count in counts if count > 1)
        assert found["equal_texts"] == sum(count > 1 for count in counts)
        assert found["clustered"] >= found["with_an_equal_text"]
    assert tables["table_2"]["coarse"]["clustered"] > 4 > tables["table_2"]["fine"]["clustered"]
    assert (tmp_path / "out" / "scores.png").stat().st_size > 10_000
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["figures"]["table_2"] == tables["table_2"]
    assert "didemo_fig_train.jsonl" in results["source"]
    assert "encoder tfidf" in re.sub(r"\s+", " ", capsys.readouterr().out)


def test_pictures_are_drawn_or_the_reason_is_printed(tmp_path, monkeypatch):
    config = AnalyzeFIGConfig(release=write_release(tmp_path / "data"), output_dir=str(tmp_path / "out"))
    run(config)
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert written == {"scores.png", "captions.png", "results.json", "statistics.json"}
    monkeypatch.setattr(analyse_fig, "MIN_SAMPLES_DRAWN", 30)
    config.output_dir = str(tmp_path / "none")
    run(config)
    results = json.loads((tmp_path / "none" / "results.json").read_text())
    assert results["undrawn"]["captions.png"] == "no coarse caption is like 29 others"


def test_any_text_model_can_be_the_encoder(tiny):
    captions = CaptionMap(["show red", "show red", "show green blue"], tiny["text_model"])
    assert captions.embeddings.shape == (2, 16)
    np.testing.assert_allclose(np.linalg.norm(captions.embeddings, axis=1), 1, rtol=1e-5)


def test_wrong_options_are_errors_without_traceback(tmp_path, shared):
    with pytest.raises(SystemExit, match="holds none of the published files"):
        dataset_in(str(tmp_path))
    with pytest.raises(SystemExit, match="holds files of charades_fig and didemo_fig"):
        run(AnalyzeFIGConfig(release=str(shared / "data")))
    places = {"release": write_release(tmp_path / "data"), "output_dir": str(tmp_path / "out")}
    with pytest.raises(SystemExit, match="no moment has its video"):
        run(AnalyzeFIGConfig(user_study=True, **places))
