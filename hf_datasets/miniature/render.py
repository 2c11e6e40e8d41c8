"""Render the miniature once per machine: H.264 files and two tables in the datasets cache."""

import contextlib
import hashlib
import json
import multiprocessing
import os
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock
from PIL import Image
from tqdm.auto import tqdm

from hf_datasets.drafts import remove, replacing, write_json
from hf_datasets.long_videos import read_header
from hf_datasets.miniature.competitions import (
    Competition,
    MiniatureConfig,
    Shot,
    clip_rows,
    plan_competitions,
    video_row,
)
from hf_datasets.miniature.drawing import draw_frames
from hf_datasets.miniature.motion import Motion, perform

PLAN_FILE = "miniature.json"
"""The values of `MiniatureConfig`, in the rendered folder."""
RENDERER_VERSION = 1  # Part of the folder's name: raise it when the same plan gives other pictures.
KEYFRAME_INTERVAL = 12  # frames; a reader that seeks to a clip decodes at most this many frames in vain

# Without `cpu-independent`, x264's output depends on the previous content of its memory and differs from run to run.
ENCODER = {"crf": "25", "preset": "veryfast", "threads": "1", "x264-params": "cpu-independent=1"}


def prepare_miniature(
    root: str | os.PathLike[str] | None = None,
    *,
    seed: int = 0,
    config: MiniatureConfig | None = None,
    num_workers: int | None = None,
    progress: bool = True,
) -> Path:
    """Render the miniature where it is not there yet.

    A video is renamed into place when it is complete, so a killed run resumes where it stopped; a second call returns
    at once. The default takes about a minute on two cores and 70 MB.

    Args:
        root: Folder that holds the rendered folder; by default one in the datasets cache.
        seed: Seed of the plan, of the athletes, cameras and halls.
        config: Sizes other than the default ones, for instance a few labels for a test; its seed is replaced by `seed`.
        num_workers: Processes that render; by default one per core, 0 renders in this process.
        progress: Whether a bar shows the videos.

    Returns:
        A folder with `videos/<video_id>.mp4`, `clips.parquet` (clip_id, video_id, split, start_seconds, end_seconds,
        label, the motion's parameters, hall_colour, socks_colour, coarse_caption, fine_caption) and `videos.parquet`
        (video_id, file_name, split, sport, apparatus, hall_colour, num_clips, duration_seconds); `miniature.json` says
        how it was rendered. Its name carries a hash of everything that decides the pictures.
    """
    config = replace(config or MiniatureConfig(), seed=seed)
    parent = Path(root) if root is not None else Path(datasets.config.HF_DATASETS_CACHE) / "subtle-miniature"
    folder = parent / tier_name(config)
    if (folder / PLAN_FILE).is_file() and _is_whole(folder / "clips.parquet"):
        return folder
    (folder / "videos").mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".lock"):
        for unfinished in folder.rglob("*.tmp"):  # of a killed run: the lock is ours
            remove(unfinished)
        write_json(folder / PLAN_FILE, asdict(config))
        competitions = plan_competitions(config)
        missing = [plan for plan in competitions if not _is_whole(_video_path(folder, plan))]
        with tqdm(total=len(competitions), initial=len(competitions) - len(missing), desc="Rendering the miniature",
                  unit="video", disable=not progress) as bar:  # fmt: skip
            for _ in _rendered(missing, folder, config, num_workers):
                bar.update()
        _write_table(folder / "videos.parquet", [video_row(plan, config.fps) for plan in competitions])
        # Last, because its presence says that the folder is complete.
        _write_table(folder / "clips.parquet", [row for plan in competitions for row in clip_rows(plan, config.fps)])
    return folder


def tier_name(config: MiniatureConfig) -> str:
    """A name for what a configuration renders to; another version of the renderer gives another name."""
    parameters = json.dumps([RENDERER_VERSION, asdict(config)], sort_keys=True)
    return f"miniature-{hashlib.sha256(parameters.encode()).hexdigest()[:12]}"


def perform_shot(shot: Shot) -> Motion:
    """The motion of a shot, waiting included: `lead_frames + num_frames + tail_frames` frames."""
    motion = perform(shot.action, shot.style, shot.num_frames)
    waiting = (shot.lead_frames, shot.tail_frames)
    arrays = (motion.joints, motion.forward, motion.somersault, motion.twist, motion.angles)
    return Motion(*(np.pad(a, [waiting, *[(0, 0)] * (a.ndim - 1)], mode="edge") for a in arrays))


def film_strips(shots: list[Shot], size: int = 112, num_frames: int = 12) -> Image.Image:
    """A picture with one row per shot and `num_frames` evenly spaced frames of its clip in each row."""
    rows = []
    for shot in shots:
        frames = list(draw_frames(perform(shot.action, shot.style, shot.num_frames), shot.scene, size))
        rows.append(
            np.concatenate([frames[i] for i in np.linspace(0, len(frames) - 1, num_frames).round().astype(int)], 1)
        )
    return Image.fromarray(np.concatenate(rows))


def _is_whole(path: Path) -> bool:
    """Whether a table or a video is there and not cut, as a power loss may leave it: what is needed is at its end."""
    if path.suffix == ".mp4":
        return read_header(path) != (None, None)
    try:
        pq.read_metadata(path)
    except (OSError, pa.ArrowInvalid):
        return False
    return True


def _video_path(folder: Path, competition: Competition) -> Path:
    return folder / "videos" / f"{competition.video_id}.mp4"


def _rendered(
    competitions: list[Competition], folder: Path, config: MiniatureConfig, num_workers: int | None
) -> Iterator[None]:
    workers = min((os.cpu_count() or 1) if num_workers is None else num_workers, len(competitions))
    if workers < 2:
        for competition in competitions:
            render_video(competition, _video_path(folder, competition), config)
            yield
        return
    # A forked worker needs no guard in the caller's script; it only draws and encodes, so no thread's lock is missed.
    method = "fork" if "fork" in multiprocessing.get_all_start_methods() else None
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", message=".*fork.*", category=DeprecationWarning)
        context = multiprocessing.get_context(method)
        pool = ProcessPoolExecutor(workers, context, initializer=_end_with_program, initargs=(os.getpid(),))
        stack.callback(pool.shutdown, cancel_futures=True)  # an interrupted run does not wait for all videos
        jobs = [pool.submit(render_video, plan, _video_path(folder, plan), config) for plan in competitions]
        for job in as_completed(jobs):
            yield job.result()


def _end_with_program(program: int) -> None:
    # Otherwise a worker of a killed program waits for work for ever. The program itself handles interrupts.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_watch, args=(program,), daemon=True).start()


def _watch(program: int) -> None:
    while os.getppid() == program:
        time.sleep(0.5)
    os._exit(1)


def render_video(competition: Competition, path: Path, config: MiniatureConfig) -> None:
    """Draw one long video and encode it as H.264; the file appears under its name when it is complete."""
    import av

    with replacing(path) as unfinished, av.open(unfinished, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=config.fps)
        stream.width = stream.height = config.size
        stream.pix_fmt = "yuv420p"
        stream.options = {**ENCODER, "g": str(KEYFRAME_INTERVAL)}
        for shot in competition.shots:
            for frame in draw_frames(perform_shot(shot), shot.scene, config.size):
                container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode(None))


def _write_table(path: Path, rows: list[dict[str, Any]]) -> None:
    with replacing(path) as unfinished:
        pq.write_table(pa.Table.from_pylist(rows), unfinished)
