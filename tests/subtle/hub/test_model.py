"""Model folders for the Hub: complete, clean, and loaded by someone who has only the Hub's libraries."""

import contextlib
import io
import json
import re
import shutil
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import pytest
import torch
import yaml
from huggingface_hub import ModelCard, parse_eval_result_entries
from peft import AutoPeftModel, PeftModel
from PIL import Image
from small_moment_models import MODELS as MOMENT_MODELS
from small_moment_models import inputs as moment_inputs
from small_runs import MAP_SIGNATURE, WEIGHTS, make_runs
from small_vidclip import FRAMES, inputs
from transformers import AutoModel, CLIPVisionModel

from hf_datasets.registry import task_id
from hf_models import AIMForVideoClassification
from hf_models.cards import CURVE_PIXELS
from hf_models.tfcovr.modeling_aim import CLIPVisionTower
from subtle.hub.model import prepare_model
from subtle.hub.runs import find_run
from subtle.train.options import Stage1Config
from tests.fixtures.published_run import read_card
from tests.fixtures.videos import numbered_frame, write_video

CLIPS = {"pixel_values": torch.rand(2, FRAMES, 3, 16, 16, generator=torch.Generator().manual_seed(3))}
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """`org/NAME` for every kind of run and every folder of weights that ships; `runs/NAME` are the runs."""
    root = tmp_path_factory.mktemp("published")
    runs = make_runs(root / "runs")
    found = {name: prepare_model(str(root / "runs" / name), f"org/{name}", root / "org" / name) for name in runs}
    adapter = root / "runs" / "stage1" / "adapter"
    found["adapter"] = prepare_model(str(adapter), "org/adapter", root / "org" / "adapter", base_repo="runs/tower")
    shipped = sorted(path.name for path in WEIGHTS.iterdir())
    found |= {name: prepare_model(name, f"org/{name}", root / "org" / name) for name in shipped}
    place = root / "org" / "classifier"
    found["classifier"] = prepare_model("miniature-aim", "org/classifier", place, part="classifier")
    write_video(root / "video.mp4", 40)  # what the cards' code reads
    Image.fromarray(numbered_frame(7)).save(root / "image.png")
    return root, found


def readme_code(folder):
    """The first block of Python in a card."""
    return re.search(r"```python\n(.*?)```", (folder / "README.md").read_text(encoding="utf-8"), re.DOTALL)[1]


def same_pixels(image_size, frames):
    generator = torch.Generator().manual_seed(4)
    return torch.rand(2, frames, 3, image_size, image_size, generator=generator)


def cases():
    """Repository -> what its model is called with, and the name of the output."""
    texts = {name: inputs(2)[name] for name in ("input_ids",)}
    found = {
        "stage1": (CLIPS, "logits"),
        **dict.fromkeys(
            ("stage2", "factored"),
            (CLIPS | texts | {"attention_mask": torch.ones_like(texts["input_ids"])}, "get_query_features"),
        ),
        "vidclip": (CLIPS | texts, "logits_per_video"),
        "noise": (CLIPS | texts, "logits"),
        "classifier": ({"pixel_values": same_pixels(48, 12)}, "logits"),
        "miniature-clip": ({"pixel_values": same_pixels(48, 1)[:, 0]} | texts, "logits_per_image"),
        "miniature-vidclip": ({"pixel_values": same_pixels(48, 16)} | texts, "logits_per_video"),
    }
    return found | dict.fromkeys(MOMENT_MODELS, (moment_inputs(num_queries=2, num_videos=2), "end_logits"))


def output(model, given, name):
    with torch.no_grad():
        return getattr(model, name)(**given) if name.startswith("get_") else getattr(model(**given), name)


WITHOUT_THE_PACKAGE = """
import contextlib, io, json, re, sys, torch
for name in ("hf_models", "hf_datasets", "metrics", "subtle"):
    sys.modules[name] = None  # importing it raises
cases, found = torch.load("cases.pt", weights_only=True), {}
for repo, (given, name) in cases.items():
    card = open(f"org/{repo}/README.md", encoding="utf-8").read()
    names = {}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        for block in re.findall(r"```python\\n(.*?)```", card, re.DOTALL):
            assert "np.zeros" not in block  # a real file, not a black picture
            exec(block, names)  # as the card has it
    assert printed.getvalue(), repo
    model = names["model"].eval()
    with torch.no_grad():
        value = getattr(model, name)(**given) if name.startswith("get_") else getattr(model(**given), name)
    found[repo] = value
torch.save(found, "found.pt")
from peft import AutoPeftModel, PeftModel
for load in (lambda: PeftModel.from_pretrained(torch.nn.Linear(1, 1), "org/adapter"),
             lambda: AutoPeftModel.from_pretrained("org/adapter")):
    try:
        load()
    except KeyError as error:
        print(error)
"""


def test_every_card_s_code_runs_without_this_project_and_gives_the_same_outputs(published, warm_python):
    root, _ = published
    torch.save(cases(), root / "cases.pt")
    environment = {"HF_HOME": str(root / "home"), "HF_HUB_OFFLINE": "1", "PATH": "", "OMP_NUM_THREADS": "1"}
    done = warm_python.run(["-c", WITHOUT_THE_PACKAGE], cwd=root, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["'AIM: run `pip install subtle-video` and `import hf_models` first'"] * 2
    found = torch.load(root / "found.pt", weights_only=True)
    given, tower = cases()["classifier"][0], CLIPVisionModel.from_pretrained(WEIGHTS / "miniature-clip")
    expected = output(PeftModel.from_pretrained(tower, WEIGHTS / "miniature-aim").eval(), given, "logits")
    torch.testing.assert_close(found.pop("classifier"), expected, atol=1e-5, rtol=0)
    for repo in found:
        given, name = cases()[repo]
        folder = WEIGHTS / repo if (WEIGHTS / repo).is_dir() else root / "runs" / repo / "model"
        before = AIMForVideoClassification if repo == "stage1" else AutoModel
        torch.testing.assert_close(found[repo], output(before.from_pretrained(folder), given, name))


def test_an_adapter_s_code_runs_with_this_package_and_finds_its_base_by_itself(published, monkeypatch):
    root, found = published
    monkeypatch.chdir(root)
    given = {"pixel_values": CLIPS["pixel_values"]}
    tower = CLIPVisionTower.from_pretrained(root / "runs" / "tower")
    expected = output(PeftModel.from_pretrained(tower, root / "runs" / "stage1" / "adapter"), given, "logits")
    torch.testing.assert_close(output(AutoPeftModel.from_pretrained("org/adapter"), given, "logits"), expected)
    for repo in ("adapter", "miniature-aim"):
        names = {}
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(readme_code(found[repo].folder), names)
        assert printed.getvalue()
    given = {"pixel_values": same_pixels(48, 12)}
    found_base = AutoPeftModel.from_pretrained("org/miniature-aim").eval()
    torch.testing.assert_close(output(found_base, given, "logits"), output(names["model"], given, "logits"))
    settings = json.loads(Path("org/miniature-aim/adapter_config.json").read_text())
    assert settings["base_model_name_or_path"] == "org/miniature-clip"
    source = json.loads((WEIGHTS / "miniature-aim" / "adapter_config.json").read_text())
    assert list(settings["id2label"].items()) == list(source["id2label"].items()), "the order is that of the head"
    assert ModelCard.load("org/miniature-aim/README.md").data.base_model == "org/miniature-clip"


def test_the_values_of_the_cards_are_those_of_the_results(published):
    _, found = published
    for name, publication in found.items():
        card, results = read_card(publication.folder), json.loads((publication.folder / "results.json").read_text())
        figures = results["figures"]
        values = {
            f"{result.dataset_split}/{result.metric_name}": result.metric_value
            for result in card.data.eval_results or []
        }
        measured = {name: value for name, value in figures.items() if isinstance(value, float)}
        if name in {"stage2", "xml"}:
            evaluated = json.loads((publication.folder / "evaluation" / "results.json").read_text())["figures"]
            several = len(evaluated) > 1
            measured |= {
                f"test/{metric}{f' ({system.split()[-1]} queries)' if several else ''}": value
                for system, by_metric in evaluated.items()
                for metric, value in by_metric.items()
            }
        measured = {name if "/" in name else f"validation/{name}": value for name, value in measured.items()}
        assert values == ({} if name in {"noise", "miniature-clip"} else measured), name
        for value in (*measured.values(), *figures.get("trained", {}).values()):
            assert f"| {value:.4g} |" in card.text or value == 40
        assert "* train/clips: 2,464" in card.text or '"clips"' not in json.dumps(results.get("coverage"))


def test_cards_name_task_base_data_metrics_and_license(published):
    _, found = published
    data = {name: ModelCard.load(one.folder / "README.md").data for name, one in found.items()}
    assert {one.license for one in data.values()} == {"apache-2.0"}
    stage1, stage2 = data["stage1"], data["stage2"]
    assert (stage1.library_name, stage1.pipeline_tag) == ("transformers", "video-classification")
    assert (stage1.base_model, stage1.datasets, stage1.metrics) == ("org/miniature-clip", ["org/tfcovr"], ["accuracy"])
    assert (data["adapter"].library_name, data["adapter"].base_model_relation) == ("peft", "adapter")
    assert stage2.metrics == ["org/map_at_k"]
    assert stage2.eval_results[0].metric_args == {"signature": MAP_SIGNATURE}
    assert found["stage2"].needs == ("org/miniature-clip", "org/tfcovr", "org/map_at_k")
    assert found["factored"].needs == found["stage2"].needs
    assert {"factored-covr", "composed-video-retrieval"} <= set(data["factored"].tags)
    for name in ("stage2", "miniature-tfcovr", "miniature-vidclip"):
        assert (found[name].folder / "modules.json").is_file()
        assert data[name].library_name == "sentence-transformers"
    assert data["miniature-tfcovr"].base_model == ["org/miniature-aim", "org/miniature-clip"]
    assert found["miniature-tfcovr"].needs[:2] == ("org/miniature-aim", "org/miniature-clip")
    assert data["classifier"].base_model == ["org/miniature-aim", "org/miniature-clip"]
    assert (data["classifier"].library_name, data["classifier"].base_model_relation) == ("transformers", "finetune")
    named = [metric for one in data.values() for metric in one.metrics or []]
    assert all("/" in metric or metric in {"accuracy", "recall"} for metric in named)
    assert found["miniature-aim"].needs == ("org/miniature-clip", "org/tfcovr")
    assert set(data["miniature-vidclip"].tags) >= {"vidclip", "synthetic", "miniature"}
    tasks = [result.metric_args["signature"] for result in data["xml"].eval_results[:2]]
    assert tasks == ["vcmr_recall|task:vcmr|cut:100", "vcmr_recall|task:vr|cut:100"]


def test_a_benchmark_takes_the_test_results_of_an_evaluation_beside_the_model(published):
    _, found = published
    folder = found["stage2"].folder
    (entry,) = parse_eval_result_entries(yaml.safe_load((folder / ".eval_results" / "tfcovr.yaml").read_text()))
    assert (entry.dataset_id, entry.task_id) == ("org/tfcovr", task_id("tfcovr", "mini"))
    assert (entry.value, entry.notes) == (0.25, MAP_SIGNATURE)
    measured = json.loads((folder / "evaluation" / "results.json").read_text())["date"]
    assert entry.date == measured == datetime.fromisoformat(measured).astimezone(UTC).isoformat()
    assert json.loads((folder / "evaluation" / "results.json").read_text())["figures"]["two-stage"]["map@50"] == 0.25
    (entry,) = yaml.safe_load((found["xml"].folder / ".eval_results" / "charades_fig.yaml").read_text())
    assert (entry["dataset"]["task_id"], entry["value"]) == (task_id("charades_fig", "mini"), 0.5)
    assert "revision" not in entry["dataset"], "the rows came from a builder, not from the Hub"
    card = ModelCard.load(found["xml"].folder / "README.md")
    assert "| vr_recall@1 (coarse queries) | org/charades_fig mini | test | 0.375 |" in card.text
    for name in ("noise", "vidclip", "stage1", "miniature-vidclip"):  # measured on validation, or on no benchmark
        assert not (found[name].folder / ".eval_results").exists()


def test_a_benchmark_without_a_test_split_takes_the_results_on_validation(published, tmp_path):
    run = shutil.copytree(published[0] / "runs" / "vidclip", tmp_path / "vidclip")
    results = json.loads((run / "results.json").read_text())
    results["config"]["dataset_config"] = "release"  # which has train and validation alone
    (run / "results.json").write_text(json.dumps(results | {"dataset_revision": "ab" * 20}))
    folder = prepare_model(str(run), "org/name", tmp_path / "prepared", license="cc-by-4.0").folder
    (entry,) = parse_eval_result_entries(
        yaml.safe_load((folder / ".eval_results" / "activitynet_comp.yaml").read_text())
    )
    assert (entry.task_id, entry.value) == (task_id("activitynet_comp", "release"), 0.31875)
    assert entry.dataset_revision == "ab" * 20
    (result,) = read_card(folder).data.eval_results
    assert (result.dataset_split, result.dataset_revision) == ("validation", "ab" * 20)


def test_a_card_names_the_paper_of_its_method(published):
    _, found = published
    numbers = {"stage1": "2302.03024", "stage2": "2506.05274", "vidclip": "2504.03970", "noise": "2410.08593"}
    numbers |= {"xml": "2001.09099", "reloclnet": "2105.06247", "hero": "2005.00200"}
    for name, number in numbers.items():
        text = (found[name].folder / "README.md").read_text(encoding="utf-8")
        assert f"https://arxiv.org/abs/{number}" in text


def test_a_model_that_goes_on_from_another_run_names_what_that_run_started_from(published, tmp_path):
    root, _ = published
    run = shutil.copytree(root / "runs" / "stage2", tmp_path / "stage2")
    results = json.loads((run / "results.json").read_text())
    results["config"]["vision_model"] = str(root / "runs" / "stage1" / "model")
    (run / "results.json").write_text(json.dumps(results))
    bases = find_run(str(run)).base_models("org", None)
    assert bases == ["org/miniature-clip"]
    first = json.loads((root / "runs" / "stage1" / "results.json").read_text())
    stage1 = shutil.copytree(root / "runs" / "stage1", tmp_path / "stage1")
    results["config"]["vision_model"] = str(stage1 / "model")
    (run / "results.json").write_text(json.dumps(results))
    with_adapters = ["org/miniature-clip", "org/miniature-aim"]
    for options, expected in (
        ({"init_from": "recipes/weights/miniature-aim"}, with_adapters),
        ({"init_from": "auto"}, with_adapters),  # those that ship, which fit
        ({"init_from": "auto", "num_frames": 8}, with_adapters[:1]),
        ({"init_from": "auto", "full": True}, with_adapters[:1]),
        ({"init_from": None}, with_adapters[:1]),
    ):
        config = asdict(Stage1Config()) | first["config"] | options
        (stage1 / "results.json").write_text(json.dumps(first | {"config": config}))
        assert find_run(str(run)).base_models("org", None) == expected


def test_the_curve_is_a_picture_of_the_size_stated(published):
    _, found = published
    for name, publication in found.items():
        path = publication.folder / "training_curve.png"
        text = (publication.folder / "README.md").read_text(encoding="utf-8")
        assert path.is_file() is ("(training_curve.png)" in text) is (name != "miniature-clip")
        if path.is_file():
            with Image.open(path) as picture:
                picture.load()
                assert (picture.format, picture.size) == ("PNG", CURVE_PIXELS)


def test_nothing_in_a_folder_tells_where_it_was_made(published):
    root, found = published
    secrets = [str(root), str(Path.cwd()), str(WEIGHTS), str(Path.home())]
    for publication in found.values():
        names = {path.name for path in publication.folder.rglob("*")}
        assert not names & {"run.json", "checkpoints", "run.lock"}
        assert {"README.md", "results.json"} <= names
        for path in publication.folder.rglob("*"):
            if path.is_file() and path.suffix != ".safetensors" and path.name != "tokenizer.json":
                text = path.read_text(encoding="latin-1")
                assert not [secret for secret in secrets if secret in text], path
        results = (publication.folder / "results.json").read_text()
        assert '"output_dir"' not in results
        assert '"source"' not in results
    assert json.loads((found["vidclip"].folder / "results.json").read_text())["config"]["model"] == "org/miniature-clip"
    assert json.loads((found["vidclip"].folder / "results.json").read_text())["config"]["video_dir"] == "<path>"


def test_a_shipped_card_keeps_its_text_with_code_for_the_hub(published):
    _, found = published
    text = ModelCard.load(found["miniature-vidclip"].folder / "README.md").text
    assert "# VidCLIP-base of the miniature" in text
    assert 'AutoModel.from_pretrained("org/miniature-vidclip", trust_remote_code=True)' in text
    assert "[The miniature's CLIP](https://huggingface.co/org/miniature-clip)" in text
    assert "recipes/weights" not in readme_code(found["miniature-vidclip"].folder)
    headings = re.findall(r"^#+ .*$", text, re.MULTILINE)
    assert len(headings) == len(set(headings))


@pytest.fixture
def run(published, tmp_path):
    """A copy of a run that a test may damage."""
    return shutil.copytree(published[0] / "runs" / "xml", tmp_path / "xml")


def refused(source, tmp_path, match, **options):
    with pytest.raises(ValueError, match=match):
        prepare_model(str(source), options.pop("repo_id", "org/name"), tmp_path / "prepared", **options)
    assert not (tmp_path / "prepared").exists()


def test_an_unfinished_run_is_refused_with_the_cure(run, tmp_path):
    (run / "results.json").unlink()
    refused(run, tmp_path, r"is not finished.*start its recipe again with the same options")
    refused(run / "model", tmp_path, r"is not finished")
    (run / "run.json").unlink()
    refused(run, tmp_path, r"has no results\.json")
    refused(tmp_path / "nothing", tmp_path, r"is not a folder, and not among the weights that ship \(miniature-aim, ")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "head.pt", "state.pkl"])
def test_pickled_weights_are_refused(run, tmp_path, name):
    (run / "model" / name).write_bytes(b"\x80\x04")
    refused(run, tmp_path, rf"{name} may hold a pickle.*save_pretrained")


def test_an_evaluation_of_other_models_is_refused(run, tmp_path):
    path = run / "evaluation" / "results.json"
    results = json.loads(path.read_text())
    results["config"]["models"].append("outputs/other/model")
    path.write_text(json.dumps(results))
    refused(run, tmp_path, r"xml/model and outputs/other/model, and not .*; evaluate it with `--models")


def test_damaged_folders_are_refused(run, tmp_path):
    (run / "model" / "notes.mp4").touch()
    refused(run, tmp_path, r"notes\.mp4 is not a file of a model; move it")
    (run / "model" / "notes.mp4").unlink()
    weights = run / "model" / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-4])
    refused(run, tmp_path, r"is not a whole safetensors file")
    weights.unlink()
    refused(run, tmp_path, r"has no weights")
    weights.write_bytes(whole)
    (run / "results.json").write_text("[")
    refused(run, tmp_path, r"cannot be read as JSON")
    (run / "results.json").write_text("{}")
    refused(run, tmp_path, r"has no metrics under `figures`")


@pytest.mark.parametrize(
    ("name", "value"), [("config", []), ("history", [1.0]), ("coverage", "none"), ("versions", None), ("history", {})]
)
def test_results_that_no_recipe_wrote_are_refused(run, tmp_path, name, value):
    results = json.loads((run / "results.json").read_text()) | {name: value}
    (run / "results.json").write_text(json.dumps(results))
    refused(run, tmp_path, rf"was not written by a recipe: its {name} has another form")


def test_a_run_with_both_gives_the_part_that_is_asked_for(published, tmp_path):
    run = published[0] / "runs" / "stage1"
    folder = prepare_model(str(run), "org/name", tmp_path / "adapter", part="adapter").folder
    assert (folder / "adapter_config.json").is_file()
    refused("miniature-aim", tmp_path, "holds no model; it holds an adapter", part="model")
    refused(published[0] / "runs" / "xml", tmp_path, "holds no adapter; it holds a model", part="adapter")


def test_a_folder_that_sentence_transformers_loads_says_so(run, tmp_path):
    (run / "model" / "sentence_bert_config.json").write_text('{"modality_config": {"video": {}}}')
    (run / "model" / "modules.json").write_text("[]")
    card = ModelCard.load(prepare_model(str(run), "org/name", tmp_path / "prepared").folder / "README.md")
    assert card.data.library_name == "sentence-transformers"
    assert {"sentence-transformers", "transformers"} <= set(card.data.tags)
    assert 'SentenceTransformer("org/name", trust_remote_code=True)' in card.text
    assert 'encoder.encode([{"video": clip}])' in card.text
    assert '"text"' not in card.text


def test_names_that_the_hub_does_not_take_and_places_that_hold_something_else_are_refused(run, tmp_path):
    refused(run, tmp_path, r"names no organization", repo_id="name")
    refused(run, tmp_path, r"is not a name on the Hub", repo_id="org/a b")
    with pytest.raises(FileExistsError, match="is not empty; name another folder"):
        prepare_model(str(run), "org/name", run)
    assert (run / "results.json").is_file()


def test_an_adapter_whose_base_is_a_folder_asks_for_the_base_on_the_hub(published, tmp_path):
    run = shutil.copytree(published[0] / "runs" / "stage1", tmp_path / "stage1")
    results = json.loads((run / "results.json").read_text())
    results["config"]["base"] = "outputs/clip/model"
    (run / "results.json").write_text(json.dumps(results))
    refused(run / "adapter", tmp_path, r"an adapter of outputs/clip/model, which is not on the Hub")
    done = prepare_model(str(run / "adapter"), "org/name", tmp_path / "prepared", base_repo="you/clip")
    assert done.needs == ("org/tfcovr",)
    assert 'from_pretrained("you/clip")' in readme_code(done.folder)


def test_weights_of_others_need_a_license_that_somebody_names(run, tmp_path):
    results = json.loads((run / "results.json").read_text())
    results["config"]["dataset_config"] = "release"
    (run / "results.json").write_text(json.dumps(results))
    refused(run, tmp_path, r"only you can say under which license.*--license cc-by-4\.0")
    (run / "model" / "README.md").write_text("---\nlicense: mit\ntags: [mine]\n---\n# My XML\n\nOf my own.\n")
    card = ModelCard.load(prepare_model(str(run), "org/name", tmp_path / "prepared").folder / "README.md")
    assert (card.data.license, card.data.tags[0]) == ("mit", "mine")
    assert card.text.strip().startswith("# My XML\n\nOf my own.\n\n## How to load")
    again = prepare_model(str(run), "org/name", tmp_path / "again", license="cc-by-4.0")
    assert ModelCard.load(again.folder / "README.md").data.license == "cc-by-4.0"
