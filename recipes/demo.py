"""Search the miniature's clips on a page of your own browser: choose a clip, write what to change, see what is found.

    python recipes/demo.py
    python recipes/demo.py --model outputs/stage2/model --port 8000

The page is what `python recipes/publish.py demo` publishes as a Space. Here it runs at an address that only this
machine reaches, and sends nothing anywhere. The clips of the test split are encoded once for each model and kept in
`--embeddings`; for the model that ships they ship, too.
"""

import importlib.util
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.commands import RECIPES
from harness.config import option, parse_config, run_recipe
from harness.model_folders import MINIATURE_TFCOVR

SPACE = RECIPES / "demo_space"


@dataclass
class DemoConfig:
    """What to search with, and where."""

    model: str = option(MINIATURE_TFCOVR, "Model folder that stage2.py wrote.")
    embeddings: str | None = option(
        None,
        "File of the encoded clips, made where it is missing; none: the one that ships, for another model "
        "outputs/demo/clips.safetensors.",
    )
    port: int | None = option(None, "Port on this machine; none: the first free one from 7860 on.")
    num_workers: int = option(2, "Processes that decode videos; 0: this one decodes.")

    def __post_init__(self) -> None:
        """Refuse what no machine has."""
        if self.port is not None and not 0 < self.port < 65536:
            raise ValueError(f"--port {self.port}: a port is a number from 1 to 65535")


if __name__ == "__main__":  # before the imports below, which take seconds
    CONFIG = parse_config(DemoConfig, __doc__)

import json

from torch import Tensor
from tqdm import tqdm

from demo_space.composed_search import Clip, ComposedSearch, fingerprint, read_embeddings, write_embeddings
from demo_space.footage import Footage
from harness.data import load_split
from harness.models import load_trained
from harness.shared_config import DataConfig, EmbedConfig
from hf_models import TFCoVRForComposedRetrieval, TFCoVRProcessor
from hf_models.retrieval import encode
from tfcovr.clip_embeddings import read_clips


def open_search(config: DemoConfig) -> tuple[ComposedSearch, dict[str, str]]:
    """The model over the test split's clips, and the file of each long video."""
    model, processor = load_trained(config.model)
    rows = [row for row in load_split(DataConfig(), "test", clips=True) if row["video"]]
    clips = [
        Clip(row["clip_id"], row["video_id"], row["description"], row["start_seconds"], row["end_seconds"])
        for row in rows
    ]
    video_embeds = embeddings(config, model, processor, rows)
    return ComposedSearch(model, processor, clips, video_embeds), {row["video_id"]: row["video"] for row in rows}


def embeddings(
    config: DemoConfig, model: TFCoVRForComposedRetrieval, processor: TFCoVRProcessor, rows: list[dict]
) -> Tensor:
    """What the video encoder gives for each clip, `(N, D)`; encoded now where the file is missing."""
    shipped = config.model == MINIATURE_TFCOVR
    default = SPACE / "clips.safetensors" if shipped else Path("outputs/demo/clips.safetensors")
    path = Path(config.embeddings) if config.embeddings else default
    made_by, clip_ids = fingerprint(model, processor), [row["clip_id"] for row in rows]
    if not path.is_file():
        encoded = encode_clips(config, model, processor, rows)
        write_embeddings(path, *encoded, made_by)
    try:
        return read_embeddings(path, clip_ids, made_by)
    except ValueError as error:
        raise ValueError(f"{error}: remove the file, or name another with --embeddings") from error


def encode_clips(
    config: DemoConfig, model: TFCoVRForComposedRetrieval, processor: TFCoVRProcessor, rows: list[dict]
) -> tuple[list[str], Tensor]:
    """Decode and encode the clips; the rendered ones all decode."""
    failures: dict[str, str] = {}
    batches = read_clips(rows, processor, EmbedConfig(num_workers=config.num_workers), failures)
    with tqdm(total=len(rows), desc="encoding clips", unit="clip") as progress:

        def counted() -> Iterator[dict[str, Any]]:
            for clip_ids, pixels in batches:
                yield {"clip_id": clip_ids, "pixel_values": pixels}
                progress.update(len(clip_ids))

        encoded = encode(model, counted(), features="encode_video")
    if failures:
        raise ValueError(
            f"{len(failures)} clips of the miniature cannot be read, such as {next(iter(failures.items()))}; render it "
            "again with `python -m hf_datasets prepare tfcovr`"
        )
    return encoded


def main(config: DemoConfig) -> None:
    if importlib.util.find_spec("gradio") is None:
        raise SystemExit("gradio is not installed; run: pip install 'subtle-video[demo]'")
    with tempfile.TemporaryDirectory(prefix="subtle-demo-") as folder:
        os.environ |= {"GRADIO_TEMP_DIR": f"{folder}/uploads", "GRADIO_ANALYTICS_ENABLED": "False"}
        from demo_space.page import build_page, launch  # imports gradio, which reads the environment

        search, videos = open_search(config)
        settings = json.loads((SPACE / "demo.json").read_text(encoding="utf-8"))
        texts = {name: settings[name] for name in ("title", "note", "examples")}
        page = build_page(search, Footage(videos, Path(folder, "clips")), **texts)
        here = {"server_name": "127.0.0.1", "server_port": config.port}
        try:
            launch(page, Path(folder, "clips"), **here, quiet=True, prevent_thread_lock=True)
        except OSError as error:
            taken = f"port {config.port} is" if config.port else "the ports from 7860 on are"
            raise OSError(f"{taken} taken on this machine; name another with --port") from error
        print(f"{len(search.clips)} clips at {page.local_url} (only on this machine); end with Ctrl-C")
        page.block_thread()


if __name__ == "__main__":
    sys.exit(run_recipe(main, CONFIG))
