"""Starts the page as a Space: model and clips come from the Hub, as `demo.json` names them."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FOLDER = Path(tempfile.mkdtemp(prefix="demo-"))
# Before gradio is imported, which reads them.
os.environ["GRADIO_TEMP_DIR"] = str(FOLDER / "uploads")
os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"

import gradio
from composed_search import Clip, ComposedSearch, code_hash, fingerprint, read_embeddings
from datasets import Video, load_dataset
from footage import Footage
from huggingface_hub import snapshot_download
from page import build_page, launch
from transformers import AutoModel, AutoProcessor

SHOWN = FOLDER / "clips"


def load_model(name: str, revision: str | None, code: str) -> tuple[Any, Any]:
    """The model and its processor, if their code is what the page was published with.

    Raises:
        ValueError: It is other code, which is not run.
    """
    folder = name if Path(name).is_dir() else snapshot_download(name, revision=revision)
    if code_hash(Path(folder)) != code:
        raise ValueError(f"{name} holds other code than this page was published with; publish both again together")
    model = AutoModel.from_pretrained(folder, trust_remote_code=True)
    return model.eval(), AutoProcessor.from_pretrained(folder, trust_remote_code=True)


def load_clips(name: str, revision: str | None, split: str) -> tuple[list[Clip], dict[str, Path]]:
    """The clips of a split, and the file of each long video."""
    only = {"split": split, "revision": revision, "streaming": True}  # other splits are not downloaded
    clips = load_dataset(name, "mini-clips", **only)
    rows = clips.select_columns(["clip_id", "video_id", "description", "start_seconds", "end_seconds"])
    videos = load_dataset(name, "mini-videos", **only)
    videos = videos.select_columns(["video_id", "video"]).cast_column("video", Video(decode=False))
    files: dict[str, Path] = {}
    (FOLDER / "videos").mkdir()
    for number, row in enumerate(videos):
        files[row["video_id"]] = FOLDER / "videos" / f"{number}.mp4"  # an id never becomes a file's name
        files[row["video_id"]].write_bytes(row["video"]["bytes"] or Path(row["video"]["path"]).read_bytes())
    return [
        Clip(row["clip_id"], row["video_id"], row["description"], row["start_seconds"], row["end_seconds"])
        for row in rows
    ], files


def build() -> gradio.Blocks:
    """The page over what `demo.json` names."""
    settings = json.loads((HERE / "demo.json").read_text(encoding="utf-8"))
    model, processor = load_model(settings["model"], settings["revision"], settings["code"])
    clips, videos = load_clips(settings["dataset"], settings["revision"], settings["split"])
    clip_ids = [clip.clip_id for clip in clips]
    video_embeds = read_embeddings(HERE / "clips.safetensors", clip_ids, fingerprint(model, processor))
    search = ComposedSearch(model, processor, clips, video_embeds)
    texts = {name: settings[name] for name in ("title", "note", "examples")}
    return build_page(search, Footage(videos, SHOWN), **texts)


if __name__ == "__main__":
    launch(build(), SHOWN)
