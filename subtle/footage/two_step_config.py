"""The options of a search's second step; imports nothing that takes long."""

from dataclasses import dataclass

from subtle.options import option
from subtle.run.shared_config import ChatConfig, ChatFramesConfig, DryRunConfig, ReadingConfig


@dataclass
class TwoStepConfig(DryRunConfig, ChatConfig, ChatFramesConfig, ReadingConfig):
    """The second step: better starts and ends, and a better order, of the best moments by vectors."""

    shortlist: int = option(50, "Moments that the second step looks at: the best ones by their vectors.")
    refine: str | None = option(
        None, "XML, ReLoCLNet or HERO, a folder that vcmr.py wrote: its start, end and score replace a moment's."
    )
    refine_vision_model: str | None = option(
        None, "Where the vision model of its features is now; none: where it was when they were made."
    )
    refine_text_model: str | None = option(None, "The same of the text model of its features.")
    rerank: str | None = option(
        None,
        "What orders the moments anew: a folder with a cross-encoder (noise_evaluator.py trains one; BLIP), or else a "
        "chat model that sees images, by the server's name for it. Each moment is one request.",
    )
    num_frames: int = 8
    search_cache: str | None = option(
        None,
        "Folder of what searches computed: features, answers, thresholds; none: in the cache of datasets.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.shortlist, self.num_frames, self.max_side) < 1:
            raise ValueError("--shortlist, --num_frames and --max_side must be at least 1")
        if self.rerank is None and (self.dry_run or self.base_url or self.max_usd is not None):
            raise ValueError("--dry_run, --base_url and --max_usd are of --rerank with a chat model")
        if self.refine is None and (self.refine_vision_model or self.refine_text_model):
            raise ValueError("--refine_vision_model and --refine_text_model are of --refine")
