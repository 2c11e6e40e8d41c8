"""Starts the page as a Space: model and clips come from the Hub, as `demo.json` names them."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from datasets import Video, load_dataset
from huggingface_hub import snapshot_download
from transformers import AutoModel, AutoProcessor

from hf_datasets.video.shared_memory import PixelFolder
from hf_models.encoders.protocol import Encoder
from hf_models.encoders.tfcovr import TFCoVREncoder
from hf_models.feature_store import FeatureStore
from hf_models.frame_reading import frames_read
from subtle.service.media import Media
from subtle.service.searching import MomentSearch, evenly_chosen

if TYPE_CHECKING:
    from subtle.service.page import Page

HERE = Path(__file__).parent
"""Of the Space: this file, `demo.json`, `vectors` and the packages that are imported here."""
LIMITS: dict[str, Any] = {"max_upload_seconds": 20.0, "max_upload_bytes": 50_000_000}


def load_published_encoder(name: str, revision: str | None, code: str) -> TFCoVREncoder:
    """The model, if its code is what the page was published with.

    Raises:
        ValueError: It is other code, which is not run.
    """
    folder = name if Path(name).is_dir() else snapshot_download(name, revision=revision)
    if code_hash(Path(folder)) != code:
        raise ValueError(f"{name} holds other code than this page was published with; publish both again together")
    model = AutoModel.from_pretrained(folder, trust_remote_code=True).eval()
    processor = AutoProcessor.from_pretrained(folder, trust_remote_code=True)
    return TFCoVREncoder(model, processor, processor.video_processor.num_frames)


def code_hash(folder: Path) -> str:
    """A hash of all code in a model's folder."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(f"{path.relative_to(folder).as_posix()} {path.stat().st_size}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def open_vectors(encoder: Encoder, folder: Path) -> FeatureStore:
    """What the model makes of the clips, by their ids, so that the page starts within a minute.

    Raises:
        ValueError: They are damaged, or of another model or processor.
    """
    return FeatureStore(folder, encoder.fingerprint | frames_read(encoder.num_frames, "middles", encoder.frame_size))


def load_clips(name: str, revision: str | None, split: str, folder: Path) -> tuple[list[Any], dict[str, Path]]:
    """The clips of a split, and the file of each long video."""
    only = {"split": split, "revision": revision, "streaming": True}  # other splits are not downloaded
    clips = load_dataset(name, "mini-clips", **only)
    rows = clips.select_columns(["clip_id", "video_id", "description", "start_seconds", "end_seconds"])
    videos = load_dataset(name, "mini-videos", **only)
    videos = videos.select_columns(["video_id", "video"]).cast_column("video", Video(decode=False))
    files: dict[str, Path] = {}
    folder.mkdir()
    for number, row in enumerate(videos):
        files[row["video_id"]] = folder / f"{number}.mp4"  # an id never becomes a file's name
        files[row["video_id"]].write_bytes(row["video"]["bytes"] or Path(row["video"]["path"]).read_bytes())
    return list(rows), files


class GallerySearch(MomentSearch):
    """A few hundred clips in memory; the fingerprint of one's video is the video's id.

    Args:
        encoder: What made the vectors.
        media: Reads the videos by their ids.
        clips: Rows with `clip_id`, `video_id`, `description`, `start_seconds` and `end_seconds`.
        vectors: Of each clip, by its id, what `encoder.vectors` gave.
        model: The name of the model.

    Raises:
        ValueError: There are clips without a vector.
    """

    def __init__(
        self,
        encoder: Encoder,
        media: Media,
        clips: Sequence[Mapping[str, Any]],
        vectors: Mapping[str, Any],
        model: str = "",
    ) -> None:
        super().__init__(encoder, media, model)
        if missing := [clip["clip_id"] for clip in clips if clip["clip_id"] not in vectors]:
            raise ValueError(f"{len(missing)} clips have no vector, such as {missing[0]}; make the vectors again")
        self.vectors = np.stack([np.asarray(vectors[clip["clip_id"]]) for clip in clips])
        self.rows = [
            {"moment_id": clip["clip_id"], "video": clip["video_id"], "fingerprint": clip["video_id"]}
            | {name: clip[name] for name in ("start_seconds", "end_seconds")}
            | {"label": clip["description"], "text": None}
            for clip in clips
        ]

    def folders_and_labels(self) -> tuple[list[str], list[str]]:
        """See `MomentSearch`; clips that were published lie in no folders."""
        return [], sorted({row["label"] for row in self.rows})

    def choices(self, words: str, number: int) -> tuple[list[dict[str, Any]], int]:
        """See `MomentSearch`."""
        wanted = words[:200].lower().split()
        found = [row for row in self.rows if all(word in f"{row['label']} {row['video']}".lower() for word in wanted)]
        return evenly_chosen(found, number), len(found)

    def count(self) -> int:
        """See `MomentSearch`."""
        return len(self.rows)

    def moments_of(self, video: str) -> list[dict[str, Any]]:
        """See `MomentSearch`."""
        return [row for row in self.rows if row["video"] == video]

    def nearest(
        self,
        vector: np.ndarray,
        limit: int,
        *,
        folder: str | None,  # noqa: ARG002 there are none
        label: str | None,
        exclude_fingerprint: str | None,
    ) -> list[dict[str, Any]]:
        """See `MomentSearch`."""
        scores = self.vectors @ vector
        found = [self.rows[place] | {"score": float(scores[place])} for place in np.argsort(-scores, kind="stable")]
        return [row for row in found if label in {None, row["label"]} and row["video"] != exclude_fingerprint][:limit]


def make_page(folder: Path, settings: dict[str, Any]) -> "Page":
    """The page over what `demo.json` names; it neither marks nor exports."""
    os.environ |= {"GRADIO_TEMP_DIR": f"{folder}/sent", "GRADIO_ANALYTICS_ENABLED": "False"}
    from subtle.service.page import Page  # imports gradio, which reads the environment

    encoder = load_published_encoder(settings["model"], settings["revision"], settings["code"])
    clips, files = load_clips(settings["dataset"], settings["revision"], settings["split"], folder / "videos")
    media = Media(files.__getitem__, folder, **LIMITS)
    vectors = open_vectors(encoder, HERE / "vectors")
    return Page(GallerySearch(encoder, media, clips, vectors, Path(settings["model"]).name))


def main() -> None:
    settings = json.loads((HERE / "demo.json").read_text(encoding="utf-8"))
    page = make_page(PixelFolder(in_memory=False).path, settings)
    from subtle.service.page import build_page, launch

    blocks = build_page(page, **{name: settings[name] for name in ("title", "note", "examples")})
    launch(blocks, page, is_public=True)
    blocks.block_thread()


if __name__ == "__main__":
    main()
