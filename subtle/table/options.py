"""The options of a table, by the kind of its rows; imports nothing that takes long."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from subtle.commands import find_config
from subtle.options import is_yaml, option
from subtle.run.model_folders import MINIATURE_AIM, MINIATURE_CLIP, MINIATURE_VIDCLIP
from subtle.run.shared_config import (
    BuildConfig,
    CaptionFormConfig,
    CaptionsConfig,
    ChatFramesConfig,
    DataConfig,
    DryRunConfig,
    EmbeddingsConfig,
    FrameCacheConfig,
    GalleryConfig,
    MachineConfig,
    ModelsConfig,
    ReadingConfig,
    RunConfig,
    SampleConfig,
    SeedConfig,
    SeedsConfig,
    ShardsConfig,
    SplitConfig,
    TrustConfig,
)
from subtle.tfcovr.finetuned_rows import ROWS
from subtle.train.options import Stage2Config

Kind = Literal["zero_shot", "finetune_baseline", "ablate", "describe_and_rerank"]


@dataclass
class KindConfig(SplitConfig):
    """The kind of rows, which decides the other options."""

    kind: Kind = option("zero_shot", "Kind of rows; first in a table's YAML file.")


@dataclass
class TableConfig(KindConfig, DryRunConfig):
    """The rows to measure, and those of other machines."""

    rows: list[str] | None = option(None, "Rows to measure now, by name; none: all.")
    merge: list[str] = option([], "Output folders of other machines, whose rows join the table.")


@dataclass
class RetrievalConfig(MachineConfig, GalleryConfig, ShardsConfig, TrustConfig, DataConfig):
    """What is ranked, and how clips and texts are encoded for it."""

    target_frames: int | None = option(None, "Frames of a target; none: as many as the model was made for.")

    def check_numbers(self, *names: str) -> None:
        """Refuse numbers that must be above 0: those here, and those of these names."""
        for name in (*names, "target_frames", "batch_size", "shard_size"):
            if getattr(self, name) is not None and getattr(self, name) <= 0:
                raise ValueError(f"--{name} is {getattr(self, name)}; it must be above 0")


@dataclass
class RowModelsConfig:
    """The model of each row of Table 2: a folder or a name on the Hub; none: the row is not measured."""

    gme: str | None = option(None, "GME-Qwen2-VL-2B.")
    mm_embed: str | None = option(None, "MM-Embed, converted by hf_models.encoders.convert_mmembed.")
    e5_v: str | None = option(None, "E5-V.")
    blip2: str | None = option(None, "BLIP-2 for retrieval, of two rows.")
    blip_covr: str | None = option(None, "BLIP-CoVR, converted by hf_models.encoders.convert_covr.")
    blip_covr_ecde: str | None = option(None, "BLIP-CoVR-ECDE, converted by hf_models.encoders.convert_covr.")
    tf_cvr: str | None = option(MINIATURE_CLIP, "Model of videos and texts that finds TF-CVR's rewritten captions.")
    languagebind: str | None = option(None, "LanguageBind, converted by hf_models.encoders.convert_languagebind.")
    aim_k400_8: str | None = option(MINIATURE_AIM, "AIM for 8 frames, converted by hf_models.tfcovr.convert_aim.")
    aim_k400_16: str | None = option(MINIATURE_AIM, "AIM for 16 frames; another number of frames is stretched.")
    aim_k400_32: str | None = option(MINIATURE_AIM, "AIM for 32 frames.")
    aim_diving48_32: str | None = option(None, "AIM for 32 frames, trained on Diving48.")
    aim_text: str | None = option(
        MINIATURE_CLIP, "CLIP that these AIM were built on, whose text tower reads the text; none: AIM reads no text."
    )


@dataclass
class ZeroShotConfig(
    TableConfig, SeedConfig, RowModelsConfig, RetrievalConfig, ModelsConfig, ReadingConfig, CaptionsConfig
):
    """Which rows to measure, on what, and how."""

    models: list[str] = field(default_factory=lambda: [MINIATURE_CLIP, MINIATURE_VIDCLIP])
    ways: list[Literal["average", "text", "video", "prompt", "cross-attention", "ecde", "captions"]] = option(
        ["average", "text", "video"], "Ways to make the query of --models."
    )
    rewritten: str | None = option(
        None, "Table of query_id, target_caption that says what to find; none: label captions."
    )
    query_frames: int | None = option(
        None, "Frames of a query's clip for --models; 1: the middle frame; none: as many as the model was made for."
    )
    output_dir: str = "outputs/zero_shot"

    def __post_init__(self) -> None:
        if self.models == ["none"]:
            self.models = []
        self.check_numbers("query_frames")


ROW_NAMES = [row.name for row in ROWS]
BY_THE_ROW = ("end_to_end", "query", "query_frames", "project_text")


@dataclass
class TrainedRowsConfig(TableConfig, SeedsConfig):
    """The kind of rows, which decides the other options."""

    stage1_config: str | None = option(None, "YAML file of stage1.py for what stage 1 trains; none: its defaults.")

    def __post_init__(self) -> None:
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"--seeds must be different numbers, at least one, not {self.seeds}")


@dataclass
class FinetuneConfig(TrainedRowsConfig, Stage2Config, CaptionsConfig):
    """What is trained and measured; the options of stage 2 below hold for all rows."""

    kind: Kind = "finetune_baseline"
    clip_model: str | None = option(MINIATURE_CLIP, "CLIP of its two rows: a folder or a name on the Hub; none: none.")
    blip2_model: str | None = option(
        "random", "BLIP-2 of its four rows; random: a small one without training, made here; none: none."
    )
    blip_model: str | None = option("random", "BLIP for retrieval of the two rows with cross attention; likewise.")
    pretrained_model: str | None = option(
        MINIATURE_CLIP, "Video or image encoder of stage-2-only, without stage 1; none: none."
    )
    output_dir: str = "outputs/finetune_baseline"

    def __post_init__(self) -> None:
        super().__post_init__()
        Stage2Config.__post_init__(self)
        unknown = [name for name in self.rows or () if name not in ROW_NAMES]
        if unknown:
            raise ValueError(f"there is no row {unknown[0]!r}; there are {', '.join(ROW_NAMES)}")
        standard = Stage2Config()
        for name in BY_THE_ROW:
            if getattr(self, name) != getattr(standard, name):
                raise ValueError(f"--{name} is decided by each row here; leave it out, or use stage2.py")


MINIATURE_VARIATIONS = {
    "beta 0.0": {"loss": "hn_nce", "beta": 0.0},
    **{f"beta {beta}": {"loss": "hn_nce", "beta": beta} for beta in (0.3, 0.5, 0.7)},
    "text encoder CLIP": {"loss": "hn_nce", "text_model": MINIATURE_CLIP, "against": None},
    "text encoder VidCLIP": {"loss": "hn_nce", "text_model": MINIATURE_VIDCLIP, "against": "text encoder CLIP"},
}


@dataclass
class AblateConfig(TrainedRowsConfig, RunConfig, EmbeddingsConfig, FrameCacheConfig, DataConfig):
    """What to vary, on what, and how often."""

    kind: Kind = "ablate"
    variations: dict[str, Any] = option(
        MINIATURE_VARIATIONS, "Rows: {name: {option: value, stage1: {option: value}, against: name}}."
    )
    stage2_config: str | None = option(None, "YAML file of stage2.py that all variations start from.")
    title: str = option("Ablation", "Title of the table.")
    seeds: list[int] = field(default_factory=lambda: [0, 1, 2, 3, 4])
    stage1_per_seed: bool = option(False, "Train stage 1 with each seed, too, instead of once.")
    shuffled: bool = option(False, "Measure each model on shuffled frames, too.")
    output_dir: str = "outputs/ablation"


@dataclass
class DescribeAndRerankConfig(
    KindConfig, BuildConfig, SampleConfig, CaptionFormConfig, ChatFramesConfig, RetrievalConfig
):
    """What writes the descriptions, what retrieves, what re-ranks, and on what it is measured."""

    kind: Kind = "describe_and_rerank"
    describe: Literal["frames", "captions"] = option(
        "frames",
        "What the target's description is written from: frames of the query clip with the modification text; or the "
        "clip's caption, which is rewritten, in two requests.",
    )
    encoder: str = option(MINIATURE_CLIP, "Model of videos and texts that retrieves: a folder or a name on the Hub.")
    shortlist: int = option(20, "Clips of each query that are re-ranked; 0: no re-ranking.")
    rewritten: str | None = option(None, "Table of query_id, target_caption to take as descriptions; none: ask.")
    reranker: str | None = option(None, "Another chat model that re-ranks; none: --model.")
    matcher: str | None = option(
        None, "Cross-encoder that re-ranks on this machine, a VidCLIP matcher or BLIP: a folder; none: a chat model."
    )
    num_frames: int = 8
    max_output_tokens: int = 160
    output_dir: str = "outputs/describe_and_rerank"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_numbers("max_queries", "num_frames", "max_side")
        if self.matcher and self.reranker:
            raise ValueError("--matcher and --reranker both re-rank: give one of them")
        if self.reranker and not self.model:
            raise ValueError("--reranker is another chat model beside --model: name that one, too")
        if self.shortlist < 0:
            raise ValueError(f"--shortlist is {self.shortlist}; it is a number of clips, 0 for no re-ranking")


TABLE_KINDS: dict[str, type[KindConfig]] = {
    "zero_shot": ZeroShotConfig,
    "finetune_baseline": FinetuneConfig,
    "ablate": AblateConfig,
    "describe_and_rerank": DescribeAndRerankConfig,
}


def options_of_kind(words: Sequence[str]) -> type[KindConfig]:
    """The options of the kind that a command line or its YAML file names; what is wrong is said when they are read.

    >>> options_of_kind(["--kind", "ablate"]).__name__, options_of_kind(["--kind=typo"]).__name__
    ('AblateConfig', 'ZeroShotConfig')
    """
    kind: Any = None
    for place, word in enumerate(words):
        if word == "--kind" or word.startswith("--kind="):
            kind = word.partition("=")[2] or "".join(words[place + 1 : place + 2])
    if kind is None and words and is_yaml(words[0]):
        try:
            kind = yaml.safe_load(find_config(Path(words[0])).read_text(encoding="utf-8"))["kind"]
        except (yaml.YAMLError, ValueError, OSError, RecursionError, TypeError, KeyError):
            kind = None
    return TABLE_KINDS.get(str(kind), ZeroShotConfig)
