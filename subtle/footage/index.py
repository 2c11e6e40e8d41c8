"""Index your own videos: cut them into moments, embed these, and keep the vectors for `search.py`."""

import json
import signal
import threading
import time
from collections.abc import Set
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from hf_datasets.footage.moments import Windows, read_moments
from hf_datasets.footage.shot_detection import shot_detector
from hf_models.encoders import Encoder
from hf_models.index.store import IndexedModel, MomentIndex
from subtle.engines import running
from subtle.footage.engines import make_reader, read_here, read_on_ray
from subtle.footage.models import indexed_model, load_model
from subtle.footage.options import IndexConfig
from subtle.footage.output import Say
from subtle.footage.roots import note_root
from subtle.footage.sources import Source, check_source, folder_source, miniature_source, table_source
from subtle.footage.text_queries import keep_text_queries
from subtle.footage.updating import Changes, Indexer, find_changes, storing
from subtle.run.locks import only_run_in
from subtle.run.results import write_results

SHOWN_REASONS = 20


def silent(_: str) -> None:
    """Say nothing."""


def source_of(config: IndexConfig) -> Source:
    """What the command line names."""
    if config.source is None:
        return miniature_source()
    path = Path(config.source).expanduser()
    if not path.is_dir():
        video_dir = Path(config.video_dir).expanduser() if config.video_dir else path.absolute().parent
        margins = {"seconds_before": config.seconds_before, "seconds_after": config.seconds_after}
        moments, rejections = read_moments(path, **margins)
        return table_source(moments, video_dir, rejections, name=str(path))
    if config.cut == "windows":
        return folder_source(path, Windows(config.window_seconds, config.stride_seconds))
    shot_detector(config.cut)  # before the work begins
    return folder_source(path, None, config.cut)


def own_model(config: IndexConfig) -> Encoder:
    """The model of this process, which only names the vectors where workers make them."""
    return load_model(config if config.engine == "local" else replace(config, device="cpu"))


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


def update(
    config: IndexConfig,
    source: Source,
    say: Say | None,
    encoder: Encoder | None = None,
    unsettled: Set[str] = frozenset(),
) -> tuple[Indexer, Changes]:
    """Bring the index up to date with a source, but for `unsettled`: other videos, which stay in it as they are.

    Without `say`, which takes a line, there is no progress bar either.
    """
    say, quiet = say or silent, say is None
    with storing(config.output):
        index = MomentIndex.create(config.output)
    if index.went_back:
        say(
            f"{config.output}: files were cut short, as by a power loss; it goes back to the last state that can be "
            f"read ({', '.join(index.went_back)}), and what is missing is indexed again"
        )
    encoder = encoder or own_model(config)
    with storing(config.output):
        model = indexed_model(encoder, config, str(source.root))
        check_root(index, model, source)
        model = index.add(model)
        note_root(index, source.root)
    done = {video: row for video, row in index.files(model.key).items() if video not in unsettled}
    changes = find_changes(source, done, index.incomplete(model.key) - unsettled, retry=config.retry)
    indexer = Indexer(index, model)
    how = {"keep_missing": config.keep_missing, "quiet": quiet}
    if config.engine == "ray":
        indexer.run(changes, partial(read_on_ray, config, source.root, model), **how)
    else:
        reader = make_reader(encoder, config)
        with reader.pool:
            indexer.run(changes, partial(read_here, reader, encoder, config.model), **how)
    with storing(config.output):
        index.tidy(model.key)
        if config.approximate:
            try:
                index.partition(model.key, kind=config.approximate_kind)
            except ValueError as error:  # too few moments
                say(f"--approximate: {error}")
        if (reason := keep_text_queries(config.model, encoder)) is not None:
            say(f"searches by a text alone load the whole model, which takes seconds: {reason}")
    return indexer, changes


def report(indexer: Indexer, source: Source, config: IndexConfig, say: Say) -> dict[str, Any]:
    """Say and write what the index holds and what it lacks; returns the counts."""
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
    say(
        f"{index.path}: {counts['moments_in_index']:,} moments of {counts['files_in_index']:,} videos by {model.name} "
        f"({model.key}{', active' if index.active.key == model.key else ''})"
    )
    changed = ("files_indexed", "files_moved", "files_deleted", "files_unchanged")
    say("  " + ", ".join(f"{counts[name]:,} {name.removeprefix('files_')}" for name in changed))
    say_reasons(say, "videos in quarantine, tried again when they change or with --retry", list(quarantined.values()))
    say_reasons(say, "videos left for the next run", [f"{video}: {why}" for video, why in indexer.postponed.items()])
    say_reasons(say, "moments without a vector", list(failures.values()))
    say_reasons(say, "rows, files or columns left out", left_out)
    if index.active.key != model.key:
        say(f"  searches still use {index.active.name}; change it with --activate {model.key}")
    if "://" not in index.path:
        details = {"quarantined": quarantined, "failures": failures, "postponed": indexer.postponed}
        write_results(Path(index.path), counts, config=config, seed=0, **details, rejections=left_out)
    return counts


def say_reasons(say: Say, what: str, reasons: list[str]) -> None:
    """Say reasons, one a line; the first ones of many."""
    if reasons:
        say(f"  {len(reasons):,} {what}:")
        for reason in reasons[:SHOWN_REASONS]:
            say(f"    {' '.join(reason.split())}")
        if len(reasons) > SHOWN_REASONS:
            say("    ... all of them are in results.json")


def run(config: IndexConfig, say: Say | None = print) -> dict[str, Any]:
    """Update, watch or activate; returns the counts. Without `say` there is no progress bar either."""
    if config.watch is not None:
        watch(config, say or silent)
        return {}
    # Of an index elsewhere, what two runs write is merged by its ids.
    alone = nullcontext() if "://" in config.output else only_run_in(Path(config.output), "--output")
    if config.activate is not None:
        MomentIndex(config.output)  # a folder that is none stays as it is
        with alone:
            model = MomentIndex(config.output).activate(config.activate)
        (say or silent)(f"{config.output}: searches use {model.name} ({model.key})")
        return {}
    source = source_of(config)
    workers = running(config, device=config.device, num_decoders=config.num_workers)
    with alone, workers:
        indexer, _ = update(config, source, say)
        return report(indexer, source, config, say or silent)


class Watch:
    """Looks at a folder again and again, and indexes the files that did not change between two looks.

    A file that grows, is replaced, renamed or removed is left as it is in the index until it has settled. What a look
    cannot do, as on a full disk or while another run writes to the index, the next one does.
    """

    def __init__(self, config: IndexConfig, say: Say) -> None:
        self.config, self.say = config, say
        self.encoder = own_model(config)
        self.seen: dict[str, tuple[int, int]] = {}
        self.indexed: object = None
        self.problem = ""

    def look(self) -> dict[str, Any] | None:
        """Index what has settled since the last look; returns the counts, or None where nothing changed."""
        try:
            check_source(self.config)
            source = source_of(self.config)
            before, self.seen = (
                self.seen,
                {one.file.video: (one.file.size, one.file.modified_ns) for one in source.files},
            )
            unsettled = {name for name in before.keys() | self.seen.keys() if before.get(name) != self.seen.get(name)}
            settled = [one for one in source.files if one.file.video not in unsettled]
            now = ({one.file.video: self.seen[one.file.video] for one in settled}, unsettled)
            if not settled or now == self.indexed:
                return None
            with only_run_in(Path(self.config.output), "--output"):
                indexer, changes = update(
                    self.config, replace(source, files=settled), self.say, self.encoder, unsettled
                )
                self.indexed, self.problem = None if indexer.postponed else now, ""
                if not changes.todo and not changes.moved and not changes.gone:
                    return None
                return report(indexer, source, self.config, self.say)
        except (OSError, ValueError) as error:
            if str(error) != self.problem:  # once, not at each look
                self.problem = str(error)
                self.say(f"{error}; tried again every {self.config.watch:g} s")
            return None


def watch(config: IndexConfig, say: Say) -> None:
    """Index a folder that files arrive in, until a signal ends it."""
    if Path(config.source or "").expanduser().is_file():
        raise ValueError(f"--watch is of a folder of videos, and {config.source} is a file")
    watched = Watch(config, say)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # as a terminal's Ctrl-C
    say(f"{config.source}: looked at every {config.watch:g} s; Ctrl-C ends it")
    try:
        with running(config, device=config.device, num_decoders=config.num_workers):
            while True:
                watched.look()
                time.sleep(config.watch or 0.0)
    except KeyboardInterrupt:
        say(f"stopped; {config.output} has what was committed, and the next run goes on from there")


def main(config: IndexConfig) -> None:
    run(config)
