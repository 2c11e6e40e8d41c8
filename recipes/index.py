"""Index your own videos: cut them into moments, embed these, and keep the vectors for `search.py`.

    python recipes/index.py FOLDER --output INDEX
    python recipes/index.py FOLDER --output INDEX --cut shots
    python recipes/index.py moments.csv --video_dir FOLDER --output INDEX
    python recipes/index.py FOLDER --output INDEX --model OTHER
    python recipes/index.py --output INDEX --activate OTHER
    RAY_ADDRESS=auto python recipes/index.py FOLDER --output INDEX --engine ray

A FOLDER, at any depth, is cut into windows or shots; a table (CSV, TSV, JSON, JSON lines, Parquet, or OpenSportsLib's
JSON) names the moments: `video, start_seconds, end_seconds[, label, text, moment_id]`. Without either it indexes the
miniature's clips. Run it again after videos were added, changed, moved or deleted: only what is new is read. A run
that was killed goes on where it was. Videos that cannot be read are named, and tried again when they change. Vectors of
several models live side by side; searches use the active one, and `--activate` changes it, back too.
"""

import sys
from dataclasses import dataclass, replace
from typing import Literal

from harness.config import first_word_as, option, parse_config, run_recipe
from harness.model_folders import MINIATURE_TFCOVR
from harness.running import check_first, visible
from harness.shared_config import ActorConfig, Device


@dataclass
class IndexConfig(ActorConfig):
    """What to index, with which model, and where to keep it."""

    source: str | None = option(None, "Folder of videos or table of moments, the first word; none: the miniature.")
    output: str = option("outputs/index", "Folder of the index, or the address of a bucket.")
    video_dir: str | None = option(None, "Folder of the videos of a table; none: the table's own folder.")
    model: str = option(
        MINIATURE_TFCOVR,
        "Model folder or Hub name: of stage2.py, AIM, VidCLIP, CLIP, SigLIP or sentence-transformers. The one that "
        "ships has only seen drawn athletes.",
    )
    activate: str | None = option(None, "Let searches use this model of the index, by name or key; reads no video.")
    cut: Literal["windows", "shots", "transnetv2"] = option(
        "windows", "How a folder's videos are cut into moments; shots by PySceneDetect, or by TransNetV2."
    )
    window_seconds: float = option(4.0, "Length of a window.")
    stride_seconds: float = option(2.0, "From the start of one window to the next; the windows overlap by the rest.")
    seconds_before: float = option(2.0, "Before an event of OpenSportsLib's JSON.")
    seconds_after: float = option(3.0, "After an event of OpenSportsLib's JSON.")
    num_frames: int | None = option(None, "Frames of each moment; none: as the model was made for.")
    batch_size: int = option(16, "Moments per forward pass.")
    moments_per_read: int = option(8, "Moments of one video that are decoded together, each frame once.")
    num_workers: int = option(2, "Processes that decode; 0: this one decodes, and a video that hangs hangs the run.")
    timeout_seconds: float = option(60.0, "Longest wait for the frames of one read, in seconds.")
    retry: bool = option(False, "Try quarantined videos again, though they have not changed.")
    approximate: bool = option(
        False, "Also build an approximate index, for search --approximate; from 50,000 moments on."
    )
    keep_missing: bool = option(False, "Keep the moments of videos that are no longer there.")
    trust_remote_code: bool = option(False, "Run the code that a model's folder or repository holds.")
    device: Device = option("auto", "Where to compute; auto: on the GPU where there is one.")

    def __post_init__(self) -> None:
        super().__post_init__()
        counts = {name: getattr(self, name) for name in ("batch_size", "moments_per_read")}
        if wrong := [name for name, value in counts.items() if value < 1]:
            raise ValueError(f"--{wrong[0]} must be at least 1, not {counts[wrong[0]]}")
        if not 0 < self.stride_seconds <= self.window_seconds:
            raise ValueError(
                f"--stride_seconds {self.stride_seconds:g} must be positive and at most --window_seconds "
                f"{self.window_seconds:g}, or seconds between windows would not be found"
            )
        if min(self.seconds_before, self.seconds_after) < 0 or self.seconds_before + self.seconds_after <= 0:
            raise ValueError("--seconds_before and --seconds_after must be at least 0, and not both 0")


if __name__ == "__main__":  # before the imports below, which take seconds
    sys.argv[1:] = first_word_as("source", sys.argv[1:])
    CONFIG = parse_config(IndexConfig, __doc__)
    from indexing.sources import check_source

    check_first(check_source, CONFIG)

import json
from functools import partial
from pathlib import Path
from typing import Any

from harness.engines import running
from harness.results import write_results
from hf_datasets.footage.moments import Windows
from hf_datasets.footage.shot_detection import shot_detector
from hf_models.index.store import IndexedModel, MomentIndex
from hf_models.moment_encoders import MomentEncoder
from indexing.engines import make_reader, read_on_ray
from indexing.models import described, load_model
from indexing.reading import read_ahead
from indexing.roots import note_root
from indexing.sources import Source, folder_source, miniature_source, table_source
from indexing.text_queries import keep_text_queries
from indexing.updating import Changes, Indexer, compare, only_writer, storing

SHOWN = 20


def source_of(config: IndexConfig) -> Source:
    """What the command line names."""
    if config.source is None:
        return miniature_source()
    path = Path(config.source).expanduser()
    if not path.is_dir():
        video_dir = Path(config.video_dir).expanduser() if config.video_dir else None
        margins = {"seconds_before": config.seconds_before, "seconds_after": config.seconds_after}
        return table_source(path, video_dir, **margins)
    if config.cut == "windows":
        return folder_source(path, Windows(config.window_seconds, config.stride_seconds))
    shot_detector(config.cut)  # before the work begins
    return folder_source(path, None, config.cut)


def check_root(index: MomentIndex, model: IndexedModel, source: Source) -> None:
    """Refuse another folder of videos: all that is known would be deleted.

    Raises:
        ValueError: None of the videos of the index is in the folder, which is another one than before.
    """
    known = index.models.get(model.key)
    if known is None or known.root == model.root:
        return
    videos = index.files(model.key).keys()
    if videos and not videos & {wanted.file.video for wanted in source.files}:
        raise ValueError(
            f"{index.path} holds the videos of {known.root}, and none of them is in {model.root}; name another "
            "--output for other videos"
        )


def register(index: MomentIndex, encoder: MomentEncoder, config: IndexConfig, source: Source) -> IndexedModel:
    """The model as the index knows it, with its tables."""
    import torch

    size = encoder.frame_size or 64
    height, width = (size, size) if isinstance(size, int) else size
    probe = torch.zeros(encoder.num_frames, 3, height, width, dtype=torch.uint8)
    dimensions = encoder({"frames": [probe]})["vector"].shape[1]
    model = described(encoder, config, str(source.root), dimensions)
    check_root(index, model, source)
    return index.add(model)


def update(config: IndexConfig, source: Source) -> tuple[Indexer, Changes]:
    """Bring the index up to date."""
    with storing(config.output):
        index = MomentIndex.create(config.output)
    if index.went_back:
        print(
            f"{config.output}: files were cut short, as by a power loss; it goes back to the last state that can be "
            f"read ({', '.join(index.went_back)}), and what is missing is indexed again"
        )
    encoder = load_model(config if config.engine == "local" else replace(config, device="cpu"))
    with storing(config.output):
        model = register(index, encoder, config, source)
        note_root(index, source.root)
    changes = compare(source, index.files(model.key), index.incomplete(model.key), retry=config.retry)
    indexer = Indexer(index, model, encoder)
    if config.engine == "ray":
        indexer.run(changes, partial(read_on_ray, config, source.root, model), keep_missing=config.keep_missing)
    else:
        reader = make_reader(encoder, config)
        with reader.pool:
            indexer.run(changes, partial(read_ahead, reader), keep_missing=config.keep_missing)
    with storing(config.output):
        index.tidy(model.key)
        if config.approximate:
            try:
                index.partition(model.key)
            except ValueError as error:  # too few moments
                print(f"--approximate: {error}")
        if (reason := keep_text_queries(config.model, encoder)) is not None:
            print(f"searches by a text alone load the whole model, which takes seconds: {reason}")
    return indexer, changes


def report(indexer: Indexer, source: Source, config: IndexConfig) -> dict[str, Any]:
    """Print and write what the index holds and what it lacks; returns the counts."""
    index, model = indexer.index, indexer.model
    done = index.files(model.key)
    quarantined = {video: row["reason"] for video, row in sorted(done.items()) if row["status"] == "quarantined"}
    failures = {name: why for row in done.values() for name, why in json.loads(row["failures"]).items()}
    left_out = [rejection.reason for rejection in source.rejections]
    counts = {
        "moments_in_index": index.moments(model.key).count_rows(),
        "files_in_index": len(done) - len(quarantined),
        **indexer.counts,
        "files_quarantined": len(quarantined),
        "files_postponed": len(indexer.postponed),
        "moments_failed": len(failures),
    }
    print(
        f"{index.path}: {counts['moments_in_index']:,} moments of {counts['files_in_index']:,} videos by {model.name} "
        f"({model.key}{', active' if index.active.key == model.key else ''})"
    )
    changed = ("files_indexed", "files_moved", "files_deleted", "files_unchanged")
    print("  " + ", ".join(f"{counts[name]:,} {name.removeprefix('files_')}" for name in changed))
    show("videos in quarantine, tried again when they change or with --retry", list(quarantined.values()))
    show("videos left for the next run", [f"{video}: {why}" for video, why in indexer.postponed.items()])
    show("moments without a vector", list(failures.values()))
    show("rows, files or columns left out", left_out)
    if index.active.key != model.key:
        print(f"  searches still use {index.active.name}; change it with --activate {model.key}")
    if "://" not in index.path:
        details = {"quarantined": quarantined, "failures": failures, "postponed": indexer.postponed}
        write_results(Path(index.path), counts, config=config, seed=0, **details, rejections=left_out)
    return counts


def show(what: str, reasons: list[str]) -> None:
    """Print reasons, one a line; the first ones of many."""
    if reasons:
        print(f"  {len(reasons):,} {what}:")
        for reason in reasons[:SHOWN]:
            print(f"    {visible(' '.join(reason.split()))}")
        if len(reasons) > SHOWN:
            print("    ... all of them are in results.json")


def run(config: IndexConfig) -> dict[str, Any]:
    """Update or activate; returns the counts."""
    if config.activate is not None:
        MomentIndex(config.output)  # a folder that is none stays as it is
        with only_writer(config.output):
            model = MomentIndex(config.output).activate(config.activate)
        print(f"{config.output}: searches use {model.name} ({model.key})")
        return {}
    source = source_of(config)
    workers = running(config, device=config.device, num_decoders=config.num_workers)
    with only_writer(config.output), workers:
        indexer, _ = update(config, source)
        return report(indexer, source, config)


def main(config: IndexConfig) -> None:
    run(config)


if __name__ == "__main__":
    sys.exit(run_recipe(main, CONFIG))
