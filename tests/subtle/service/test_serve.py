"""The page over an index: it finds what the model ranks first, keeps marks, and serves nothing but its own copies."""

import json
import os
import re
import shutil
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from colored_videos import write_colored_video
from small_index import COLORS, EVIL, build_index

from hf_datasets.footage.files import path_of_video
from hf_datasets.video import VideoError, read_frames
from hf_datasets.video.shared_memory import PixelFolder
from hf_models.index.search import search_moments
from hf_models.index.store import MomentIndex
from subtle.index import Index
from subtle.options import run_recipe
from subtle.service import cards, media, serve
from subtle.service.export_process import export_archive
from subtle.service.index_search import IndexSearch
from subtle.service.marks import Marks
from subtle.service.media import Footage, Media
from subtle.service.options import ServeConfig
from subtle.service.page import Page, Search, build_page, launch
from tests.fixtures.planted_modules import plant

TEXT = "show red"
event = SimpleNamespace


@pytest.fixture(scope="module")
def small(tiny, tmp_path_factory):
    """An index, what searches it, and a folder that is served by nobody."""
    folder = tmp_path_factory.mktemp("index")
    config = build_index(tiny, folder)
    index = MomentIndex(config.output)
    model = index.active
    path_of = partial(path_of_video, Path(model.root))
    media = Media(path_of, tmp_path_factory.mktemp("media") / "own", num_workers=1, timeout_seconds=30)
    search = IndexSearch(Index(config.output, device="cpu"), media)
    yield SimpleNamespace(folder=folder, videos=folder / "videos", index=index, model=model, media=media, search=search)
    media.close()


@pytest.fixture
def page(small, tmp_path):
    """The page's doings, with marks of their own."""
    return page_of(small.search, tmp_path / "marks.csv", small.videos)


def page_of(search, marks, root):
    return Page(search, marks=Marks(marks), export=partial(export_archive, root=root))


def red(small, video="first/one.mp4", label="red"):
    """A moment as a row of the index."""
    rows, _ = small.search.choices(label, 24)
    return next(row for row in rows if row["video"] == video)


def find(page, query, text="", folder=None, label=None, leave_out=False, least=None):
    return page.find(Search(), query, text, folder, label, leave_out, least)


def words_of(html):
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


def color_of(path, seconds):
    """The name of the color at a time of a file."""
    frame = read_frames(path, 1, seconds, seconds + 0.05).frames[0].float().mean((1, 2))
    return min(COLORS, key=lambda name: np.abs(np.array(COLORS[name]) - frame.numpy()).sum())


def test_a_moment_is_shown_with_what_is_around_it_and_trimmed(small, page):
    query, shown = page.take_moment(red(small, "second/one.mp4"))
    assert (query.start_seconds, query.end_seconds) == pytest.approx((2.0, 3.0))
    assert (query.stretch.start_seconds, query.stretch.end_seconds) == pytest.approx((0.0, 4.0), abs=0.01)
    assert shown.count('type="range"') == 2
    trimmed = page.trim(query, event(start=2.25, end=2.75))
    assert (trimmed.start_seconds, trimmed.end_seconds) == (2.25, 2.75)
    assert page.trim(query, event(start=-9, end=1e9)).clip == query.stretch
    for nonsense in ({"start": 3, "end": 2}, {"start": "x", "end": None}, {"start": float("nan"), "end": 1}, {}):
        assert page.trim(query, event(**nonsense)) == query


@pytest.mark.parametrize("text", ["", TEXT])
def test_the_trimmed_clip_is_what_is_searched_with(small, page, text):
    query, _ = page.take_moment(red(small))
    query = query.trimmed(0.25, 0.75)
    state, _, cards, _ = find(page, query, text)
    encoder = small.search.encoder
    frames = read_frames(small.videos / "first/one.mp4", encoder.num_frames, 0.25, 0.75, size=encoder.frame_size).frames
    expected = search_moments(small.index, small.model, encoder.query(frames, text or None), limit=16)
    expected = [row for row in expected if row["moment_id"] != query.moment_id][:12]
    assert [row["moment_id"] for row in state.found] == [row["moment_id"] for row in expected]
    assert [row["score"] for row in state.found] == pytest.approx([row["score"] for row in expected], abs=1e-5)
    assert cards.count("<video") == 12


def test_the_page_says_what_was_searched_and_how_many_videos_were_read(small, page, monkeypatch):
    query, _ = page.take_moment(red(small))
    query = query.trimmed(0.25, 0.75)

    def line(*asked, **filters):
        said = words_of(find(page, *asked, **filters)[1])
        return re.sub(r"\d+\.\d\d s ·", "N s ·", said, count=1)

    assert line(query, TEXT) == ("12 of 16 moments in N s · like first/one.mp4, 0.25 to 0.75 s · “show red” · model")
    assert line(query, leave_out=True, folder="second", label="red", least=-1) == (
        "2 of 16 moments in N s · like first/one.mp4, 0.25 to 0.75 s · no text · in second · labeled “red” · "
        "without its video · score at least -1 · model"
    )
    assert line(None, TEXT) == "12 of 16 moments in N s · no clip · “show red” · model"
    bare = dict.fromkeys(("label", "text")) | {"video": "a.mp4", "start_seconds": 0.0, "end_seconds": 1.0, "score": 0.5}
    assert words_of(cards.card(small.media, 0, bare, "gone", "")).count("a.mp4") == 1
    assert serve.videos_in(small.index, small.model) == "4 videos"
    rows = small.index.files(small.model.key) | {"broken.mp4": {"status": "quarantined"}}
    monkeypatch.setattr(MomentIndex, "files", lambda *_: rows)
    assert serve.videos_in(small.index, small.model) == "4 videos (1 more cannot be read)"


def test_filters_and_nothing_that_fits(small, page):
    query, _ = page.take_moment(red(small))
    state, *_ = find(page, query, folder="second")
    assert {row["video"] for row in state.found} == {"second/one.mp4", "second/three.mp4"}
    state, *_ = find(page, query, label=EVIL)
    assert [row["label"] for row in state.found] == [EVIL] * 4
    state, *_ = find(page, query, leave_out=True)
    assert "first/one.mp4" not in {row["video"] for row in state.found}
    state, said, shown, _ = find(page, query, folder="first/none", label="red")
    assert words_of(said) == ("Nothing fits: there is no other moment in folder “first/none” labeled “red”.")
    assert (state.found, shown) == ([], cards.EMPTY_GALLERY)
    assert re.match(r"Nothing fits: the best score is \d\.\d\d, below 2\.", words_of(find(page, query, least=2.0)[1]))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Choose or upload a clip, or write a text."),
        ("show " * 300, "The text has 1499 characters; write at most 1000."),
        ("red " * 99, "The text has 101 tokens and the model reads 32; shorten it."),
    ],
)
def test_a_query_that_cannot_be_read_is_a_line_on_the_page(page, text, message):
    _, said, shown, _ = find(page, None, text)
    assert (words_of(said), shown) == (message, cards.EMPTY_GALLERY)


def test_copies_show_exactly_their_seconds_and_are_made_again_after_they_were_removed(small, monkeypatch):
    footage = Footage("second/one.mp4", 2.0, 3.0)  # red: the third color
    path, begin, end = small.media.made("clip", footage)
    assert (begin, end) == pytest.approx((2.0, 3.0))
    assert read_frames(path, 1).num_frames_in_clip == 8
    assert [color_of(path, seconds) for seconds in (0.0, 0.5, 0.9)] == ["red"] * 3
    made = path.stat().st_mtime_ns
    assert small.media.made("clip", footage)[0].stat().st_mtime_ns == made
    monkeypatch.setattr(media, "KEPT_BYTES", 1)
    small.media.made("still", footage)
    assert not path.exists()
    assert small.media.made("clip", footage) == (path, begin, end)


def test_uploads_are_videos_within_the_limits_or_named_in_one_line(small, page, tmp_path):
    bad = {
        "text.mp4": b"no video" * 99,
        "empty.mp4": b"",
        "cut.mp4": (small.videos / "first/one.mp4").read_bytes()[:900],
        "list.mp4": b"#EXTM3U\n#EXTINF:1,\n/etc/passwd\n",
        f"{'x' * 90}.mp4": b"?",
    }
    for name, content in bad.items():
        (tmp_path / name).write_bytes(content)
    write_colored_video(tmp_path / "long.mp4", list(COLORS.values()) * 16, fps=2)
    with (tmp_path / "large.mp4").open("wb") as file:
        file.truncate(100_000_001)
    for name in [*bad, "long.mp4", "large.mp4", "gone.mp4"]:
        query, said = page.upload(str(tmp_path / name))
        assert query is None
        assert 'class="said wrong" role="alert"' in said
        assert str(tmp_path) not in said
        assert str(small.media.folder) not in said
        assert len(words_of(said)) < 130
    assert "has 64 s; give at most 60 s" in words_of(page.upload(str(tmp_path / "long.mp4"))[1])
    assert "has 100 MB; give at most 100 MB" in words_of(page.upload(str(tmp_path / "large.mp4"))[1])
    assert not list((small.media.folder / "uploads").iterdir())


def test_an_upload_is_searched_with_and_its_own_video_left_out(small, page, tmp_path):
    shutil.copy(small.videos / "first/one.mp4", tmp_path / "mine.mp4")
    query, shown = page.upload(str(tmp_path / "mine.mp4"))
    assert "mine.mp4" in shown
    of_index, _ = page.take_moment(red(small))
    mine, *_ = find(page, query.trimmed(0.0, 1.0), TEXT, leave_out=True)
    same, *_ = find(page, of_index, TEXT, leave_out=True)
    assert [row["moment_id"] for row in mine.found] == [row["moment_id"] for row in same.found]
    for path in (small.media.folder / "uploads").iterdir():
        path.unlink()
    assert words_of(find(page, query, TEXT)[1]) == "mine.mp4 is not kept any more; upload it again."


def test_the_video_that_hangs_costs_the_time_limit_and_the_page_goes_on(small, tmp_path):
    media = Media(small.media.path_of, tmp_path / "own", num_workers=1, timeout_seconds=0.001)
    try:
        with pytest.raises(VideoError, match=r"first/one\.mp4: no frames within 0\.001 s"):
            media.made("clip", Footage("first/one.mp4", 0.0, 4.0))
        assert not list((tmp_path / "own" / "copies").iterdir())
    finally:
        media.close()


def test_marks_are_kept_at_once_and_the_last_one_counts(small, page):
    query, _ = page.take_moment(red(small))
    state, *_ = find(page, query.trimmed(0.25, 0.75), f"  {TEXT} ")
    place = next(place for place, row in enumerate(state.found) if row["label"] == EVIL)
    cards, kept = page.mark(state, event(search=state.number, place=place, is_right=True))
    assert "1 mark, kept in" in words_of(kept)
    page.mark(state, event(search=state.number, place=place, is_right=False))
    other = 1 if place == 0 else 0
    cards, _ = page.mark(state, event(search=state.number, place=other, is_right=True))
    assert cards.count('aria-pressed="true"') == 2
    again = page_of(small.search, page.marks.path, small.videos)  # as after a restart
    assert again.marks.of(state.query, TEXT, state.found) == {place: False, other: True}
    assert again.marks.of(query, TEXT, state.found) == {}
    page.mark(state, event(search=state.number, place=place, is_right=None))
    assert len(again.marks.read()) == 1


def test_a_search_again_moves_the_query_by_all_marks_of_the_rounds_before(small, page):
    state, *_ = find(page, None, TEXT, folder="first")
    for place, is_right in ((0, True), (2, False)):
        page.mark(state, event(search=1, place=place, is_right=is_right))
    first = [row["moment_id"] for row in state.found]
    again, line, _, _ = page.again(state, event(search=1))
    expected = small.search.opened.search(
        text=TEXT, folder="first", more_like=first[0], less_like=first[2], limit=page.limit
    )
    assert [row["moment_id"] for row in again.found] == [one.moment_id for one in expected]
    assert [row["score"] for row in again.found] == pytest.approx([one.score for one in expected], abs=1e-5)
    assert "marks: 1 right, 1 wrong" in words_of(line)
    place = [row["moment_id"] for row in again.found].index(first[2])
    page.mark(again, event(search=2, place=place, is_right=None))  # taken back
    assert page.again(again, event(search=2))[0].judged == {first[0]: True}
    again.found = again.found[3:]  # the first is not shown any more, and still counts
    assert page.again(again, event(search=2))[0].judged[first[0]] is True
    assert page.again(again, event(search=1))[0] is again  # of another search
    assert page.again(find(page, None, "show blue")[0], event(search=1))[0].number == 1  # nothing is marked


def test_a_moment_opens_among_those_of_its_video_in_the_order_of_time(small, page, monkeypatch):
    state, *_ = find(page, None, TEXT)
    place = next(place for place, row in enumerate(state.found) if row["video"] == "second/one.mp4")
    large = page.open(state, event(search=1, place=place))
    spans = re.findall(r'<li style="left:([\d.]+)%;width:([\d.]+)%;top:(\d+)px">.*?aria-current="(\w+)"', large)
    assert [span[:3] for span in spans] == [(f"{25 * at:.2f}", "25.00", "0") for at in range(4)]
    assert [float(span[0]) for span in spans if span[3] == "true"] == [25 * state.found[place]["start_seconds"]]
    assert f'data-found="{place}"' in large
    assert f"{place + 1} of 12" in words_of(large)
    for wrong in ({"search": 2, "place": 0}, {"search": 1, "place": 12}, {}):
        assert "moment" not in str(page.open(state, event(**wrong)))
    long = [
        state.found[place] | {"moment_id": f"{at}", "start_seconds": at + 0.0, "end_seconds": at + 1.5}
        for at in range(40)
    ]
    monkeypatch.setattr(small.search, "moments_of", lambda _: long[::-1])
    near = small.search.neighbors(long[20])
    assert [row["moment_id"] for row in near] == [f"{at}" for at in range(12, 29)]
    large = cards.opened_moment(small.media, 0, [long[20]], near, {}, marks=True)
    assert set(re.findall(r"top:(\d+)px", large)) == {"0", "52"}  # those that overlap are in two lanes
    assert small.search.neighbors(state.found[place]) == [state.found[place]]  # removed since it was found


def test_marks_about_another_search_or_no_moment_change_nothing(page, small):
    state, *_ = find(page, None, TEXT)
    for wrong in ({"search": 7, "place": 0}, {"search": 1, "place": 99}, {"search": 1, "place": "0"}, {}):
        page.mark(state, event(is_right=True, **wrong))
    assert not page.marks.path.exists()
    page.mark(state, event(search=1, place=0, is_right=True))
    assert list(page.marks.read()[0].values())[:4] == ["", "", "", TEXT]


def test_a_video_that_is_gone_or_changed_is_named_on_its_card(tiny, small, page, tmp_path):
    shutil.copytree(small.videos, tmp_path / "videos")
    (tmp_path / "videos/first/two.mp4").unlink()
    shutil.copy(tmp_path / "videos/first/one.mp4", tmp_path / "videos/second/one.mp4")
    (tmp_path / "videos/second/one.mp4").open("ab").write(b"more")
    media = Media(partial(path_of_video, tmp_path / "videos"), tmp_path / "own", num_workers=1)
    try:
        search = IndexSearch(small.search.opened, media)
        _, said, cards, _ = find(Page(search, marks=page.marks, limit=16), None, TEXT)
    finally:
        media.close()
    assert "16 of 16 moments" in said
    assert cards.count("<video") == 8
    assert cards.count("first/two.mp4 is no longer in the folder of videos; put it back, or run") == 4
    assert cards.count("second/one.mp4 has changed since it was indexed") == 4


class Tags(HTMLParser):
    """The tags of a page."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.append(tag)


def test_labels_with_markup_stay_text(small, page):
    shown, rows, said = page.choices("onerror")
    assert (len(rows), words_of(said)) == (4, "4 moments; a clip to upload may have 60 s and 100 MB")
    assert len(page.choices("")[1]) == 16
    assert set(Tags(shown).found) == {"ul", "li", "button", "img", "span"}
    query, clip = page.take_moment(rows[0])
    assert Tags(clip).found.count("img") == 1  # the strip
    state, line, cards, _ = find(page, query, EVIL, label=EVIL)
    assert "img" not in Tags(cards).found + Tags(line).found
    large = page.open(state, event(search=1, place=0))
    assert (Tags(large).found.count("img"), large.count("onerror=&quot;")) == (4, 3)  # a picture for each neighbor
    assert "img" not in Tags(page.choices("<b>none</b>")[2]).found
    assert page.choose(rows, event(place=99)) == (None, "")
    assert page.choices("first 'one")[1] == []


def test_chosen_moments_are_exported_and_no_module_of_the_working_directory_runs(small, page, tmp_path, monkeypatch):
    state, *_ = find(page, None, TEXT)
    ran = plant(tmp_path / "stranger", monkeypatch)
    state.found[1] = state.found[1] | {"video": "first/none.mp4"}
    link = page.export(state, event(search=1, places=[0, 1, 2, 99]))
    assert "2 moments" in words_of(link)
    assert "first/none.mp4 is no longer in the folder" in words_of(link)
    archive = page.exports[-1]
    names = zipfile.ZipFile(archive).namelist()
    assert len([name for name in names if name.startswith("clips/") and name.endswith(".mp4")]) == 2
    assert {"contact_sheet.jpg", "moments.edl", "moments.m3u", "moments.json"} <= set(names)
    assert not archive.with_suffix("").exists()
    assert not ran.exists()


@pytest.fixture(scope="module")
def served(small, tmp_path_factory):
    """The address of the page, which runs in this process."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "secret.txt").write_text("secret")
    patch = pytest.MonkeyPatch()
    patch.setenv("GRADIO_TEMP_DIR", str(folder / "sent"))
    page = page_of(small.search, folder / "marks.csv", small.videos)
    blocks = build_page(page, title="T", note="n")
    launch(blocks, page)
    yield SimpleNamespace(root=blocks.local_url, page=page, secret=folder / "secret.txt", blocks=blocks)
    blocks.close()
    patch.undo()


def answer(address, **headers):
    """Status, headers and content of what is at an address."""
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=30) as got:
            return got.status, got.headers, got.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


def test_copies_are_served_by_their_ids_in_parts(small, served):
    assert served.root.startswith("http://127.0.0.1:")
    assert served.blocks.share_url is None
    address = served.root + small.media.address("clip", Footage("first/one.mp4", 0.0, 1.0))
    status, headers, whole = answer(address)
    assert (status, headers["Content-Type"], whole[4:8]) == (200, "video/mp4", b"ftyp")
    status, headers, part = answer(address, Range="bytes=4-7")
    assert (status, part) == (206, b"ftyp")
    gone = answer(served.root + small.media.address("clip", Footage("first/gone.mp4", 0.0, 1.0)))
    assert (gone[0], gone[2].decode()) == (
        404,
        "first/gone.mp4 is no longer in the folder of videos; put it back, or run `subtle index` again",
    )
    assert answer(served.root + "media/" + "0" * 40)[0] == 404


def test_no_other_file_is_served_and_no_path_is_told(small, served):
    video = small.videos / "first/one.mp4"
    kept = small.media.made("clip", Footage("first/one.mp4", 0.0, 1.0))[0]
    paths = ["/etc/passwd", served.secret, video, kept, f"{kept.parent}/../../secret.txt", Path(serve.__file__)]
    forms = ["gradio_api/file={}", "file={}", "gradio_api/file/{}", "gradio_api//file={}", "gradio_api/file=..{}"]
    forms += ["media/{}", "media/..%2f..{}", "static/{}", "static/..{}", "assets/{}", "{}"]
    forms += ["gradio_api/%66ile={}", "gradio_api/proxy=file://{}"]
    for path in paths:
        for form in forms:
            quoted = (str(path).replace("/", "%2f"), urllib.parse.quote(str(path), safe=""))
            for spelled in (str(path), str(path).replace("/", "//"), *quoted):
                status, _, content = answer(served.root + form.format(spelled))
                assert status in {400, 403, 404, 405, 422} or b"<!doctype html>" in content[:200], (form, spelled)
                assert b"secret" not in content[:10]
    config = json.dumps(served.blocks.get_config_file(), default=str)
    assert not [path for path in (small.folder, small.media.folder, served.secret.parent) if str(path) in config]


def test_another_page_and_another_name_of_this_machine_are_refused(served):
    assert answer(served.root)[0] == 200
    assert answer(served.root, Host="evil.example:80")[0] == 403
    assert answer(served.root + "config", Origin="http://evil.example")[0] == 403
    assert answer(served.root + "config", Origin=served.root.rstrip("/"))[0] == 200


def test_no_page_may_frame_this_one(small, served):
    media = small.media.address("clip", Footage("first/one.mp4", 0.0, 1.0))
    for address, headers in (("", {}), (media, {}), ("config", {"Origin": "http://evil.example"}), ("none", {})):
        assert answer(served.root + address, **headers)[1].get_all("Content-Security-Policy") == [
            "frame-ancestors 'none'"
        ]


def test_what_a_killed_page_left_is_removed_at_the_next_start(small, tmp_path, monkeypatch):
    folders = []

    def launch(_, page, **options):
        (page.media.folder / "uploads" / "private.mp4").write_text("a visitor's")
        folders.append(page.media.folder)
        raise KeyboardInterrupt

    monkeypatch.setattr("subtle.service.page.launch", launch)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    config = ServeConfig(index=str(small.folder / "index"), device="cpu", num_workers=1)
    with monkeypatch.context() as killed:
        killed.setattr(PixelFolder, "remove", lambda self: os.close(self._lock))  # as the kernel does
        assert run_recipe(serve.main, config) == 130
    assert folders[0].is_dir()
    assert run_recipe(serve.main, config) == 130
    assert folders[1] != folders[0]
    assert not list(tmp_path.iterdir())


def test_a_model_that_reads_no_text_has_its_text_box_off_and_says_why(small, page, monkeypatch):
    monkeypatch.setattr(small.search.encoder, "reads_texts", False, raising=False)
    config = build_page(page, title="T", note="n").get_config_file()
    (box,) = [one["props"] for one in config["components"] if "reads no text" in str(one["props"].get("label"))]
    assert box["interactive"] is False
    assert "VidCLIP, CLIP or SigLIP to search by text" in box["info"]


def one_line(config, capsys):
    """What `serve` says in the shell to a mistake."""
    capsys.readouterr()
    assert run_recipe(serve.main, config) == 2
    return capsys.readouterr().err


def test_mistakes_are_one_line_in_the_shell(small, tmp_path, capsys):
    assert "there is no index" in one_line(ServeConfig(index=str(tmp_path / "none")), capsys)
    assert "holds no index" in one_line(ServeConfig(index=str(tmp_path)), capsys)
    gone = ServeConfig(index=str(small.folder / "index"), video_dir=str(tmp_path / "none"))
    assert "is not a folder; give the one that holds the videos of the index as --video_dir" in one_line(gone, capsys)
    with pytest.raises(ValueError, match="--port 99999: a port is a number from 1 to 65535"):
        ServeConfig(port=99999)
    with pytest.raises(ValueError, match="--limit must be at least 1, not 0"):
        ServeConfig(limit=0)


def test_a_port_that_is_taken_is_named(small, served, capsys):
    port = int(served.root.rstrip("/").rpartition(":")[2])
    config = ServeConfig(index=str(small.folder / "index"), port=port, device="cpu")
    assert f"port {port} is taken on this machine; name another with --port" in one_line(config, capsys)


def test_without_gradio_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(serve.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(SystemExit, match=r"pip install 'subtle-video\[page\]'"):
        serve.main(ServeConfig())


def test_with_no_index_the_miniature_is_indexed_once(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    asked = []
    monkeypatch.setattr(serve.index_recipe, "run", asked.append)
    with pytest.raises(FileNotFoundError, match="there is no index outputs/index"):
        serve.served_index(ServeConfig())
    assert [(config.source, config.output) for config in asked] == [(None, "outputs/index")]
    (tmp_path / "outputs/index").mkdir(parents=True)
    (tmp_path / "outputs/index/results.json").write_text("{}")
    with pytest.raises(FileNotFoundError, match="outputs/index holds no index"):
        serve.served_index(ServeConfig())
    assert len(asked) == 1
