"""The page over an index in a headless Chromium: everything that a visitor does, with pointer, finger and keyboard.

`SUBTLE_SCREENSHOTS=FOLDER` keeps pictures of the page at two widths, light and dark.
"""

import csv
import os
import re
import shutil
import subprocess
import sys
import urllib.parse
import zipfile
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from colored_videos import write_colored_video
from small_index import COLORS, EVIL, build_index

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
playwright = pytest.importorskip("playwright.sync_api", reason="the browser's tests need playwright")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="the browser's tests need Chromium on the PATH"),
]
RECIPES = Path(__file__).parents[3] / "recipes"
SHOTS = os.environ.get("SUBTLE_SCREENSHOTS")
MIN_TARGET = 40


@pytest.fixture(scope="module")
def started(tiny, tmp_path_factory):
    """The page as a process, the folder of the index, and a browser."""
    folder = tmp_path_factory.mktemp("browsed")
    build_index(tiny, folder)
    write_colored_video(folder / "mine.mp4", list(COLORS.values()), fps=12, seed=9)
    (folder / "broken.mp4").write_bytes(b"no video" * 999)
    process = subprocess.Popen(
        [sys.executable, str(RECIPES / "serve.py"), str(folder / "index"), "--num_workers", "2", "--device", "cpu"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=os.environ | {"TMPDIR": str(tmp_path_factory.mktemp("own"))},
    )
    own = tmp_path_factory.getbasetemp() / "own0"
    try:
        line = process.stdout.readline()
        address = re.search(r"http://127\.0\.0\.1:\d+/", line).group()
        with playwright.sync_playwright() as play:
            browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
            yield SimpleNamespace(address=address, folder=folder, browser=browser)
            browser.close()
    finally:
        process.terminate()
        process.wait(60)
    assert not list(own.glob("subtle-*"))  # no copy and no upload stays


@pytest.fixture
def visit(started):
    """Opens the page as a new visitor, who sees no error of a script and reaches no other machine."""
    visitors, wrong = [], []

    def seen(request):
        if urllib.parse.urlsplit(request.url).netloc != urllib.parse.urlsplit(started.address).netloc:
            wrong.append(request.url)
        if str(started.folder) in urllib.parse.unquote(request.url):
            wrong.append(request.url)

    def open_page(width=1280, height=900, scheme="light", **options):
        context = started.browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, accept_downloads=True, **options
        )
        page = context.new_page()
        page.set_default_timeout(30_000)
        page.on("request", seen)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto(started.address)
        page.wait_for_selector("#query video")
        visitors.append(context)
        return page

    yield open_page
    for context in visitors:
        context.close()
    assert not [one for one in wrong if not one.startswith(("data:", "blob:"))]


def said(page):
    """The line about the search."""
    return page.evaluate("document.querySelector('#said .said')?.innerText ?? ''")


def search(page, text=None):
    """Press the button, and wait for its answer."""
    before = said(page)
    number = page.evaluate("document.querySelector('#found .bar')?.dataset.search ?? null")
    if text is not None:
        page.get_by_label("2. Say what is different").fill(text)
    page.get_by_role("button", name="Search", exact=True).click()
    page.wait_for_function(
        """([before, number]) => (document.querySelector('#said .said')?.innerText ?? '') !== before
        || (document.querySelector('#found .bar')?.dataset.search ?? null) !== number""",
        arg=[before, number],
    )


def cards(page):
    return page.locator("#found .cards li").evaluate_all(
        "cards => cards.map(card => card.querySelector('.text').innerText.replace(/\\s+/g, ' '))"
    )


def seconds(page, name):
    return float(page.locator(f"#query input[type=number].{name}").input_value())


def upload(page, path):
    page.locator("input[type=file]").first.set_input_files(str(path))


def marks_of(started):
    path = started.folder / "index" / "marks.csv"
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_visitor_uploads_trims_searches_plays_marks_and_exports(started, visit, tmp_path):
    page = visit()
    upload(page, started.folder / "mine.mp4")
    page.wait_for_function("document.querySelector('#query .name').innerText.includes('mine.mp4')")
    assert (seconds(page, "start"), seconds(page, "end")) == (0.0, 4.0)
    page.locator("#query .strip").scroll_into_view_if_needed()
    strip = page.locator("#query .strip").bounding_box()
    for name, share in (("start", 0.25), ("end", 0.5)):  # drag the handles
        box = page.locator(f"#query input[type=range].{name}").bounding_box()
        at = box["x"] + 20 if name == "start" else box["x"] + box["width"] - 20
        page.mouse.move(at, box["y"] + 30)
        page.mouse.down()
        page.mouse.move(at + 5, box["y"] + 30)
        aimed = strip["x"] + share * strip["width"] + (-20 if name == "start" else 20)
        page.mouse.move(aimed, box["y"] + 30, steps=4)
        page.mouse.up()
    assert seconds(page, "start") == pytest.approx(1.0, abs=0.11)
    assert seconds(page, "end") == pytest.approx(2.0, abs=0.11)
    page.locator("#query input[type=number].start").fill("1")
    page.locator("#query input[type=number].end").fill("2")
    page.locator("#query input[type=number].end").press("Tab")
    search(page, "show red")
    assert re.search(r"^12 of 16 moments .* like mine.mp4, 1.00 to 2.00 s · “show red” · model", said(page))
    watched = page.evaluate(
        """async () => {
          const times = [];
          const player = document.querySelector('#query video');
          for (let round = 0; round < 30; round++) {
            await new Promise(done => setTimeout(done, 80));
            times.push([player.currentTime, document.querySelector('#found video').currentTime]);
          }
          return times;
        }"""
    )
    for player, least, most in ((0, 0.9, 2.1), (1, 0.0, 1.05)):
        times = [pair[player] for pair in watched]
        assert least <= min(times) < max(times) <= most
        assert len(set(times)) > 5
        assert any(after < before for before, after in pairwise(times))  # it began again
    card = page.locator("#found .cards li").nth(1)
    card.get_by_role("button", name="is right").click()
    page.wait_for_selector("#found li:nth-child(2) [data-do=right][aria-pressed=true]")
    page.locator("#found .cards li").nth(2).get_by_role("button", name="is wrong").click()
    page.wait_for_selector("#found li:nth-child(3) [data-do=wrong][aria-pressed=true]")
    rows = marks_of(started)
    assert [(row["query_start_seconds"], row["query_end_seconds"], row["text"], row["is_right"]) for row in rows] == [
        ("1.000", "2.000", "show red", "true"),
        ("1.000", "2.000", "show red", "false"),
    ]
    assert (started.folder / "index" / rows[0]["query_video"]).read_bytes() == (
        started.folder / "mine.mp4"
    ).read_bytes()
    with page.expect_download() as got:
        page.get_by_role("link", name="Download marks.csv").click()
    assert Path(got.value.path()).read_bytes() == (started.folder / "index" / "marks.csv").read_bytes()
    for place in (0, 3):
        page.locator("#found .cards li").nth(place).get_by_role("checkbox").check()
    page.get_by_role("button", name="Export chosen (2)").click()
    with page.expect_download(timeout=60_000) as got:
        page.get_by_role("link", name="Download moments.zip").click(timeout=60_000)
    names = zipfile.ZipFile(got.value.path()).namelist()
    assert len([name for name in names if name.startswith("clips/") and name.endswith(".mp4")]) == 2
    (started.folder / "index" / "marks.csv").unlink()


def test_nothing_fits_a_broken_file_and_a_long_text_are_lines_on_the_page(started, visit):
    page = visit()
    page.get_by_role("button", name="Filters").click()
    page.get_by_label("Lowest score").fill("2")
    page.get_by_label("Lowest score").press("Tab")
    search(page, "show red")
    assert "Nothing fits: the best score is" in said(page)
    search(page, "show " * 60)
    assert "the model reads 32; shorten it" in said(page)
    upload(page, started.folder / "broken.mp4")
    page.wait_for_selector("#query [role=alert]")
    assert "broken.mp4 is not a video, or it is damaged" in page.locator("#query").inner_text()
    page.get_by_role("button", name="Text only").click()
    page.wait_for_function("document.querySelector('#query').innerText.includes('only the text')")
    page.get_by_label("Lowest score").fill("")
    page.get_by_label("Lowest score").press("Tab")
    search(page, "show red")
    assert len(cards(page)) == 12
    assert EVIL in " ".join(cards(page))  # a label with markup is text


def test_a_video_that_vanishes_is_named_on_its_cards(started, visit):
    page = visit()
    video = started.folder / "videos/second/three.mp4"
    video.rename(video.with_suffix(".gone"))
    try:
        search(page, "show green")
        page.wait_for_selector("#found .cards li")
        troubles = page.locator("#found .trouble:visible").all_inner_texts()
        assert troubles
        assert {text.partition(";")[0] for text in troubles} == {
            "second/three.mp4 is no longer in the folder of videos"
        }
    finally:
        video.with_suffix(".gone").rename(video)


def test_two_visitors_do_not_see_each_others_queries(visit):
    one, two = visit(), visit()
    names = ("green", "blue")
    for page, name in zip((one, two), names, strict=True):
        page.get_by_label("1. Choose a moment").fill(name)
        page.wait_for_function("document.querySelectorAll('#choices button').length === 4")
        page.locator("#choices button").first.click()
        page.wait_for_function("name => document.querySelector('#query .name').innerText.endsWith(name)", arg=name)
    for page, name in zip((one, two), names, strict=True):
        page.get_by_label("2. Say what is different").fill(f"show {name}")
    for page in (one, two):
        page.get_by_role("button", name="Search", exact=True).click()
    for page, name in zip((one, two), names, strict=True):
        page.wait_for_selector("#found .cards li")
        assert f"· “show {name}” ·" in said(page)
        assert page.locator("#query .name").inner_text().endswith(name)
    assert cards(one) != cards(two)


def focused(page):
    """What has the focus: its name, and whether that is visible."""
    return page.evaluate(
        """() => {
          const node = document.activeElement, style = getComputedStyle(node);
          const label = node.getAttribute('aria-label') || node.closest('label')?.innerText || node.innerText;
          const thumb = node.type === 'range';
          const ring = style.outlineStyle !== 'none' || style.boxShadow !== 'none' || thumb;
          return [node.tagName, (label || '').trim().replace(/\\s+/g, ' '), ring];
        }"""
    )


def test_the_keyboard_reaches_and_does_everything(visit):
    page = visit()
    page.get_by_label("1. Choose a moment").focus()
    reached = []
    for _ in range(80):
        page.keyboard.press("Tab")
        tag, name, ring = focused(page)
        reached.append(name)
        assert ring or tag in {"BODY"}, (tag, name)
        if name == "Start of the clip, in seconds" and reached.count(name) == 1:
            before = seconds(page, "start")
            for _ in range(4):
                page.keyboard.press("ArrowRight")
            assert seconds(page, "start") == pytest.approx(before + 0.2, abs=0.051)
        if name.startswith("Filters"):
            page.keyboard.press("Enter")
        if name == "Search":
            page.keyboard.press("Enter")
            page.wait_for_selector("#found .cards li")
        if name == "Moment 2 is right":
            page.keyboard.press("Space")
            page.wait_for_selector("#found li:nth-child(2) [data-do=right][aria-pressed=true]")
            page.keyboard.press("Space")
            page.wait_for_selector("#found li:nth-child(2) [data-do=right][aria-pressed=false]")
        if name == "Choose moment 2 for export":
            page.keyboard.press("Space")
            break
    wanted = ["Upload a clip", "Text only", "Start of the clip, in seconds", "End of the clip, in seconds"]
    wanted += ["Pause", "Filters", "Search", "Play from the start", "Export all", "Moment 1 is right"]
    assert [name for name in wanted if not any(one.startswith(name) for one in reached)] == []
    assert page.get_by_role("button", name="Export chosen (1)").is_enabled()


def test_the_query_stays_beside_the_moments_and_keys_move_open_mark_and_search_again(started, visit):
    page = visit(1280, 800)
    page.locator("#found .empty svg").wait_for()
    search(page, "show red")
    assert page.locator("#found .cards video").first.get_attribute("poster").startswith("media/")
    page.mouse.move(900, 500)
    page.mouse.wheel(0, 700)
    page.wait_for_function("scrollY > 200")
    box = page.locator("#asked").bounding_box()
    assert 340 <= box["width"] <= 380
    assert box["y"] >= 0
    assert page.locator("#start").bounding_box()["y"] < 800
    page.locator("#found .open").first.focus()
    page.keyboard.press("ArrowRight")
    assert focused(page)[1].startswith("Show moment 2 large")
    page.keyboard.press("ArrowDown")
    assert focused(page)[1].startswith("Show moment 5 large")
    page.keyboard.press("Enter")
    page.wait_for_selector("#large[open]")
    page.keyboard.press("ArrowLeft")
    page.wait_for_function("document.querySelector('#large .doings').innerText.includes('4 of 12')")
    page.keyboard.press("r")
    page.wait_for_selector("#large [data-do=right][aria-pressed=true]")
    page.keyboard.press("ArrowRight")
    page.wait_for_function("document.querySelector('#large .doings').innerText.includes('5 of 12')")
    page.keyboard.press("w")
    page.wait_for_selector("#large [data-do=wrong][aria-pressed=true]")
    spans = page.locator("#large .spans button")
    assert spans.count() == 4
    for span in spans.all():
        span.click()
        assert span.get_attribute("aria-current") == "true"
        assert page.locator("#large h2").inner_text() == span.get_attribute("title")  # also one with markup
    page.wait_for_function("document.querySelector('#large video').readyState > 1")
    page.keyboard.press("Escape")
    page.wait_for_selector("#large", state="hidden")
    assert focused(page)[1].startswith("Show moment 5 large")
    page.get_by_role("button", name="Search again with the marks").click()
    page.wait_for_function("document.querySelector('#said').innerText.includes('marks: 1 right, 1 wrong')")
    (started.folder / "index" / "marks.csv").unlink()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_the_page_fits_its_window_and_its_targets_a_finger(visit, width, scheme):
    page = visit(width, 844, scheme, has_touch=width < 500, is_mobile=width < 500)
    button = page.locator("#start").bounding_box()
    assert button["y"] + button["height"] <= 844  # within reach before anything is scrolled
    search(page, "show red")
    page.locator("#found .cards li").nth(0).get_by_role("button", name="is right").click()
    page.wait_for_selector("#found [aria-pressed=true]")
    page.wait_for_timeout(1500)
    wide = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert wide[0] <= wide[1]
    small = page.locator("button:visible, a:visible, #found .marks label, input[type=number]:visible").evaluate_all(
        """(nodes, least) => nodes.map(node => [node.innerText || node.className, node.getBoundingClientRect()])
        .filter(([, box]) => box.width && Math.min(box.width, box.height) < least)
        .map(([name, box]) => [name, box.width, box.height])""",
        MIN_TARGET,
    )
    assert small == []
    columns = page.locator("#found .cards li").evaluate_all(
        "cards => new Set(cards.map(card => Math.round(card.getBoundingClientRect().x))).size"
    )
    assert columns == {1280: 3, 390: 1}[width]
    if SHOTS:
        page.evaluate("scrollTo(0, 0)")
        page.screenshot(path=f"{SHOTS}/page_{width}_{scheme}.png", full_page=True)
    page.locator("#found .open").first.click()
    page.wait_for_selector("#large[open]")
    large, clipped = page.locator("#large").evaluate(
        """dialog => [dialog.scrollWidth <= innerWidth, [...dialog.querySelectorAll('.doings button')]
        .filter(button => button.scrollWidth > button.clientWidth).map(button => button.innerText)]"""
    )
    assert (large, clipped) == (True, [])
    page.get_by_role("button", name="Close").click()
    page.locator("#found [aria-pressed=true]").click()
    page.wait_for_function("!document.querySelector('#found [aria-pressed=true]')")
