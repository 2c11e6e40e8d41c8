"""Every recipe that is killed at any moment, resumed with the same command, ends as an uninterrupted one.

`KILLS_PER_RECIPE` (7) kills of each, by `KILL_SIGNALS` ("9 15 2"), come at moments that `KILL_SEED` (0) decides.
"""

import json
import os
from pathlib import Path

import pytest
from chat_server import ChatServer
from colored_videos import write_colored_video

from hf_datasets.tfcovr.labels import parse_description
from hf_datasets.tfcovr.modifications.task import answer_text
from hf_datasets.tfcovr.modifications.writer import write_modification
from tests.hostile.kill_harness import Job, hunt
from tests.hostile.outcomes import built, embeddings, features, finished, indexed, prepared, rendered, trained

RECIPES = Path(__file__).parents[2] / "recipes"
KILLS, SEED = (int(os.environ.get(name, value)) for name, value in (("KILLS_PER_RECIPE", "7"), ("KILL_SEED", "0")))
VIDEOS, EVENTS = (
    20,
    ("A man lifts a heavy bar.", "He throws the bar on the floor.", "He drinks a glass of water."),
)
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
    return [part for name, value in options.items() for part in (f"--{name}", value)]


def recipe(name, options, outcome, *, title=None, tolerance=0.0, status=0, processes=1):
    """A recipe that writes into the folder it is given."""

    def command(folder):
        return [RECIPES / f"{name}.py", "--output_dir", folder / "run", *flags(options(folder))]

    return Job(title or name, command, lambda folder: outcome(folder / "run"), tolerance, status, processes)


@pytest.fixture(scope="module")
def comp_captions(tmp_path_factory):
    folder = tmp_path_factory.mktemp("captions")
    spans = [[0, 10], [12, 20], [22, 38]]
    one = {"duration": 40, "timestamps": spans}
    videos = {
        f"v_{number}": {
            **one,
            "sentences": [sentence.replace("heavy", f"{number} kg") for sentence in EVENTS],
        }
        for number in range(VIDEOS)
    }
    (folder / "train.json").write_text(json.dumps(videos))
    return folder


@pytest.fixture(scope="module")
def fig_moments(tmp_path_factory):
    from tests.subtle.run.test_build import write_videos

    folder = tmp_path_factory.mktemp("moments")
    write_videos(folder / "videos")
    keys = ("video", "time", "desc_id", "cog_desc", "duration")
    rows = [
        (
            "aaaaa",
            [float(number % 7), number % 7 + 3.0],
            number,
            f"a person opens the brown bag {number}.",
            12.0,
        )
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

    def job(name, title, *, batch):
        options = {"model": "m", "base_url": chat, "batch": batch, "max_answers": 1, **sources[name]}
        if name == "build_comp":
            options["max_answers"] = 2
        status = 0 if name == "build_tfcovr" else 1  # this server's answers are refused in some of the steps
        return recipe(
            name,
            lambda folder: {"cache": folder / "answers.sqlite", **options},
            built,
            title=title,
            status=status,
        )

    return {name: job(name, name, batch="false") for name in sources} | {
        f"{name} --batch": job(name, f"{name} --batch", batch="true") for name in sources
    }


@pytest.fixture(scope="module")
def trainings(tiny, embedded, tiny_comp, moment_features):
    """Name -> a training with checkpoints every few steps."""
    clip = Path(tiny["vision_model"]).parent / "clip"
    stage1 = {"dataset": tiny["dataset"], "base": clip, "num_frames": 4, "epochs": 8, "batch_size": 4}
    stage2 = {**tiny, "embeddings": embedded, "projection_dim": 16, "fusion_hidden_dim": 32, "epochs": 40}
    vidclip = {**tiny_comp, "num_frames": 4, "epochs": 10, "batch_size": 8, "warmup_steps": 2}
    vcmr = {
        "dataset": moment_features,
        "features": moment_features / "features",
        "min_clips": 1,
        "max_clips": 4,
    }
    vcmr |= {"max_video_clips": 12, "nms_threshold": 0.5, "epochs": 12, "batch_size": 50}
    options = {
        "stage1": stage1 | {"num_workers": 1, "checkpoint_steps": 3},
        "stage2": stage2 | {"batch_size": 45, "checkpoint_steps": 7},
        "vidclip": vidclip | {"checkpoint_steps": 3},
        "vcmr": vcmr | {"checkpoint_steps": 4},
    }

    def job(name):
        own = {"cache_dir": "frames"} if name == "stage1" else {}
        return recipe(name, lambda folder: {**options[name], **own, "device": "cpu"}, trained)

    stage2 = {**options["stage2"], "epochs": 10, "device": "cpu"}
    two = recipe("stage2", lambda folder: stage2, trained, title="stage2 on two processes", processes=2)
    return {name: job(name) for name in options} | {two.name: two}


@pytest.fixture(scope="module")
def encodings(tiny, moments):
    """Name -> an encoding in small shards, with processes that decode."""
    pool = {"num_workers": 1, "device": "cpu"}
    embed = {**tiny, **pool, "batch_size": 4, "shard_size": 4, "cache_dir": "frames"}
    clip = Path(tiny["vision_model"]).parent / "clip"
    seconds = {
        "dataset": moments,
        "vision_model": clip,
        "text_model": tiny["text_model"],
        "clip_seconds": 0.25,
    }
    of_moments = {**seconds, **pool, "shard_size": 1, "batch_size": 1}
    return {
        "embed": recipe("embed", lambda folder: embed, embeddings, tolerance=1e-5),
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
    words = ["--source", folder, *flags(options | {"num_workers": 1, "moments_per_read": 2, "device": "cpu"})]
    command = lambda out: [RECIPES / "index.py", "--output", out / "run", *words]  # noqa: E731
    return {"index": Job("index", command, lambda out: indexed(out / "run"))}


@pytest.fixture(scope="module")
def commands():
    """`python -m hf_datasets`, which renders into a folder or prepares in the cache, and the quickstart."""
    return {
        "render": Job("render", lambda folder: ["hf_datasets", "render", "--root", folder], rendered),
        "quickstart": recipe("quickstart", lambda folder: {}, finished),
        "prepare": Job("prepare", lambda folder: ["hf_datasets", "prepare", "tfcovr", "activitynet_comp"], prepared),
    }


JOBS = {
    **dict.fromkeys(["build_tfcovr", "build_comp", "build_fig"], "builds"),
    **dict.fromkeys(["build_tfcovr --batch", "build_comp --batch", "build_fig --batch"], "builds"),
    **dict.fromkeys(["stage1", "stage2", "stage2 on two processes", "vidclip", "vcmr"], "trainings"),
    **dict.fromkeys(["embed", "embed_moments"], "encodings"),
    "index": "indexing",
    **dict.fromkeys(["render", "prepare", "quickstart"], "commands"),
}
MOST_KILLS = {"quickstart": 3}  # of what takes minutes


@pytest.mark.parametrize("name", JOBS)
def test_a_killed_and_resumed_run_ends_as_one_that_was_not_killed(name, request, tmp_path, record_property):
    job = request.getfixturevalue(JOBS[name])[name]
    kills = min(KILLS, MOST_KILLS.get(name, KILLS))
    report = hunt(job, tmp_path, kills, SEED)
    record_property("kills", report.row())
    record_property("times", report.times())
    assert not report.faults, "\n\n".join(report.faults)
    assert report.row()["kills"] == kills
