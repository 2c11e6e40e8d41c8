"""Search an index by a clip, by a text, or by a clip and how the wanted moment differs from it."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hf_models.index.search import default_probes, search_moments
from hf_models.index.store import IndexedModel, MomentIndex
from subtle.footage.options import SearchConfig
from subtle.footage.output import FORMATS
from subtle.footage.text_queries import keep_text_queries, text_query
from subtle.running import visible


def query_frames(config: SearchConfig, encoder: Any) -> Any:
    """The frames of the query clip, `(T, 3, H, W)` uint8.

    Raises:
        ValueError: The clip ends after its video.
    """
    from hf_datasets.video import read_frames

    assert config.clip is not None
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
    if is_text and config.text is not None and (query := text_query(model, config.text)) is not None:
        return query, None
    from subtle.footage.models import load_again

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
        from hf_datasets.video.frame_folder import version_of

        version_of(Path(config.clip))


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

        assert config.clip is not None  # the configuration refuses it without one
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
        probes=(config.probes or default_probes(index, model)) if config.approximate else None,
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
    from subtle.footage.calibration import kind_of, threshold_of
    from subtle.footage.roots import root_of
    from subtle.footage.second_step import cache_of

    found = threshold_of(
        index,
        model,
        encoder,
        kind_of(encoder, clip=config.clip is not None, text=config.text is not None),
        cache=cache_of(index, config),
        root=str(root_of(index, model, config.video_dir)),
        where=config.where,
        folder=config.folder,
    )
    return found.score, found.why


def second_step(
    config: SearchConfig, index: MomentIndex, model: IndexedModel, found: list[dict[str, Any]], say: Any
) -> list[dict[str, Any]]:
    """Refined and re-ranked moments."""
    from hf_datasets.video import read_frames
    from subtle.footage.roots import root_of
    from subtle.footage.second_step import SecondStep, cache_of

    root = root_of(index, model, config.video_dir)
    step = SecondStep(config, cache_of(index, config), config.device, str(root))
    clip = None
    if config.clip is not None and config.rerank is not None:
        span = config.start_seconds, config.end_seconds
        clip = read_frames(config.clip, config.num_frames, *span, spread="seconds").frames
    return step(config.text, clip, found, say)


def main(config: SearchConfig) -> int:
    root = None
    if config.export is not None:
        from subtle.footage.roots import root_of

        index = MomentIndex(config.index)
        root = root_of(index, index.find(config.model), config.video_dir)
    found = find(config)
    print(FORMATS[config.format](found))
    if root is None or config.export is None:
        return 0
    from subtle.footage.exporting import export, told_of_copies

    failures = export(found, str(root), Path(config.export), exact=config.exact, mute=config.mute)
    sys.stderr.write(f"{config.export}: {len(found) - len(failures)} of {len(found)} moments\n")
    if (told := told_of_copies(Path(config.export))) is not None:
        sys.stderr.write(f"  {told}\n")
    for reason in failures:
        sys.stderr.write(f"  left out: {visible(' '.join(reason.split()))}\n")
    return 1 if failures else 0
