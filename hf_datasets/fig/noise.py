"""The noise evaluator's training data, and the choice of the best caption by its scores.

This package imports no model, so the evaluator is any callable; `recipes/noise_evaluator.py` trains one. It learns from
captions that fit a moment (the original and its rewrites, listing 7) and from negative captions that change static
(listing 8) or dynamic content (listing 9).
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from hf_datasets.fig.moments import FRAME_SCHEMA, published_moments
from hf_datasets.long_videos import Split
from hf_datasets.records import Moment, Rejection

if TYPE_CHECKING:
    import torch

REWRITINGS_FOLDER = "rewritings"
NoiseEvaluator = Callable[["torch.Tensor", Sequence[str]], Sequence[float]]
"""Scores how well texts describe a clip. Its frames, `(T, 3, H, W)` uint8 RGB in order, and one text at least -> one
finite logit per text, in their order; higher is better, and 0 is undecided."""


@dataclass(frozen=True, slots=True)
class NoiseExample:
    """A moment with texts that fit it and texts that do not.

    Attributes:
        desc_id: Id of the moment.
        video_id: Its video.
        start_seconds: Its start.
        end_seconds: Its end.
        positives: The original caption first, then its rewrites.
        static_negatives: Captions with other things, people, colors or places.
        dynamic_negatives: Captions with another action, direction or count.
    """

    desc_id: int
    video_id: str
    start_seconds: float
    end_seconds: float
    positives: tuple[str, ...]
    static_negatives: tuple[str, ...]
    dynamic_negatives: tuple[str, ...]

    @classmethod
    def of_moment(
        cls, row: Mapping[str, Any], positives: Iterable[str], static: Iterable[str], dynamic: Iterable[str]
    ) -> "NoiseExample":
        """The example of a row of `moments.FRAME_SCHEMA`: each text once, and no positive among the negatives."""
        fitting = tuple(dict.fromkeys(positives))
        span = (row["start_seconds"], row["end_seconds"])
        kinds = (tuple(text for text in dict.fromkeys(texts) if text not in fitting) for texts in (static, dynamic))
        return cls(row["desc_id"], row["video_id"], *span, fitting, *kinds)

    @property
    def negatives(self) -> tuple[str, ...]:
        """All negative captions, the static ones first."""
        return self.static_negatives + self.dynamic_negatives


def built_examples(data_dir: Path) -> tuple[dict[Split, list[NoiseExample]], list[Rejection]]:
    """Read the examples in a folder that `recipes/build.py fig` wrote with its rewritings.

    Returns:
        Split -> examples, and a rejection for each moment without a negative.

    Raises:
        FileNotFoundError: The folder holds no rewritings.
    """
    files = sorted((data_dir / REWRITINGS_FOLDER).glob("*.parquet"))
    if not files:
        raise FileNotFoundError(
            f"{data_dir} holds no {REWRITINGS_FOLDER}/*.parquet; build it with `subtle build fig --rewritings`"
        )
    moments, rejections = published_moments(data_dir)
    texts: dict[tuple[int, str], tuple[str, ...]] = {
        (desc_id, kind): tuple(captions)
        for desc_id, kind, captions in pl.read_parquet(files).select("desc_id", "kind", "captions").iter_rows()
    }
    examples: dict[Split, list[NoiseExample]] = {}
    for row in moments.iter_rows(named=True):
        static, dynamic, same = (
            texts.get((row["desc_id"], kind), ()) for kind in ("static_negatives", "dynamic_negatives", "positives")
        )
        if static or dynamic:
            example = NoiseExample.of_moment(row, (row["coarse_caption"], *same), static, dynamic)
            examples.setdefault(row["split"], []).append(example)
        else:
            raw = json.dumps(row, ensure_ascii=False)
            rejections.append(Rejection(f"no negative caption: desc_id {row['desc_id']}", raw, str(row["desc_id"])))
    return examples, rejections


def choose(evaluator: NoiseEvaluator, frames: "torch.Tensor", candidates: Sequence[str]) -> tuple[str, float]:
    """The candidate with the highest score, the first of several, and its score.

    Raises:
        ValueError: There is no candidate, or the evaluator gives no finite score for each.

    Example:
        >>> import torch
        >>> choose(lambda frames, texts: [len(text) / 2 for text in texts], torch.zeros(1, 3, 2, 2), ["a", "bcd"])
        ('bcd', 1.5)
    """
    if not candidates:
        raise ValueError("there is no candidate to choose from; give at least one caption")
    import torch  # takes seconds, and reading examples needs none of it

    scores = torch.as_tensor(evaluator(frames, list(candidates)), dtype=torch.float64)
    if scores.shape != (len(candidates),) or not scores.isfinite().all():
        raise ValueError(
            f"the evaluator gave {tuple(scores.shape)} scores, not all finite, for {len(candidates)} candidates; it "
            "must give one finite number for each"
        )
    best = int(scores.argmax())
    return candidates[best], scores[best].item()


def judge_moments(
    moments: Iterable[tuple[Moment, Sequence[str]]],
    evaluator: NoiseEvaluator,
    frames_of: "Callable[[Moment], torch.Tensor]",
) -> Iterator[Moment | Rejection]:
    """Give every moment its best candidate as fine caption, and that candidate's score.

    Args:
        moments: Each with its candidates.
        evaluator: See `NoiseEvaluator`.
        frames_of: Moment -> `(T, 3, H, W)` uint8; it raises OSError, ValueError or RuntimeError for unreadable ones.

    Yields:
        The moments in their order, or the rejection of one that could not be scored.
    """
    for moment, candidates in moments:
        try:
            caption, score = choose(evaluator, frames_of(moment), candidates)
        except (OSError, ValueError, RuntimeError) as error:
            yield Rejection(f"not judged: {error}", repr(moment), str(moment.desc_id))
        else:
            yield replace(moment, fine_caption=caption, fine_caption_score=score)


def as_moment(row: Mapping[str, Any]) -> Moment:
    """A row of a built dataset as a record; other columns are ignored."""
    return Moment(**{name: row[name] for name in FRAME_SCHEMA.names() if name != "split"})
