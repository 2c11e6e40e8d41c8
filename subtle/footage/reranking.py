"""Another order of found moments, by a cross-encoder or a chat model that looks at each of them beside the query."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers.utils.logging import disable_progress_bar

from hf_datasets.generation.cache import AnswerCache
from hf_datasets.generation.chat import Chat
from hf_datasets.generation.dry_run import DryRun
from hf_datasets.generation.generate import generate
from hf_datasets.generation.images import image_part, image_parts
from hf_datasets.generation.relevance import PairToScore, RelevanceTask
from hf_datasets.records import Rejection
from hf_datasets.video import VideoError, read_frames
from hf_models.video_text_matching import Scorer, load_matcher
from subtle.footage.refining import FoundRow, reordered

Paths = Callable[[FoundRow], Path]


class ChatReranker:
    """Asks a chat model for a score of each moment, one request each; answers are kept as they arrive.

    Args:
        chat: A client of `hf_datasets.generation`.
        cache: Where answers are kept; None in a dry run without any.
        num_frames: Of each moment and of the query clip.
        max_side: Longer side of a frame.
    """

    def __init__(self, chat: Chat, cache: AnswerCache | None, *, num_frames: int = 8, max_side: int = 448) -> None:
        self.chat, self.cache, self.num_frames, self.max_side = chat, cache, num_frames, max_side

    def __call__(
        self, text: str | None, clip: Tensor | None, rows: Sequence[FoundRow], path_of: Paths
    ) -> tuple[list[FoundRow], dict[str, str]]:
        """Score and order moments.

        Args:
            text: What is looked for, or what is different from the clip.
            clip: `(T, 3, H, W)` uint8; None without a query clip.
            rows: Found moments, best first.
            path_of: Where the video of a row is; a VideoError where it is not.

        Returns:
            The rows with `rerank_score`, best first; those without a usable answer keep their place and have None.
            And why moments have none.

        Raises:
            GenerationStoppedError: No request can succeed: key, budget, quota. Answers are kept.
        """

        def frames_of(row: FoundRow) -> list[dict[str, Any]]:
            span = row["start_seconds"], row["end_seconds"]
            return image_parts(
                path_of(row), *span, num_frames=self.num_frames, max_side=self.max_side, spread="seconds"
            )

        shown = [] if clip is None else [image_part(frame, max_side=self.max_side) for frame in clip]
        names = [ranked_name(rank, row) for rank, row in enumerate(rows, start=1)]
        pairs = [
            PairToScore(name, text, lambda: shown, partial(frames_of, row))
            for name, row in zip(names, rows, strict=True)
        ]
        outcomes = list(generate(RelevanceTask("search-rerank"), pairs, self.chat, self.cache, max_answers=1))
        failures = {
            name: outcome.reason
            for name, outcome in zip(names, outcomes, strict=True)
            if isinstance(outcome, Rejection)
        }
        if isinstance(self.chat, DryRun):
            return list(rows), failures
        scores = [None if isinstance(outcome, Rejection) else float(outcome) for outcome in outcomes]
        return with_scores(rows, scores), failures

    @property
    def cost(self) -> str:
        """Requests, tokens and dollars so far; of a dry run, what it would be."""
        meter, model = self.chat.meter, self.chat.model
        if isinstance(self.chat, DryRun):
            low, high = meter, self.chat.high
            dollars = "no price is listed; give --input_usd and --output_usd"
            if low.usd is not None and high.usd is not None and meter.price is not None:
                dollars = f"${low.usd:,.4f} to ${high.usd:,.4f} at the prices of {meter.price.as_of}"
            return (
                f"dry run: --rerank {model} would make {meter.requests:,} requests ({meter.cached:,} more are answered "
                f"already) with about {meter.input_tokens:,} tokens in and at most {high.output_tokens:,} out: "
                f"{dollars}; nothing was sent, the order is that of the step before"
            )
        dollars = "" if meter.usd is None else f", ${meter.usd:,.4f}"
        return (
            f"{model}: {meter.requests:,} requests, {meter.cached:,} answered before, {meter.input_tokens:,} tokens "
            f"in, {meter.output_tokens:,} out{dollars}"
        )


class MatcherReranker:
    """Scores each moment with a cross-encoder, a VidCLIP matcher or BLIP, which reads text and frames together.

    Raises:
        ValueError: It is no such model.
    """

    cost = ""

    def __init__(self, folder: str, device: torch.device, *, num_frames: int = 8) -> None:
        disable_progress_bar()
        matcher, processor, tokenizer = load_matcher(folder, num_frames=num_frames, needs_trained_head=True)
        self.name, self.num_frames = folder, min(num_frames, matcher.max_frames)
        matcher.to(device).eval()  # type: ignore[arg-type]  # a wrapped method, which its annotation does not bind
        self.scorer = Scorer(matcher, processor, tokenizer)

    def __call__(
        self,
        text: str | None,
        clip: Tensor | None,  # noqa: ARG002 it reads texts alone
        rows: Sequence[FoundRow],
        path_of: Paths,
    ) -> tuple[list[FoundRow], dict[str, str]]:
        """Score and order moments by the text alone; see `ChatReranker`.

        Raises:
            ValueError: There is no text, or more than the model reads.
        """
        if text is None:
            raise ValueError(f"{self.name} compares texts with clips; give --text, or a chat model as --rerank")
        if len(self.scorer.tokenizer(text)["input_ids"]) > self.scorer.matcher.max_tokens:
            longest = self.scorer.matcher.max_tokens
            raise ValueError(f"--text has more tokens than {self.name} reads ({longest}); shorten it")
        scores: list[float | None] = []
        failures = {}
        for rank, row in enumerate(rows, start=1):
            span = row["start_seconds"], row["end_seconds"]
            try:
                size = self.scorer.frame_size
                read = read_frames(path_of(row), self.num_frames, *span, size=size, spread="seconds")
            except (VideoError, OSError) as error:
                failures[ranked_name(rank, row)] = str(error)
                scores.append(None)
                continue
            scores += self.scorer(read.frames, [text])
        return with_scores(rows, scores), failures


def ranked_name(rank: int, row: FoundRow) -> str:
    """How a failure names a moment: by its rank, from 1."""
    return f"#{rank} {row['video']} {row['start_seconds']:.3f}-{row['end_seconds']:.3f}"


def with_scores(rows: Sequence[FoundRow], scores: Sequence[float | None]) -> list[FoundRow]:
    """Rows with their scores, in their order."""
    judged = [
        row | {"rerank_score": score} | ({} if score is None else {"score": score})
        for row, score in zip(rows, scores, strict=True)
    ]
    return reordered(judged, "rerank_score")
