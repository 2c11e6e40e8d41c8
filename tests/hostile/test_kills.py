"""Every recipe that is killed at any moment, resumed with the same command, ends as an uninterrupted one.

`KILLS_PER_RECIPE` (7) kills of each, by `KILL_SIGNALS` ("9 15 2"), come at moments that `KILL_SEED` (0) decides.
"""

import importlib.util
import json
import os
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest
import yaml
from chat_server import ChatServer
from colored_videos import write_colored_video
from small_runs import make_runs

from hf_datasets.generation.prices import Price, message_tokens, num_bytes
from hf_datasets.tfcovr.labels import parse_description
from hf_datasets.tfcovr.modifications.task import answer_text
from hf_datasets.tfcovr.modifications.writer import write_modification
from subtle.vlm.models import make_tiny
from tests.fixtures.hub_server import environment, serve
from tests.fixtures.verbs import typed
from tests.hostile.kill_harness import Job, Run, hunt
from tests.hostile.outcomes import (
    built,
    embeddings,
    features,
    finished,
    indexed,
    measured,
    prepared,
    published,
    rendered,
    trained,
    tuned,
)

RECIPES = Path(__file__).parents[2] / "recipes"
KILLS, SEED = (int(os.environ.get(name, value)) for name, value in (("KILLS_PER_RECIPE", "7"), ("KILL_SEED", "0")))
VIDEOS, EVENTS = (20, ("A man lifts a heavy bar.", "He throws the bar on the floor.", "He drinks a glass of water."))
INDEXED_VIDEOS = 39
FIG_ANSWERS = {
    "You see one image": "Background: a kitchen\nObjects Attributes: a red shirt\nDesc: A person in a kitchen.",
    "Enrich the caption": '{"original": "x", "1": "A person in a red shirt in a kitchen."}',
    "You are given a coarse": "1. a? 2. b? 3. c? 4. d? 5. e?",
    "You see the frames": "1. a 2. b 3. c 4. d 5. e\n\nIt moves left.",
    "A caption describes a moment": "1. A person opens the brown bag and turns left. 2. A person turns left.",
}

pytestmark = [pytest.mark.hostile, pytest.mark.timeout(1800)]


def answer(body):
    """What a model says to any of the builds: the same every time."""
    system, asked = body["messages"][0]["content"], body["messages"][-1]["content"]
    if fig := next((text for start, text in FIG_ANSWERS.items() if str(system).startswith(start)), None):
        return fig
    if not isinstance(asked, str) or not asked.startswith("{"):
        return "1. A person sleeps."
    asked = json.loads(asked)
    if "source" in asked:
        return answer_text(write_modification(parse_description(asked["source"]), parse_description(asked["target"])))
    if "paragraph" in asked and "Select one key word" not in system:
        return json.dumps({"paragraph": asked["paragraph"]})
    return "1. A person sleeps."


@pytest.fixture(scope="module")
def chat():
    with ChatServer(answer, seconds=lambda body: 0.1) as server:
        server.batch_polls = 3
        yield server.url


def flags(options):
    return [
        word
        for name, value in options.items()
        for word in (f"--{name}", *(value if isinstance(value, list | tuple) else [value]))
    ]


def recipe(name, options, outcome, *, tolerance=0.0, status=0, processes=1):
    """The recipe of the first word of a name, which writes into the folder it is given."""

    def command(folder):
        return [*typed(name.split()[0]), "--output_dir", folder / "run", *flags(options(folder))]

    return Job(name, command, lambda folder: outcome(folder / "run"), tolerance, status, processes)


@pytest.fixture(scope="module")
def comp_captions(tmp_path_factory):
    folder = tmp_path_factory.mktemp("captions")
    spans = [[0, 10], [12, 20], [22, 38]]
    one = {"duration": 40, "timestamps": spans}
    videos = {
        f"v_{number}": {**one, "sentences": [sentence.replace("heavy", f"{number} kg") for sentence in EVENTS]}
        for number in range(VIDEOS)
    }
    (folder / "train.json").write_text(json.dumps(videos))
    return folder


@pytest.fixture(scope="module")
def fig_moments(tmp_path_factory):
    folder = tmp_path_factory.mktemp("moments")
    (folder / "videos").mkdir()
    write_colored_video(folder / "videos" / "aaaaa.mp4", [(30, 30, 30)] * 3 + [(200, 200, 200)] * 9)
    keys = ("video", "time", "desc_id", "cog_desc", "duration")
    rows = [
        ("aaaaa", [float(number % 7), number % 7 + 3.0], number, f"a person opens the brown bag {number}.", 12.0)
        for number in range(1, VIDEOS)
    ]
    lines = [json.dumps(dict(zip(keys, row, strict=True))) for row in rows]
    (folder / "charades_fig_test.jsonl").write_text("\n".join(lines))
    return folder


@pytest.fixture(scope="module")
def builds(chat, comp_captions, fig_moments):
    """Name -> a build against the loopback server, answer by answer and as batches."""
    sources = {
        "build_tfcovr": {"limit": 60},
        "build_comp": {"source": comp_captions},
        "build_fig": {"source": fig_moments, "video_dir": fig_moments / "videos"},
    }

    def job(name, *words, batch):
        options = {"model": "m", "base_url": chat, "batch": batch, "max_answers": 1, **sources[name]}
        if name == "build_comp":
            options["max_answers"] = 2
        status = 0 if name == "build_tfcovr" else 1  # this server's answers are refused in some of the steps
        title = " ".join((name, *words))
        return recipe(title, lambda folder: {"cache": folder / "answers.sqlite", **options}, built, status=status)

    return {name: job(name, batch="false") for name in sources} | {
        f"{name} --batch": job(name, "--batch", batch="true") for name in sources
    }


@pytest.fixture(scope="module")
def trainings(tiny, embedded, tiny_comp, moment_features):
    """Name -> a training with checkpoints every few steps."""
    clip = Path(tiny["vision_model"]).parent / "clip"
    stage1 = {"dataset": tiny["dataset"], "base": clip, "num_frames": 4, "epochs": 8, "batch_size": 4}
    stage2 = {**tiny, "embeddings": embedded, "projection_dim": 16, "fusion_hidden_dim": 32, "epochs": 40}
    vidclip = {**tiny_comp, "num_frames": 4, "epochs": 10, "batch_size": 8, "warmup_steps": 2}
    vcmr = {"dataset": moment_features, "features": moment_features / "features", "min_clips": 1, "max_clips": 4}
    vcmr |= {"max_video_clips": 12, "nms_threshold": 0.5, "epochs": 12, "batch_size": 50}
    options = {
        "stage1": stage1 | {"num_workers": 1, "checkpoint_steps": 3},
        "stage2": stage2 | {"batch_size": 45, "checkpoint_steps": 7},
        "vidclip": vidclip | {"checkpoint_steps": 3},
        "vcmr": vcmr | {"checkpoint_steps": 4},
    }

    def job(name):
        own = {"cache_dir": "frames"} if name == "stage1" else {}
        return recipe(name, lambda folder: {**options[name], **own, "device": "cpu"}, trained, tolerance=TRAINED_ALIKE)

    stage2 = {**options["stage2"], "epochs": 10, "device": "cpu"}
    name = "stage2 on two processes"
    two = recipe(name, lambda folder: stage2, trained, processes=2, tolerance=TRAINED_ALIKE)
    return {name: job(name) for name in options} | {two.name: two}


@pytest.fixture
def evaluators(built_moments, tiny, text_clip):
    options = {"build": built_moments, "video_dir": tiny["dataset"].replace("/data", "/videos"), "model": text_clip}
    options |= {"epochs": 4, "batch_size": 8, "num_frames": 2, "num_workers": 0, "device": "cpu", "checkpoint_steps": 1}
    return {"noise_evaluator": recipe("noise_evaluator", lambda out: options, trained, tolerance=TRAINED_ALIKE)}


@pytest.fixture(scope="module")
def encodings(tiny, moments):
    """Name -> an encoding in small shards, with processes that decode."""
    pool = {"num_workers": 1, "device": "cpu"}
    embed = {**tiny, **pool, "batch_size": 4, "shard_size": 4, "cache_dir": "frames"}
    clip = Path(tiny["vision_model"]).parent / "clip"
    seconds = {"dataset": moments, "vision_model": clip, "text_model": tiny["text_model"], "clip_seconds": 0.25}
    of_moments = {**seconds, **pool, "shard_size": 1, "batch_size": 1}
    return {
        "embed_clips": recipe("embed_clips", lambda folder: embed, embeddings, tolerance=1e-5),
        "embed_moments": recipe("embed_moments", lambda folder: of_moments, features, tolerance=1e-5),
    }


@pytest.fixture(scope="module")
def indexing(tiny, tmp_path_factory):
    """`index` of a folder in five groups, the same bits in every row."""
    folder = tmp_path_factory.mktemp("footage")
    for seed in range(INDEXED_VIDEOS):
        colors = [((seed * 40) % 250, (second * 80) % 250, 120) for second in range(1 + seed % 5)]
        write_colored_video(folder / f"{seed:02}.mp4", colors, seed=seed)
    (folder / "broken.mp4").write_bytes((folder / "00.mp4").read_bytes()[:700])
    options = {"model": tiny["vision_model"], "window_seconds": 1.0, "stride_seconds": 0.25, "batch_size": 3}
    words = ["--source", folder, *flags(options | {"num_workers": 1, "device": "cpu"})]
    command = lambda out: [RECIPES / "index.py", "--output", out / "run", *words]  # noqa: E731
    on_ray = ["--engine", "ray", "--num_actors", 2, "--cpus_per_actor", 1]
    return {
        "index": Job("index", command, lambda out: indexed(out / "run")),
        "index --engine ray": Job(
            "index --engine ray", lambda out: [*command(out), *on_ray], lambda out: indexed(out / "run")
        ),
    }


@pytest.fixture(scope="module")
def commands():
    """`python -m hf_datasets`, which renders into a folder or prepares in the cache, and the quickstart."""
    return {
        "render": Job("render", lambda folder: ["hf_datasets", "render", "--root", folder], rendered),
        "quickstart": recipe("quickstart", lambda folder: {}, finished, tolerance=TRAINED_ALIKE),
        "prepare": Job("prepare", lambda folder: ["hf_datasets", "prepare", "tfcovr", "activitynet_comp"], prepared),
    }


@pytest.fixture
def publishing(tmp_path):
    """`publish` of a model, from each folder to a Hub of its own."""
    make_runs(tmp_path / "runs", only=["stage2"])
    command = lambda out: [  # noqa: E731
        RECIPES / "publish.py", "model", tmp_path / "runs/stage2/model", "--repo", "org/retriever", "--tag", "v1",
    ]  # fmt: skip
    with ExitStack() as stack:

        @cache
        def hub_of(out):
            out.mkdir(parents=True)
            return stack.enter_context(serve())[1]

        yield {
            "publish": Job(
                "publish",
                command,
                lambda out: published(hub_of(out).repository("org/retriever")),
                environment=lambda out: environment(hub_of(out), tmp_path / "home"),
            )
        }


@pytest.fixture(scope="module")
def tunings(tuning_clips, tuning_base):
    options = {"clips": tuning_clips / "clips.csv", "video_dir": tuning_clips / "videos", "base": tuning_base}
    options |= {"min_clips": 24, "num_frames": 2, "batch_size": 4, "stage1_epochs": 2, "stage2_epochs": 4}
    words = flags(options | {"num_queries": 1, "num_workers": 0, "device": "cpu"})
    command = lambda out: [RECIPES / "tune.py", "--output_dir", out / "run", *words]  # noqa: E731
    return {"tune": Job("tune", command, lambda out: tuned(out / "run"), TRAINED_ALIKE)}


@pytest.fixture(scope="module")
def adaptations(tiny, tmp_path_factory):
    """The fine-tuning of a small vision-language model, and of some rows of the table of baselines."""
    model = make_tiny("tiny-random-qwen3-vl", tmp_path_factory.mktemp("vlm") / "model")
    vlm = {"dataset": tiny["dataset"], "model": model, "num_frames": 2, "epochs": 4, "batch_size": 8, "rank": 4}
    vlm |= {"chunk_size": 16, "num_workers": 0, "device": "cpu"}
    vlm |= {"activation_checkpointing": "false", "checkpoint_steps": 3}
    rows = {**tiny, "projection_dim": 16, "fusion_hidden_dim": 16, "batch_size": 64, "epochs": 2, "seeds": [0, 1]}
    rows |= {"rows": ["clip-mlp-1", "blip-covr"], "split": "test", "device": "cpu", "checkpoint_steps": 3}
    rows["kind"] = "finetune_baseline"
    own = lambda out: rows | {"embeddings": out / "base", "cache_dir": out / "frames"}  # noqa: E731
    return {
        "finetune_vlm": recipe("finetune_vlm", lambda out: vlm, trained, tolerance=TRAINED_ALIKE),
        BASELINE: recipe(BASELINE, own, measured, tolerance=1e-5),
    }


@pytest.fixture(scope="module")
def measurements(tiny, embedded, tiny_comp, moment_features, tmp_path_factory):
    """What measures, and first trains what it compares; the untrained baselines."""
    root = tmp_path_factory.mktemp("measurements")
    clip = Path(tiny["vision_model"]).parent / "clip"
    every = {"num_workers": 0, "device": "cpu"}

    def training(name, **options):
        (root / f"{name}.yaml").write_text(yaml.safe_dump(options))
        return root / f"{name}.yaml"

    stage2 = {**tiny, "embeddings": embedded, "projection_dim": 16, "fusion_hidden_dim": 32, "batch_size": 45}
    stage2 = training("stage2", **stage2, epochs=4, checkpoint_steps=7)
    vidclip = training("vidclip", model=tiny_comp["model"], num_frames=4, epochs=2, batch_size=8, checkpoint_steps=3)
    vcmr = training("vcmr", epochs=4, batch_size=50, checkpoint_steps=4)
    moments = {"dataset": moment_features, "features": moment_features / "features", "min_clips": 1, "max_clips": 4}
    moments |= {"max_video_clips": 12, "nms_threshold": 0.5, "architectures": ["xml"], "seeds": [0, 1]}
    systems = {"systems": ["two-stage", "text-only"], "seeds": [0, 1], "stage2_config": stage2}
    options = {
        "evaluate_tfcovr": {"dataset": tiny["dataset"], "embeddings": embedded, **systems, **every},
        "evaluate_comp": {
            "data_dir": tiny_comp["data_dir"], "objectives": ["clip", "comploss"], "vidclip_config": vidclip, **every,
        },
        "evaluate_vcmr": {**moments, "vcmr_config": vcmr, "device": "cpu"},
    }  # fmt: skip

    def job(name):
        return recipe(
            name, lambda out: {"compare": "true", "runs_dir": out / "runs", **options[name]}, measured, tolerance=1e-5
        )

    rows = {"models": [clip], "ways": ["average", "text"], "batch_size": 2, "shard_size": 2, **every}
    rows |= dict.fromkeys(("tf_cvr", "aim_k400_8", "aim_k400_16", "aim_k400_32"), "none")
    rows |= {"kind": "zero_shot", "dataset": tiny["dataset"]}
    return {name: job(name) for name in options} | {
        ZERO_SHOT: recipe(ZERO_SHOT, lambda out: rows, measured, tolerance=1e-5)
    }


BASELINE, ZERO_SHOT = "table --kind finetune_baseline", "table --kind zero_shot"
JOBS = {
    **dict.fromkeys(["build_tfcovr", "build_comp", "build_fig"], "builds"),
    **dict.fromkeys(["build_tfcovr --batch", "build_comp --batch", "build_fig --batch"], "builds"),
    **dict.fromkeys(["stage1", "stage2", "stage2 on two processes", "vidclip", "vcmr"], "trainings"),
    "noise_evaluator": "evaluators",
    **dict.fromkeys(["embed_clips", "embed_moments"], "encodings"),
    "index": "indexing",
    "index --engine ray": "indexing",
    **dict.fromkeys(["finetune_vlm", BASELINE], "adaptations"),
    **dict.fromkeys(["evaluate_tfcovr", "evaluate_comp", "evaluate_vcmr", ZERO_SHOT], "measurements"),
    "tune": "tunings",
    "publish": "publishing",
    **dict.fromkeys(["render", "prepare", "quickstart"], "commands"),
}
TRAINED_ALIKE = 1e-3  # what one sums up in another order, an optimizer makes larger: tests/fixtures/trained_alike.py
MOST_KILLS = {"quickstart": 3, "index --engine ray": 3}  # of what takes minutes


def job_of(name, request):
    """The job of a name; its test is skipped where it needs what is not installed."""
    if "ray" in name.split() and importlib.util.find_spec("ray") is None:
        pytest.skip("needs the extra ray")
    return request.getfixturevalue(JOBS[name])[name]


@pytest.mark.parametrize("name", JOBS)
def test_a_killed_and_resumed_run_ends_as_one_that_was_not_killed(name, request, tmp_path, record_property):
    job = job_of(name, request)
    kills = min(KILLS, MOST_KILLS.get(name, KILLS))
    report = hunt(job, tmp_path, kills, SEED)
    record_property("kills", report.row())
    assert not report.faults, "\n\n".join(report.faults)
    assert report.row()["kills"] == kills


class BillingServer(ChatServer):
    """Charges each request that arrives, with a token for each byte, also where nobody waits for its answer."""

    price = Price("m", input_usd=10.0, output_usd=100.0)

    def completion(self, body, fault=None):
        return super().completion(body, fault) | {
            "usage": {"prompt_tokens": self.tokens(body), "completion_tokens": 10}
        }

    def tokens(self, body):
        return message_tokens(body["messages"], None, num_bytes)

    @property
    def billed(self):
        lines = [line for batch in self.batches.values() for line in self.files[batch["input_file_id"]].splitlines()]
        bodies = [*self.bodies, *(json.loads(line)["body"] for line in lines)]
        return sum(self.price.usd(self.tokens(body), 10) for body in bodies)

    @property
    def is_asked(self):
        return self.at_once > 2 or any(one["status"] == "in_progress" and one["polls"] for one in self.batches.values())


@pytest.mark.parametrize("batch", ["false", "true"])
def test_runs_that_are_killed_never_cost_more_than_the_budget_in_all(batch, tmp_path):
    budget, folder = 1.0, tmp_path / "build"
    with BillingServer(answer, seconds=lambda body: 0.3) as server:
        server.batch_polls = 10
        asked = {"model": "m", "base_url": server.url, "input_usd": 10, "output_usd": 100, "max_output_tokens": 20}
        asked |= {"cache": tmp_path / "answers.sqlite", "batch": batch, "limit": 60}

        def start(max_usd):
            return Run(recipe("build_tfcovr", lambda _: asked | {"max_usd": max_usd}, built), folder)

        for _ in range(3):
            run, before = start(budget), server.billed
            run.wait(lambda before=before: server.is_asked and server.billed > before)
            run.end()
        for _ in range(2):
            run = start(budget)
            assert run.wait()
            assert "the budget of $1 is used up" in run.errors()
            assert server.billed <= budget
        assert server.billed > 0.5 * budget  # a request that was cut off is charged at its worst
        run = start(100)
        assert run.wait()
        assert run.is_complete, run.errors()[-2000:]
        assert budget < server.billed <= 100
