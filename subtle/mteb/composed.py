"""Composed video retrieval: a clip and a text name other clips; measured with and without the query's own clip."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.retrieval_dataset_loaders import RetrievalSplitData

from hf_datasets.sources.mteb_layout import write_mteb_layout
from hf_datasets.tfcovr import builder
from metrics.map_at_k.scoring import mean_average_precision

from .data import OnOurData, metadata_of
from .segments import segment_identity, segment_of, table

CUTS = (1, 5, 10, 25, 50)
LEFT_OUT, KEPT = "own_clip_left_out", "own_clip_kept"
MAIN_SCORE = f"map_at_50_{LEFT_OUT}"
NO_VIDEO = "name the folder of videos with video_dir, or fetch them"


class ComposedRetrieval(OnOurData, AbsTaskRetrieval):
    """The gallery is every clip of the split once, and a query's own clip is one of them.

    mteb's own scores (`ndcg_at_10`, `map_at_50`, ...) rank that clip with the others. Those of `task_specific_scores`
    say which they are: `map_at_K_own_clip_left_out` takes it out of its query's ranking before the cut, which is how
    TF-CoVR's results are published; `map_at_K_own_clip_kept` does not; `recall_at_K_...` the same. They are fractions,
    and average precision is over min(relevant, K) as in TF-CoVR. `own_clip_ranked_first` is the share of queries whose
    own clip comes first. Equal scores come as TREC ranks them, by id, descending.

    A query without its clip's file is left out, a target without one is never found; `coverage_queries`,
    `coverage_targets` and `coverage_gallery` are the shares that are there.
    """

    DATASET = "tfcovr"
    k_values = (1, 5, 10, 25, 50, 100)  # of the 100 that are ranked, 50 remain without the query's own clip

    def load_data(self, num_proc: int | None = None, **_: Any) -> None:  # noqa: ARG002
        """Read queries and clips; no frame is decoded."""
        if self.data_loaded:
            return
        clips = self.rows("-clips")
        segments = {row["clip_id"]: segment_of(row) for split in clips.values() for row in split}
        gallery = {name: segments[name] for name in clips[self.split]["clip_id"]}
        found = {name: segment for name, segment in gallery.items() if segment is not None}
        queries = [
            {**row, "target_clip_ids": [name for name in row["target_clip_ids"] if name != row["query_clip_id"]]}
            for row in self.rows(split=self.split)
        ]
        usable = [row for row in queries if segments.get(row["query_clip_id"]) and row["target_clip_ids"]]
        if not usable or not found:
            raise ValueError(
                f"{len(found)} of {len(gallery)} clips and the clips of {len(usable)} of {len(queries)} queries of "
                f"{self.dataset_name} {self.dataset_config!r} have a video; {NO_VIDEO}"
            )
        targets = [name for row in usable for name in row["target_clip_ids"]]
        self.coverage = {
            "coverage_queries": len(usable) / len(queries),
            "coverage_targets": sum(name in found for name in targets) / len(targets),
            "coverage_gallery": len(found) / len(gallery),
        }
        self.own_clips = {row["query_id"]: row["query_clip_id"] for row in usable}
        data = RetrievalSplitData(
            corpus=table(list(found.values()), id=list(found)),
            queries=table(
                [segments[row["query_clip_id"]] for row in usable],
                id=[row["query_id"] for row in usable],
                text=[row["modification_text"] for row in usable],
            ),
            relevant_docs={row["query_id"]: dict.fromkeys(row["target_clip_ids"], 1) for row in usable},
            top_ranked=None,
        )
        rows: list[Any] = [(name, segment_identity(segment)) for name, segment in found.items()]
        rows += [tuple(row[name] for name in ("query_id", "query_clip_id", "modification_text")) for row in usable]
        rows += [sorted(row["target_clip_ids"]) for row in usable]
        self.set_data({"default": {self.split: data}}, rows)

    def task_specific_scores(
        self,
        scores: dict[str, dict[str, float]],  # noqa: ARG002
        qrels: Mapping[str, Mapping[str, int]],
        results: dict[str, dict[str, float]],
        hf_split: str,  # noqa: ARG002
        hf_subset: str,  # noqa: ARG002
    ) -> dict[str, float]:
        """Average precision and recall by the project's metric, with the query's own clip left out and kept."""
        ranked = [trec_order(results[query]) for query in qrels]
        relevant = [[name for name, score in qrels[query].items() if score > 0] for query in qrels]
        own = [self.own_clips[query] for query in qrels]
        found = {
            LEFT_OUT: mean_average_precision(ranked, relevant, k=CUTS, recall=True, exclude=own),
            KEPT: mean_average_precision(ranked, relevant, k=CUTS, recall=True),
        }
        measured = {
            f"{name.replace('@', '_at_')}_{how}": value
            for how, values in found.items()
            for name, value in values.items()
            if "@" in name and name != "signature"
        }
        first = sum(ranking[:1] == [clip] for ranking, clip in zip(ranked, own, strict=True)) / len(own)
        return measured | {"own_clip_ranked_first": first} | self.coverage


def trec_order(scores: Mapping[str, float]) -> list[str]:
    """Ids by score, best first; equal scores by id, descending, as TREC's program and mteb rank them.

    Example:
        >>> trec_order({"a": 0.5, "b": 0.5, "c": 0.9})
        ['c', 'b', 'a']
    """
    return sorted(scores, key=lambda name: (scores[name], name), reverse=True)


class TFCoVR(ComposedRetrieval):
    """TF-CoVR: which clips show the query's action with the change that the text describes."""

    metadata = metadata_of(
        builder,
        name="TFCoVR",
        path="ucf-crcv/TF-CoVR",
        license="mit",
        description="Composed retrieval of temporally fine-grained videos: from a clip of gymnastics or diving and a "
        "text that changes its action, find the clips of the changed action, of which there may be many.",
        type="Any2AnyRetrieval",
        category="vt2v",
        main_score=MAIN_SCORE,
        date=("2025-01-01", "2025-06-05"),
        domains=["Sport", "Activity"],
        task_subtypes=["Cross-Modal Retrieval", "Activity recognition"],
        annotations_creators="LM-generated and reviewed",
        sample_creation="created",
        prompt={"query": "Find the video that shows this clip's action with the described change."},
    )


class ComposedBenchmark(ComposedRetrieval):
    """Any composed benchmark in mteb's layout, from a folder: `ComposedBenchmark(data_dir=FOLDER, name="CoVR-R")`.

    Args:
        dataset_config: "composed", the configuration that reads such folders.
        data_dir: The folder; `hf_datasets.sources.mteb_layout` says what is in it.
        video_dir: Folder of the videos where the files hold none.
        name: What its results are called; none: by the folder.
        options: As for the other tasks.
    """

    metadata = TFCoVR.metadata.model_copy(
        update={
            "name": "ComposedBenchmark",
            "description": "Composed video retrieval from a folder with corpus, queries and qrels.",
            "dataset": {"path": "local folder", "revision": "unloaded"},
            "reference": None,
            "license": "not specified",
            "bibtex_citation": "",
            "domains": ["Web"],
        }
    )

    def __init__(
        self,
        dataset_config: str = "composed",
        data_dir: str | None = None,
        video_dir: str | None = None,
        *,
        name: str | None = None,
        **options: Any,
    ) -> None:
        if data_dir is None:
            raise ValueError("ComposedBenchmark needs data_dir, the folder that holds corpus, queries and qrels")
        super().__init__(dataset_config, data_dir, video_dir, **options)
        called = "".join(
            letter for letter in name or Path(data_dir).resolve().name if letter.isalnum() or letter in "-_"
        )
        self.metadata = self.metadata.model_copy(update={"name": called or type(self).__name__})


def export_composed(task: ComposedRetrieval, folder: str | Path) -> None:
    """Write a composed task in mteb's layout, with the names of the videos but not the videos.

    Args:
        task: Loaded or not.
        folder: Its folder; what an earlier export wrote there is replaced.
    """
    task.load_data()
    data = task.dataset["default"][task.split]
    root = None if task.video_dir is None else Path(task.video_dir).resolve()
    parts = {part: [with_segment_columns(row, root) for row in data[part]] for part in ("corpus", "queries")}
    qrels = [
        {"query-id": query, "corpus-id": name, "score": score}
        for query, relevant in data["relevant_docs"].items()
        for name, score in relevant.items()
    ]
    write_mteb_layout(folder, parts["corpus"], parts["queries"], qrels, split=task.split)


def with_segment_columns(row: dict[str, Any], root: Path | None) -> dict[str, Any]:
    """A row with the columns of its segment: the file's name, below `root` if it is there, and the times."""
    segment, path = row["video"], Path(row["video"].path)
    name = path.relative_to(root).as_posix() if root and path.is_relative_to(root) else path.name
    times = {"start_seconds": segment.start_seconds, "end_seconds": segment.end_seconds}
    return {**row, "video": name, **times}
