"""Every configuration file that ships can be read by the recipe or launcher that it is for."""

import contextlib
import json
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from datasets import Dataset, DatasetDict

from subtle.embedding.embed_clips import EmbedConfig
from subtle.evaluate.options import EvaluateConfig
from subtle.options import parse_config
from subtle.table.ablate import STAGES, planned_runs
from subtle.table.options import AblateConfig, FinetuneConfig, ZeroShotConfig, options_of_kind
from subtle.table.variations import read_variations
from subtle.train.options import FinetuneVLMConfig, VCMRConfig, VidCLIPRunConfig
from subtle.train.stage2 import Stage2Config
from tests.fixtures.verbs import module_of, options_of

RECIPES = Path(__file__).parents[2] / "recipes"
CONFIGS = {
    "ablate": AblateConfig,
    "embed": EmbedConfig,
    "stage2": Stage2Config,
    "evaluate_tfcovr": EvaluateConfig,
    "zero_shot": ZeroShotConfig,
    "finetune_baseline": FinetuneConfig,
    "vidclip": VidCLIPRunConfig,
}
AFTER_ANOTHER = ("vcmr_4xa100", "vcmr_hero", "vcmr_hero_didemo", "vcmr_reloclnet", "vcmr_xml")
"""Given after the file of a dataset, which names the folder."""
VLM_OF_FOUR = "finetune_vlm_qwen3_vl_2b_4xa100"
ON_REAL_DATA = ("gpu", "a100", "_table", "paper")
FILES = [(path, kind) for name, kind in CONFIGS.items() for path in sorted((RECIPES / "configs").glob(f"{name}*.yaml"))]


@pytest.mark.parametrize(("path", "kind"), FILES, ids=lambda value: getattr(value, "stem", ""))
def test_a_configuration_file_is_read(path, kind):
    config = parse_config(kind, None, [str(path)])
    assert not hasattr(config, "kind") or options_of_kind([path.name]) is kind
    assert ("release" in config.dataset_config) == any(part in path.stem for part in ON_REAL_DATA)


def test_each_training_of_vidclip_starts_from_the_one_before_with_the_papers_settings():
    names = ("1_image", "2_base", "3_comppretrain", "4_activitynet", "4_youcook2")
    files = [str(RECIPES / "configs" / f"vidclip_paper_{name}.yaml") for name in names]
    image, base, stacked, activitynet, youcook2 = (parse_config(VidCLIPRunConfig, None, [file]) for file in files)
    assert image.model == "laion/CLIP-ViT-L-14-DataComp.XL-s13B-b90K"
    chain = [(image, base), (base, stacked), (stacked, activitynet), (stacked, youcook2)]
    assert [after.model for _, after in chain] == [f"{before.output_dir}/model" for before, _ in chain]
    assert len({one.output_dir for one in (image, base, stacked, activitynet, youcook2)}) == 5
    assert (image.num_frames, image.learning_rate, image.pooler_learning_rate) == (1, 0.0, 1e-3)
    settings = ("learning_rate", "weight_decay", "batch_size", "max_steps", "num_frames", "frame_side", "optimizer")
    for one in (base, stacked):
        assert [getattr(one, name) for name in settings] == [1e-7, 1e-6, 128, 50_000, 16, 256, "adam"]
    for one in (activitynet, youcook2):
        assert [getattr(one, name) for name in settings] == [1e-6, 1e-5, 32, 20_000, 16, 256, "adam"]
    assert [one.stack for one in (image, base, stacked, activitynet)] == [1, 1, 4, 0]
    assert [one.objective for one in (image, base, stacked, activitynet)] == ["clip", "clip", "comploss", "comploss"]
    assert {one.preference_weight for one in (stacked, activitynet, youcook2)} == {100.0}


def test_every_file_that_writes_names_a_folder_which_only_files_that_make_the_same_share():
    made = {}
    for path in sorted((RECIPES / "configs").glob("*.yaml")):
        options = yaml.safe_load(path.read_text(encoding="utf-8"))
        if path.stem in AFTER_ANOTHER:
            assert not {"dataset", "dataset_config", "output_dir"} & options.keys()
            continue
        verb = path.stem.split("_")[0]
        result = {name: value for name, value in options.items() if name != "num_workers"}
        assert made.setdefault(f"{verb} {options['output_dir']}", result) == result, path.name
    folders = {key.split()[1] for key in made}
    assert len(folders) == len(made)


@pytest.mark.parametrize("dataset", ["charades", "didemo", "activitynet"])
@pytest.mark.parametrize("architecture", ["xml", "reloclnet", "hero"])
def test_four_gpus_train_moments_with_the_settings_of_one(dataset, architecture):
    files = [str(RECIPES / "configs" / f"vcmr_{name}.yaml") for name in (f"{dataset}_fig", architecture, "4xa100")]
    one, four = (asdict(parse_config(VCMRConfig, None, given)) for given in (files[:2], files))
    changed = {name: value for name, value in four.items() if value != one[name]}
    assert changed == {"device": "cuda", "mixed_precision": "no"}
    assert four["batch_size"] % 4 == 0


def test_four_gpus_train_vidclip_and_the_language_model_with_the_settings_of_one():
    for name, kind, other in (
        ("vidclip_paper_4_activitynet", VidCLIPRunConfig, {}),
        ("vidclip_paper_4_youcook2", VidCLIPRunConfig, {}),
        ("finetune_vlm_qwen3_vl_2b", FinetuneVLMConfig, {"device": "cuda", "output_dir": f"outputs/{VLM_OF_FOUR}"}),
    ):
        files = (str(RECIPES / "configs" / f"{stem}.yaml") for stem in (name, f"{name}_4xa100"))
        one, four = (asdict(parse_config(kind, None, [file])) for file in files)
        assert {key: value for key, value in four.items() if value != one[key]} == other
        assert four["batch_size"] % 4 == 0


@pytest.mark.parametrize("path", sorted((RECIPES / "configs").glob("ablate*.yaml")), ids=lambda path: path.stem)
def test_the_variations_of_a_configuration_file_are_options(path):
    config = parse_config(AblateConfig, None, [str(path)])
    variations = read_variations(config.variations, STAGES)
    planned_runs(config, variations)


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_the_file_of_the_miniature_has_the_defaults_of_the_recipe(name):
    assert parse_config(CONFIGS[name], None, [str(RECIPES / "configs" / f"{name}.yaml")]) == CONFIGS[name]()


@pytest.mark.parametrize("path", sorted((RECIPES / "accelerate").glob("*.yaml")), ids=lambda path: path.stem)
def test_a_launch_file_is_read(path):
    config = load_config_from_file(str(path))
    expected = {"one_gpu": (1, 1), "4xa100": (1, 4), "8xa100": (1, 8), "8xa100_fsdp2": (1, 8), "2x8xa100": (2, 16)}
    assert (config.num_machines, config.num_processes) == expected[path.stem]
    assert not config.use_cpu


def test_the_launch_file_of_two_machines_takes_rank_and_address_from_the_command_line():
    file = str(RECIPES / "accelerate" / "2x8xa100.yaml")
    given = ["--config_file", file, "--machine_rank", "1", "--main_process_ip", "10.0.0.1", "stage2.py"]
    arguments, *_ = _validate_launch_command(launch_command_parser().parse_args(given))
    assert (arguments.num_machines, arguments.num_processes, arguments.machine_rank) == (2, 16, 1)
    assert (arguments.main_process_ip, arguments.main_process_port, arguments.multi_gpu) == ("10.0.0.1", 29500, True)


TAKING = {
    "evaluate_vcmr": (["--compare", "--architectures", "xml"], {"vcmr_config": "vcmr_didemo_fig"}, "train"),
    "evaluate_comp": (
        ["--compare", "--objectives", "comploss"],
        {"vidclip_config": "vidclip_paper_4_activitynet"},
        "train",
    ),
    "evaluate_tfcovr": (["--compare", "--systems", "text-only"], {"stage2_config": "stage2_one_gpu"}, "train"),
    "finetune_baseline": (["--rows", "tf-covr-base"], {"stage1_config": "stage1_one_gpu"}, "stage1.run"),
    "ablate": (["--seeds", "0"], {"stage1_config": "stage1_one_gpu", "stage2_config": "stage2_one_gpu"}, "stage2.run"),
}
"""Verb -> options with which it trains, the files of other verbs that it takes, and what trains."""


def trained_and_measured(monkeypatch, folder, verb, *words):
    """What a verb trains with, and the data that it opens: their name, configuration and folder."""
    module, opened, trained = module_of(verb), [], []
    options, files, train = TAKING[verb]

    def load(dataset, name, *, data_dir=None, split=None, **_):
        opened.append((dataset, name.partition("-")[0], data_dir))
        row = {"clip_id": "a", "video_id": "a", "video": None, "query_clip_id": "a", "query_id": "q"}
        row |= {"modification_text": "b", "target_clip_ids": ["a"]}
        rows = Dataset.from_list([row])
        return DatasetDict(dict.fromkeys(("train", "validation", "test"), rows)) if split is None else rows

    def stop(config, *_):
        trained.append(config)
        raise SystemExit("trained")

    monkeypatch.chdir(folder)
    monkeypatch.setattr("subtle.run.data.load_dataset", load)
    monkeypatch.setattr(f"{module.__name__}.{train}", stop)
    if verb == "ablate":
        monkeypatch.setattr(module, "check_model_folder", lambda _: None)
        monkeypatch.setattr(module.Ablation, "finish", lambda *_: 0)
    if verb == "evaluate_vcmr":
        monkeypatch.setattr(module, "make_features", lambda *_: None)
    if verb == "evaluate_comp":
        monkeypatch.setattr(module, "load_evaluation_data", lambda _: module.EvaluationData([], {}, []))
    given = [word for option, file in files.items() for word in (f"--{option}", f"{file}.yaml")]
    with contextlib.suppress(SystemExit):
        module.main(
            parse_config(options_of(verb), None, [*options, *given, "--output_dir", str(folder / "out"), *words])
        )
    return trained[0], opened


@pytest.mark.parametrize("verb", TAKING)
def test_a_file_of_another_verb_says_what_is_trained_and_measured_on(verb, monkeypatch, tmp_path):
    file = list(TAKING[verb][1].values())[-1]
    wanted = yaml.safe_load((RECIPES / "configs" / f"{file}.yaml").read_text(encoding="utf-8"))
    trained, opened = trained_and_measured(monkeypatch, tmp_path, verb)
    data = (trained.dataset, trained.dataset_config, trained.data_dir)
    assert data == (trained.dataset, "release", wanted["data_dir"])
    assert set(opened) == {data}
    assert trained.device == wanted.get("device", "auto")


@pytest.mark.parametrize("verb", TAKING)
def test_only_what_is_typed_overrides_the_file_of_another_verb(verb, monkeypatch, tmp_path):
    words = ["--dataset_config", "mini", "--device", "cpu"]  # the first is the default
    trained, opened = trained_and_measured(monkeypatch, tmp_path, verb, *words)
    assert (trained.dataset_config, trained.device) == ("mini", "cpu")
    assert {name for _, name, _ in opened} == {"mini"}
    assert trained.data_dir  # of which nothing was typed


def test_two_files_that_name_different_data_are_refused(monkeypatch, tmp_path):
    monkeypatch.setitem(
        TAKING, "ablate", ([], {"stage1_config": "stage1_hard", "stage2_config": "stage2_one_gpu"}, "stage2.run")
    )
    with pytest.raises(ValueError, match="differ in dataset_config: hard and release; say which with --dataset_config"):
        trained_and_measured(monkeypatch, tmp_path, "ablate")


def test_systems_are_compared_on_the_data_of_the_model_that_is_given(monkeypatch, tmp_path):
    monkeypatch.setitem(TAKING, "evaluate_tfcovr", (["--compare", "--systems", "text-only"], {}, "train"))
    made = asdict(Stage2Config(dataset_config="release", data_dir="data/tfcovr", device="cuda", beta=0.75))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "results.json").write_text(json.dumps({"config": made}))
    words = ["--models", str(tmp_path / "run" / "model")]
    trained, opened = trained_and_measured(monkeypatch, tmp_path, "evaluate_tfcovr", *words)
    assert (trained.dataset_config, trained.beta, trained.device) == ("release", 0.75, "auto")  # of this machine
    assert set(opened) == {("tfcovr", "release", "data/tfcovr")}
