"""Search an index by a clip, by a text, or by a clip and how the wanted moment differs from it.

    python recipes/search.py INDEX --text "show with 2 turns"
    python recipes/search.py INDEX --clip query.mp4 --start_seconds 3.2 --end_seconds 5.0 --text "show with 2 turns"
    python recipes/search.py INDEX --clip query.mp4 --exclude_same_video --format json
    python recipes/search.py INDEX --text "a vault" --export found --exact
    python recipes/search.py INDEX --text "a vault" --where "label = 'vault' AND end_seconds - start_seconds < 8"
    python recipes/search.py INDEX --text "a vault" --shortlist 50 --refine outputs/vcmr/model --rerank gpt-4o --dry_run

Prints the best moments: `video, start_seconds, end_seconds, score, label`. The search is exact, or `--approximate`.
`--where` is a condition in SQL on `video, start_seconds, end_seconds, label, text, moment_id, modified`, such as
"modified > timestamp '2026-01-01'". The query is embedded by the model that made the index.

A second step looks again at the best `--shortlist` moments. `--refine` gives them the start and end that a model of
vcmr.py prefers, by the text alone. `--rerank` orders them by a cross-encoder, by the text alone, or by a chat model
that sees frames of each moment, of the query clip and the text. `score` is that of the last step; every step's own, and
where the moment was before, stand beside it. A moment that a step cannot judge keeps its place, which is said.
"""

import sys
from dataclasses import dataclass
from typing import Literal

from harness.config import first_word_as, option, parse_config, run_recipe
from harness.running import visible
from harness.shared_config import Device
from indexing.two_step_config import TwoStepConfig


@dataclass
class SearchConfig(TwoStepConfig):
    """What to look for, where, and how to show it."""

    index: str = option("outputs/index", "Folder that index.py made, the first word, or the address of a bucket.")
    clip: str | None = option(None, "Video file with the query clip.")
    start_seconds: float | None = option(None, "Where the clip starts; none: at the beginning.")
    end_seconds: float | None = option(None, "Where it ends; none: at the end.")
    text: str | None = option(None, "What to look for, or what is different from the clip.")
    limit: int = option(10, "Most moments to show.")
    min_score: float | None = option(None, "Leave out moments with a lower score: nothing may fit.")
    nothing_fits: bool = option(
        False,
        "Find nothing where no moment reaches a score that is calibrated on the index; the first such search of an "
        "index takes longer.",
    )
    misfits_shown: float | None = option(
        None,
        "Share (0 to 1) of queries about something else for which --nothing_fits still finds something; none: 0.1 of "
        "texts, 0.3 of clips with a text.",
    )
    where: str | None = option(None, "Condition in SQL on the moments' columns.")
    folder: str | None = option(None, "Only videos below this folder of the index.")
    approximate: bool = option(False, "Search the approximate index of index.py --approximate: faster, may miss some.")
    exclude_same_video: bool = option(False, "Leave out moments of the file that the clip is from, and of copies.")
    format: Literal["table", "json", "csv"] = option("table", "How moments are shown.")
    export: str | None = option(None, "New folder for the clips, a contact sheet, an edit list and a playlist.")
    exact: bool = option(False, "Encode exported clips again; else copies begin at the keyframe before the moment.")
    mute: bool = option(False, "Leave the sound out of exported clips.")
    video_dir: str | None = option(None, "Folder of the videos, where they were moved; none: where they were indexed.")
    model: str | None = option(None, "Model of the index, by name or key; none: the active one.")
    trust_remote_code: bool = option(False, "Run the code that the model's folder or repository holds.")
    device: Device = option("auto", "Where to compute; auto: on the GPU where there is one.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.limit < 1:
            raise ValueError(f"--limit must be at least 1, not {self.limit}")
        if self.text is not None and not self.text.strip():
            raise ValueError("--text is empty; write what to look for, or leave it out")
        if self.export is None and (self.exact or self.mute):
            raise ValueError("--exact and --mute are of --export")
        if self.nothing_fits and self.min_score is not None:
            raise ValueError("give --min_score or --nothing_fits, not both")
        if self.misfits_shown is not None and not 0 < self.misfits_shown < 1:
            raise ValueError(f"--misfits_shown must lie between 0 and 1, not {self.misfits_shown:g}")
        if self.text is None and self.refine is not None:
            raise ValueError("--refine finds moments by a text; give --text with it")
        times = (self.start_seconds, self.end_seconds)
        if self.clip is None and (times != (None, None) or self.exclude_same_video):
            raise ValueError("--start_seconds, --end_seconds and --exclude_same_video are of a --clip")
        if not 0 <= (self.start_seconds or 0.0) < (float("inf") if self.end_seconds is None else self.end_seconds):
            raise ValueError(f"--start_seconds {times[0]} --end_seconds {times[1]}: it is 0 <= start < end")


if __name__ == "__main__":  # before the imports below, which take seconds
    sys.argv[1:] = first_word_as("index", sys.argv[1:])
    CONFIG = parse_config(SearchConfig, __doc__)

from collections.abc import Callable
from pathlib import Path
from typing import Any

from hf_models.index.search import PROBES, search_moments
from hf_models.index.store import IndexedModel, MomentIndex
from indexing.output import FORMATS
from indexing.text_queries import keep_text_queries, text_query


def query_frames(config: SearchConfig, encoder: Any) -> Any:
    """The frames of the query clip, `(T, 3, H, W)` uint8.

    Raises:
        ValueError: The clip ends after its video.
    """
    from hf_datasets.video import read_frames

    span = config.start_seconds, config.end_seconds
    read = read_frames(config.clip, encoder.num_frames, *span, size=encoder.frame_size, spread="seconds")
    if config.end_seconds is not None and read.missing_seconds:
        end = config.end_seconds - read.missing_seconds
        raise ValueError(
            f"{config.clip} ends at {end:.3f} s, before --end_seconds {config.end_seconds:g}; give an end within it"
        )
    return read.frames


def embedded(config: SearchConfig, model: IndexedModel) -> tuple[Any, Any]:
    """The query's vector, `(D,)`, and the model's encoder, or None where a text could be answered without it."""
    is_text = config.clip is None and not config.nothing_fits
    if is_text and (query := text_query(model, config.text)) is not None:
        return query, None
    from indexing.models import load_again

    encoder = load_again(model, config.device, trust_remote_code=config.trust_remote_code)
    if is_text:
        keep_text_queries(model.name, encoder)  # for the next one
    return encoder.query(None if config.clip is None else query_frames(config, encoder), config.text), encoder


def check_query(config: SearchConfig) -> None:
    """Refuse, before a model is loaded, a query of nothing and one whose clip is not there.

    Raises:
        ValueError: There is neither clip nor text.
        VideoError: The clip is not there, or no file.
    """
    if config.clip is None and config.text is None:
        raise ValueError("say what to look for: --text, --clip, or both")
    if config.clip is not None:
        from hf_datasets.video.backends import status_of_file

        status_of_file(Path(config.clip))


def to_stderr(message: str) -> None:
    sys.stderr.write(f"{visible(message)}\n")


def find(config: SearchConfig, *, say: Callable[[str], None] = to_stderr) -> list[dict[str, Any]]:
    """The moments that fit best, best first.

    Args:
        config: What to look for, and where.
        say: Takes what a user should know beside the result, one line each.

    Raises:
        ValueError: There is neither clip nor text, or the index or the query is wrong.
    """
    check_query(config)
    index = MomentIndex(config.index)
    model = index.find(config.model)
    excluded = None
    if config.exclude_same_video:
        from hf_datasets.footage.files import fingerprint

        excluded = fingerprint(Path(config.clip))
    query, encoder = embedded(config, model)
    has_second_step = config.refine is not None or config.rerank is not None
    found = search_moments(
        index,
        model,
        query,
        limit=config.shortlist if has_second_step else config.limit,
        where=config.where,
        folder=config.folder,
        exclude_fingerprint=excluded,
        probes=PROBES if config.approximate else None,
    )
    least, why = config.min_score, "--min_score"
    if config.nothing_fits and found:
        least, why = calibrated(config, index, model, encoder)
    if least is not None and found and found[0]["score"] < least:
        say(f"nothing fits: the best score is {found[0]['score']:.3f}, below {least:.3f} ({why})")
    if config.min_score is not None or (least is not None and found and found[0]["score"] < least):
        found = [row for row in found if row["score"] >= least]
    if has_second_step:
        found = second_step(config, index, model, found, say)
    return found[: config.limit]


def calibrated(config: SearchConfig, index: MomentIndex, model: IndexedModel, encoder: Any) -> tuple[float, str]:
    """The least score of `--nothing_fits`, and what it was chosen by."""
    from indexing.calibration import kind_of, threshold_of
    from indexing.roots import root_of
    from indexing.second_step import cache_of

    found = threshold_of(
        index,
        model,
        encoder,
        kind_of(encoder, clip=config.clip is not None, text=config.text is not None),
        cache=cache_of(index, config),
        root=str(root_of(index, model, config.video_dir)),
        misfits_shown=config.misfits_shown,
        where=config.where,
        folder=config.folder,
    )
    return found.score, found.why


def second_step(
    config: SearchConfig, index: MomentIndex, model: IndexedModel, found: list[dict[str, Any]], say: Any
) -> list[dict[str, Any]]:
    """Refined and re-ranked moments."""
    from hf_datasets.video import read_frames
    from indexing.roots import root_of
    from indexing.second_step import SecondStep, cache_of

    root = root_of(index, model, config.video_dir)
    step = SecondStep(config, cache_of(index, config), config.device, str(root))
    clip = None
    if config.clip is not None and config.rerank is not None:
        span = config.start_seconds, config.end_seconds
        clip = read_frames(config.clip, config.rerank_frames, *span, spread="seconds").frames
    return step(config.text, clip, found, say)


def main(config: SearchConfig) -> int:
    root = None
    if config.export is not None:
        from indexing.roots import root_of

        index = MomentIndex(config.index)
        root = root_of(index, index.find(config.model), config.video_dir)
    found = find(config)
    print(FORMATS[config.format](found))
    if root is None:
        return 0
    from indexing.exporting import export, told_of_copies

    failures = export(found, str(root), Path(config.export), exact=config.exact, mute=config.mute)
    sys.stderr.write(f"{config.export}: {len(found) - len(failures)} of {len(found)} moments\n")
    if (told := told_of_copies(Path(config.export))) is not None:
        sys.stderr.write(f"  {told}\n")
    for reason in failures:
        sys.stderr.write(f"  left out: {visible(' '.join(reason.split()))}\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(run_recipe(main, CONFIG))
