"""The rows of TF-CoVR's Table 2, and of any further model: which way to make the query, and how many frames."""

from collections.abc import Sequence
from dataclasses import dataclass

from hf_models.encoders import short_name
from subtle.table.queries import WAYS, WayName

CUTS = (5, 10, 25, 50)


@dataclass(frozen=True)
class ZeroShotRow:
    """A row: a model that was not trained on the dataset, and how it is asked.

    Attributes:
        name: in the table.
        option: the option that names its model; empty for those of --models.
        way: a name of `WAYS`.
        query_frames: frames of the query's clip, 1: the middle one; None: as many as the model was made for.
        target_frames: frames of each target; None: the same.
        paper: the paper's mAP@5, 10, 25 and 50 in percent, on the release.
        model: where no option names it.
    """

    name: str
    option: str
    way: WayName
    query_frames: int | None
    target_frames: int | None
    paper: tuple[float, ...] = ()
    model: str = ""

    @property
    def modalities(self) -> str:
        """What of the query the model sees."""
        way = WAYS[self.way]
        return " + ".join(["video"] * way.reads_video + ["text"] * way.reads_text)


TABLE_2 = (
    ZeroShotRow("GME-Qwen2-VL-2B", "gme", "prompt", 1, 15, (2.28, 2.64, 3.29, 3.81)),
    ZeroShotRow("MM-Embed", "mm_embed", "prompt", 1, 15, (2.39, 2.81, 3.61, 4.14)),
    ZeroShotRow("E5-V", "e5_v", "average", 1, 15, (3.14, 3.78, 4.65, 5.22)),
    ZeroShotRow("BLIP2, text", "blip2", "text", None, 15, (1.34, 1.79, 2.20, 2.50)),
    ZeroShotRow("BLIP2, video", "blip2", "video", 1, 15, (1.74, 2.20, 3.06, 3.62)),
    ZeroShotRow("BLIP-CoVR", "blip_covr", "cross-attention", 1, 15, (2.33, 2.99, 3.90, 4.50)),
    ZeroShotRow("BLIP-CoVR-ECDE", "blip_covr_ecde", "ecde", 1, 15, (0.78, 0.88, 1.16, 1.37)),
    ZeroShotRow("TF-CVR", "tf_cvr", "captions", None, 15, (0.56, 0.76, 0.99, 1.24)),
    ZeroShotRow("LanguageBind", "languagebind", "average", None, None, (3.43, 4.37, 5.26, 5.92)),
    ZeroShotRow("AIM (k400), 8 frames", "aim_k400_8", "average", 8, 8, (3.75, 4.37, 5.47, 6.12)),
    ZeroShotRow("AIM (k400), 16 frames", "aim_k400_16", "average", 16, 16, (4.23, 5.14, 6.37, 7.13)),
    ZeroShotRow("AIM (k400), 32 frames", "aim_k400_32", "average", 32, 32, (4.22, 5.15, 6.50, 7.30)),
    ZeroShotRow("AIM (diving48), 32 frames", "aim_diving48_32", "average", 32, 32, (4.81, 5.78, 6.82, 7.51)),
)
"""As the paper prints them. LanguageBind's 8 frames are the model's own number."""


def further_rows(
    models: Sequence[str], ways: Sequence[WayName], query_frames: int | None, target_frames: int | None
) -> list[ZeroShotRow]:
    """A row for each further model and way, named after both.

    Example:
        >>> [row.name for row in further_rows(["openai/clip-vit-base-patch32"], ["average", "text"], None, None)]
        ['clip-vit-base-patch32, average', 'clip-vit-base-patch32, text']
    """
    models = list(dict.fromkeys(models))
    short = [short_name(model) for model in models]
    names = [model if short.count(name) > 1 else name for model, name in zip(models, short, strict=True)]
    return [
        ZeroShotRow(f"{name}, {way}", "", way, query_frames, target_frames, model=model)
        for model, name in zip(models, names, strict=True)
        for way in ways
    ]
