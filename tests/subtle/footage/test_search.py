"""Searching an index: equal to a product of our own embeddings, and as good as the evaluation of composed retrieval."""

import csv
import io
import json
import shutil
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import av
import evaluate
import numpy as np
import opentimelineio as otio
import polars as pl
import pyarrow as pa
import pytest
import torch
from colored_videos import write_colored_video
from PIL import Image, ImageDraw
from small_index import index_config, save_retriever

import metrics as our_metrics
from hf_datasets.video import read_frames
from hf_models.encoders import load_encoder
from hf_models.index.search import search_moments
from hf_models.index.store import IndexedModel, MomentIndex, moment_schema
from subtle.evaluate import evaluate_tfcovr
from subtle.evaluate.options import EvaluateConfig
from subtle.footage import index, search
from subtle.footage.exporting import contact_sheet, export, picture_of, write_timelines
from subtle.footage.models import load_again
from subtle.footage.options import SearchConfig
from subtle.footage.output import CONTROL_CHARACTERS, OUTPUT_FORMATS
from subtle.options import run_recipe

COLORS = [(250, 20, 20), (20, 250, 20), (20, 20, 250), (245, 245, 245)]


@pytest.fixture(scope="module")
def retriever(tiny, tmp_path_factory):
    return save_retriever(tiny, tmp_path_factory.mktemp("retriever") / "model")


@pytest.fixture(scope="module")
def indexed(tiny, retriever, tmp_path_factory):
    """An index of eight videos of four seconds, labeled by color, of which two are copies; and their folder."""
    root = tmp_path_factory.mktemp("searched")
    rows = []
    for number in range(8):
        path = root / "videos" / ("first" if number < 4 else "second") / f"{number}.mp4"
        path.parent.mkdir(parents=True, exist_ok=True)
        turned = COLORS[number % 4 :] + COLORS[: number % 4]
        write_colored_video(path, turned, seed=number)
        names = {COLORS[0]: "red", COLORS[1]: "green", COLORS[2]: "=blue()", COLORS[3]: "<b>white</b>\x1b[31m"}
        rows += [
            {"video": f"{path.parent.name}/{path.name}", "start_seconds": place, "end_seconds": place + 1 + number % 2}
            | {"label": names[color]}
            for place, color in enumerate(turned[:3])
        ]
    shutil.copy(root / "videos/first/0.mp4", root / "videos/second/copy.mp4")
    rows += [row | {"video": "second/copy.mp4"} for row in rows if row["video"] == "first/0.mp4"]
    pl.DataFrame(rows).write_csv(root / "moments.csv")
    config = index_config(root / "moments.csv", root / "index", retriever, video_dir=str(root / "videos"))
    index.run(config)
    return config


@pytest.fixture
def config(indexed):
    clip = str(Path(indexed.video_dir, "first/1.mp4"))
    return SearchConfig(
        index=indexed.output, clip=clip, start_seconds=1, end_seconds=3, text="show red", device="cpu", limit=100
    )


def all_rows(config):
    opened = MomentIndex(config.index)
    return opened.moments(opened.active.key).to_arrow().to_pylist()


@pytest.mark.parametrize("parts", ["both", "clip", "text"])
def test_scores_are_the_products_of_our_own_embeddings(config, retriever, parts):
    if parts == "clip":
        config = replace(config, text=None)
    elif parts == "text":
        config = replace(config, clip=None, start_seconds=None, end_seconds=None)
    found = search.find(config)
    encoder = load_encoder(retriever)
    frames = read_frames(config.clip, 4, 1, 3, size=(16, 16)).frames if config.clip else None
    query = encoder.query(frames, config.text)
    rows = all_rows(config)
    scores = {row["moment_id"]: float(np.dot(np.asarray(row["vector"], np.float64), query)) for row in rows}
    assert len(found) == len(rows) == 27
    assert [row["score"] for row in found] == pytest.approx(sorted(scores.values(), reverse=True), abs=1e-5)
    assert all(row["score"] == pytest.approx(scores[row["moment_id"]], abs=1e-5) for row in found)


def test_ties_across_the_limit_are_decided_by_all_that_are_tied(tmp_path):
    opened = MomentIndex.create(tmp_path / "index")
    model = opened.add(IndexedModel("k", "m", {}, 2, "/"))
    rows = [
        {"moment_id": str(n), "video": f"{999 - n // 2:03}.mp4", "start_seconds": 1.0 - n % 2, "end_seconds": 2.0}
        | {"vector": [1.0, 0.0]}
        for n in range(600)
    ]
    opened.moments("k").add(pa.Table.from_pylist(rows, schema=moment_schema(2)))
    found = search_moments(opened, model, np.array([1.0, 0.0], np.float32), limit=3)
    assert [(row["video"], row["start_seconds"]) for row in found] == [("700.mp4", 0), ("700.mp4", 1), ("701.mp4", 0)]


def test_filters_are_expressions_of_the_store(config):
    everything = search.find(config)
    short = search.find(replace(config, where="label = 'red' AND end_seconds - start_seconds < 2"))
    assert short == [
        row for row in everything if row["label"] == "red" and row["end_seconds"] - row["start_seconds"] < 2
    ]
    second = search.find(replace(config, folder="second/"))
    assert second == [row for row in everything if row["video"].startswith("second/")]
    assert not search.find(replace(config, where="modified < timestamp '1990-01-01'"))
    assert search.find(replace(config, where="modified > timestamp '1990-01-01'")) == everything
    either = search.find(replace(config, where="label = 'red' OR label = 'green'", folder="first"))
    assert {row["label"] for row in either} == {"red", "green"}
    assert all(row["video"].startswith("first/") for row in either)


def test_nothing_fits_below_a_score(config, capsys):
    everything = search.find(config)
    least = everything[4]["score"]
    assert search.find(replace(config, min_score=least)) == [row for row in everything if row["score"] >= least]
    assert printed(replace(config, min_score=2.0), capsys) == "no moment fits\n"


def test_moments_of_the_same_video_and_its_copies_can_be_left_out(config, indexed):
    own = replace(config, clip=str(Path(indexed.video_dir, "first/0.mp4")), exclude_same_video=True)
    videos = {row["video"] for row in search.find(own)}
    assert len(videos) == 7
    assert not videos & {"first/0.mp4", "second/copy.mp4"}


def printed(config, capsys):
    search.main(config)
    return capsys.readouterr().out


def test_every_format_has_the_same_records(config, capsys):
    config = replace(config, limit=27)
    records = json.loads(printed(replace(config, format="json"), capsys))
    assert [record.pop("moment_id") for record in records] == [row["moment_id"] for row in search.find(config)]
    assert set(records[0]) == {"video", "start_seconds", "end_seconds", "score", "label"}
    table = list(csv.DictReader(io.StringIO(printed(replace(config, format="csv"), capsys))))
    assert [row["video"] for row in table] == [row["video"] for row in records]
    assert {row["label"] for row in table} >= {"'=blue()", "red"}  # no formula for a spreadsheet
    shown = printed(config, capsys)
    assert "\x1b" not in shown + printed(replace(config, format="csv"), capsys)
    assert "<b>white</b>\\x1b[31m" in shown
    assert len(shown.splitlines()) == 28


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clip": None, "text": None, "start_seconds": None, "end_seconds": None}, "say what to look for"),
        ({"end_seconds": 9}, "ends at 4.000 s"),
        ({"start_seconds": 7, "end_seconds": 9}, "no frame in"),
        ({"clip": "gone.mp4"}, "no such video file"),
        ({"text": " ".join(["show"] * 50)}, "the text has 52 tokens and the model reads 32"),
        ({"where": "lable = 'red'"}, "there is no column lable"),
        ({"where": "1=1) OR (1=1"}, "is not understood; it may have the columns"),
        ({"where": "repeat('x', 2000000000) = 'x'"}, "REPEAT is not allowed"),
        ({"where": "label = "}, "is not understood"),
        ({"index": "nowhere"}, "there is no index nowhere"),
        ({"index": str(Path(__file__).parent)}, "holds no index"),
        ({"model": "other"}, "holds no vectors of 'other'"),
    ],
)
def test_a_mistake_is_named_in_one_line(config, capsys, change, message):
    assert run_recipe(search.main, replace(config, **change)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"text": "  "}, "--text is empty"),
        ({"limit": 0, "text": "x"}, "--limit"),
        ({"text": "x", "start_seconds": 1.0}, "are of a --clip"),
        ({"clip": "a", "start_seconds": 2.0, "end_seconds": 1.0}, "0 <= start < end"),
    ],
)
def test_a_query_that_cannot_be_is_refused_at_once(given, message):
    with pytest.raises(ValueError, match=message):
        SearchConfig(**given)


def test_a_model_that_was_trained_again_in_the_same_place_is_refused(config, indexed, retriever, tmp_path, capsys):
    folder = tmp_path / "model"
    shutil.copytree(retriever, folder)
    made = replace(indexed, output=str(tmp_path / "index"), model=str(folder))
    index.run(made)
    query = replace(config, index=made.output)
    assert search.find(query)
    model = load_encoder(str(folder)).model
    torch.nn.init.normal_(next(weight for weight in model.parameters() if weight.ndim > 1))
    model.save_pretrained(folder)
    assert run_recipe(search.main, query) == 2
    assert "has changed since it made the vectors of the index (other weights)" in capsys.readouterr().err


def test_map_of_searches_is_that_of_the_evaluation(tiny, embedded, retriever, tmp_path):
    evaluated = EvaluateConfig(
        dataset=tiny["dataset"],
        models=[retriever],
        embeddings=embedded,
        num_workers=0,
        output_dir=str(tmp_path / "evaluation"),
    )
    metrics = evaluate_tfcovr.run(evaluated)["two-stage"]
    clips = pl.read_parquet(Path(tiny["dataset"], "mini-clips/test.parquet"))
    paths = dict(clips.select("clip_id", "video").iter_rows())
    table = clips.select("clip_id", "video_id", "start_seconds", "end_seconds", "label")
    table.write_parquet(tmp_path / "clips.parquet")
    video_dir = str(Path(next(iter(paths.values()))).parent)
    made = index_config(tmp_path / "clips.parquet", tmp_path / "index", retriever, video_dir=video_dir)
    index.run(made)
    opened, encoder = MomentIndex(made.output), load_encoder(retriever)
    predictions = pl.read_parquet(tmp_path / "evaluation" / "predictions.parquet")
    ranked, references = [], []
    for row in predictions.iter_rows(named=True):
        frames = read_frames(paths[row["query_clip_id"]], 4, size=(16, 16)).frames
        found = search_moments(
            opened,
            opened.active,
            encoder.query(frames, row["modification_text"]),
            limit=50,
            where=f"moment_id != '{row['query_clip_id']}'",
        )
        assert [one["score"] for one in found] == pytest.approx(row["scores"], abs=1e-5)
        ranked.append([one["moment_id"] for one in found])
        references.append(row["target_clip_ids"])
    metric = evaluate.load(our_metrics.space("map_at_k"))
    own = predictions["query_clip_id"].to_list()
    again = metric.compute(predictions=ranked, references=references, k=[5, 10, 25, 50], exclude=own)
    assert len(ranked) == 36
    for k in (5, 10, 25, 50):
        assert again[f"map@{k}"] == pytest.approx(metrics[f"map@{k}"], abs=1e-6)


def test_an_index_does_not_decide_that_code_is_run(config, indexed):
    opened = MomentIndex(indexed.output)
    model = opened.active
    trusting = replace(model, details=dict(model.details) | {"trust_remote_code": True})
    with pytest.raises(ValueError, match="if you trust it, add --trust_remote_code"):
        load_again(trusting, "cpu")


def frames_in(path):
    with av.open(str(path)) as container:
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


def test_moments_are_exported_as_clips_and_lists(config, indexed, tmp_path):
    found = search.find(replace(config, where="video = 'second/5.mp4'"))
    assert not export(found, indexed.video_dir, tmp_path / "exact", exact=True)
    made = json.loads((tmp_path / "exact/moments.json").read_text())
    assert [row["method"] for row in made] == ["encoded"] * 3
    for row in made:
        frames = frames_in(tmp_path / "exact" / row["clip"])
        span = row["start_seconds"], row["end_seconds"]
        expected = read_frames(Path(indexed.video_dir, row["video"]), 16, *span).frames.permute(0, 2, 3, 1).numpy()
        assert len(frames) == 16  # two seconds of eight frames
        assert np.abs(np.stack(frames).astype(int) - expected).mean() < 8
    first = made[0]
    assert f"5.mp4#t={first['start_seconds']:.3f}," in (tmp_path / "exact/moments.m3u").read_text()
    with Image.open(tmp_path / "exact/contact_sheet.jpg") as sheet:
        assert sheet.width > sheet.height > 100


def test_exported_clips_have_their_sound(config, indexed, tmp_path):
    videos = tmp_path / "videos"
    shutil.copytree(indexed.video_dir, videos)
    with av.open(str(videos / "second/6.mp4")) as silent, av.open(str(tmp_path / "heard.mp4"), "w") as heard:
        pictures = heard.add_stream_from_template(silent.streams.video[0])
        sound = heard.add_stream("aac", rate=24000, layout="mono")
        tone = (0.5 * np.sin(np.arange(4 * 24000) / 10)).astype(np.float32)[None]
        frame = av.AudioFrame.from_ndarray(tone, "fltp", "mono")
        frame.sample_rate, frame.pts = 24000, 0
        packets = [*sound.encode(frame), *sound.encode()]
        for packet in silent.demux(video=0):
            if packet.size:
                packet.stream = pictures
                packets.append(packet)
        for packet in sorted(packets, key=lambda packet: packet.dts * packet.time_base):
            heard.mux(packet)
    shutil.move(tmp_path / "heard.mp4", videos / "second/6.mp4")
    found = search.find(replace(config, where="video IN ('second/5.mp4', 'second/6.mp4')"))
    for name, options in {"exact": {"exact": True}, "mute": {"exact": True, "mute": True}}.items():
        assert not export(found, str(videos), tmp_path / name, **options)
        made = json.loads((tmp_path / name / "moments.json").read_text())
        for row in made:
            is_heard = row["video"] == "second/6.mp4" and name != "mute"
            with av.open(str(tmp_path / name / row["clip"])) as container:
                assert bool(container.streams.audio) == is_heard


NTSC = 30000 / 1001


@pytest.mark.parametrize(
    ("name", "videos_have", "timeline_has"),
    [
        ("otio", 8, 8),
        ("edl", 8, 25),
        ("xml", 8, 25),
        ("fcpxml", 8, 25),
        ("edl", NTSC, NTSC),
        ("xml", NTSC, NTSC),
        ("fcpxml", NTSC, 30),
    ],
)
def test_opentimelineio_reads_the_exported_moments(tmp_path, name, videos_have, timeline_has):
    spans = [("first/1.mp4", 3600.0, 3602.0, 1), ("second.mp4", 1.0, 2.5, 0)]
    rows = [
        {"video": video, "path": f"/films/{video}", "start_seconds": start, "end_seconds": end, "sound_channels": sound}
        | {"moment_id": video, "score": 0.5, "label": "a vault\nof two turns", "frame_rate": videos_have}
        for video, start, end, sound in spans
    ]
    write_timelines(rows, tmp_path)
    options = {"rate": timeline_has} if name == "edl" else {}
    read = otio.adapters.read_from_file(str(tmp_path / f"moments.{name}"), **options)
    tracks = read.find_children(otio.schema.Track)
    pictures, heard = (
        [clip for track in tracks if track.kind == kind for clip in track.find_clips()] for kind in ("Video", "Audio")
    )
    assert [clip.name.strip() for clip in pictures] == [row["video"] for row in rows]
    for clip, row in zip(pictures, rows, strict=True):
        assert clip.media_reference.target_url == f"file://{row['path']}"
        assert clip.source_range.start_time.rate == pytest.approx(timeline_has, rel=1e-4)
        first, end = clip.source_range.start_time, clip.source_range.end_time_exclusive()
        for found, seconds in ((first, row["start_seconds"]), (end, row["end_seconds"])):
            assert found.to_seconds() == pytest.approx(seconds, abs=0.51 / timeline_has)
    assert [clip.name for clip in heard] == ([] if name == "edl" else ["first/1.mp4"])


def test_copied_clips_hold_the_moment(config, indexed, tmp_path):
    found = search.find(replace(config, where="video = 'second/5.mp4'"))
    assert not export(found, indexed.video_dir, tmp_path / "copied", exact=False)
    for row in json.loads((tmp_path / "copied/moments.json").read_text()):
        assert row["method"] == "copied"
        assert row["clip_begins_seconds"] <= row["start_seconds"]
        frames = frames_in(tmp_path / "copied" / row["clip"])
        whole = frames_in(Path(indexed.video_dir, row["video"]))
        begin = round(row["clip_begins_seconds"] * 8)
        assert len(frames) >= round(row["end_seconds"] * 8) - begin
        assert np.array_equal(np.stack(frames[:16]), np.stack(whole[begin : begin + 16]))


def test_copies_that_begin_before_their_moments_are_told_with_the_cure(config, tmp_path, capsys, monkeypatch):
    row = search.find(replace(config, where="video = 'second/5.mp4'", limit=1))[0]
    monkeypatch.setattr(
        search, "find", lambda _: [row | {"start_seconds": start, "end_seconds": 0.9} for start in (0.5, 0.0)]
    )
    search.main(replace(config, export=str(tmp_path / "copied")))
    told = "1 of 2 clips begin before their moments, up to 0.5 s, at the keyframe before them; --exact cuts them to the"
    assert told in capsys.readouterr().err
    search.main(replace(config, export=str(tmp_path / "exact"), exact=True))
    assert "keyframe" not in capsys.readouterr().err


def test_a_contact_sheet_names_the_file_the_seconds_and_the_score_and_shows_pictures_as_players_do(
    tmp_path, monkeypatch
):
    with av.open(str(tmp_path / "squeezed.mp4"), "w") as container:
        stream = container.add_stream("libx264", rate=25)
        stream.width, stream.height, stream.pix_fmt = 90, 120, "yuv420p"
        stream.codec_context.sample_aspect_ratio = Fraction(2, 1)
        for _ in range(5):
            frame = av.VideoFrame.from_ndarray(np.full((120, 90, 3), 99, np.uint8), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    row = {"video": "a" * 90 + "/squeezed.mp4", "start_seconds": 0.0, "end_seconds": 0.2, "score": 0.8766}
    picture = picture_of(tmp_path / "squeezed.mp4", row)
    assert picture.width / picture.height == pytest.approx(180 / 120, abs=0.02)
    captions = []
    monkeypatch.setattr(ImageDraw.ImageDraw, "text", lambda draw, place, text, **_: captions.append(text))
    contact_sheet([(1, row, picture)])
    file, facts = captions
    assert file.startswith("1.  …")
    assert file.endswith("aaa/squeezed.mp4")
    assert facts == "0.00 - 0.20 s   score 0.877"


def test_nothing_outside_the_folder_of_videos_is_exported(config, indexed, tmp_path):
    shutil.copy(Path(indexed.video_dir, "first/1.mp4"), tmp_path / "secret.mp4")
    (tmp_path / "videos").mkdir()
    found = [search.find(config)[0] | {"video": video} for video in ("../secret.mp4", str(tmp_path / "secret.mp4"))]
    failures = export(found, str(tmp_path / "videos"), tmp_path / "out", exact=True)
    assert len(failures) == 2
    assert all("is refused" in reason for reason in failures)
    assert not list((tmp_path / "out/clips").iterdir())
    with pytest.raises(FileExistsError, match="is not empty"):
        export(found, str(tmp_path / "videos"), tmp_path / "out", exact=True)


def test_a_span_that_is_none_is_named_and_left_out_of_an_export(config, indexed, tmp_path, monkeypatch, capsys):
    good = search.find(config)[:2]
    ends = (float("inf"), float("nan"), None, good[0]["start_seconds"], -1.0, 1e300)
    monkeypatch.setattr(search, "find", lambda _: [*good, *(good[0] | {"end_seconds": end} for end in ends)])
    assert run_recipe(search.main, replace(config, export=str(tmp_path / "out"))) == 1
    said = capsys.readouterr().err
    assert "2 of 8 moments" in said
    assert said.count("is no span") == len(ends)
    assert len(json.loads((tmp_path / "out/moments.json").read_text())) == 2


def test_a_search_changes_no_file_of_the_index(config, indexed, tmp_path):
    folder = shutil.copytree(indexed.output, tmp_path / "index")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    text = replace(config, index=str(folder), clip=None, start_seconds=None, end_seconds=None)
    for asked in (replace(config, index=str(folder)), text, replace(text, export=str(tmp_path / "out"), limit=1)):
        assert run_recipe(search.main, replace(asked, video_dir=indexed.video_dir)) == 0
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def changed(folder, source, table, **columns):
    """A copy of an index in which columns of a table have other values in the first row."""
    shutil.copytree(source, folder)
    database = MomentIndex(folder).database
    rows = database.open_table(table).to_arrow().to_pylist()
    schema = database.open_table(table).schema
    for name, value in columns.items():
        rows[0][name] = value
    database.create_table(table, pa.Table.from_pylist(rows, schema=schema), mode="overwrite")
    return str(folder)


MODEL_TAMPERING = [
    {"key": "../up"},
    {"made_by": "[]"},
    {"made_by": "{"},
    {"details": "null"},
    {"details": "[" * 100_000},
    {"details": '{"files": 3}'},
    {"details": '{"num_frames": 1e9}'},
    {"details": '{"trust_remote_code": "yes"}'},
    {"dimensions": -1},
    {"dimensions": 7},
    {"name": None},
    {"name": "a\x1b[31m"},
    {"root": ""},
    {"activated": None},
]


@pytest.mark.parametrize("columns", MODEL_TAMPERING, ids=lambda columns: str(columns)[:40])
def test_an_index_that_somebody_changed_is_refused_in_one_line(config, indexed, tmp_path, capsys, columns):
    folder = changed(tmp_path / "index", indexed.output, "models", **columns)
    assert run_recipe(search.main, replace(config, index=folder)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "somebody changed it" in line
    assert len(line) < 1000


@pytest.mark.parametrize(
    "columns",
    [{"video": None}, {"end_seconds": float("inf")}, {"end_seconds": None}, {"start_seconds": float("nan")}],
    ids=str,
)
def test_what_is_no_moment_is_named_and_can_be_left_out(config, indexed, tmp_path, capsys, columns):
    opened = MomentIndex(indexed.output)
    folder = changed(tmp_path / "index", indexed.output, f"moments_{opened.active.key}", **columns)
    query = replace(config, index=folder)
    assert run_recipe(search.main, query) == 2
    said = capsys.readouterr().err
    assert "holds what is no moment" in said
    cure = said.partition('--where "')[2].rpartition('"')[0]
    assert len(search.find(replace(query, where=cure))) == 26


def test_the_folder_of_videos_is_one_that_this_user_named_or_lies_beside_the_index(config, indexed, tmp_path, capsys):
    """Here a stranger's index would have a user's own files exported, shown, or sent to a model."""
    (tmp_path / "got").mkdir()
    folder = changed(tmp_path / "got/index", indexed.output, "models", root="/")
    query = replace(config, index=folder, limit=2, export=str(tmp_path / "out"))
    for asked in (query, replace(query, export=None, rerank="no-model", text="x")):
        assert run_recipe(search.main, asked) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "add --video_dir /" in line
    assert not (tmp_path / "out").exists()
    assert run_recipe(search.main, replace(query, video_dir=indexed.video_dir)) == 0
    for root, status in {str(tmp_path / "got"): 2, str(tmp_path): 2, f"{tmp_path}/got/videos/../..": 2}.items():
        copy = changed(tmp_path / f"got/{len(root)}", indexed.output, "models", root=root)
        assert run_recipe(search.main, replace(query, index=copy, export=str(tmp_path / f"out{len(root)}"))) == status
    shutil.copytree(indexed.video_dir, tmp_path / "got/videos")
    beside = changed(tmp_path / "got/own", indexed.output, "models", root=str(tmp_path / "got/videos"))
    assert run_recipe(search.main, replace(query, index=beside, export=str(tmp_path / "beside"))) == 0


def test_a_text_of_an_index_never_moves_the_cursor_in_any_format():
    row = {
        "video": "a\x9b31m.mp4",
        "start_seconds": 0.0,
        "end_seconds": 1.0,
        "score": 0.5,
        "label": "\x1b]0;t\x07\u202e\n",
        "moment_id": "a#t=0,1",
    }
    for name, show in OUTPUT_FORMATS.items():
        text = show([row])
        assert not CONTROL_CHARACTERS.search(text.replace("\n", "")), name
    assert json.loads(OUTPUT_FORMATS["json"]([row])) == [row]
    assert list(csv.reader(io.StringIO(OUTPUT_FORMATS["csv"]([row]))))[1][0] == "a\\x9b31m.mp4"


def test_an_error_never_moves_the_cursor(capsys):
    def refuse(_):
        raise OSError("the server said \x1b[2J\u202e")

    assert run_recipe(refuse, None) == 2
    assert capsys.readouterr().err == "error: the server said \\x1b[2J\\u202e\n"
