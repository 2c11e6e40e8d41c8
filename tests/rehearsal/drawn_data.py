"""What a person has after downloading the data of the three papers, drawn and small, in the folders that they come in.

In small numbers it has what the real data have: videos that are gone, half a download, extensions in two spellings,
moments after the end of their video, duplicate rows, a competition in two splits.
"""

import json
import pickle
from pathlib import Path

import h5py
import numpy as np
import polars as pl
import torch
from colored_videos import write_colored_video
from datasets import Dataset
from PIL import Image

from hf_datasets.comp.pairs import question_about
from hf_datasets.tfcovr.labels import load_labels

GYMNASTICS, DIVES = ("40", "41", "45"), ("103b", "107b", "207b")
COLORS = [(250, 20, 20), (20, 250, 20), (20, 20, 250), (220, 220, 40), (40, 220, 220), (220, 40, 220)]
COLOR_OF = dict(zip((*GYMNASTICS, *DIVES), COLORS, strict=True))
SPELLINGS = (".mp4", ".MP4", ".mkv", ".mp4")
CLIPS_OF_VIDEO, VIDEO_SECONDS, EVENT = 6, 9, 1
LONG_VIDEOS = {
    "train": ("-aTRAINvid0", "TRAINvid_01", "TRAINvid_02", "TRAINvid_03"),
    "val": ("VALIDvid_01", "VALIDvid_02"),
    "test": ("-bTESTvid_0", "TESTvideo_1"),
}
GONE, HALF = "GONEvideo_0", "HALFvideo_0"
"""YouTube ids of training videos: one that is no longer there, one of which the download stopped."""
COMPETITIONS = {"train": ("01", "FINADivingWorldCup2021_Men3m_final_r1"), "val": ("03",), "test": ("01", "04")}
DIVES_OF_COMPETITION = 4
EVENTS = ("A man opens the door", "He washes a cup", "He throws the ball", "He sits on the sofa")
MOMENTS = ("a person opens the door", "the person washes a cup", "a person throws the ball", "they sit on the sofa")


def write(path: Path, value) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")


def write_lines(path: Path, rows) -> None:
    write(path, "".join(json.dumps(row) + "\n" for row in rows))


def write_videos(folder: Path, ids, colors_of) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, video_id in enumerate(ids):
        write_colored_video(folder / f"{video_id}{SPELLINGS[number % len(SPELLINGS)]}", colors_of(number), seed=number)


def gymnastics_clip(video_id: str, place: int) -> tuple[str, str]:
    """The id of a clip and its label."""
    clip = f"{video_id}_E_{EVENT:06}_{VIDEO_SECONDS - 1:06}_A_{place:04}_{place + 1:04}"
    return clip, GYMNASTICS[place % len(GYMNASTICS)]


def clips_of(split: str) -> list[tuple[str, str]]:
    """The clips of a split with their labels."""
    videos = (*LONG_VIDEOS[split], *((GONE, HALF) if split == "train" else ()))
    first = DIVES_OF_COMPETITION * (split == "test")  # of a competition that two splits share
    dives = range(first, first + DIVES_OF_COMPETITION)
    return [gymnastics_clip(video, place) for video in videos for place in range(CLIPS_OF_VIDEO)] + [
        (f"{competition}_{instance}", DIVES[instance % len(DIVES)])
        for competition in COMPETITIONS[split]
        for instance in dives
    ]


def draw_tfcovr(root: Path) -> None:
    """The official csv files, FineGym 1.x, FineDiving's pickles, long videos and folders of frames."""
    write_csv_files(root / "data/tfcovr")
    write_finegym(root / "data/tfcovr/FineGym")
    dives = {
        tuple(clip.rsplit("_", 1)): label for split in LONG_VIDEOS for clip, label in clips_of(split) if label in DIVES
    }
    write_finediving(root / "data/tfcovr/FineDiving", dives)
    videos = [video for split in LONG_VIDEOS.values() for video in split]
    seconds = [COLOR_OF[GYMNASTICS[(second - EVENT) % len(GYMNASTICS)]] for second in range(VIDEO_SECONDS)]
    write_videos(root / "data/videos/FineGym", videos, lambda _: seconds)
    (root / f"data/videos/FineGym/{HALF}.mp4").touch()
    (root / f"data/videos/FineGym/{GONE}.mp4.part").write_bytes(b"half")
    (root / "annotations").mkdir()
    (root / "annotations/tfcovr").symlink_to(root / "data/tfcovr")
    released = {clip: torch.rand(16) for split in LONG_VIDEOS for clip, _ in clips_of(split)}
    (root / "aim_embeddings_12f_train_val_test.pkl").write_bytes(pickle.dumps(released))
    for (competition, instance), label in dives.items():
        folder = root / "data/videos/FINADiving_MTL_256s" / competition / instance
        folder.mkdir(parents=True)
        for number in range(1, 13):
            Image.new("RGB", (32, 32), COLOR_OF[label]).save(folder / f"{number:05}.jpg")


def write_csv_files(folder: Path) -> None:
    folder.mkdir(parents=True)
    rows = []
    for group in (GYMNASTICS, DIVES):
        clips = [one for one in clips_of("train") if one[1] in group]
        for place, (query, label) in enumerate(clips):
            others = [(clip, other) for clip, other in clips if other != label]
            for target, other in (others[place % len(others)], others[(place + 1) % len(others)]):
                text = str({other: {"modification": f"show {other}"}})
                rows.append((query, target, label, other, text))
    names = ("query_video", "target_video", "label1", "label2", "modification")
    train = pl.DataFrame([*rows, rows[0]], schema=names, orient="row")
    train.write_csv(folder / "train_finegd.csv")
    for split in ("val", "test"):
        queries = []
        for group in (GYMNASTICS, DIVES):
            clips = [one for one in clips_of(split) if one[1] in group]
            for query, label in clips:
                for other in group:
                    targets = [clip for clip, of in clips if of == other and other != label]
                    if targets:
                        queries.append((str(len(queries)), query, f"show {other}", targets[0], str(targets)))
        names = ("query_id", "query_video", "modification", "target_video", "target_videos_ids")
        pl.DataFrame(queries, schema=names, orient="row").write_csv(folder / f"{split}_finegd.csv")


def write_finegym(folder: Path) -> None:
    annotation, elements = {}, {"train": [], "val": []}
    for split, videos in LONG_VIDEOS.items():
        for video in (*videos, *((GONE, HALF) if split == "train" else ())):
            segments = {}
            for place in range(CLIPS_OF_VIDEO):
                clip, label = gymnastics_clip(video, place)
                segments[clip[-11:]] = {"stages": 1, "timestamps": [[place + 0.125, place + 0.875]]}
                elements["val" if split == "test" else "train"].append(f"{clip} {label}")
            event = {"event": 2, "timestamps": [[float(EVENT), VIDEO_SECONDS - 1.0]], "segments": segments}
            without = {"E_000100_000200": event | {"segments": None}}
            annotation[video] = {f"E_{EVENT:06}_{VIDEO_SECONDS - 1:06}": event, **without}
    write(folder / "finegym_annotation_info_v1.1.json", annotation)
    write(folder / "gym288_train_element_v1.1.txt", "\n".join(elements["train"]))
    write(folder / "gym288_val_element.txt", "\n".join(elements["val"]))
    texts = {label.label_id: label.description for label in load_labels()}
    lines = [
        f"Clabel: {label:>3}; set: 21; Glabel: {label:>3}; {texts[label].replace('Floor Exercise', 'FX')}"
        for label in GYMNASTICS
    ]
    write(folder / "gym288_categories.txt", "\n".join(lines))


def write_finediving(folder: Path, dives) -> None:
    folder.mkdir(parents=True)
    fine, coarse = {}, {}
    for (competition, instance), label in dives.items():
        steps = {"sub-action_types": {"5": "Arm.Forward", "36": "Entry"}, "steps_transit_frames": np.array([6, 12])}
        scores = {"judge_scores": [7.5, 8.0], "dive_score": 45.9, "difficulty": 3.4}
        frames = {"frames_labels": np.array([5.0] * 6 + [36.0] * 6)}
        fine[competition, int(instance)] = {"action_type": label, **steps, **scores, **frames}
        coarse[competition, int(instance)] = {"action_type": label, "start_frame": 0, "end_frame": 12}
    splits = {"train_split": list(fine)[::2], "test_split": list(fine)[1::2]}
    annotations = {"FineDiving_fine-grained_annotation": fine, "FineDiving_coarse_annotation": coarse}
    for name, value in {**annotations, **splits}.items():
        (folder / f"{name}.pkl").write_bytes(pickle.dumps(value))


def youtube_ids(prefix: str, count: int) -> list[str]:
    return [f"{prefix}_-{number:02}".ljust(11, "x") for number in range(count)]


def draw_video_comp(root: Path) -> None:
    """ActivityNet-Captions, YouCook2, VideoComp's released files, the videos of both, and short clips with captions."""
    for source, prefix, splits in (
        ("activitynet", "v_", {"train": 8, "val_1": 4, "val_2": 3}),
        ("youcook2", "", {"train": 6, "val": 4}),
    ):
        folder = "data/activitynet_captions" if source == "activitynet" else "data/youcook2"
        everything = []
        for split, count in splits.items():
            ids = youtube_ids(f"{source[:3]}{split[0]}{split[-1]}", count)
            everything += ids
            write(root / folder / f"{split}.json", {f"{prefix}{video}": captioned() for video in ids})
            if split != "val_2":
                name = f"{source}_comp_{split.removesuffix('_1')}.json"
                write(root / "data/video_comp" / name, [row for video in ids for row in released_pairs(video)])
        present = [f"{prefix}{video}" for video in everything if video != everything[-1]]  # the last one is gone
        write_videos(root / f"data/{source}_videos", present, shown)
    clips = [
        {"video": str(root / f"data/activitynet_videos/{path.name}"), "caption": f"{EVENTS[number % 4]} {number}."}
        for number, path in enumerate(sorted((root / "data/activitynet_videos").iterdir()))
    ]
    Dataset.from_list(clips).to_parquet(root / "data/short_clips/train-00000-of-00001.parquet")


def draw_msrvtt(root: Path) -> None:
    """MSR-VTT's two public split files, and its test videos, of which one is gone."""
    names = [f"video{7010 + number}" for number in range(5)]
    videos = [{"video_id": name, "split": "test"} for name in names] + [{"video_id": "video0", "split": "train"}]
    sentences = [{"video_id": name, "caption": f"{EVENTS[k]} {name}"} for name in names for k in range(2)]
    write(root / "data/msrvtt/MSRVTT_data.json", {"videos": videos, "sentences": sentences})
    lines = [f"ret{place},msr{name[5:]},{name},{EVENTS[place % 4]} {place}" for place, name in enumerate(names)]
    write(root / "data/msrvtt/MSRVTT_JSFUSION_test.csv", "\n".join(["key,vid_key,video_id,sentence", *lines]))
    write_videos(root / "data/msrvtt_videos", names[:-1], shown)


def shown(number: int):
    """Eight seconds of video, two of each color."""
    return [COLORS[(number + second // 2) % 4] for second in range(8)]


def captioned() -> dict:
    spans = [[0, 1.9], [2, 3.9], [4, 5.9], [6.0, 8.4]]  # the last one ends after the video
    return {"duration": 8.0, "timestamps": spans, "sentences": [f" {caption}." for caption in EVENTS]}


def released_pairs(video: str) -> list[dict]:
    positive = ". Then ".join(EVENTS) + "."
    texts = {
        "temporal-reordering": (positive, ". Then ".join(EVENTS[::-1]) + ".", 0, 8),
        "action-replacement": (positive, positive.replace("washes", "paints"), 0, 8),
        "segment-mismatch": (". Then ".join(EVENTS[:2]) + ".", ". Then ".join(EVENTS[2:]) + ".", 0, 4),
    }
    pairs = []
    for kind, (true, false, start, end) in texts.items():
        pair = {"key": f"{video}-{kind}", "video_id": video, "type": kind}
        pair |= times("original_video", 0, 8) | times("query_video", start, end)
        pair |= {"positive_text": true, "negative_text": false}
        pair |= times("positive_text", start, end) | times("negative_text", 4, 8)
        pairs.append(pair | {"question": question_about((true, false), "2"), "answer": "(2)"})
    return pairs


def times(name: str, start: int, end: int) -> dict[str, int]:
    """In microseconds."""
    return {f"{name}/start_time": start * 1_000_000, f"{name}/end_time": end * 1_000_000}


def draw_verified(root: Path) -> None:
    """The *-FIG files with the videos of Charades, DiDeMo and ActivityNet."""
    flickr = "58792004@N06_85444692{:02}_fd25eddb2e"
    for name, splits, video_of in (
        ("charades_fig", {"train": 8, "test": 5}, "CHA{:02}"),
        ("didemo_fig", {"train": 6, "val": 4, "test": 4}, flickr),
        ("activitynet_fig", {"train": 6, "val_1": 4, "val_2": 4}, "v_ANETfigs_{:02}"),
    ):
        ids = [video_of.format(number) for number in range(sum(splits.values()))]
        write_videos(root / f"data/{name.removesuffix('_fig')}_fig_videos", ids[:-1], shown)  # the last one is gone
        first = 0
        for split, count in splits.items():
            rows = [row for number in range(first, first + count) for row in fine_moments(ids[number], number)]
            write_lines(root / f"data/{name}/{name}_{split}.jsonl", rows)
            first += count
        if name != "charades_fig":
            write_features(root / f"outputs/features/{name}", ids)


def write_features(folder: Path, ids: list[str]) -> None:
    """As the authors publish them: a vector for each second, and one for each token of a query."""
    folder.mkdir(parents=True)
    draw = np.random.default_rng(0)
    with h5py.File(folder / "video.h5", "w") as file:
        for video in ids[:-1]:
            file[video] = draw.normal(size=(8, 20)).astype(np.float32)
    for granularity in ("fine", "coarse"):
        with h5py.File(folder / f"query-{granularity}.h5", "w") as file:
            for number in range(len(ids)):
                for place in range(4):
                    file[str(10 * number + place)] = draw.normal(size=(5, 12)).astype(np.float32)


def fine_moments(video: str, number: int) -> list[dict]:
    return [
        {
            "video": video,
            "time": [2 * place, 9.5 if place == 3 else 2 * place + 2],  # the last one ends after the video
            "desc_id": 10 * number + place,
            "duration": 8.0,
            "cog_desc": f"{MOMENTS[place]}.",
            "fig_desc": f"In room {number}, {MOMENTS[place]} slowly with the left hand.",
            "fig_desc_score": 1.5 - place,
        }
        for place in range(4)
    ]


def draw_own(root: Path) -> None:
    """Captions by others, and pairs of videos and texts."""
    captions = pl.DataFrame({"clip_id": [clip for clip, _ in clips_of("train")]})
    captions = captions.with_columns(caption=pl.lit("Switch leap with one turn."))
    (root / "A").mkdir()
    captions.write_parquet(root / "A/captions.parquet")
    captions.write_csv(root / "B.csv")
    write_videos(root / "videos", ["left", "right"], shown)
    names = ["video_0", "text_0", "video_1", "text_1"]
    pl.DataFrame([["left", EVENTS[0], "right", EVENTS[1]]], schema=names, orient="row").write_csv(root / "pairs.csv")


def draw(root: Path) -> Path:
    """All of it below a folder."""
    draw_own(root)
    draw_tfcovr(root)
    draw_video_comp(root)
    draw_msrvtt(root)
    draw_verified(root)
    return root
