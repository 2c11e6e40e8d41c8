"""A model's card: what is written is what is read back, and equals what was measured."""

import math

import yaml
from huggingface_hub import ModelCard, ModelCardData, parse_eval_result_entries
from PIL import Image

from hf_models.cards import (
    CURVE_PIXELS,
    Measurement,
    draw_training_curve,
    eval_results,
    options_table,
    results_table,
    write_benchmark_results,
    write_card,
)

SIGNATURE = "map@k|protocol:standard"
MAP = Measurement("map@50", 0.1 + 0.2, "org/map_at_k", "org/tfcovr", "mini", "test", SIGNATURE)
OWN = Measurement("accuracy", 0.5, "accuracy")


def data(*measurements, **fields):
    results = eval_results(measurements, task_type="composed-video-retrieval", task_name="Composed video retrieval")
    return ModelCardData(**{"license": "mit", "model_name": "retriever", "eval_results": results or None, **fields})


def test_a_card_read_back_has_the_values_to_the_last_bit(tmp_path):
    write_card(tmp_path, data(MAP, OWN, tags=["a: b", "ü"]), "# A model\n\n---\nnot: a header\n---")
    card = ModelCard.load(tmp_path / "README.md")
    (result,) = card.data.eval_results
    assert (result.metric_value, result.metric_args) == (0.1 + 0.2, {"signature": SIGNATURE})
    assert (result.dataset_type, result.dataset_config, result.dataset_split) == ("org/tfcovr", "mini", "test")
    assert card.data.tags == ["a: b", "ü"]
    assert card.text.strip().endswith("not: a header\n---")


def test_only_finite_values_on_data_of_the_hub_are_published_as_results(tmp_path):
    lost = Measurement("map@5", math.nan, "org/map_at_k", "org/tfcovr")
    assert eval_results([lost, OWN], task_type="x", task_name="X") == []
    assert write_benchmark_results(tmp_path, {"a": lost, "b": OWN}) == []
    assert not list(tmp_path.iterdir())


def test_benchmark_results_are_one_file_for_each_dataset_in_the_form_of_the_hub(tmp_path):
    other = Measurement("comprehensive_accuracy", 0.25, "org/comprehensive_accuracy", "org/activitynet_comp")
    files = write_benchmark_results(tmp_path, {"one": MAP, "two": other}, source="https://huggingface.co/org/model")
    assert [path.name for path in files] == ["tfcovr.yaml", "activitynet_comp.yaml"]
    (entry,) = yaml.safe_load(files[0].read_text())
    assert entry["dataset"] == {"id": "org/tfcovr", "task_id": "one"}
    assert (entry["value"], entry["notes"]) == (0.1 + 0.2, SIGNATURE)
    assert parse_eval_result_entries([entry])[0].source_url == "https://huggingface.co/org/model"


def test_a_curve_has_the_stated_size_and_is_only_drawn_from_numbers(tmp_path):
    path = tmp_path / "curve.png"
    assert not draw_training_curve([], path)
    assert not draw_training_curve([{"epoch": 1}, {"epoch": 2}], path)
    assert not draw_training_curve([{"loss": 1.0}, {"loss": None}], path)
    assert not path.exists()
    names = [f"accuracy/kind_{number}" for number in range(9)]
    for history in ([{"loss": 1.0}], [{"loss": 1.0, "epoch": 1, **dict.fromkeys(names, 0.5)}] * 3):
        assert draw_training_curve(history, path)
        with Image.open(path) as picture:
            picture.load()
            assert (picture.format, picture.size) == ("PNG", CURVE_PIXELS)


def test_cells_of_tables_cannot_leave_their_row():
    table = options_table({"a|b": "x`y\n| z", "list": [0, None, True], "html": "<script>"})
    assert table.splitlines()[2:] == [
        "| a\\|b | `x'y \\| z` |",
        "| list | `0 none true` |",
        "| html | `&lt;script>` |",
    ]
    rows = results_table([Measurement("m|n", 1 / 3, "m", "org/a", "mini\n", "test", "sig\nnature")]).splitlines()
    assert rows[2] == "| m\\|n | org/a mini | test | 0.3333 |"
    assert rows[-1] == "    sig nature"
