"""The options of `index`, `search`, `tune`."""

from dataclasses import dataclass
from typing import Literal

from subtle.options import option
from subtle.run.model_folders import MINIATURE_CLIP, MINIATURE_TFCOVR
from subtle.run.shared_config import (
    ActorConfig,
    BatchConfig,
    ChatConfig,
    ChatFramesConfig,
    DryRunConfig,
    FramesConfig,
    IndexModelConfig,
    OwnClipsConfig,
    ReadingConfig,
    RestartConfig,
    RunConfig,
    TrustConfig,
    VideosConfig,
)


@dataclass
class IndexConfig(FramesConfig, BatchConfig, ReadingConfig, VideosConfig, TrustConfig, ActorConfig):
    """What to index, with which model, and where to keep it."""

    source: str | None = option(None, "Folder of videos or table of moments, the first word; none: the miniature.")
    output: str = option("outputs/index", "Folder of the index, or the address of a bucket.")
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
    retry: bool = option(False, "Try quarantined videos again, though they have not changed.")
    approximate: bool = option(
        False, "Also build an approximate index, for search --approximate; from 50,000 moments on."
    )
    approximate_kind: Literal["flat", "sq"] = option(
        "flat", "What the approximate index holds: whole vectors, or a byte of each number, a quarter of the size."
    )
    watch: float | None = option(
        None, "Look at the folder every so many seconds, and index the files that have stopped growing; Ctrl-C ends it."
    )
    keep_missing: bool = option(False, "Keep the moments of videos that are no longer there.")
    mixed_precision: Literal["no", "bf16"] = option(
        "no", "Floating-point type of the forward pass; vectors are stored as float32, and queries are computed in it."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch_size < 1:
            raise ValueError(f"--batch_size must be at least 1, not {self.batch_size}")
        if self.watch is not None and (self.watch <= 0 or not self.source or self.activate or "://" in self.output):
            raise ValueError(f"--watch {self.watch:g}: seconds above 0, of a folder, for an --output on this machine")
        if not self.approximate and self.approximate_kind != "flat":
            raise ValueError("--approximate_kind is of --approximate")
        if not 0 < self.stride_seconds <= self.window_seconds:
            raise ValueError(
                f"--stride_seconds {self.stride_seconds:g} must be positive and at most --window_seconds "
                f"{self.window_seconds:g}, or seconds between windows would not be found"
            )
        if min(self.seconds_before, self.seconds_after) < 0 or self.seconds_before + self.seconds_after <= 0:
            raise ValueError("--seconds_before and --seconds_after must be at least 0, and not both 0")


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

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.shortlist, self.num_frames, self.max_side) < 1:
            raise ValueError("--shortlist, --num_frames and --max_side must be at least 1")
        if self.rerank is None and (self.dry_run or self.base_url or self.max_usd is not None):
            raise ValueError("--dry_run, --base_url and --max_usd are of --rerank with a chat model")
        if self.refine is None and (self.refine_vision_model or self.refine_text_model):
            raise ValueError("--refine_vision_model and --refine_text_model are of --refine")


@dataclass
class SearchConfig(TwoStepConfig, IndexModelConfig, VideosConfig, TrustConfig):
    """What to look for, where, and how to show it."""

    index: str = option("outputs/index", "Folder that index.py made, the first word, or the address of a bucket.")
    clip: str | None = option(None, "Video file with the query clip.")
    start_seconds: float | None = option(None, "Where the clip starts; none: at the beginning.")
    end_seconds: float | None = option(None, "Where it ends; none: at the end.")
    text: str | None = option(None, "What to look for, or what is different from the clip.")
    more_like: list[str] = option([], "Ids of found moments that fit: the query moves towards them.")
    less_like: list[str] = option([], "Ids of found moments that do not fit: it moves away from them.")
    limit: int = option(10, "Most moments to show.")
    min_score: float | None = option(None, "Leave out moments with a lower score: nothing may fit.")
    nothing_fits: bool = option(
        False,
        "Find nothing where no moment reaches a score that is calibrated on the index; the first such search of an "
        "index takes longer.",
    )
    where: str | None = option(None, "Condition in SQL on the moments' columns.")
    folder: str | None = option(None, "Only videos below this folder of the index.")
    approximate: bool = option(False, "Search the approximate index of index.py --approximate: faster, may miss some.")
    probes: int | None = option(
        None, "Parts of the approximate index to look into; none: twice the square root of how many it has."
    )
    exclude_same_video: bool = option(False, "Leave out moments of the file that the clip is from, and of copies.")
    group_replays: float | None = option(
        None, "Show moments of at least this cosine once, the others beneath the best: replays, copies, other cameras."
    )
    format: Literal["table", "json", "csv"] = option("table", "How moments are shown.")
    export: str | None = option(None, "New folder for the clips, a contact sheet, timelines and a playlist.")
    exact: bool = option(False, "Encode exported clips again; else copies begin at the keyframe before the moment.")
    mute: bool = option(False, "Leave the sound out of exported clips.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.limit < 1:
            raise ValueError(f"--limit must be at least 1, not {self.limit}")
        if self.probes is not None and (not self.approximate or self.probes < 1):
            raise ValueError(f"--probes {self.probes}: it is of --approximate, and at least 1")
        if self.text is not None and not self.text.strip():
            raise ValueError("--text is empty; write what to look for, or leave it out")
        if self.export is None and (self.exact or self.mute):
            raise ValueError("--exact and --mute are of --export")
        if self.nothing_fits and self.min_score is not None:
            raise ValueError("give --min_score or --nothing_fits, not both")
        if self.text is None and self.refine is not None:
            raise ValueError("--refine finds moments by a text; give --text with it")
        self.check_marks_and_groups()
        times = (self.start_seconds, self.end_seconds)
        if self.clip is None and (times != (None, None) or self.exclude_same_video):
            raise ValueError("--start_seconds, --end_seconds and --exclude_same_video are of a --clip")
        if not 0 <= (self.start_seconds or 0.0) < (float("inf") if self.end_seconds is None else self.end_seconds):
            raise ValueError(f"--start_seconds {times[0]} --end_seconds {times[1]}: it is 0 <= start < end")

    def check_marks_and_groups(self) -> None:
        """Refuse marks and groups that cannot be.

        Raises:
            ValueError: Marks contradict each other or are given without what another option needs; no cosine.
        """
        if self.group_replays is not None and not 0 < self.group_replays <= 1:
            raise ValueError(f"--group_replays must be above 0 and at most 1, not {self.group_replays:g}")
        if both := sorted(set(self.more_like) & set(self.less_like)):
            raise ValueError(f"the moment {both[0]!r} is in --more_like and in --less_like; leave it in one of them")
        is_moved = bool(self.more_like or self.less_like)
        if is_moved and self.nothing_fits:
            raise ValueError("--nothing_fits is calibrated for queries without --more_like and --less_like")
        if self.rerank is not None and is_moved and self.clip is None and self.text is None:
            raise ValueError("--rerank reads --text, --clip, or both; give one beside --more_like")


@dataclass
class TuneConfig(RunConfig, RestartConfig, DryRunConfig, ChatConfig, FramesConfig, OwnClipsConfig):
    """The clips, the model to start from, and how long to train."""

    clips: str | None = option(None, "Table of clips, the first word; none: draw an example.")
    output_dir: str = "outputs/tune"
    base: str = option(
        MINIATURE_CLIP,
        "CLIP to start from: a folder or a Hub name, such as openai/clip-vit-base-patch16. The one that ships has only "
        "seen drawn athletes.",
    )
    min_clips: int = option(50, "Refuse to tune on fewer clips.")
    validation_fraction: float = 0.2
    test_fraction: float = 0.2
    writer: Literal["rules", "chat"] = option("rules", "Who writes the texts of the changes.")
    chat_model: str | None = option(None, "Chat model of --writer chat, by the server's name for it.")
    num_frames: int = 12
    batch_size: int = option(8, "Clips per optimizer step of stage 1.")
    stage1_epochs: int | None = option(None, "Passes of stage 1 over the training clips; none: as many as they need.")
    stage2_epochs: int | None = option(None, "Passes of stage 2 over the triplets; none: as many as they need.")
    learning_rate: float | None = option(None, "Of stage 1; none: 1e-3 for the CLIP that ships, 3e-4 for others.")
    num_queries: int = option(12, "Queries that the report shows with their clips; 0: none.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.writer == "chat") != (self.chat_model is not None):
            raise ValueError("--writer chat and --chat_model NAME go together; the writer 'rules' needs no model")
        if self.max_usd is not None and not self.chat_model:
            raise ValueError("--max_usd is for --writer chat --chat_model NAME; the writer 'rules' costs nothing")
        if self.marks and not self.clips:
            raise ValueError("--marks needs the table of clips, as the first word")
        for name in ("batch_size", "num_frames", "min_clips"):
            if getattr(self, name) < 1:
                raise ValueError(f"--{name} must be at least 1, not {getattr(self, name)}")
