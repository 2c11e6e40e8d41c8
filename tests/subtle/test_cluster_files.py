"""The files for clusters: a Slurm job puts itself back where it was stopped, and what the others say is allowed."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from subtle.run.accelerator import REQUEUE

CLUSTER = Path(__file__).parents[2] / "recipes" / "cluster"
SLURM = CLUSTER / "slurm.sh"
SBATCH = {
    *("job-name", "nodes", "ntasks-per-node", "gpus-per-node", "cpus-per-task", "mem", "time", "signal", "requeue"),
    *("open-mode", "output"),
}
COMMANDS = {
    # Starts the tasks of two machines of two processes, and answers as Slurm's does: with the highest status.
    "srun": """
while [[ $1 == --* ]]; do shift; done
for task in 0 1 2 3; do SLURM_PROCID=$task SLURM_LOCALID=$((task % 2)) "$@" & tasks+=($!); done
for task in "${tasks[@]}"; do wait "$task"; ended=$?; [ $ended -gt "${highest:-0}" ] && highest=$ended; done
exit "${highest:-0}"
""",
    "scontrol": 'if [ "$1" = show ]; then printf "one\\ntwo\\n"; else echo "$*" >> requeued; fi',
    "subtle": 'echo "$RANK $LOCAL_RANK $WORLD_SIZE $MASTER_ADDR $MASTER_PORT $*" > "rank$RANK"; exit $((STATUS$RANK))',
}


@pytest.fixture
def submit(tmp_path):
    """Run the job script with commands in place of Slurm's; its status."""
    for name, content in COMMANDS.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{content}\n")
        (tmp_path / name).chmod(0o755)

    def run(*words, **statuses):
        environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "41"}
        environment |= {"SLURM_NTASKS": "4", "SLURM_JOB_NODELIST": "n[1-2]", **statuses}
        script = ["bash", str(SLURM), *words]
        return subprocess.run(script, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    return run


@pytest.mark.parametrize(
    ("statuses", "ends_with", "is_requeued"),
    [
        ({}, 0, False),
        ({f"STATUS{rank}": str(REQUEUE) for rank in range(4)}, REQUEUE, True),
        ({f"STATUS{rank}": "1" for rank in range(4)}, 1, False),
        ({"STATUS0": str(REQUEUE), "STATUS1": "137"}, 137, False),
    ],
)
def test_a_slurm_job_puts_itself_back_where_its_processes_were_stopped_and_only_there(
    submit, tmp_path, statuses, ends_with, is_requeued
):
    assert submit("stage2", "a b.yaml", "--epochs", "3", **statuses).returncode == ends_with
    assert (tmp_path / "requeued").is_file() == is_requeued
    assert not is_requeued or (tmp_path / "requeued").read_text() == "requeue 41\n"
    for rank in range(4):
        said = (tmp_path / f"rank{rank}").read_text()
        assert said == f"{rank} {rank % 2} 4 one 20041 stage2 a b.yaml --epochs 3\n"


def test_a_slurm_job_without_a_verb_says_what_is_missing(submit):
    done = submit()
    assert (done.returncode, done.stdout) == (2, "")
    assert "name a verb and its words: sbatch" in done.stderr


def test_the_options_of_the_slurm_job_are_those_of_sbatch():
    options = re.findall(r"^#SBATCH --([\w-]+)(?:=(\S+))?$", SLURM.read_text(), re.MULTILINE)
    assert len(options) == SLURM.read_text().count("\n#SBATCH")
    assert {name for name, _ in options} == SBATCH
    assert re.fullmatch(r"USR1@\d+", dict(options)["signal"])  # of the processes, not of the script: no `B:`


@pytest.mark.parametrize(("tool", "file"), [("shellcheck", "slurm.sh"), ("hadolint", "Dockerfile")])
def test_a_checker_of_the_file_finds_nothing(tool, file):
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not on PATH; `pip install {tool}-{'py' if tool == 'shellcheck' else 'bin'}` has it")
    done = subprocess.run([tool, str(CLUSTER / file)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_skypilot_file_has_keys_that_skypilot_knows_and_scripts_that_bash_reads(tmp_path):
    task = yaml.safe_load((CLUSTER / "skypilot.yaml").read_text())
    assert task.keys() == {"name", "num_nodes", "resources", "envs", "file_mounts", "setup", "run"}
    assert task["resources"].keys() == {"accelerators", "use_spot", "disk_size", "job_recovery"}
    assert task["resources"]["job_recovery"].keys() == {"max_restarts_on_errors"}
    (mount,) = task["file_mounts"].values()
    assert mount.keys() == {"source", "mode"}
    configs = CLUSTER.parent / "configs"
    assert (configs / task["envs"]["CONFIG"]).is_file()
    for script in (task["setup"], task["run"]):
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    launched = yaml.safe_load((CLUSTER.parent / re.search(r"accelerate/[\w.]+", task["run"])[0]).read_text())
    gpus = int(task["resources"]["accelerators"].partition(":")[2])
    assert (launched["num_machines"], launched["num_processes"]) == (task["num_nodes"], task["num_nodes"] * gpus)


def test_the_image_has_ffmpeg_and_says_how_much_shared_memory_it_takes():
    text = (CLUSTER / "Dockerfile").read_text()
    assert re.findall(r"^[A-Z]+(?= )", text, re.MULTILINE) == ["FROM", "RUN", "RUN", "WORKDIR", "ENTRYPOINT"]
    assert re.search(r"apt-get install .* ffmpeg ", text)
    assert "docker run --gpus all --shm-size=64g" in text
