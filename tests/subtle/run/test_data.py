"""Rows as a recipe's configuration names them: of this folder, as it is now."""

import contextlib
import importlib
import json
from dataclasses import fields
from types import SimpleNamespace

import polars as pl
import pytest
import torch
from datasets import Dataset, DatasetDict

from subtle.run.data import open_dataset, with_split
from subtle.train.options import VCMRConfig
from tests.fixtures.verbs import VERBS_AND_KINDS, module_of, options_of

CARD = "---\nconfigs:\n- config_name: mini\n  data_files: mini/*.parquet\n---\n"


def write_dataset(folder, texts):
    (folder / "mini").mkdir(parents=True, exist_ok=True)
    pl.DataFrame({"text": texts}).write_parquet(folder / "mini" / "train.parquet")
    (folder / "README.md").write_text(CARD)
    return SimpleNamespace(dataset=str(folder), dataset_config="mini", data_dir=None)


@pytest.mark.parametrize("names", [("one/data", "two/data"), ("data", "data")])
def test_a_folder_gives_its_own_rows_also_where_another_or_an_earlier_one_had_its_name(tmp_path, names):
    for name, texts in zip(names, (["a", "b"], ["c", "d", "e"]), strict=True):
        config = write_dataset(tmp_path / name, texts)
        assert open_dataset(config, "train")["text"][:] == texts


MEASURING = {
    "ablate": {},
    "caption_write": {},
    "describe_and_rerank": {},
    "evaluate_comp": {},
    "evaluate_mteb": {"tasks": ["ActivityNetComp"]},
    "evaluate_tfcovr": {},
    "evaluate_vcmr": {"without_moment": 0.5},
    "finetune_baseline": {"dry_run": True},
    "judge": {},
    "caption_rewrite": {},
    "zero_shot": {},
}
"""Every verb or kind of rows with --split, and the options with which it comes to its data at once."""
PUBLISHED = {  # what load_dataset gives of mini, hard and own; VideoComp's release; Charades-FIG's release
    "all three": ("train", "validation", "test"),
    "no test": ("train", "validation"),
    "no validation": ("train", "test"),
}


def asked_of(monkeypatch, verb, splits, folder, **options):
    """The splits that a verb asks for of a dataset that has these."""
    module, asked = module_of(verb), []

    def load(_dataset, _name, *, split=None, **_options):
        rows = DatasetDict({one: Dataset.from_dict({"video_id": ["a"], "video": [None]}) for one in splits})
        if split is None:
            return rows
        asked.append(split)
        return rows[split]

    for place in ("subtle.run.data", "subtle.mteb.data"):
        monkeypatch.setattr(importlib.import_module(place), "load_dataset", load)
    if verb == "evaluate_tfcovr":  # it loads its models first
        monkeypatch.setattr(module, "prepared_systems", lambda *_: [("model", None)])
        monkeypatch.setattr(
            module, "evaluate_ranking", lambda _ready, config, *_: module.load_split(config, config.split)
        )
    if verb == "ablate":  # as it does
        monkeypatch.setattr(module, "check_model_folder", lambda _: None)
    if verb == "evaluate_vcmr":
        monkeypatch.setattr(module, "make_features", lambda *_: None)
        monkeypatch.setattr(module, "trained_models", lambda _: [("model", folder)])
        monkeypatch.setattr(module, "load_vcmr_model", lambda _: torch.nn.Identity())
        monkeypatch.setattr(module, "open_split", lambda _config, _model, _captions, split: asked.append(split))
    config = options_of(verb)(output_dir=str(folder / "out"), **MEASURING.get(verb, {}) | options)
    with contextlib.suppress(Exception, SystemExit):  # of rows that have nothing else
        module.main(config)
    return asked


@pytest.mark.parametrize("splits", PUBLISHED.values(), ids=PUBLISHED)
@pytest.mark.parametrize("verb", MEASURING)
def test_a_verb_measures_on_a_split_that_its_data_have(verb, splits, monkeypatch, tmp_path):
    asked = asked_of(monkeypatch, verb, splits, tmp_path)
    measured = "test" if "test" in splits else "validation"
    if verb == "evaluate_vcmr":  # chooses its threshold on another
        assert asked == [measured, "validation" if "validation" in splits else "train"]
    elif verb == "finetune_baseline":  # counts what it trains on, too, and cannot train without validation
        assert set(asked) == {"train", "validation", *({measured} if "validation" in splits else ())}
    else:
        assert set(asked) == {measured}


def test_every_verb_with_a_split_is_in_the_table_above():
    having = {verb for verb in VERBS_AND_KINDS if "split" in {field.name for field in fields(options_of(verb))}}
    assert having == {*MEASURING, "report"}  # which takes that of the evaluation


@pytest.fixture
def published(tmp_path):
    """What VideoComp and VERIFIED publish: one has no test split, Charades-FIG has no validation split."""
    texts = {"positive_text": "a. b.", "negative_text": "b. a."}
    starts = {f"{part}_video/start_time": 0 for part in ("original", "query")}
    ends = {f"{part}_video/end_time": 9 for part in ("original", "query")}
    row = {"key": "k", "video_id": "abc", "type": "temporal_reorder", **texts, **starts, **ends}
    for split in ("train", "val"):
        (tmp_path / f"activitynet_comp_{split}.json").write_text(json.dumps([row]))
    captions = {"cog_desc": "A person eats.", "fig_desc": "A person eats a bun.", "fig_desc_score": 1}
    moment = {"time": [0, 1], "duration": 2.0, **captions}
    for number, split in enumerate(("train", "test")):
        line = json.dumps(moment | {"video": split, "desc_id": number})
        (tmp_path / f"charades_fig_{split}.jsonl").write_text(line)
    return {"dataset_config": "release", "data_dir": str(tmp_path)}


def test_a_release_is_measured_on_the_split_that_its_authors_report_on(published, tmp_path):
    for verb in ("judge", "evaluate_comp"):
        module = module_of(verb)
        with pytest.raises(SystemExit, match=r"none of the 1 rows of 'activitynet_comp' \(validation\) has a video"):
            module.main(options_of(verb)(**published, output_dir=str(tmp_path / "out")))
    task = importlib.import_module("subtle.mteb").ActivityNetComp(**published)
    assert (task.eval_splits, task.split) == (["validation"], "validation")
    moments = VCMRConfig(**published)
    chosen = with_split(moments, "validation_split", ("validation", "test"))
    assert chosen.validation_split == "test"
    assert with_split(chosen, "validation_split") is chosen
    with pytest.raises(SystemExit, match="--validation_split: there is no split dev; there are train, test: name one"):
        with_split(moments, "validation_split", ("dev",))


def test_an_unknown_split_is_one_line_with_those_that_there_are(published, tmp_path):
    for verb, data in (("judge", {}), ("evaluate_comp", {}), ("evaluate_mteb", {"tasks": ["ActivityNetComp"]})):
        module = module_of(verb)
        config = options_of(verb)(**published, **data, split="test", output_dir=str(tmp_path / "out"))
        with pytest.raises((SystemExit, ValueError), match=r"split .?.?test.*train.*validation"):
            module.main(config)
