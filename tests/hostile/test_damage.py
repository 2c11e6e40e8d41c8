"""What was cut, changed by chance or made strange is refused in one line or gives what was written; nothing else."""

import copy
import json
import os
import random
import shutil
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import polars as pl
import psutil
import pytest
import torch
from colored_videos import write_colored_video
from mutations import mutated_text, mutated_value
from odd_values import LONG_RUN
from small_index import index_config

from hf_datasets.sources.mteb_layout import read_mteb_layout
from hf_models.feature_store import FeatureStore
from hf_models.index.search import search_moments
from hf_models.index.store import MomentIndex
from subtle.footage import index
from subtle.options import run_recipe
from subtle.running import users_mistake
from tests.hf_datasets.sources.test_mteb_layout import beir_form, push_to_hub_form, videos  # noqa: F401
from tests.hostile.kill_harness import Run, differences
from tests.hostile.tables import HangError, Outcomes, time_limit
from tests.hostile.test_kills import (  # noqa: F401
    JOBS,
    RECIPES,
    adaptations,
    builds,
    chat,
    commands,
    comp_captions,
    encodings,
    evaluators,
    fig_moments,
    indexing,
    job_of,
    measurements,
    trainings,
    tunings,
)

pytestmark = [pytest.mark.hostile, pytest.mark.timeout(3600)]
HANG_SECONDS = 20
CHANGES, INDEXED = (
    int(os.environ.get(f"HOSTILE_INDEX_{what}", most)) for what, most in (("CHANGES", "200"), ("VIDEOS", "60"))
)
SEARCHES = 2000
WINDOWS = {"window_seconds": 1.0, "stride_seconds": 0.5}


@contextmanager
def one(found, what, seconds=HANG_SECONDS):
    """Count one try: an assertion that does not hold is a wrong result."""
    try:
        with time_limit(seconds):
            yield
        found.note("works")
    except HangError:
        found.note("hang", what)
    except AssertionError as error:
        found.note("wrong", f"{what}: {str(error)[:500]}")
    except (Exception, SystemExit) as error:
        mistake = error if isinstance(error, SystemExit) else users_mistake(error)
        is_clear = mistake and str(mistake)
        found.note("clear error" if is_clear else "traceback", f"{what}: {type(error).__name__} {str(error)[:500]}")


def damaged(dice, content):
    """Some bytes of a file changed, left out, repeated or cut off."""
    content = bytearray(content)
    for _ in range(dice.randint(1, 3)):
        start = dice.randrange(len(content) + 1)
        stop = min(len(content), start + int(dice.expovariate(0.05)) + 1)
        match dice.randrange(5):
            case 0:
                content[start:stop] = dice.randbytes(stop - start)
            case 1:
                del content[start:stop]
            case 2:
                content[start:start] = content[start:stop]
            case 3 if start < len(content):
                content[start] ^= 1 << dice.randrange(8)
            case _:
                del content[start:]
    return bytes(content)


def strange_shard(dice, content):
    """A shard whose header, JSON, was changed, but for its length, which fits again."""
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    if dice.random() < 0.5:
        header["__metadata__"]["ids"] = json.dumps(mutated_value(dice, json.loads(header["__metadata__"]["ids"])))
    else:
        header = mutated_value(dice, header)
    text = json.dumps(header).encode(errors="replace")
    return len(text).to_bytes(8, "little") + text + content[8 + size :]


def test_mutated_feature_stores(tmp_path, record_property):
    dice, found = random.Random(0), Outcomes("feature stores")
    tables = [
        {f"{one}": torch.randn(4) for one in range(12)},
        {f"{one}": torch.randn(1 + one % 3, 4) for one in range(12)},
    ]
    stores = []
    for number, table in enumerate(tables):
        store = FeatureStore(tmp_path / f"good-{number}", {"weights": "8c1f", "clip_seconds": 0.5})
        for start in (0, 6):
            names = list(table)[start : start + 6]
            store.append(names, [table[name] for name in names])
        stores.append({path.name: path.read_bytes() for path in store.path.iterdir()})
    for number in range(LONG_RUN // 2):
        kind = number % 2
        folder, files = tmp_path / "mutated", dict(stores[kind])
        name = dice.choice(sorted(files))
        if name.endswith(".json") and dice.random() < 0.5:
            files[name] = json.dumps(mutated_value(dice, json.loads(files[name]))).encode(errors="replace")
        elif dice.random() < 0.4 and name.endswith(".safetensors"):
            files[name] = strange_shard(dice, files[name])
        else:
            files[name] = damaged(dice, files[name])
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name, content in files.items():
            (folder / name).write_bytes(content)
        with one(found, number):
            store = FeatureStore(folder)
            values = {one: store[one] for one in store}
            assert all(torch.equal(value, tables[kind][one]) for one, value in values.items())
            assert len(values) in {0, 6, 12}
            assert not values or store.details == {"weights": "8c1f", "clip_seconds": 0.5}
    found.end(record_property)


def test_mutated_folders_in_the_layout_of_mteb(videos, tmp_path, record_property):  # noqa: F811
    dice, found, forms = random.Random(0), Outcomes("folders in mteb's layout"), []
    for number, form in enumerate((beir_form, push_to_hub_form)):
        form(tmp_path / str(number), videos)
        folder = tmp_path / str(number)
        (folder / "README.md").write_text("---\nconfigs:\n- config_name: corpus\n  data_files: corpus*\n---\n")
        forms.append({path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()})
    for number in range(LONG_RUN // 10):
        files = dict(forms[number % 2])
        if number % 4 < 2:
            del files[Path("README.md")]
        name = dice.choice(sorted(files))
        is_text = name.suffix != ".parquet"
        strange = is_text and dice.random() < 0.6
        text = mutated_text(dice, [files[name].decode()]) if strange else ""
        files[name] = text.encode(errors="surrogatepass") if strange else damaged(dice, files[name])
        folder = tmp_path / "mutated"
        shutil.rmtree(folder, ignore_errors=True)
        for path, content in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
        with one(found, number):
            read = read_mteb_layout(folder, extract_to=tmp_path / "videos", video_dir=videos)
            assert read.relevant.keys() <= read.queries.keys()
            assert all(set(ids) <= read.corpus.keys() for ids in read.relevant.values())
            assert all(isinstance(one, str) for one in (*read.corpus, *read.queries))
            paths = [one.path for one in (*read.corpus.values(), *(video for video, _ in read.queries.values()))]
            assert all(path is None or Path(path).is_relative_to(tmp_path.parent) for path in paths)
    found.end(record_property)


def test_an_index_that_changes_and_is_cut_again_and_again_holds_what_its_folder_holds(
    tiny, tmp_path, monkeypatch, record_property
):
    dice, found = random.Random(0), Outcomes(f"changes of an index of {INDEXED} videos")
    sources, folder = [], tmp_path / "videos"
    folder.mkdir()
    for seed in range(10):
        colors = [(25 * seed, 80, 120)] * (1 + seed % 3)
        sources.append(write_colored_video(tmp_path / f"{seed}.mp4", colors, seed=seed) or tmp_path / f"{seed}.mp4")
    contents = [path.read_bytes() for path in sources]
    now = {f"{number}.mp4": dice.randrange(10) for number in range(INDEXED)}
    for name, content in now.items():
        (folder / name).write_bytes(contents[content])
    config = index_config(folder, tmp_path / "index", tiny["vision_model"], **WINDOWS)
    encoder = index.load_model(config)
    monkeypatch.setattr(index, "load_model", lambda _: encoder)
    assert run_recipe(index.main, config) == 0
    of_content = {}
    for number in range(CHANGES):
        name, content = f"{dice.randrange(2 * INDEXED)}.mp4", dice.randrange(10)
        match dice.randrange(3):
            case 0 if len(now) > INDEXED // 2 and name in now:
                (folder / name).unlink()
                del now[name]
            case 1 if now and name not in now:
                old = dice.choice(sorted(now))
                (folder / old).rename(folder / name)
                now[name] = now.pop(old)
            case _:
                (folder / name).write_bytes(contents[content])
                now[name] = content
        if number % 5 == 4:
            newest = max(
                (path for path in (tmp_path / "index").glob("*.lance/**/*") if path.is_file()),
                key=lambda path: (path.parent.name == ("data", "_versions")[number % 2], path.stat().st_mtime_ns),
            )
            newest.write_bytes(newest.read_bytes()[: dice.choice((0, newest.stat().st_size // 2))])
        with one(found, number, 120 + INDEXED // 10):
            assert index.run(config)["files_quarantined"] == 0
            opened = MomentIndex(config.output)
            rows = opened.moments(opened.active.key).search().select(["moment_id", "video", "fingerprint"])
            rows = pl.from_arrow(rows.limit(None).to_arrow())
            assert rows["moment_id"].is_unique().all()
            assert set(rows["video"]) == set(now) == set(opened.files(opened.active.key))
            for (name,), group in rows.group_by("video"):
                (fingerprint,) = set(group["fingerprint"])
                expected = of_content.setdefault(now[name], (fingerprint, len(group)))
                assert expected == (fingerprint, len(group)), name
    assert len(of_content) == len({fingerprint for fingerprint, _ in of_content.values()})
    found.end(record_property)


def test_searches_in_one_process_keep_memory_and_descriptors_level(tiny, tmp_path, record_property):
    found, folder = Outcomes("searches in one process"), tmp_path / "videos"
    folder.mkdir()
    for seed in range(8):
        write_colored_video(folder / f"{seed}.mp4", [(30 * seed, 80, 120)] * 3, seed=seed)
    config = index_config(folder, tmp_path / "index", tiny["vision_model"], **WINDOWS)
    assert run_recipe(index.main, config) == 0
    opened, process = MomentIndex(config.output), psutil.Process()
    model, generator, used = opened.active, np.random.default_rng(0), []
    for number in range(SEARCHES):
        query = generator.standard_normal(model.dimensions).astype(np.float32)
        with one(found, number):
            rows = search_moments(opened, model, query, limit=5, where="start_seconds >= 0.5" if number % 2 else None)
            assert len(rows) == 5
            assert [row["score"] for row in rows] == sorted((row["score"] for row in rows), reverse=True)
        if number % 500 == 499:
            used.append((process.memory_info().rss / 1e6, process.num_fds(), process.num_threads()))
    with one(found, used):
        (memory, files, threads), *_, last = used
        assert last[0] - memory < 30, used
        assert last[1] <= files + 2, used
        assert last[2] <= threads + 2, used
    found.end(record_property)


def newest_file(folder):
    """The last that a run wrote for its user or into its cache, but for locks and what is only being written."""
    paths = [path for part in ("out", "cache") for path in (folder / part).rglob("*")]
    paths = [path for path in paths if path.is_file() and path.stat().st_size]
    paths = [path for path in paths if path.suffix not in {".tmp", ".lock", ".partial"} and ".draft" not in str(path)]
    return max(paths, key=lambda path: path.stat().st_mtime_ns, default=None)


@pytest.mark.parametrize("name", [name for name in JOBS if name != "publish"])  # which leaves nothing here to cut
def test_a_run_whose_newest_file_is_cut_after_a_kill_goes_on_or_says_what_to_do(
    name, request, tmp_path, record_property
):
    job, found = job_of(name, request), Outcomes(f"newest file cut: {name}")
    whole = Run(job, tmp_path / "whole")
    whole.wait_for_imports()
    begin = time.monotonic()
    assert whole.wait() and whole.is_complete, whole.errors()[-2000:]  # noqa: PT018
    seconds, expected = time.monotonic() - begin, copy.deepcopy(job.outcome(tmp_path / "whole" / "out"))
    for number, share in enumerate((0, 0.5, 0, 0.5)):
        folder = tmp_path / str(number)
        run = Run(job, folder)
        run.wait_for_imports()
        run.wait(lambda: False, seconds * (0.3, 0.5, 0.7, 0.9)[number])
        run.end()
        cut = newest_file(folder)
        if cut is None:
            continue
        cut.write_bytes(cut.read_bytes()[: int(share * cut.stat().st_size)])
        again = Run(job, folder)
        if not again.wait():
            found.note("hang", cut)
        elif again.is_complete:
            try:
                wrong = differences(expected, job.outcome(folder / "out"), job.tolerance)
            except (OSError, ValueError) as error:  # what cannot be read
                wrong = [str(error)]
            found.note("wrong" if wrong else "works", f"{cut}: {wrong[:3]}")
        # Several processes end with a traceback of their launcher, whatever they say.
        elif f'File "{RECIPES}' in again.errors() if job.processes > 1 else "Traceback" in again.errors():
            found.note("traceback", f"{cut}: {again.errors()[-1500:]}")
        else:
            found.note("clear error")
        again.end()
        shutil.rmtree(folder)
    found.end(record_property)
