"""Stills of the miniature: single frames with the joints from the renderer, and their captions."""

from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pyarrow.parquet as pq
import torch
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm

from hf_datasets.miniature.captions import PLACES
from hf_datasets.miniature.competitions import Competition, Shot
from hf_datasets.miniature.drawing import camera_joints
from hf_datasets.miniature.render import perform_shot
from hf_datasets.miniature.skeleton import J
from hf_datasets.video import VideoError
from hf_datasets.video.pool import VideoFailure, VideoReaderPool, VideoRequest

NUM_TARGETS = 51
"""Values of a pose: 15 joints relative to the pelvis, the direction of the spine and of the chest."""
JOINT_SCALE = 2.5
"""Brings offsets in body units to about unit variance."""


@dataclass
class Stills:
    """Single frames with the renderer's annotations.

    Attributes:
        frames: `(clips, frames, 3, size, size)` uint8.
        targets: `(clips, frames, 51)` float, see `pose_targets`.
        shots: The shot of each clip.
        joints: `(clips, frames, 16, 3)` float, in body units from the pelvis, as the camera sees them.
    """

    frames: Tensor
    targets: Tensor
    shots: list[Shot]
    joints: Tensor


def pose_targets(joints: Tensor) -> Tensor:
    """Joints `(..., 16, 3)` as the camera sees them to regression targets `(..., 51)` of about unit size."""
    spine = F.normalize(joints[..., J["neck"], :] - joints[..., J["pelvis"], :], dim=-1)
    chest = F.normalize(joints[..., J["nose"], :] - joints[..., J["head"], :], dim=-1)
    return torch.cat((joints[..., 1:, :].flatten(-2) * JOINT_SCALE, spine, chest), -1)


def read_stills(
    folder: Path, competitions: list[Competition], num_frames: int, size: int, *, num_workers: int
) -> Stills:
    """Decode stills of every clip of these competitions and compute their joints from the plan.

    Args:
        folder: A folder that `prepare_miniature` made.
        competitions: The competitions to read, in the order of the plan.
        num_frames: Stills of each clip.
        size: Side of a still, in pixels.
        num_workers: Processes that decode.

    Raises:
        VideoError: A video of the folder cannot be read.
    """
    rows = pq.read_table(folder / "clips.parquet").to_pylist()
    wanted = {competition.video_id for competition in competitions}
    rows = [row for row in rows if row["video_id"] in wanted]
    shots = [shot for competition in competitions for shot in competition.shots]
    requests = [
        VideoRequest(index, folder / "videos" / f"{row['video_id']}.mp4", row["start_seconds"], row["end_seconds"])
        for index, row in enumerate(rows)
    ]
    shape = (size, size)
    frames = torch.zeros(len(rows), num_frames, 3, *shape, dtype=torch.uint8)
    joints = torch.zeros(len(rows), num_frames, len(J), 3)
    with VideoReaderPool(num_frames, num_workers=num_workers, size=shape) as pool:
        for key, read in tqdm(pool.read(requests), total=len(rows), desc="Decoding stills", unit="clip"):
            if isinstance(read, VideoFailure):
                raise VideoError(f"{read.path}: {read.reason}; delete the folder {folder} and it is rendered again")
            index = cast("int", key)  # as requested above
            shot = shots[index]
            seen = camera_joints(perform_shot(shot), shot.scene)
            frames[index] = read.frames
            joints[index] = torch.from_numpy(seen[[shot.lead_frames + number for number in read.indices]])
    return Stills(frames, pose_targets(joints), shots, joints)


def still_caption(shot: Shot, joints: Tensor) -> str:
    """The caption of a single frame: attitude of the body, shape, clothes and place.

    Args:
        shot: The shot that the frame is of.
        joints: `(16, 3)`, as in `Stills.joints`.
    """
    spine = joints[J["neck"]] - joints[J["pelvis"]]
    chest = joints[J["nose"]] - joints[J["head"]]
    attitude = "upright" if spine[1] > 0.21 else "upside down" if spine[1] < -0.21 else "lying in the air"
    across = chest.abs().argmax().item() == 0
    facing = ("right" if chest[0] > 0 else "left") if across else ("away" if chest[2] > 0 else "the camera")
    legs = joints[[J["left_foot"], J["right_foot"]]]
    shape = (
        "with split legs" if (legs[0] - legs[1]).norm() > 0.6 else "bent" if legs.norm(dim=-1).mean() < 0.42 else "long"
    )
    return (
        f"A person in {shot.scene.socks} socks, {attitude} and {shape}, facing {facing}, "
        f"{PLACES[shot.action.apparatus]} in a {shot.scene.hall} hall."
    )
