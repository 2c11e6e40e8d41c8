"""Search among clips by a clip, a text that changes it, or both, with a model for composed retrieval."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

MAX_CHARACTERS = 300
MAX_WORDS = 30
"""More words than the model was trained to read are refused, not cut off."""


@dataclass(frozen=True)
class Clip:
    """A clip of the gallery: its id, its video, what is shown of it, and its seconds."""

    clip_id: str
    video_id: str
    label: str
    start_seconds: float | None
    end_seconds: float | None


@dataclass(frozen=True)
class Hit:
    """A clip that was found, and its cosine with the query."""

    clip: Clip
    score: float


class ComposedSearch:
    """A gallery of clips and a model that ranks it.

    Args:
        model: A `TFCoVRForComposedRetrieval`, in evaluation mode.
        processor: Its processor.
        clips: The gallery.
        video_embeds: `(N, D)`, what the model's `encode_video` gives for each clip.
    """

    def __init__(self, model: Any, processor: Any, clips: Sequence[Clip], video_embeds: Tensor) -> None:
        self.model, self.processor = model, processor
        self.clips, self.video_embeds = list(clips), video_embeds
        self.row_of = {clip.clip_id: row for row, clip in enumerate(self.clips)}
        with torch.inference_mode():
            self.targets = model.get_target_features(video_embeds=video_embeds)

    @torch.inference_mode()
    def find(
        self,
        text: str = "",
        *,
        clip: Clip | None = None,
        upload: Path | None = None,
        leave_out_video: bool = False,
        k: int = 12,
    ) -> list[Hit]:
        """The best clips, best first, without the query's own.

        Args:
            text: What to change; empty: the clips that look like the query.
            clip: The query, a clip of the gallery.
            upload: The query, a file.
            leave_out_video: Leave out all clips of the query's own video.
            k: How many.

        Raises:
            ValueError: There is neither clip nor text, or the text is too long, or the file is not a video.
        """
        text = self.check_text(text)
        video = self.embed(clip, upload)
        if video is None and not text:
            raise ValueError("choose or upload a clip, or write a text")
        if text:
            query = self.model.get_query_features(video_embeds=video, **self.processor(text=[text]))
        else:
            query = self.model.get_target_features(video_embeds=video)
        scores = (query @ self.targets.T)[0]
        order = scores.sort(descending=True, stable=True).indices.tolist()
        others = [row for row in order if not self.is_own(row, clip, leave_out_video)]
        return [Hit(self.clips[row], scores[row].item()) for row in others[:k]]

    def is_own(self, row: int, clip: Clip | None, leave_out_video: bool) -> bool:
        """Whether a row of the gallery is the query itself, or where that is wanted of its video."""
        other = self.clips[row]
        return clip is not None and (other == clip or (leave_out_video and other.video_id == clip.video_id))

    def embed(self, clip: Clip | None, upload: Path | None) -> Tensor | None:
        """What the model sees of the query's clip, `(1, D)`; None where the query is a text alone.

        Raises:
            ValueError: The file is not a video.
        """
        if clip is not None:
            return self.video_embeds[self.row_of[clip.clip_id]][None]
        if upload is None:
            return None
        if not upload.is_file():
            raise ValueError("the uploaded clip is not kept any more; upload it again")
        embeds: Tensor = self.model.encode_video(self.processor(videos=[str(upload)])["pixel_values"])
        return embeds

    def check_text(self, text: str) -> str:
        """A text without space around it.

        Raises:
            ValueError: It is longer than the model reads.
        """
        text = " ".join(text.split())
        if len(text) > MAX_CHARACTERS or len(text.split()) > MAX_WORDS:
            raise ValueError(
                f"the text has {len(text.split())} words and {len(text)} characters; write at most {MAX_WORDS} words "
                f"and {MAX_CHARACTERS} characters"
            )
        if text:
            length = self.processor(text=[text], truncation=False, padding=False, max_length=None)["input_ids"].shape[1]
            most = self.processor.text_kwargs["max_length"]
            if length > most:
                raise ValueError(f"the text has {length} tokens; the model reads {most}; shorten it")
        return text


def fingerprint(model: Any, processor: Any) -> str:
    """A hash of what embeddings of clips depend on: the video encoder's weights and how frames are prepared."""
    settings = json.loads(processor.video_processor.to_json_string())
    kept = {name: settings.get(name) for name in ("num_frames", "size", "resample", "image_mean", "image_std")}
    digest = hashlib.sha256(json.dumps(kept, sort_keys=True).encode())
    for name, tensor in sorted(model.vision_model.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()


def code_hash(folder: Path) -> str:
    """A hash of all code in a model's folder."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(f"{path.relative_to(folder).as_posix()} {path.stat().st_size}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def write_embeddings(path: Path, clip_ids: Sequence[str], video_embeds: Tensor, made_by: str) -> None:
    """Write embeddings of clips with their ids and the fingerprint of what made them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.draft")
    metadata = {"clip_ids": json.dumps(list(clip_ids)), "made_by": made_by}
    try:
        save_file({"video_embeds": video_embeds.contiguous()}, draft, metadata=metadata)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def read_embeddings(path: Path, clip_ids: Sequence[str], made_by: str) -> Tensor:
    """The embeddings of these clips, `(N, D)`.

    Raises:
        ValueError: The file is damaged, or of another model or of other clips.
    """
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata()
            video_embeds: Tensor = file.get_tensor("video_embeds")
        row_of = {clip_id: row for row, clip_id in enumerate(json.loads(metadata["clip_ids"]))}
        maker = metadata["made_by"]
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} does not hold embeddings of clips ({error}); make them again") from error
    if maker != made_by:
        raise ValueError(f"the embeddings in {path} are of another model or another processor; make them again")
    missing = [clip_id for clip_id in clip_ids if clip_id not in row_of]
    if missing:
        raise ValueError(f"{path} lacks {len(missing)} clips, such as {missing[0]}; make the embeddings again")
    return video_embeds[[row_of[clip_id] for clip_id in clip_ids]]
