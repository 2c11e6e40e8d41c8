"""The pairs of a published file counted per disruption, beside the paper's Table 1."""

import json

from subtle.evaluate.analyse_comp import main
from subtle.evaluate.options import AnalyzeCompConfig


def test_the_pairs_of_a_release_are_counted_beside_table_1(tmp_path, capsys):
    texts = {"positive_text": "A man runs. He sits.", "negative_text": "He sits. A man runs.", "video_id": "abc"}
    times = {f"original_video/{edge}_time": time for edge, time in (("start", 0), ("end", 9_000_000))}
    kinds = ["temp-reorder", "temp-reorder", "action-replace", "reorder and action, mixed"]
    entries = [{"key": str(number), "type": kind} | texts | times for number, kind in enumerate(kinds)]
    (tmp_path / "youcook2_comp_val.json").write_text(json.dumps(entries))
    given = {"dataset": "youcook2_comp", "dataset_config": "release", "data_dir": str(tmp_path)}
    main(AnalyzeCompConfig(**given, output_dir=str(tmp_path / "out")))
    compared = json.loads((tmp_path / "out" / "statistics.json").read_text())
    assert compared == {
        "youcook2_comp/validation": {
            "temporal_reorder": {"paper": 409, "here": 2, "difference": -407},
            "action_replace": {"paper": 361, "here": 1, "difference": -360},
            "segment_mismatch": {"paper": 397, "here": 0, "difference": -397},
            "total": {"paper": 1167, "here": 3, "difference": -1164},
        }
    }
    figures = json.loads((tmp_path / "out" / "results.json").read_text())["figures"]
    assert figures["youcook2_comp/validation"]["multi"] == 1
    assert "youcook2_comp/validation: total" in capsys.readouterr().out
