"""VERIFIED's fine-grained captions as retrieval of videos and of moments.

Retrieval of moments in a corpus finds a video and a stretch of it together; mteb's retrieval ranks a fixed corpus. Its
two halves fit: the caption against the whole videos of a split (`...Videos`, the benchmark's VR), and against all
annotated moments of the split as clips (`...Moments`), where other moments of the same video are the hard negatives.
The spans that a model of moments would propose are measured by `evaluate vcmr`.
"""

from typing import Any, Literal

from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.retrieval_dataset_loaders import RetrievalSplitData

from hf_datasets.fig import builder

from .data import OnOurData, metadata_of
from .segments import Segment, segment_identity, table


class CaptionRetrieval(OnOurData, AbsTaskRetrieval):
    """One relevant document for each fine-grained caption, as the benchmark counts.

    Ends that are annotated beyond their video are cut to it. Rows without the video's file are left out;
    `coverage_rows` is the share that is there.
    """

    CORPUS: Literal["videos", "moments"]
    k_values = (1, 5, 10, 100)

    def load_data(self, num_proc: int | None = None, **_: Any) -> None:  # noqa: ARG002
        """Read captions and videos; no frame is decoded."""
        if self.data_loaded:
            return
        videos = self.rows("-videos", self.split)
        paths = dict(zip(videos["video_id"], videos["video"], strict=True))
        rows = list(self.rows(split=self.split, clip_to_duration=True))
        kept = [row for row in rows if paths.get(row["video_id"])]
        self.check_coverage(rows, kept)
        documents: dict[str, Segment] = {}
        if self.CORPUS == "videos":
            documents = {video_id: Segment(path) for video_id, path in paths.items() if path}
        relevant = {}
        for row in kept:
            document = row["video_id"]
            if self.CORPUS == "moments":
                document += f" {row['start_seconds']}-{row['end_seconds']}"
                documents[document] = Segment(paths[row["video_id"]], row["start_seconds"], row["end_seconds"])
            relevant[f"{row['video_id']}/{row['desc_id']}"] = {document: 1}
        captions = {f"{row['video_id']}/{row['desc_id']}": row["fine_caption"] for row in kept}
        data = RetrievalSplitData(
            corpus=table(list(documents.values()), id=list(documents)),
            queries=table(id=list(captions), text=list(captions.values())),
            relevant_docs=relevant,
            top_ranked=None,
        )
        rows = [(name, segment_identity(segment)) for name, segment in documents.items()]
        self.set_data({"default": {self.split: data}}, [*rows, *captions.items(), *relevant.items()])

    def task_specific_scores(self, *_: Any, **__: Any) -> dict[str, float]:
        """The coverage; recall@K is mteb's own."""
        return dict(self.coverage)


def caption_metadata(name: str, source: str, corpus: str) -> Any:
    return metadata_of(
        builder,
        name=name,
        path="hlchen23/VERIFIED",
        license="cc-by-4.0",  # as the authors' document says; the repository has no license file
        description=f"Fine-grained captions of moments in the videos of {source}; the {corpus} is to be found among "
        f"all {corpus}s of the split.",
        type="Any2AnyRetrieval",
        category="t2v",
        main_score="recall_at_1",
        date=("2024-01-01", "2024-10-11"),
        domains=["Activity", "Scene"],
        task_subtypes=["Cross-Modal Retrieval"],
        annotations_creators="LM-generated",
        sample_creation="LM-generated and verified",
        prompt={"query": f"Find the {corpus} that shows what the text describes."},
    )


class CharadesFIGVideos(CaptionRetrieval):
    """Charades-FIG: which video a caption belongs to."""

    DATASET, CORPUS = "charades_fig", "videos"
    metadata = caption_metadata("CharadesFIGVideos", "Charades", "video")


class CharadesFIGMoments(CaptionRetrieval):
    """Charades-FIG: which of all moments a caption belongs to."""

    DATASET, CORPUS = "charades_fig", "moments"
    metadata = caption_metadata("CharadesFIGMoments", "Charades", "moment")


class DiDeMoFIGVideos(CaptionRetrieval):
    """DiDeMo-FIG: which video a caption belongs to."""

    DATASET, CORPUS = "didemo_fig", "videos"
    metadata = caption_metadata("DiDeMoFIGVideos", "DiDeMo", "video")


class DiDeMoFIGMoments(CaptionRetrieval):
    """DiDeMo-FIG: which of all moments a caption belongs to."""

    DATASET, CORPUS = "didemo_fig", "moments"
    metadata = caption_metadata("DiDeMoFIGMoments", "DiDeMo", "moment")


class ActivityNetFIGVideos(CaptionRetrieval):
    """ActivityNet-FIG: which video a caption belongs to."""

    DATASET, CORPUS = "activitynet_fig", "videos"
    metadata = caption_metadata("ActivityNetFIGVideos", "ActivityNet", "video")


class ActivityNetFIGMoments(CaptionRetrieval):
    """ActivityNet-FIG: which of all moments a caption belongs to."""

    DATASET, CORPUS = "activitynet_fig", "moments"
    metadata = caption_metadata("ActivityNetFIGMoments", "ActivityNet", "moment")
