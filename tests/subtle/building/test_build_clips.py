"""Clips are cut to files named by their ids, once each; the gray of a frame is its number."""

import json

import numpy as np
import pytest
from colored_videos import write_colored_video
from datasets import Dataset
from PIL import Image

from hf_datasets.video import read_frames
from subtle.building import build_clips
from subtle.building.options import BuildClipsConfig

LONG = "A0xAXXysH00_E_000001_000003_A_{:04}_{:04}"
CUT, LATE = LONG.format(0, 1), LONG.format(50, 51)
OWN, DIVE, GONE = "A0xAXXysH01_E_000000_000001_A_0000_0001", "01_7", "02_8"


@pytest.fixture
def config(tmp_path):
    """A long video of four colors, a second each; a cut clip; a folder of frames; and a dive that is missing."""
    ids = [CUT, OWN, DIVE, GONE, LATE]
    rows = [
        {"query_video": one, "target_video": two, "label1": "40", "label2": "41", "modification": "Show with 1 turn."}
        for one, two in zip(ids, [*ids[1:], ids[0]], strict=True)
    ]
    Dataset.from_list(rows).to_csv(tmp_path / "data/train_finegd.csv")
    query = {"query_id": "0", "query_video": CUT, "modification": "x", "target_video": OWN}
    Dataset.from_list([query | {"target_videos_ids": str([OWN])}]).to_csv(tmp_path / "data/test_finegd.csv")
    videos = tmp_path / "videos"
    (videos / "01/7").mkdir(parents=True)
    colors = [(250, 20, 20), (20, 250, 20), (20, 20, 250), (120, 120, 120)]
    write_colored_video(videos / "A0xAXXysH00.mp4", colors)
    write_colored_video(videos / f"{OWN}.mp4", colors[:1])
    for number in range(1, 13):
        Image.fromarray(np.full((32, 48, 3), 20 * number, np.uint8)).save(videos / f"01/7/{number:05d}.jpg")
    return BuildClipsConfig(data_dir=str(tmp_path / "data"), video_dir=str(videos), output_dir=str(tmp_path / "clips"))


def test_each_clip_is_cut_once_and_what_is_missing_is_named(config, tmp_path, caches):
    covered = build_clips.run(config)
    assert (covered["clips"], covered["cut"], covered["has a file of its own"]) == (5, 2, 1)
    assert covered["missing"] == {"no video file": 1, "does not decode": 1}
    failures = json.loads((tmp_path / "clips/results.json").read_text())["coverage"]["failures"]
    assert set(failures) == {GONE, LATE}
    files = {path.stem: path for path in (tmp_path / "clips").glob("*.mp4")}
    assert files.keys() == {CUT, DIVE}
    cut = read_frames(files[CUT], 4).frames.float().mean((2, 3))
    assert cut.argmax(1).tolist() == [1, 1, 2, 2]  # whole seconds of the id: from 1 to 3, green and blue
    grays = read_frames(files[DIVE], 12).frames.float().mean((1, 2, 3))
    assert np.abs(grays.numpy() - 20 * np.arange(1, 13)).max() < 8
    before = {path: path.stat().st_mtime_ns for path in files.values()}
    assert build_clips.main(config) == 0
    assert {path: path.stat().st_mtime_ns for path in files.values()} == before
