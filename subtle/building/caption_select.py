"""Choose the best of each moment's built captions with a trained noise evaluator."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
from torch import Tensor
from tqdm import tqdm

from hf_datasets import fig
from hf_datasets.drafts import writing
from hf_datasets.fig.moments import PUBLISHED_FOLDER
from hf_datasets.fig.noise import as_moment, judge_moments
from hf_datasets.publish import write_folder
from hf_datasets.records import Moment, Rejection
from hf_datasets.video import VideoStore, read_frames
from hf_models.video_text_matching import Scorer, load_matcher
from subtle.building.options import CaptionSelectConfig
from subtle.run.accelerator import make_accelerator
from subtle.run.model_folders import check_model_folder


def load_scorer(config: CaptionSelectConfig) -> Scorer:
    """The trained evaluator; one whose head was never trained is refused."""
    if not Path(config.model).is_dir() and config.model == CaptionSelectConfig.model:
        raise SystemExit(f"{config.model} is not there; `python recipes/noise_evaluator.py` makes it")
    check_model_folder(config.model)
    scorer = Scorer(*load_matcher(config.model, num_frames=config.num_frames, needs_trained_head=True))
    scorer.matcher.to(make_accelerator(config.device, Path(config.output_dir)).device).eval()
    return scorer


def judged_rows(
    table: pl.DataFrame, scorer: Scorer, config: CaptionSelectConfig, rejections: list[Rejection]
) -> list[dict[str, Any]]:
    """The rows of one file with their best candidate; what cannot be judged goes to `rejections` too."""
    store = VideoStore(str(config.video_dir))

    def frames_of(moment: Moment) -> Tensor:
        span = (moment.start_seconds, moment.end_seconds)
        return read_frames(store.path(moment.video_id), config.num_frames, *span, size=scorer.frame_size).frames

    rows = table.to_dicts()
    judged = judge_moments(((as_moment(row), row["candidates"] or []) for row in rows), scorer, frames_of)
    kept = []
    for row, found in zip(rows, tqdm(judged, total=len(rows), desc="judging", unit="moment"), strict=True):
        if isinstance(found, Rejection):
            rejections.append(found)
            kept.append({**row, "fine_caption_score": None})
        else:
            kind = row["candidate_kinds"][row["candidates"].index(found.fine_caption)]
            kept.append({**row, **asdict(found), "kind": kind})
    return kept


def run(config: CaptionSelectConfig) -> dict[str, int]:
    """Judge and write; returns how many moments there are and how many were judged."""
    if not config.video_dir:
        raise SystemExit("the evaluator reads the moments' frames: name their videos with --video_dir")
    files = sorted((Path(config.build) / PUBLISHED_FOLDER).glob("*.parquet"))
    if not files:
        raise SystemExit(
            f"{config.build} holds no {PUBLISHED_FOLDER}/*.parquet; recipes/build.py fig makes such a folder"
        )
    if Path(config.output_dir).is_dir() and any(Path(config.output_dir).iterdir()):
        raise ValueError(f"{config.output_dir} is not empty; name another folder, or remove this one")
    scorer = load_scorer(config)
    splits: dict[str, list[pa.Table]] = {}
    rejections: list[Rejection] = []
    for path in files:
        table = pl.read_parquet(path)
        if missing := {"candidates", "candidate_kinds"} - set(table.columns):
            raise SystemExit(f"{path} has no column {', '.join(sorted(missing))}; build it with `recipes/build.py fig`")
        rows = judged_rows(table, scorer, config, rejections)
        made = pa.Table.from_pylist(rows, schema=table.to_arrow().schema)
        splits.setdefault(path.name.partition("-")[0], []).append(made)
    total = sum(len(table) for tables in splits.values() for table in tables)
    card = Path(fig.__file__).with_name("README.md")
    provenance = {"built in": Path(config.build).name, "noise evaluator": config.model}
    tables = {PUBLISHED_FOLDER: splits}
    with writing(Path(config.output_dir)):
        write_folder(tables, config.output_dir, card=card, provenance=provenance, rejections=rejections)
    judged = total - len(rejections)
    print(
        f"{config.output_dir}: {judged:,} of {total:,} moments were judged; the others keep their caption, without a "
        "score"
    )
    return {"moments": total, "judged": judged}


def main(config: CaptionSelectConfig) -> None:
    run(config)
