"""The second step of a search: refined and re-ranked moments, and what is said about both."""

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import datasets
from torch import Tensor

from hf_datasets.video import VideoStore
from hf_models.index.store import MomentIndex
from subtle.footage.models import device_of
from subtle.footage.options import TwoStepConfig
from subtle.footage.output import Say
from subtle.footage.refining import FoundRow
from subtle.run.shared_config import BuildConfig

COMMONEST_REASONS = 5


def cache_of(index: MomentIndex) -> Path:
    """The folder for what searches of an index compute; not in the index, where anyone may have put answers."""
    name = hashlib.sha256(index.place.encode()).hexdigest()[:24]
    return Path(datasets.config.HF_DATASETS_CACHE) / "subtle-search" / name


class SecondStep:
    """What `--refine` and `--rerank` do with a shortlist; keeps their models for the next query.

    Raises:
        ValueError: A model does not fit.
    """

    def __init__(self, config: TwoStepConfig, cache: Path, device: str, root: str) -> None:
        self.store = VideoStore(root)
        self.refiner: Any = None
        self.reranker: Any = None
        if config.refine is not None:
            from subtle.footage.refining import Refiner

            self.refiner = Refiner(
                config.refine,
                cache,
                device_of(device),
                vision_model=config.refine_vision_model,
                text_model=config.refine_text_model,
                num_workers=config.num_workers,
                timeout_seconds=config.timeout_seconds,
            )
        if config.rerank is not None:
            self.reranker = make_reranker(config, cache, device)

    def path_of(self, row: FoundRow) -> Path:
        """Where a row's video is; nothing outside the folder is opened, as an index may come from anyone."""
        return self.store.path(row["video"])

    def __call__(self, text: str | None, clip: Tensor | None, rows: Sequence[FoundRow], say: Say) -> list[FoundRow]:
        """The moments in their new order, with `vector_score` and the scores of both steps."""
        rows = [row | {"vector_score": row["score"]} for row in rows]
        if self.refiner is not None and rows:
            if text is None:
                raise ValueError("--refine finds moments by a text; give --text with it")
            rows, failures = self.refiner(text, rows, self.path_of)
            say_failures(failures, "videos could not be refined, their moments keep their place", say)
        if self.reranker is not None and rows:
            rows, failures = self.reranker(text, clip, rows, self.path_of)
            say_failures(failures, f"of {len(rows)} moments have no score of --rerank and keep their place", say)
            if self.reranker.cost:
                say(self.reranker.cost)
        return list(rows)


def say_failures(failures: dict[str, str], what: str, say: Say) -> None:
    """Say how many failed, and why: the commonest reasons."""
    if failures:
        reasons = Counter(" ".join(reason.split()) for reason in failures.values()).most_common(COMMONEST_REASONS)
        say(f"{len(failures)} {what}: " + "; ".join(f"{reason} ({number})" for reason, number in reasons))


def make_reranker(config: TwoStepConfig, cache: Path, device: str) -> Any:
    """A cross-encoder of a folder, or else a chat model."""
    from subtle.footage.reranking import ChatReranker, MatcherReranker

    if Path(str(config.rerank)).is_dir():
        if config.dry_run or config.base_url or config.max_usd is not None:
            raise ValueError(
                f"{config.rerank} is a folder, so it runs here; leave out --dry_run, --base_url and --max_usd"
            )
        return MatcherReranker(str(config.rerank), device_of(device), num_frames=config.num_frames)
    from hf_datasets.generation.cache import AnswerCache
    from hf_datasets.generation.openai_chat import OpenAIChat
    from subtle.run.chat_client import open_chat

    answers = cache / "answers.sqlite"
    named = ("base_url", "api_key_env", "dry_run", "max_usd", "input_usd", "output_usd")
    chat = open_chat(
        BuildConfig(
            model=config.rerank, max_output_tokens=64, max_answers=1, **{name: getattr(config, name) for name in named}
        )
    )
    kept = AnswerCache(answers) if not config.dry_run or answers.is_file() else None
    if isinstance(chat, OpenAIChat) and kept is not None:
        asked = [getattr(config, name, None) for name in ("text", "clip", "start_seconds", "end_seconds")]
        chat.share_budget(kept, json.dumps(asked))  # with runs of the same search that were killed
    return ChatReranker(chat, kept, num_frames=config.num_frames, max_side=config.max_side)
