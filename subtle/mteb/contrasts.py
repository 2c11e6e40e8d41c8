"""VideoComp: does a model find the paragraph that fits a video nearer than one that was disrupted?

mteb's pair classification takes a video and a text (its VELOCITI does the same), so a contrast is two of its pairs.
`max_ap` compares all pairs with all others. Comprehensive accuracy, the benchmark's own metric, compares the two texts
of one video; both are reported.
"""

from collections.abc import Mapping
from typing import Any

from mteb.abstasks.pair_classification import AbsTaskPairClassification
from mteb.types import Modalities

from hf_datasets.comp import builder
from metrics.comprehensive_accuracy.scoring import comprehensive_accuracy

from .data import OnOurData, metadata_of
from .segments import segment_identity, segment_of, table


class ContrastClassification(OnOurData, AbsTaskPairClassification):
    """Pairs of a stretch of video and a paragraph: label 1 where it fits, 0 where it was disrupted.

    The two pairs of a row stand next to each other. Rows without the video's file are left out, `coverage_rows` is the
    share that is there. `accuracy_<disruption>` and their product `comprehensive_accuracy` are as VideoComp defines
    them; chance is 1/2 for each disruption.
    """

    input1_column_name: str | Mapping[str, Modalities] = {"video": "video"}
    input2_column_name: str | Mapping[str, Modalities] = {"text": "text"}
    label_column_name = "label"

    def load_data(self, num_proc: int | None = None, **_: Any) -> None:  # noqa: ARG002
        """Read the rows; no frame is decoded."""
        if self.data_loaded:
            return
        rows = list(self.rows(split=self.split))
        kept = [row for row in rows if row["video"]]
        self.check_coverage(rows, kept)
        self.disruptions = [row["disruption_type"] for row in kept]
        segments: list[Any] = [segment_of(row, "query_start_seconds", "query_end_seconds") for row in kept]
        pairs = table(
            [segment for segment in segments for _ in range(2)],
            text=[text for row in kept for text in (row["positive_text"], row["negative_text"])],
            label=[label for _ in kept for label in (1, 0)],
        )
        texts = [(row["key"], row["positive_text"], row["negative_text"]) for row in kept]
        self.set_data({self.split: pairs}, [*map(segment_identity, segments), *texts])

    def _compute_metrics(self, similarity_scores: Any, labels: list[int]) -> dict[str, float]:
        scores = super()._compute_metrics(similarity_scores, labels)
        similarities = similarity_scores["similarity_scores"]
        contrasts = [
            {"positive": positive, "negative": negative}
            for positive, negative in zip(similarities[::2], similarities[1::2], strict=True)
        ]
        measured = comprehensive_accuracy(contrasts, self.disruptions)
        own = {name.replace("/", "_"): value for name, value in measured.items() if name != "signature"}
        return scores | own | self.coverage


def contrast_metadata(name: str, description: str, date: tuple[str, str]) -> Any:
    return metadata_of(
        builder,
        name=name,
        path="google-deepmind/video_comp",
        license="cc-by-4.0",
        description=description,
        type="VideoPairClassification",
        category="v2t",
        main_score="comprehensive_accuracy",
        date=date,
        domains=["Activity", "Web"],
        task_subtypes=["Caption Pairing"],
        annotations_creators="LM-generated",
        sample_creation="multiple",
    )


class ActivityNetComp(ContrastClassification):
    """ActivityNet-Comp of VideoComp."""

    DATASET = "activitynet_comp"
    metadata = contrast_metadata(
        "ActivityNetComp",
        "Videos of ActivityNet with the paragraph of their events and one whose events were put in another order, "
        "whose actions were replaced, or that belongs to another stretch of the video.",
        ("2017-01-01", "2025-04-04"),
    )


class YouCook2Comp(ContrastClassification):
    """YouCook2-Comp of VideoComp."""

    DATASET = "youcook2_comp"
    metadata = contrast_metadata(
        "YouCook2Comp",
        "Cooking videos of YouCook2 with the paragraph of their steps and one whose steps were put in another order, "
        "whose actions were replaced, or that belongs to another stretch of the video.",
        ("2018-01-01", "2025-04-04"),
    )
