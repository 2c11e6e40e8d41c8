"""Triplets: written, joined and read, against `Dataset.from_generator`, dictionaries and `eval`."""

import ast
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import datasets
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from datasets import Dataset, Features, load_dataset
from datasets.builder import Key

from benchmarks.timing import Ratio, interleave, peak_megabytes, resident_megabytes
from hf_datasets.tfcovr.labels import answers_of, load_labels
from hf_datasets.tfcovr.release import read_released_triplets
from hf_datasets.tfcovr.triplets import CHANGE_SCHEMA, TRIPLET_SCHEMA, join_clips, plan_join, train_triplets

FEATURES = Features.from_arrow_schema(TRIPLET_SCHEMA)


def corpus(num_clips: int, num_changes: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Clips with long-tailed labels, as FineGym's, and random changes between labels that do not read the same."""
    generator = np.random.default_rng(0)
    labels = np.array([label.label_id for label in load_labels()])
    weights = 1 / np.arange(1, len(labels) + 1) ** 0.7
    clip_labels = generator.choice(labels, num_clips, p=weights / weights.sum())
    clip_ids = [f"A0xAXXysHUo_E_002184_002237_A_{number:04}_{number + 1:04}" for number in range(num_clips)]
    pairs = dict.fromkeys(map(tuple, generator.choice(labels, (2 * num_changes, 2)).tolist()))
    answers = answers_of()
    distinct = [(a, b) for a, b in pairs if answers[a] != answers[b]][:num_changes]
    rows = [
        (a, b, "temporal", f"show with 2.5 twists and {number % 7} somersaults")
        for number, (a, b) in enumerate(distinct)
    ]
    clips = pl.DataFrame({"clip_id": clip_ids, "label": clip_labels})
    return clips, pl.DataFrame(rows, schema=CHANGE_SCHEMA, orient="row")


def dictionaries(clips: pl.DataFrame, changes: pl.DataFrame) -> Iterator[dict[str, str]]:
    """The triplets of `join_clips` by loops, a Python dictionary each."""
    by_label, by_answer, answers = defaultdict(list), defaultdict(list), answers_of()
    for clip_id, label in clips.select("clip_id", "label").iter_rows():
        by_label[label].append(clip_id)
        by_answer[answers[label]].append(clip_id)
    distinct: dict[tuple[str, str], str] = {}
    for source, target, _, text in changes.iter_rows():
        distinct.setdefault((source, answers[target]), text)
    for (source, answer), text in distinct.items():
        for query in by_label[source]:
            for target in by_answer[answer]:
                yield {"query": query, "target": target, "text": text}


def rows(clips: pl.DataFrame, changes: pl.DataFrame) -> Iterator[dict[str, object]]:
    """The same triplets as rows of the dataset."""
    labels = dict(clips.select("clip_id", "label").iter_rows())
    for number, triplet in enumerate(dictionaries(clips, changes)):
        yield {
            "query_id": f"train-{number}",
            "query_clip_id": triplet["query"],
            "query_label": labels[triplet["query"]],
            "modification_text": triplet["text"],
            "change_type": "temporal",
            "target_clip_ids": [triplet["target"]],
            "target_label": labels[triplet["target"]],
        }


class Tables(datasets.ArrowBasedBuilder):
    """A builder that is given the tables of `train_triplets`, as ours is."""

    def __init__(self, clips: pl.DataFrame, changes: pl.DataFrame, **kwargs: object) -> None:
        self.tables = train_triplets(clips, changes)
        super().__init__(**kwargs)

    def _info(self) -> datasets.DatasetInfo:
        return datasets.DatasetInfo(features=FEATURES)

    def _split_generators(self, _: object) -> list[datasets.SplitGenerator]:
        return [datasets.SplitGenerator(name="train", gen_kwargs={})]

    def _generate_tables(self) -> Iterator[tuple[Key, pa.Table]]:
        for number, table in enumerate(self.tables()):
            yield Key(0, number), table


def ours(folder: Path, clips: pl.DataFrame, changes: pl.DataFrame) -> Dataset:
    shutil.rmtree(folder, ignore_errors=True)
    builder = Tables(clips, changes, cache_dir=str(folder))
    builder.download_and_prepare()
    return builder.as_dataset(split="train")


def from_generator(folder: Path, clips: pl.DataFrame, changes: pl.DataFrame) -> Dataset:
    shutil.rmtree(folder, ignore_errors=True)
    return Dataset.from_generator(
        partial(rows, clips, changes), features=FEATURES, cache_dir=str(folder), fingerprint="benchmark"
    )


def from_parquet(folder: Path, path: Path) -> Dataset:
    shutil.rmtree(folder, ignore_errors=True)
    return load_dataset("parquet", data_files=str(path), cache_dir=str(folder), split="train")


def into_a_dataset(scratch: Path) -> Iterator[Ratio]:
    clips, changes = corpus(3_330, 1_500)
    pq.write_table(pa.concat_tables(train_triplets(clips, changes)()), scratch / "triplets.parquet")
    ways = {
        "ours": partial(ours, scratch / "ours", clips, changes),
        "generator": partial(from_generator, scratch / "generator", clips, changes),
        "parquet": partial(from_parquet, scratch / "parquet", scratch / "triplets.parquet"),
    }
    built = {name: way() for name, way in ways.items()}
    count = len(built["ours"])
    if built["ours"][:] != built["generator"][:]:
        raise AssertionError("the two ways give different triplets")
    seconds = interleave(ways, rounds=3)
    what = f"{count:,} triplets into a dataset"
    detail = f"{seconds['ours'] * 1e3:.0f} ms"
    yield Ratio(what, "Dataset.from_generator", seconds["generator"] / seconds["ours"], 10, detail=detail)
    yield Ratio(what, 'load_dataset("parquet") cold', seconds["ours"] / seconds["parquet"], 1.5, True, detail)


def joined_megabytes() -> float:
    """Peak memory that a join of ten million adds, in MB; measured in a process of its own."""
    clips, changes = corpus(24_700, 1_500)
    next(join_clips(plan_join(clips.head(500), changes)))
    before = resident_megabytes()
    list(join_clips(plan_join(clips, changes)))
    return peak_megabytes() - before


def joined() -> Iterator[Ratio]:
    clips, changes = corpus(24_700, 1_500)
    count = sum(map(len, join_clips(plan_join(clips, changes))))
    seconds = interleave(
        {
            "ours": lambda: list(join_clips(plan_join(clips, changes))),
            "dictionaries": lambda: list(dictionaries(clips, changes)),
        },
        rounds=3,
    )
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        megabytes = pool.submit(joined_megabytes).result()
    what = f"{count / 1e6:.1f} million triplets joined"
    detail = f"{seconds['ours'] * 1e3:.0f} ms"
    yield Ratio(what, "Python dictionaries", seconds["dictionaries"] / seconds["ours"], 10, detail=detail)
    yield Ratio("extra memory of that join", "200 MB", megabytes / 200, 1, True, f"{megabytes:.0f} MB")


def official_way(path: Path) -> list[tuple[str, str, str]]:
    """As the authors' loader reads its csv, with `literal_eval` where it has `eval`."""
    table = pd.read_csv(path, dtype=str)
    texts = table["modification"].apply(ast.literal_eval)
    return [
        (query, target, text[label]["modification"])
        for query, target, label, text in zip(
            table["query_video"], table["target_video"], table["label2"], texts, strict=True
        )
    ]


def release_read(scratch: Path) -> Iterator[Ratio]:
    clips, changes = corpus(3_330, 1_500)
    table = pl.concat(pl.from_arrow(table) for table in train_triplets(clips, changes)())
    written = table.select(
        pl.col("query_clip_id").alias("query_video"),
        pl.col("target_clip_ids").list.first().alias("target_video"),
        pl.col("query_label").alias("label1"),
        pl.col("target_label").alias("label2"),
        pl.concat_str(
            pl.lit("{'"), "target_label", pl.lit("': {'modification': '"), "modification_text", pl.lit("'}}")
        ).alias("modification"),
    )
    written.write_csv(scratch / "train_finegd.csv")
    queries = {"query_id": ["0"], "query_video": ["a"], "modification": ["show"], "target_video": ["b"]}
    pl.DataFrame(queries | {"target_videos_ids": ["['b']"]}).write_csv(scratch / "test_finegd.csv")
    (frames, refused), texts = read_released_triplets(scratch), official_way(scratch / "train_finegd.csv")
    if refused or frames["train"]["modification_text"].to_list() != [text for *_, text in texts]:
        raise AssertionError("the two ways read different texts")
    seconds = interleave(
        {
            "ours": partial(read_released_triplets, scratch),
            "official": partial(official_way, scratch / "train_finegd.csv"),
        },
        rounds=3,
    )
    detail = f"{seconds['ours'] * 1e3:.0f} ms, checks included"
    yield Ratio(
        f"{len(table):,} rows of the release read",
        "pandas, a literal per row",
        seconds["official"] / seconds["ours"],
        detail=detail,
    )


def measure() -> Iterator[Ratio]:
    """Compare building, joining and reading with what users do today."""
    datasets.disable_progress_bars()
    with tempfile.TemporaryDirectory() as scratch:
        yield from into_a_dataset(Path(scratch))
        yield from release_read(Path(scratch))
    yield from joined()
