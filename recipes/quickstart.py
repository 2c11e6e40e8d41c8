"""The main job from nothing to a report, on the miniature: `python recipes/quickstart.py` or `make quickstart`.

Each step is a command that you could type yourself, and is printed as such. A second run goes on where the first was
stopped and repeats nothing that is done. On two cores it takes under 8 minutes, because stage 1 goes on from adapters
that ship (`weights/miniature-aim`).
"""

import os
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from config import option, parse_config, run_recipe


@dataclass
class QuickstartConfig:
    """Where the results go."""

    output_dir: str = option("outputs", "Folder for everything that the steps write.")


if __name__ == "__main__":  # before the imports below, which take seconds
    CONFIG = parse_config(QuickstartConfig, __doc__)

from rich.console import Console

RECIPES = Path(__file__).parent
# `evaluate_tfcovr.py --compare` shows all; training these takes a minute or two.
SHOWN = ("two-stage", "stage-2-only", "text-only")


def steps(output_dir: Path) -> dict[str, list[str]]:
    """What is done, and the command that does it, in order."""

    def recipe(name: str, *arguments: str) -> list[str]:
        return [str(RECIPES / f"{name}.py"), *arguments]

    return {
        "install the metrics' names": ["-m", "metrics", "install"],
        "render the miniature": ["-m", "hf_datasets", "prepare", "tfcovr"],
        "stage 1: train AIM's adapters to classify clips": recipe(
            "stage1", "--output_dir", str(output_dir / "stage1")
        ),
        "encode clips and texts once": recipe(
            "embed",
            *("--vision_model", str(output_dir / "stage1/model")),
            *("--output_dir", str(output_dir / "embeddings/stage1")),
        ),
        "stage 2: train the composition of clip and text": recipe(
            "stage2",
            *("--vision_model", str(output_dir / "stage1/model")),
            *("--embeddings", str(output_dir / "embeddings/stage1")),
            *("--output_dir", str(output_dir / "stage2")),
        ),
        "train two baselines and evaluate": recipe(
            "evaluate_tfcovr",
            *("--compare", "--systems", *SHOWN),
            *("--models", str(output_dir / "stage2/model")),
            *("--runs_dir", str(output_dir / "systems")),
            *("--embeddings", str(output_dir / "embeddings/stage1")),
            *("--output_dir", str(output_dir / "evaluation")),
        ),
        "report": recipe(
            "report",
            *("--evaluation_dir", str(output_dir / "evaluation")),
            *("--output_dir", str(output_dir / "report")),
        ),
    }


def main(config: QuickstartConfig) -> int:
    console = Console()
    begin = time.monotonic()
    # Threads that wait actively make a machine that others use, too, several times slower.
    environment = {"OMP_WAIT_POLICY": "PASSIVE", **os.environ}
    for title, command in steps(Path(config.output_dir)).items():
        console.rule(f"[bold]{title}", align="left")
        console.print(f"python {shlex.join(command)}", style="dim", highlight=False)
        start = time.monotonic()
        code = subprocess.run([sys.executable, *command], check=False, env=environment).returncode
        if code:
            console.print(
                f"[red]stopped at “{title}” (exit status {code}); mend it and run this again to go on"
            )
            return code
        console.print(f"{time.monotonic() - start:.0f} s", style="dim")
    console.rule(f"[bold]done in {(time.monotonic() - begin) / 60:.1f} minutes", align="left")
    return 0


if __name__ == "__main__":
    sys.exit(run_recipe(main, CONFIG))
