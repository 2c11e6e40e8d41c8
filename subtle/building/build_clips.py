"""Cut the clips of TF-CoVR out of long videos, and of folders of frames, into files of their own."""

import itertools
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from tqdm import tqdm

from hf_datasets.video import VideoError
from hf_datasets.video.cutting import encode_clip
from hf_datasets.video.pool import NO_FILE
from hf_models.atomic_files import remove_abandoned, replacing
from subtle.building.options import BuildClipsConfig
from subtle.run.data import load_splits, missing_by_reason
from subtle.run.results import write_results

LONGEST_SECONDS = 1e6
"""Of a folder of frames, which is a clip as a whole."""
OWN_FILE = "has a file of its own"


def cut(folder: Path, clip: dict[str, Any]) -> tuple[str, str | None]:
    """Write a clip, unless it is there; its id, and why there is no file of it."""
    clip_id, video, start = clip["clip_id"], clip["video"], clip["start_seconds"]
    output = folder / f"{clip_id}.mp4"
    if Path(clip_id).name != clip_id:
        return clip_id, "its id is no name of a file"
    if output.is_file():
        return clip_id, None
    if not video:
        return clip_id, NO_FILE
    if start is None and Path(video).is_file():
        return clip_id, OWN_FILE
    span = (0.0, LONGEST_SECONDS) if start is None else (start, clip["end_seconds"])
    try:
        with replacing(output) as unfinished:
            encode_clip(Path(video), unfinished, *span)
    except OSError as error:  # `replacing` makes it of a VideoError, too
        if not isinstance(error.__cause__, VideoError):
            raise
        return clip_id, str(error.__cause__)
    return clip_id, None


def run(config: BuildClipsConfig) -> dict[str, Any]:
    """Cut the clips that are not there yet; returns how many there are, and why others are missing."""
    folder = Path(config.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    remove_abandoned(folder)
    clips = {row["clip_id"]: row for row in itertools.chain(*load_splits(config, clips=True).values())}
    with ThreadPoolExecutor() as pool:  # decoding and encoding leave Python to other threads
        outcomes = pool.map(partial(cut, folder), clips.values())
        reasons = dict(tqdm(outcomes, total=len(clips), desc="clip", unit="clip"))
    own = [clip_id for clip_id, reason in reasons.items() if reason == OWN_FILE]
    failures = {clip_id: reason for clip_id, reason in reasons.items() if reason not in {None, OWN_FILE}}
    covered: dict[str, Any] = {"clips": len(clips), "cut": len(clips) - len(own) - len(failures), OWN_FILE: len(own)}
    covered |= {"missing": missing_by_reason(map(str, failures.values())), "failures": failures}
    write_results(folder, {"clips": covered["cut"]}, config=config, seed=0, coverage=covered)
    return covered


def main(config: BuildClipsConfig) -> int:
    covered = run(config)
    print(
        f"{config.output_dir}: {covered['cut']:,} of {covered['clips']:,} clips; {covered[OWN_FILE]:,} were cut before"
    )
    for reason, count in covered["missing"].items():
        if count:
            print(f"  {count:,} clips left out: {reason} (each is named in {Path(config.output_dir) / 'results.json'})")
    return 0
