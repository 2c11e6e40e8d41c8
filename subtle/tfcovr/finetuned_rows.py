"""The rows of TF-CoVR's Table 3, models trained on its triplets, and how each differs from TF-CoVR-Base's training."""

from dataclasses import dataclass
from typing import Literal

from subtle.run.shared_config import QueryParts


@dataclass(frozen=True)
class FineTunedRow:
    """A row.

    Attributes:
        name: of the row, for flags and files.
        model: as the paper calls it.
        source: which option names the model.
        fusion: as the paper abbreviates it: a perceptron, cross attention, or none.
        query: the parts of the query that it sees.
        query_frames: of the query's clip; None: it sees none.
        target_frames: of each target.
        paper: mAP@5, 10, 25 and 50 in the paper, in percent.
        combiner: widths of CLIP4CIR's combiner, as multiples of the embedding's; None: as stage 2 is configured.
    """

    name: str
    model: str
    source: Literal["blip2_model", "clip_model", "blip_model", "pretrained_model", "vision_model"]
    fusion: Literal["-", "MLP", "CA"]
    query: QueryParts
    query_frames: int | None
    target_frames: int
    paper: tuple[float, float, float, float]
    combiner: tuple[float, float] | None = None

    @property
    def enriched(self) -> bool:
        """Whether it reads descriptions of clips."""
        return self.name == "blip-covr-ecde"

    @property
    def modalities(self) -> str:
        """What of the query the row sees, in the table's words."""
        return "video + text" if self.query == "both" else self.query


BLIP2_WIDTHS = (4.0, 8.0)  # (256, 1024, 2048)
CLIP_WIDTHS = (2.5, 5.0)  # (1024, 2560, 5120)
STAGE_2_ONLY = "TF-CoVR-Base (Stage-2 only)"
ONE: tuple[QueryParts, int, int] = ("both", 1, 15)
MANY: tuple[QueryParts, int, int] = ("both", 15, 15)
ROWS = (
    FineTunedRow(
        "blip2-text", "BLIP2", "blip2_model", "-", "text", None, 15, (10.69, 13.02, 15.35, 16.41), BLIP2_WIDTHS
    ),
    FineTunedRow("blip2-video", "BLIP2", "blip2_model", "-", "video", 1, 15, (4.86, 6.49, 8.92, 10.06), BLIP2_WIDTHS),
    FineTunedRow("clip-mlp-1", "CLIP", "clip_model", "MLP", *ONE, (7.01, 8.35, 10.22, 11.38), CLIP_WIDTHS),
    FineTunedRow("blip2-mlp-1", "BLIP2", "blip2_model", "MLP", *ONE, (10.86, 13.20, 15.38, 16.31), BLIP2_WIDTHS),
    FineTunedRow("clip-mlp-15", "CLIP", "clip_model", "MLP", *MANY, (6.40, 7.46, 9.21, 10.40), CLIP_WIDTHS),
    FineTunedRow("blip2-mlp-15", "BLIP2", "blip2_model", "MLP", *MANY, (11.64, 14.81, 16.74, 17.55), BLIP2_WIDTHS),
    FineTunedRow("blip-covr", "BLIP-CoVR", "blip_model", "CA", *ONE, (11.07, 13.94, 16.07, 16.88)),
    FineTunedRow("blip-covr-ecde", "BLIP-CoVR-ECDE", "blip_model", "CA", *ONE, (13.03, 15.90, 18.62, 19.83)),
    FineTunedRow("stage-2-only", STAGE_2_ONLY, "pretrained_model", "MLP", "both", 8, 8, (15.08, 18.70, 21.78, 22.61)),
    FineTunedRow("tf-covr-base", "TF-CoVR-Base", "vision_model", "MLP", "both", 12, 12, (21.85, 24.23, 26.47, 27.22)),
)
