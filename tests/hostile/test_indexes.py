"""Indexes and tables from anyone: each is refused in one line or used, and what a search finds is what its rows say."""

import io
import json
import random
import shutil
import traceback
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from unittest.mock import patch

import datasets
import lancedb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from colored_videos import write_colored_video
from small_index import build_index

from hf_datasets.footage.moments import read_moments
from hf_datasets.tfcovr.own_clips import read_own_clips
from hf_models.index.store import MomentIndex
from subtle.footage import index, models, search, tune
from subtle.footage.options import IndexConfig, SearchConfig, TuneConfig
from subtle.index import Index
from subtle.options import run_recipe
from subtle.service.index_search import IndexSearch
from tests.fixtures.mutations import TOKENS, mutated_json, mutated_text
from tests.fixtures.odd_values import LONG_RUN
from tests.hostile.tables import HangError, Outcomes, time_limit

INDEXES, TABLES = LONG_RUN // 4, LONG_RUN // 40
SECONDS = 30
STRINGS = [
    *(None, "", " ", "a\0b", "\x1b[31m", "../../etc/passwd", "/etc/passwd", "/", ".", "x" * 100_000, "[]", "{}"),
    *("null", "1", "{", "[" * 50_000, '{"files": 3}', '{"num_frames": -1}', '{"num_frames": 1e99}'),
    *("\u202e", "s3://a/b"),
    *("first/one.mp4", "first/ONE.mp4", "owner/model", "'; --", "\r\n", '"', "indexed", "quarantined"),
]
FLOATS = [None, float("nan"), float("inf"), -float("inf"), -1.0, -0.0, 0.0, 1e-300, 1e300, 1e7, 3.0]
INTEGERS = [None, -1, 0, 1, 2, 7, 2**31, 2**62, -(2**62)]
TIMES = [None, datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)]

pytestmark = [pytest.mark.hostile, pytest.mark.timeout(3600)]


def outcome(call):
    """How a call ended, what it printed, and where it failed."""
    out, err = io.StringIO(), io.StringIO()
    try:
        with time_limit(SECONDS), redirect_stdout(out), redirect_stderr(err):
            status = call()
    except HangError:
        return "hang", "", traceback.format_exc()
    except SystemExit as stop:
        status = 2
        err.write(f"error: {stop.code}\n")
    except BaseException:
        return "traceback", "", traceback.format_exc()
    if status in {0, 1}:
        return "works", out.getvalue(), ""
    lines = [line for line in err.getvalue().splitlines() if line.startswith(("error: ", "too little: "))]
    is_clear = status == 2 and lines and max(map(len, lines)) < 5000 and "\x1b" not in "".join(lines)
    return "clear error" if is_clear else "traceback", "", f"status {status}: {err.getvalue()[-2000:]}"


@pytest.fixture(scope="module")
def small(tiny, tmp_path_factory):
    """An index of 16 moments, its tables and its encoder."""
    folder = tmp_path_factory.mktemp("hostile-index")
    config = build_index(tiny, folder)
    opened = MomentIndex(config.output)
    names = ["models", f"moments_{opened.active.key}", f"files_{opened.active.key}"]
    tables = {name: opened.database.open_table(name).to_arrow() for name in names}
    encoder, load = models.load_again(opened.active, "cpu"), models.load_encoder
    with pytest.MonkeyPatch.context() as patch:  # loading it takes longer than all else
        patch.setattr(
            models, "load_encoder", lambda name, *rest, **o: encoder if name == config.model else load(name, *rest, **o)
        )
        yield config, tables, encoder


def with_other_cells(dice, table):
    """A table of which up to three cells have other values."""
    rows = table.to_pylist()
    whole = {value for row in rows for value in row.values() if isinstance(value, str) and value[:1] == "{"}
    for _ in range(dice.randint(1, 3)):
        row = dice.choice(rows)
        field = dice.choice(list(table.schema))
        value = row[field.name]
        if pa.types.is_string(field.type):
            text = (
                mutated_json(dice, json.loads(value))
                if value in whole and dice.random() < 0.7
                else dice.choice(STRINGS)
            )
            row[field.name] = text if text is None else text.encode("utf-8", "replace").decode()
        elif pa.types.is_floating(field.type):
            row[field.name] = dice.choice(FLOATS)
        elif pa.types.is_integer(field.type):
            row[field.name] = dice.choice(INTEGERS)
        elif pa.types.is_timestamp(field.type):
            row[field.name] = dice.choice(TIMES)
        else:
            other = [dice.choice([float("nan"), float("inf"), 0.0, 3e38])] * field.type.list_size
            row[field.name] = dice.choice([None, other, value])
        if dice.random() < 0.1:
            rows.append(dict(row))
        if dice.random() < 0.05:
            rows = rows[:1]
    kept = [
        field.with_nullable(True).remove_metadata() if any(row[field.name] is None for row in rows) else field
        for field in table.schema
    ]  # a column that may not be empty is not written empty
    return pa.Table.from_pylist(rows, schema=pa.schema(kept))


def with_other_columns(dice, table):
    """A table that lacks a column, or has it under another name or of another type; or has no rows."""
    place = dice.randrange(table.num_columns)
    name = table.column_names[place]
    match dice.randrange(5):
        case 0:
            return table.drop_columns([name])
        case 1:
            return table.rename_columns([f"{one}_" if one == name else one for one in table.column_names])
        case 2:
            return table.set_column(place, name, pa.array([dice.choice([1, 1.5, "1", None, b"1"])] * len(table)))
        case 3:
            return table.append_column(dice.choice(["extra", "_distance", "score"]), pa.array([1] * len(table)))
        case _:
            return table.slice(0, 0)


def write_index(dice, folder, tables):
    """The tables as they are then stored: what is no vector becomes one without numbers, or none."""
    database = lancedb.connect(str(folder))
    bad = {"on_bad_vectors": dice.choice(["null", "fill"]), "fill_value": float("nan")}
    return {name: database.create_table(name, table, **bad).to_arrow() for name, table in tables.items()}


def mutated(dice, tables):
    """Tables of which one or two are not as they were; or one is missing."""
    made = dict(tables)
    for name in dice.sample(list(made), dice.choice([1, 1, 2])):
        if dice.random() < 0.05:
            del made[name]
        else:
            made[name] = (with_other_cells if dice.random() < 0.8 else with_other_columns)(dice, made[name])
    return made


def expected(tables, query, limit):
    """The scores of the best moments, by a product of their vectors; none where one cannot be scored."""
    rows = next(table for name, table in tables.items() if name.startswith("moments_")).to_pylist()
    vectors = [row["vector"] for row in rows]
    if not all(vector and np.abs(vector).max() < 1e30 for vector in vectors):
        return None
    return sorted((float(np.float32(vector) @ query) for vector in vectors), reverse=True)[:limit]


def searched(dice, config, tables, encoder, folder):
    """A search; its result is what the rows say."""
    is_plain = dice.random() < 0.7
    asked = SearchConfig(
        index=str(folder),
        text="show red",
        device="cpu",
        limit=dice.choice([1, 5, 100]),
        format="json" if is_plain else dice.choice(["table", "csv", "json"]),
        where=None if is_plain else mutated_text(dice, ["label = 'red'", "end_seconds - start_seconds < 8", *TOKENS]),
    )
    how, out, why = outcome(lambda: run_recipe(search.main, asked))
    if how == "works" and is_plain:
        found = [row["score"] for row in json.loads(out)]
        scores = expected(tables, encoder.query(text="show red"), asked.limit)
        if scores is None or len(found) != len(scores) or not np.allclose(found, scores, atol=1e-4):
            return "wrong", f"{found} is not {scores}"
    return how, why


def exported(dice, config, tables, encoder, folder):
    """An export, which stays in its folder."""
    out = folder.parent / "exported"
    asked = SearchConfig(index=str(folder), text="show red", device="cpu", limit=3, export=str(out))
    asked = replace(asked, video_dir=dice.choice([None, config.video_dir]))
    before = {path for path in folder.parent.rglob("*") if folder not in path.parents}
    how, _, why = outcome(lambda: run_recipe(search.main, asked))
    after = {path for path in folder.parent.rglob("*") if folder not in path.parents and out not in path.parents}
    shutil.rmtree(out, ignore_errors=True)
    return ("wrong", f"wrote {after - before}") if after - before - {out} else (how, why)


def calibrated(dice, config, tables, encoder, folder):
    clip = {"clip": f"{config.video_dir}/first/one.mp4", "start_seconds": 0.0, "end_seconds": 1.0}
    cache = folder.parent / "cache"
    asked = SearchConfig(index=str(folder), device="cpu", nothing_fits=True, **clip)
    with patch.object(datasets.config, "HF_DATASETS_CACHE", cache):
        how, _, why = outcome(lambda: run_recipe(search.main, asked))
    shutil.rmtree(cache, ignore_errors=True)
    return how, why


def updated(dice, config, tables, encoder, folder):
    asked = replace(config, output=str(folder), retry=dice.random() < 0.5)
    if dice.random() < 0.5:
        asked = IndexConfig(output=str(folder), activate=dice.choice(["model", "none", "../x"]))
    how, _, why = outcome(lambda: run_recipe(index.main, asked))
    return how, why


def shown(dice, config, tables, encoder, folder):
    """What the page reads; it tells these errors in a line."""

    def look():
        try:
            opened = Index(folder, device="cpu")
            opened.encoder = encoder
            page = IndexSearch(opened, None)
            page.folders_and_labels()
            rows, number = page.choices(dice.choice(["", "red", "'", "%"]), 24)
            assert number >= len(rows)
            page.find(None, "show red", limit=12, folder=dice.choice([None, "first"]))
        except (ValueError, OSError):
            return 2
        return 0

    how, _, why = outcome(look)
    return ("clear error", "") if why.startswith("status 2") else (how, why)


VERBS = [searched] * 14 + [shown] * 3 + [updated] * 2 + [exported, calibrated]


def test_an_index_from_anyone_is_refused_in_one_line_or_searched(small, tmp_path, record_property):
    config, tables, encoder = small
    found = Outcomes("indexes")
    for seed in range(INDEXES):
        dice = random.Random(seed)
        folder, made = tmp_path / "case" / "index", mutated(dice, tables)
        made = write_index(dice, folder, made)
        verb = dice.choice(VERBS)
        how, why = verb(dice, config, made, encoder, folder)
        found.note(how, f"{seed}, {verb.__name__}\n{why[-1200:]}")
        shutil.rmtree(folder.parent)
    found.end(record_property)


def write_table(dice, folder):
    """A table of clips in any format, some of its cells or of its bytes mutated."""
    rows = [
        {"video": f"v{number // 4}.mp4", "start_seconds": 2.0 * (number % 4), "end_seconds": 2.0 * (number % 4) + 2}
        | {"label": ("vault", "dive with 2 turns", "roll", "jump")[number % 4], "description": "", "split": None}
        for number in range(60)
    ]
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    for _ in range(dice.randint(0, 3)):
        name = dice.choice(list(columns))
        columns[name] = [str(value) if value is not None else None for value in columns[name]]
        columns[name][dice.randrange(60)] = dice.choice([*STRINGS, *map(str, FLOATS + INTEGERS)])
    if dice.random() < 0.2:
        del columns[dice.choice(list(columns))]
    path = folder / f"clips{dice.choice(['.csv', '.tsv', '.jsonl', '.parquet'])}"
    table = pl.DataFrame(columns, strict=False)
    if path.suffix == ".parquet":
        table.write_parquet(path)
    elif path.suffix == ".jsonl":
        table.write_ndjson(path)
    else:
        table.write_csv(path, separator="\t" if path.suffix == ".tsv" else ",")
    if dice.random() < 0.4:
        content = bytearray(path.read_bytes())
        for _ in range(dice.randint(1, 4)):
            place = dice.randrange(len(content))
            content[place : place + dice.choice([0, 1, 1, 9])] = dice.choice(TOKENS).encode("utf-8", "replace")
        path.write_bytes(content[: dice.choice([None, None, len(content) // 2])])
    return path


def is_span(start, end):
    return (start is None and end is None) or 0 <= start < end < float("inf")


def of_index(path):
    moments, _ = read_moments(path)
    assert len({one.moment_id for one in moments}) == len(moments)
    assert all(one.video and is_span(one.start_seconds, one.end_seconds) for one in moments)


def of_own(path):
    found = read_own_clips(path)
    rows = found.clips.to_dicts()
    assert len({row["clip_id"] for row in rows}) == len(rows)
    assert all(row["label"] and row["split"] and is_span(row["start_seconds"], row["end_seconds"]) for row in rows)


def of_tune(path):
    config = TuneConfig(
        clips=str(path), video_dir=str(path.parent / "videos"), output_dir=f"{path.parent}/out", dry_run=True
    )
    return tune.main(config)


READERS = {"index": of_index, "own": of_own, "tune": of_tune}


@pytest.mark.parametrize("name", READERS)
def test_a_table_from_anyone_is_refused_in_one_line_or_read(name, tmp_path, record_property):
    found = Outcomes(f"tables of {name}")
    (tmp_path / "videos").mkdir()
    write_colored_video(tmp_path / "videos" / "v0.mp4", [(250, 20, 20)] * 8)
    for number in range(1, 15):
        (tmp_path / f"videos/v{number}.mp4").hardlink_to(tmp_path / "videos/v0.mp4")
    for seed in range(TABLES):
        dice = random.Random(f"{name} {seed}")
        path = write_table(dice, tmp_path)
        how, _, why = outcome(partial(run_recipe, READERS[name], path))
        how = "wrong" if "AssertionError" in why else how
        found.note(how, f"{seed}\n{why[-1200:]}")
        path.unlink()
    assert [one.name for one in tmp_path.iterdir()] == ["videos"], "a dry run writes nothing"
    found.end(record_property)
