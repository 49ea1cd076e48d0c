"""The site in a real browser, opened from the disk: what no look at the files can tell."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, Page

from d2lpar.collectives import allreduce_ring
from d2lpar.pages.race import Race, race_step, race_words
from d2lpar.pages.stepper import trace_rounds
from d2lpar.pages.which_run import which_runs
from helpers.explorers import BARS, CURVES, bars_ms, curves_ms
from revisions import name_of
from search_ext import KEYWORDS

pytestmark = pytest.mark.slow

PARTS, LENGTH = "(book/authors.md, The parts of a chapter)", "(book/authors.md, How long a chapter is)"

# Elements that stick out of the window, unless something around them scrolls or clips.
STICKING_OUT = """() => [...document.querySelectorAll('.bd-article *')].filter(e => {
  if (e.getBoundingClientRect().right <= document.documentElement.clientWidth + 1) return false;
  for (let p = e.parentElement; p && !p.matches('.bd-article'); p = p.parentElement)
    if (getComputedStyle(p).overflowX != 'visible') return false;
  return !e.closest('.sr-only, mjx-assistive-mml') && e.getClientRects().length > 0;
}).map(e => e.outerHTML.slice(0, 80))"""

# Boxes of code and output, folded ones opened, in which a line has to be scrolled.
SCROLLING = """() => {
  document.querySelectorAll('details').forEach(e => e.open = true);
  document.querySelectorAll('.toggle-hidden').forEach(e => e.classList.remove('toggle-hidden'));
  document.querySelectorAll('[hidden="until-found"]').forEach(e => e.hidden = false);
  return [...document.querySelectorAll('.bd-article pre')].filter(e => e.scrollWidth > e.clientWidth)
    .map(e => e.textContent.slice(0, 80));
}"""


ALL_BUT_CONTRAST = {  # which is slow
    "resultTypes": ["violations"], "preload": False,  # it would ask for style sheets in a way that needs a server
    "rules": {"color-contrast": {"enabled": False}, "label-content-name-mismatch": {"enabled": True}},
}
NO_TRANSITIONS = "* { transition: none !important; }"  # colours and widths are at once what they will be


@pytest.fixture()
def page(browser: Browser) -> Iterator[Page]:
    opened = browser.new_page(viewport={"width": 1280, "height": 900})
    yield opened
    opened.close()


def visit(page: Page, file: Path) -> None:
    page.goto(file.as_uri(), wait_until="load")
    page.evaluate("() => window.MathJax?.startup?.promise")


def violations(page: Page, options: dict, part: str = "html") -> list[str]:
    """The rules of axe, a checker of accessibility, that this part of the page breaks, each with its first offender."""
    results = Axe().run(page, context=part, options=options).response["violations"]
    return [f"{rule['id']}: {rule['nodes'][0]['html'][:100]}" for rule in results]


class Found(NamedTuple):
    """What a browser finds on one page, which it loads once, as that takes longer than all the looking."""

    troubles: list[str]  # requests to another host, files that are not there, errors of scripts
    sticking_out: dict[tuple[int, str], object]  # by width and theme, where there is something
    filters: set[str]  # over the pictures, on the dark page of the first of its kind
    formulas: tuple[int, int, int]  # in the text, typeset, and with an error
    scrolling: list[str]  # boxes of code and output
    violations: list[str]  # of rules of accessibility
    solutions: list[list[bool]]  # of the first of its kind: is the answer seen at first, after Enter, and after another?


@pytest.fixture(scope="module", params=["a page of each kind", pytest.param("every page", marks=pytest.mark.weekly)])
def found(request: pytest.FixtureRequest, browser: Browser, pages: list[Path], chinese_pages: list[Path]) -> dict[str, Found]:
    page, kinds = browser.new_page(), set()
    found = {}
    for file in [*pages, *chinese_pages]:
        is_first = (kind := kind_of(file)) not in kinds
        if is_first or request.param == "every page":
            found["zh/" * (file in chinese_pages) + file.name] = look_at(page, file, is_first)
        kinds.add(kind)
    page.close()
    assert len(kinds) > 8
    return found


def kind_of(file: Path) -> tuple[str, ...]:
    """What a page is made of; the rules of accessibility are about how that is made, and one page of each kind shows it."""
    text = file.read_text("utf8")
    parts = ("explorer.js", "stepper.js", "which_run.js", "predict.js", 'class="exercise', "<table", "toggle-button", "sig-object", "mystnb")
    return (file.parent.name, *(part for part in parts if part in text))


def look_at(page: Page, file: Path, is_first_of_its_kind: bool) -> Found:
    troubles: list[str] = []
    listeners: dict[str, Callable] = {
        "request": lambda r: r.url.startswith(("file:", "data:", "blob:")) or troubles.append(f"asks {r.url}"),
        "requestfailed": lambda r: troubles.append(f"misses {r.url}"),
        "pageerror": lambda error: troubles.append(f"error {error}"),
        "console": lambda message: message.type == "error" and troubles.append(f"console {message.text}")}
    for event, listener in listeners.items():
        page.on(event, listener)
    views: tuple[tuple[int, Literal["light", "dark"]], ...] = ((1280, "light"), (390, "light"))
    if is_first_of_its_kind:
        views += (390, "dark"), (1280, "dark")
    show(page, *views[0])
    visit(page, file)
    page.add_style_tag(content=NO_TRANSITIONS)
    formulas = tuple(page.locator(f".bd-article {what}").count() for what in (".math", "mjx-container", "mjx-merror"))
    sticking_out, filters = {}, set()
    for width, theme in views:
        switch(page, width, theme)
        more = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        parts = page.evaluate(STICKING_OUT)
        if more > 0 or parts:
            sticking_out[width, theme] = more, parts
        if theme == "dark":
            filters |= set(page.evaluate("[...document.querySelectorAll('.bd-article img')].map(e => getComputedStyle(e).filter)"))
    switch(page, 1280, views[-1][1])
    broken, solutions = [], []
    if is_first_of_its_kind:
        broken = violations(page, ALL_BUT_CONTRAST)
        solutions = [seen_by_keyboard(page, one) for one in page.locator(".solution.dropdown").all()]
    scrolling = page.evaluate(SCROLLING)  # last, because it opens what is folded
    page.evaluate("localStorage.clear()")
    for event, listener in listeners.items():
        page.remove_listener(event, listener)
    page.goto("about:blank")  # so that the next page hears nothing of this one
    return Found(troubles, sticking_out, filters, formulas, scrolling, broken, solutions)


def seen_by_keyboard(page: Page, solution: Locator) -> list[bool]:
    button, answer = solution.locator("button.toggle-button"), solution.locator(".section, section, pre, p").last
    seen = [answer.is_visible()]
    button.focus()
    for _ in range(2):
        page.keyboard.press("Enter")
        seen.append(answer.is_visible())
    return seen


def show(page: Page, width: int, theme: Literal["light", "dark"]) -> None:
    page.emulate_media(color_scheme=theme)
    page.set_viewport_size({"width": width, "height": 900})


def switch(page: Page, width: int, theme: Literal["light", "dark"]) -> None:
    """`show`, for a page that is open."""
    show(page, width, theme)
    page.wait_for_function("theme => document.documentElement.dataset.theme === theme", arg=theme)


def test_no_page_asks_another_host_misses_a_file_or_has_a_script_error(found: dict[str, Found]) -> None:
    assert {name: page.troubles for name, page in found.items() if page.troubles} == {}, (
        f"Put the files that these pages load into book/_static/, and fix their scripts {PARTS}")


def test_no_page_is_wider_than_the_window_on_a_desk_and_on_a_phone(found: dict[str, Found]) -> None:
    assert {name: page.sticking_out for name, page in found.items() if page.sticking_out} == {}, (
        f"Make these parts fit into a window of 1280 and of 390 pixels: shorten what is long, or let it scroll {LENGTH}")


def test_no_line_of_code_or_output_is_wider_than_its_box(found: dict[str, Found]) -> None:
    assert {name: page.scrolling for name, page in found.items() if page.scrolling} == {}, f"Shorten these lines of code or output {LENGTH}"


def test_no_page_breaks_a_rule_of_accessibility(found: dict[str, Found]) -> None:
    assert {name: page.violations for name, page in found.items() if page.violations} == {}, (
        f"Fix these parts; each rule is explained on dequeuniversity.com/rules/axe {PARTS}")


def test_figures_are_as_bright_on_dark_pages_as_they_were_drawn(found: dict[str, Found]) -> None:
    assert {filters for page in found.values() for filters in page.filters} == {"none"}


def test_formulas_are_typeset_everywhere(found: dict[str, Found]) -> None:
    formulas = {name: page.formulas for name, page in found.items()}
    assert {name: (wanted, typeset, wrong) for name, (wanted, typeset, wrong) in formulas.items() if typeset < wanted or wrong} == {}, (
        f"Fix the formulas of these pages, of which some are not typeset (wanted, typeset, wrong) {PARTS}")
    assert sum(page.formulas[0] for page in found.values()) > 100


EXPLORERS = [BARS, CURVES]
SIGNALS = "names => Object.fromEntries(names.map(name => [name, document.querySelector('div.explorer').view.signal(name)]))"


def open_explorer(page: Page, site: Path, chapter: str = EXPLORERS[0]) -> Locator:
    visit(page, site / "notebooks" / f"{chapter}.html")
    explorer = page.locator("div.explorer")
    explorer.locator("svg.marks").wait_for()
    return explorer


def test_the_formulas_of_the_explorer_are_those_of_the_package(page: Page, site: Path) -> None:
    explorer = open_explorer(page, site)
    places = ["k", "batch", "tflops", "gbytes", "percent", "micro"]
    for values in ((2, 16, 400, 371, 0, 1), (1, 16, 10, 1, 0, 1), (8, 1024, 1000, 3, 100, 16), (3, 40, 70, 55, 35, 5), (5, 512, 100, 1, 100, 8)):
        for place, value in zip(places, values):
            explorer.locator(f"input[name={place}]").fill(str(value))
        right = bars_ms(*values)
        page.wait_for_function(f"document.querySelector('div.explorer').view.signal('micro') === {values[5]}")
        shown = page.evaluate(SIGNALS, [f"bar_{i}" for i in range(4)])
        assert list(shown.values()) == pytest.approx(right, rel=1e-6), values
        assert f"{right[0]:,.1f} ms" in " ".join(explorer.locator("svg.marks text").all_text_contents()) or right[0] < 10


def test_the_curves_of_the_explorer_are_those_of_the_package(page: Page, site: Path) -> None:
    explorer = open_explorer(page, site, EXPLORERS[1])
    for values in ((9, 45, 14, 12, 3, 1000), (12, 500, 1, 400, 6, 10), (1, 1, 50, 1, 4, 10_000), (6, 7, 4, 100, 0, 500)):
        for place, value in zip(("power", "mbytes", "micros", "gbytes", "near", "work"), values):
            explorer.locator(f"input[name={place}]").fill(str(value))
        page.wait_for_function(f"document.querySelector('div.explorer').view.signal('work') === {values[5]}")
        shown = page.evaluate(SIGNALS, [f"curve_{i}" for i in range(6)])
        assert list(shown.values()) == pytest.approx(curves_ms(*values), rel=0.01), values  # pieces are rounded


def test_the_explorer_is_moved_by_keyboard_and_says_what_it_shows(page: Page, site: Path) -> None:
    explorer = open_explorer(page, site)
    for label, key, shown in (("ranks", "ArrowRight", "3"), ("batch size, in sequences", "Home", "16"), ("GB/s of a link, each way", "End", "400")):
        page.get_by_role("slider", name=label, exact=True).focus()
        page.keyboard.press(key)
        assert explorer.locator("div").filter(has=page.get_by_label(label, exact=True)).last.locator("output").inner_text() == shown
    page.wait_for_function("document.querySelector('div.explorer [role=status]').textContent.includes('data parallelism: 165.4 ms')")
    assert page.evaluate(SIGNALS, ["k", "batch", "gbytes"]) == {"k": 3, "batch": 16, "gbytes": 400}


# The picture of an explorer has its column's width, which it follows some moments later, and all labels are inside.
FITS = """() => {
  const [column, around, picture] = ['div.explorer', 'div.explorer .picture', 'div.explorer svg.marks']
    .map(part => document.querySelector(part).getBoundingClientRect());
  const inside = (one, other) => one.left >= other.left - 1 && one.right <= other.right + 1;
  return Math.abs(picture.width - around.width) <= 1 && picture.width > 0.9 * column.width && inside(picture, column)
    && [...document.querySelectorAll('div.explorer svg.marks text')].every(e => inside(e.getBoundingClientRect(), picture));
}"""


@pytest.mark.parametrize("chapter, views", [
    (EXPLORERS[0], [(1280, "dark"), (1280, "light"), (700, "light"), (390, "light"), (390, "dark")]),
    pytest.param(EXPLORERS[1], [(390, "light"), (390, "dark"), (700, "dark"), (1280, "dark"), (1280, "light")], marks=pytest.mark.weekly)])
def test_the_explorer_is_as_wide_as_the_text_and_obeys_the_rules_of_accessibility(
        page: Page, site: Path, chapter: str, views: list[tuple[int, Literal["light", "dark"]]]) -> None:
    show(page, *views[0])  # the page is opened in such a window, which then changes, as when a phone is turned
    open_explorer(page, site, chapter)
    page.add_style_tag(content=NO_TRANSITIONS)
    for width, theme in views:
        switch(page, width, theme)
        page.wait_for_function(FITS)
        assert violations(page, {"resultTypes": ["violations"], "preload": False}, "div.explorer") == []
        assert not page.locator("figure:has(div.explorer) img").is_visible()


def test_without_scripts_the_explorer_is_a_picture_with_words(browser: Browser, site: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((site / "notebooks" / f"{EXPLORERS[0]}.html").as_uri())
    still = page.locator("figure:has(script.explorer) img")
    assert still.is_visible() and "data parallelism: 214.8 ms, 1.92 times as fast" in still.get_attribute("alt")
    assert still.evaluate("e => e.naturalWidth") > 300
    context.close()


def test_only_pages_with_an_explorer_a_stepper_a_game_or_a_prediction_load_what_it_needs(root: Path, site: Path, notebooks: list[Path]) -> None:
    for chapter in notebooks:
        text = (site / chapter.relative_to(root).with_suffix(".html")).read_text("utf8")
        assert ("vega_bundle.js" in text) == ("explorer.js" in text) == (name_of(chapter, root / "notebooks") in EXPLORERS), (
            f"Add {chapter.stem} to EXPLORERS, or take its explorer out {PARTS}")
        assert ("stepper.js" in text) == (chapter.stem in (STEPPER, FRAMES)), f"Name {chapter.stem} here, or take its stepper out {PARTS}"
        assert ("which_run.js" in text) == (chapter.stem == GAME), f"Name {chapter.stem} here, or take its game out {PARTS}"
        assert ("predict.js" in text) == ("tag_predict" in text), chapter.stem
        assert ("race.js" in text) == (chapter.stem == RACE), f"Name {chapter.stem} here, or take its race out {PARTS}"
    index = (site / "book" / "index.html").read_text("utf8")
    scripts = ("vega_bundle.js", "stepper.js", "predict.js", "which_run.js", "race.js")
    assert [script for script in scripts if script in index] == ["race.js"] and len(index) < 400_000


STEPPER, FRAMES = "16_rings_true_and_false", "20_sharding"
BOXES = """() => [...document.querySelectorAll('div.stepper svg rect')].filter(e => e.getAttribute('fill') !== 'none').length"""


def open_stepper(page: Page, site: Path, chapter: str = STEPPER) -> Locator:
    visit(page, site / "notebooks" / f"{chapter}.html")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")  # shows what waits for a prediction
    return page.locator("div.stepper")


def test_the_stepper_shows_by_keyboard_what_the_ring_sends_and_says_it(page: Page, site: Path) -> None:
    stepper = open_stepper(page, site)
    for k in range(2, 6):
        choice = stepper.get_by_label("devices")
        choice.focus()
        page.keyboard.press("Home")
        for _ in range(k - 2):
            page.keyboard.press("ArrowDown")
        assert choice.input_value() == str(k)
        rounds = trace_rounds(allreduce_ring, k)
        stepper.get_by_role("button", name="Next").focus()
        for i, step in enumerate(rounds):
            assert page.evaluate(BOXES) == sum(len(ranks) for row in step.holds for ranks in row)
            assert stepper.locator("path.message").count() == stepper.locator("rect.arrived").count() == len(step.moves)
            said = stepper.get_by_role("status").inner_text()
            assert said.startswith(f"Round {i} of {2 * k - 2}" if i else "Start")
            assert all(f"Rank {source} sends chunk {chunk} to rank {target}: now" in said for source, target, [chunk], _ in step.moves)
            page.keyboard.press(("Enter", "ArrowRight")[i % 2])
        assert stepper.get_by_role("button", name="Next").get_attribute("aria-disabled") == "true"
        assert stepper.get_by_role("status").inner_text().endswith("Every rank holds the whole sum.")
        page.keyboard.press("ArrowLeft")
        assert stepper.get_by_role("status").inner_text().startswith(f"Round {2 * k - 3} of")
    assert page.url.endswith(f"{STEPPER}.html"), "a key has led to another page"


def test_a_sharded_step_is_shown_frame_by_frame_by_keyboard_and_said(page: Page, site: Path) -> None:
    stepper = open_stepper(page, site, FRAMES)
    stored = json.loads(page.locator("script.stepper").text_content() or "")["frames"]
    stepper.get_by_role("button", name="Next").focus()
    sent, said = [0, 0], []
    for i, frame in enumerate(stored):
        said.append(stepper.get_by_role("status").inner_text())
        assert said[i].startswith(f"Frame {i + 1} of {len(stored)}: {frame['moment']}.") and said[i] == frame["words"]
        held = [int(values) * 4 for values in re.findall(r": (\d+) values", said[i])]
        assert held == [int(size) for size in re.findall(r"values, (\d+) bytes", said[i])] == [rank["bytes"] for rank in frame["ranks"]]
        assert stepper.locator("rect.held").count() == sum(held) // 4
        assert stepper.locator("rect.fresh").count() == sum(box[3] for rank in frame["ranks"] for box in rank["boxes"])
        bars = stepper.locator("rect.bar").evaluate_all("bars => bars.map(e => e.getAttribute('height') * 1)")
        assert bars == pytest.approx([max(bars) * rank["bytes"] / 56 for each in stored for rank in each["ranks"]])
        marked = stepper.locator("rect.now").bounding_box()
        around = [stepper.locator("rect.bar").nth(2 * i + rank).bounding_box() for rank in (0, 1)]
        assert all(marked["x"] <= bar["x"] and bar["x"] + bar["width"] <= marked["x"] + marked["width"] for bar in around)
        sent = [before + rank["sent"] for before, rank in zip(sent, frame["ranks"])]
        assert ("Each rank sends 8 bytes." in said[i]) == (frame["ranks"][0]["sent"] == 8)
        page.keyboard.press(("Enter", "ArrowRight")[i % 2])
    assert sent == [48, 48] and len(set(said)) == len(stored) == 18
    assert stepper.get_by_role("button", name="Next").get_attribute("aria-disabled") == "true"
    page.keyboard.press("ArrowLeft")
    assert stepper.get_by_role("status").inner_text() == said[-2] and page.url.endswith(f"{FRAMES}.html")


@pytest.mark.parametrize("chapter, least_px", [(STEPPER, 8), (FRAMES, 11)])
def test_the_stepper_fits_and_obeys_the_rules_of_accessibility(page: Page, site: Path, chapter: str, least_px: int) -> None:
    show(page, 390, "light")
    stepper = open_stepper(page, site, chapter)
    page.add_style_tag(content=NO_TRANSITIONS)
    if chapter == STEPPER:
        stepper.get_by_label("devices").select_option("5")
    stepper.get_by_role("button", name="Next").click()
    for width, theme in ((390, "light"), (390, "dark"), (1280, "dark"), (1280, "light")):
        switch(page, width, theme)
        assert violations(page, {"resultTypes": ["violations"], "preload": False}, "div.stepper") == []
        box, around = (stepper.locator(part).bounding_box() for part in ("svg", ".picture"))
        assert abs(box["width"] - around["width"]) <= 1 and around["x"] >= 0 and around["x"] + around["width"] <= width
        assert min(stepper.locator("svg text").evaluate_all("all => all.map(e => parseFloat(getComputedStyle(e).fontSize) "
                                                            "* e.getScreenCTM().a)")) >= least_px
        within = "svg => [...svg.querySelectorAll('text')].every(e => { const [a, b] = [e, svg].map(x => x.getBoundingClientRect()); "
        assert stepper.locator("svg").evaluate(within + "return a.left >= b.left && a.right <= b.right && a.top >= b.top; })")
        assert not page.locator("figure:has(div.stepper) img").is_visible()
    page.emulate_media(media="print")
    assert page.locator("figure:has(div.stepper) img").is_visible() and not stepper.is_visible(), "on paper all steps are seen"


def test_without_scripts_the_stepper_is_a_picture_with_words_and_no_answer_is_hidden(browser: Browser, site: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((site / "notebooks" / f"{STEPPER}.html").as_uri())
    still = page.locator("figure:has(script.stepper) img")
    assert still.is_visible() and still.evaluate("e => e.naturalWidth") > 300
    assert "Round 1 of 6, add. Rank 0 sends chunk 3 to rank 1: now 0 + 1." in still.get_attribute("alt")
    answers = page.locator(".tag_predict .cell_output").all()
    assert len(answers) >= 3 and all(answer.is_visible() for answer in answers)
    context.close()


RACE = "08_ddp_built"
LATENCIES, BANDWIDTHS = [0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1], [0.5, 1, 2, 5, 10, 20, 50, 100]
SETTINGS = [Race(), Race("in hooks"), Race("after backward"), Race(cap_mb=4), Race(cap_mb=12), Race(cap_mb=96, ranks=2),
            Race(cap_mb=20, ranks=8, latency_ms=1, gb_per_s=0.5), Race(cap_mb=28, ranks=7, latency_ms=0.01, gb_per_s=100),
            Race("in hooks", ranks=3, latency_ms=0, gb_per_s=50), Race(cap_mb=64, ranks=5, latency_ms=0.5, gb_per_s=10)]


def set_race(race: Locator, to: Race) -> None:
    """Move the sliders."""
    race.get_by_label("send gradients").select_option(to.way)
    for label, place in (("ranks", to.ranks - 2), ("latency of a message", LATENCIES.index(to.latency_ms)),
                         ("bandwidth", BANDWIDTHS.index(to.gb_per_s)), ("cap of a bucket", to.cap_mb // 4 - 1)):
        if label != "cap of a bucket" or to.way == "in buckets":
            race.get_by_label(label, exact=True).fill(str(place))


@pytest.mark.parametrize("where", [f"notebooks/{RACE}.html", "book/index.html"])
def test_the_race_says_what_the_package_calculates_at_ten_settings(page: Page, site: Path, where: str) -> None:
    visit(page, site / where)
    race = page.locator("div.race")
    assert race.get_by_role("status").inner_text() == race_words(Race())
    for to in SETTINGS:
        set_race(race, to)
        assert race.get_by_role("status").inner_text() == race_words(to), to
        count = len(race_step(to).sent)
        assert race.locator("rect.allreduce").count() == to.ranks * count and race.locator("rect.backward").count() == to.ranks
        assert race.get_by_label("cap of a bucket").is_disabled() == (to.way != "in buckets")
    assert not page.locator(":is(figure, .race-holder):has(div.race) img").is_visible()


def test_the_race_is_driven_by_keyboard_and_its_bars_move(page: Page, site: Path) -> None:
    visit(page, site / "book" / "index.html")
    race = page.locator("div.race")
    before = race.locator("rect.allreduce").first.get_attribute("x")
    race.get_by_label("cap of a bucket").focus()
    page.keyboard.press("ArrowLeft")
    assert race.get_by_role("status").inner_text() == race_words(Race(cap_mb=44))
    assert float(race.locator("rect.allreduce").first.get_attribute("x") or 0) < float(before or 0)
    page.keyboard.press("End")
    assert race.get_by_label("cap of a bucket").get_attribute("aria-valuetext") == "96 MB"
    assert race.get_by_role("status").inner_text() == race_words(Race(cap_mb=96)) and page.url.endswith("index.html")


def test_the_race_fits_and_obeys_the_rules_of_accessibility(page: Page, site: Path) -> None:
    show(page, 390, "light")
    visit(page, site / "book" / "index.html")
    page.add_style_tag(content=NO_TRANSITIONS)
    race = page.locator("div.race")
    set_race(race, Race(ranks=8))
    for width, theme in ((390, "light"), (390, "dark"), (1280, "dark"), (1280, "light")):
        switch(page, width, theme)
        assert violations(page, {"resultTypes": ["violations"], "preload": False}, "div.race") == []
        box = race.locator("svg").bounding_box()
        assert box and box["x"] >= 0 and box["x"] + box["width"] <= width
        assert min(race.locator("svg text").evaluate_all("all => all.map(e => parseFloat(getComputedStyle(e).fontSize) "
                                                         "* e.getScreenCTM().a)")) >= 11


@pytest.mark.parametrize("where", [f"notebooks/{RACE}.html", "book/index.html"])
def test_on_paper_the_race_is_the_still_picture_of_all_three_ways(page: Page, site: Path, where: str) -> None:
    visit(page, site / where)
    still = page.locator(":is(figure, .race-holder):has(div.race) > img, figure:has(div.race) img")
    assert page.locator("div.race").is_visible() and not still.is_visible()
    page.emulate_media(media="print")
    assert not page.locator("div.race").is_visible() and still.is_visible()


def test_without_scripts_the_race_is_a_picture_with_words(browser: Browser, site: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((site / "book" / "index.html").as_uri())
    still = page.locator(".race-holder img")
    assert still.is_visible() and still.evaluate("e => e.naturalWidth") > 300
    assert race_words(Race("after backward")) in still.get_attribute("alt")
    context.close()


GAME = "12_is_my_script_right"


def open_game(page: Page, site: Path) -> Locator:
    visit(page, site / "notebooks" / f"{GAME}.html")
    return page.locator("div.which-run")


def test_the_game_takes_votes_by_keyboard_shows_the_verdict_and_keeps_the_score(page: Page, site: Path) -> None:
    pairs = which_runs()
    game = open_game(page, site)
    said, score = game.get_by_role("status"), game.locator(".score")
    assert score.inner_text() == "No answer yet"
    right = 0
    for i, pair in enumerate(pairs):
        assert game.locator(".place").inner_text() == f"Pair {i + 1} of 9" and said.inner_text() == ""
        assert game.locator("polyline").count() == 2 and "broken" not in game.locator(".picture").inner_html()
        assert [name.split(":")[0] for name in game.get_by_role("img").evaluate_all("all => all.map(e => e.ariaLabel)")] == ["Run A", "Run B"]
        vote = "AB"[i % 2]
        right += vote == pair["broken"]
        game.get_by_role("button", name=f"{vote} is broken").focus()
        page.keyboard.press("Enter")
        page.keyboard.press("Enter")  # counts once
        words = said.inner_text()
        assert words.startswith(f"{'Right' if vote == pair['broken'] else 'No'}. Run {pair['broken']} is broken. {pair['mistake']}")
        assert f"FAULT, {pair['wrong']['verdict']['faults'][0]}: {pair['wrong']['verdict']['seen']}" in words
        assert game.locator("polyline").count() == 2 * 5 and score.inner_text() == f"{right} of {i + 1} right"
        game.get_by_role("button", name="Next pair").focus()
        page.keyboard.press("Enter")
    assert 0 < right < 9
    assert game.get_by_role("button", name="Next pair").get_attribute("aria-disabled") == "true"
    page.reload()
    assert score.inner_text() == f"{right} of 9 right" and said.inner_text().startswith("Right" if pairs[0]["broken"] == "A" else "No")
    game.get_by_role("button", name="Forget my answers").click()
    assert score.inner_text() == "No answer yet" and said.inner_text() == "" and page.evaluate("localStorage['d2lpar-which-run']") is None
    page.reload()
    assert score.inner_text() == "No answer yet"


@pytest.mark.parametrize("storage", ["throw new DOMException('refused', 'SecurityError')", "return null"])
def test_where_the_browser_keeps_nothing_the_game_goes_on_and_counts(page: Page, site: Path, storage: str) -> None:
    errors = []
    page.on("pageerror", lambda error: errors.append(f"{error.stack}"))
    page.add_init_script(f"Object.defineProperty(window, 'localStorage', {{get() {{ {storage}; }}}});")
    game = open_game(page, site)
    game.get_by_role("button", name="A is broken").click()
    assert game.locator(".score").inner_text().endswith("of 1 right")
    game.get_by_role("button", name="Forget my answers").click()
    assert game.locator(".score").inner_text() == "No answer yet"
    assert [error for error in errors if "which_run.js" in error] == []


@pytest.mark.parametrize("kept", ["no JSON", "null", '{"version": "of another day", "answers": {"0": "A"}}', '{"version": "VERSION"}',
                                  '{"version": "VERSION", "answers": {"12": "A", "1": "C"}}'])
def test_answers_to_other_data_or_from_elsewhere_are_not_counted(page: Page, site: Path, kept: str) -> None:
    game = open_game(page, site)
    version = page.evaluate("JSON.parse(document.querySelector('script.which-run').textContent).version")
    page.evaluate("text => { localStorage['d2lpar-which-run'] = text; }", kept.replace("VERSION", version))
    page.reload()
    assert game.locator(".score").inner_text() == "No answer yet"


def test_the_game_fits_obeys_the_rules_of_accessibility_and_is_a_still_picture_on_paper(page: Page, site: Path) -> None:
    show(page, 390, "light")
    game = open_game(page, site)
    page.add_style_tag(content=NO_TRANSITIONS)
    still = page.locator("figure:has(script.which-run) img")
    for answered in (False, True):
        if answered:
            game.get_by_role("button", name="A is broken").click()
        for width, theme in ((390, "light"), (390, "dark"), (1280, "dark"), (1280, "light")):
            switch(page, width, theme)
            assert violations(page, {"resultTypes": ["violations"], "preload": False}, "div.which-run") == []
            for picture in game.get_by_role("img").all():
                box = picture.bounding_box()
                assert box["x"] >= 0 and box["x"] + box["width"] <= width and box["width"] >= 280
            assert min(game.locator("svg text").evaluate_all("all => all.map(e => parseFloat(getComputedStyle(e).fontSize) "
                                                             "* e.getScreenCTM().a)")) >= 11
            assert not still.is_visible()
    page.emulate_media(media="print")
    assert still.is_visible() and not game.is_visible()


def test_without_scripts_the_game_is_a_picture_with_words_that_give_nothing_away(browser: Browser, site: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((site / "notebooks" / f"{GAME}.html").as_uri())
    still = page.locator("figure:has(script.which-run) img")
    assert still.is_visible() and still.evaluate("e => e.naturalWidth") > 300
    assert "Pair 9. Run A: the loss is" in still.get_attribute("alt") and "broken" not in still.get_attribute("alt")
    context.close()


PREDICTIONS = ["07_rank_as_a_process", pytest.param(CURVES, marks=pytest.mark.weekly)]


@pytest.mark.parametrize("chapter", PREDICTIONS)
def test_a_prediction_is_typed_before_the_answer_is_seen_and_stands_beside_it(page: Page, site: Path, chapter: str) -> None:
    visit(page, site / "notebooks" / f"{chapter}.html")
    page.add_style_tag(content=NO_TRANSITIONS)
    questions, cells = page.locator("p.predict-question").all(), page.locator(".cell.tag_predict").all()
    assert 3 <= len(questions) == len(cells) == page.locator("form.predict").count()
    for question, cell in zip(questions, cells):
        assert "Predict" in question.inner_text()
        assert question.locator("xpath=following-sibling::*[1][self::form]").get_by_label("Your prediction").is_visible()
        assert not cell.locator(".cell_output > *").first.is_visible()
        after = cell.locator("xpath=following-sibling::*[1][self::p][not(contains(@class, 'api-link'))]")
        assert not after.count() or not after.is_visible()
    assert page.locator("section > [hidden]:not(p, ul, ol)").count() == 0, "only outputs and the first words after them wait"
    for width, theme in ((1280, "light"), (390, "dark")):
        switch(page, width, theme)
        assert violations(page, {"resultTypes": ["violations"], "preload": False}, "form.predict, button.predict") == []
    for i, cell in enumerate(cells):
        if i:
            page.get_by_label("Your prediction").first.focus()
            page.keyboard.type(f"{i} or so")
            page.keyboard.press("Enter")
        else:
            cell.get_by_role("button", name="Show the answer").click()
        assert all(part.is_visible() for part in cell.locator(".cell_output > *").all())
        words = cell.locator("p.predicted")
        assert words.inner_text() == (f"You predicted: {i} or so" if i else "The answer:")
        assert words.evaluate("e => e === document.activeElement")
    assert page.locator("form.predict").count() == 0 and page.evaluate("sessionStorage.length + localStorage.length") <= 2
    assert violations(page, {"resultTypes": ["violations"], "preload": False}, ".tag_predict .cell_output") == []


def test_on_paper_and_for_a_search_in_the_page_no_answer_is_hidden(page: Page, site: Path) -> None:
    visit(page, site / "notebooks" / f"{CURVES}.html")
    hidden = page.locator("[hidden='until-found']")
    many = hidden.count()
    hidden.first.evaluate("e => e.dispatchEvent(new Event('beforematch'))")
    assert 0 < hidden.count() < many and page.locator("p.predicted").count() == 1
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert hidden.count() == 0


def test_the_search_finds_a_section_quotes_it_and_leads_there(page: Page, site: Path) -> None:
    visit(page, site / "book" / "index.html")
    page.keyboard.press("Control+k")
    page.keyboard.type("ring")
    page.keyboard.press("Enter")
    first = page.locator("#search-results li").first
    assert first.locator("a").inner_text() == "Fewer bytes: a ring"
    assert first.locator("span").inner_text() == "16 How few bytes can an allreduce send?"
    assert first.locator("mark").first.inner_text() == "ring"
    first.locator("a").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/notebooks/16_rings_true_and_false.html#*", wait_until="load")
    assert page.get_by_role("heading", name="Fewer bytes: a ring").bounding_box()["y"] < 300
    page.wait_for_function("CSS.highlights.get('searched').size > 1")


@pytest.mark.parametrize("query, page_of, title", [
    ("why is my accuracy lower on two GPUs", "last_minibatch_in_five_minutes", "The last minibatch, in five minutes"),
    ("no_sync", "09_pytorch_ddp", "no_sync: accumulate first, send once"),
    ("hangs", "11_several_machines", "It hangs"),
    ("My training hangs!", "11_several_machines", "It hangs"),  # no section has all the words
    ("speedup", "glossary", "speed-up"),
    ("out of memory", "it_hangs", "CUDA out of memory on GPU 0 only"),  # words of which two say nothing alone
    ("Address already in use", "it_hangs", "Address already in use, EADDRINUSE"),
    ("watchdog", "it_hangs", "What does the watchdog\u2019s limit count?"), ("P2P", "it_hangs", "The first allreduce hangs on GPUs: P2P"),
    ("my ddp is wrong", "12_is_my_script_right", "Is my script right?"),
    ("deferred initialization", "from_gluon", "Deferred initialisation"),
    ("how do I start", "index", "How do I start?"),
    ("gradient accumulation", "15_batch_size", None), ("SyncBatchNorm", "14_batchnorm", None), ("gloo vs nccl", "07_rank_as_a_process", None),
    ("resume", "13_training_that_survives", None), ("elastic", "11_several_machines", None), ("kill -9", "13_training_that_survives", None),
    ("WeightedRandomSampler", "10_whose_data", None), ("DataParallel", "05_concise_data_parallelism", None),
    ("all reduce", "02_data_parallelism_from_scratch", None), ("how many GPUs", "17_when_it_pays", None),
    ("HSDP", "21_fully_shard", "Which rank holds what?"), ("LoRA", "21_fully_shard", "Adapters: before or after?"),
    ("Replica", "notation", "replica"), ("allreduce", "notation", "allreduce")])  # the word itself
def test_the_first_thing_found_answers_the_question(page: Page, site: Path, query: str, page_of: str, title: str | None) -> None:
    page.goto(f"{(site / 'search.html').as_uri()}?q={query}")
    first = page.locator("#search-results li a").first
    found = str(first.get_attribute("href")), first.inner_text()
    assert title in (None, found[1]) and f"/{page_of}.html#" in found[0], (
        f"Write the new name of the page or the section here, or give it {query!r} in KEYWORDS in book/tools/search_ext.py (book/authors.md, Fix a typo)")


def test_every_place_that_a_search_can_find_exists(page: Page, site: Path) -> None:
    page.goto((site / "search.html").as_uri())
    pages = page.evaluate("SEARCH_TEXTS.map(([file, , parts]) => [file, parts.map(([anchor]) => anchor)])")
    keywords = page.evaluate("SEARCH_TEXTS.flatMap(([, , parts]) => parts.flatMap(([, , , words]) => words))")
    assert sorted(keywords) == sorted(word for name, words in KEYWORDS.items() for word in words if not name.startswith("zh-")), (
        "Give the page or the label its new name in KEYWORDS in book/tools/search_ext.py (book/authors.md, Fix a typo)")
    lost = [f"{file}#{anchor}" for file, anchors in pages for text in [(site / file).read_text("utf8")]
            for anchor in anchors if f'id="{anchor}"' not in text]
    assert len(pages) > 30 and lost == []


def test_exercises_and_search_results_have_contrast(page: Page, site: Path) -> None:
    for address, part in (("notebooks/17_when_it_pays.html", ".exercise"), ("search.html?q=ring", "#search-results")):
        page.goto(f"{site.as_uri()}/{address}", wait_until="load")
        page.wait_for_selector(part)
        page.add_style_tag(content=NO_TRANSITIONS)
        for theme in ("dark", "light"):
            switch(page, 1280, theme)
            assert violations(page, {"resultTypes": ["violations"], "runOnly": ["color-contrast"]}, part) == []


def test_the_keyboard_opens_and_closes_every_solution_of_a_page_of_each_kind(found: dict[str, Found]) -> None:
    solutions = [page.solutions for page in found.values() if page.solutions]
    assert len(solutions) > 3 and all(seen == [False, True, False] for of_page in solutions for seen in of_page)


def test_the_tab_key_stops_at_no_formula_and_shows_every_place_where_it_stops(page: Page, site: Path) -> None:
    visit(page, site / "book" / "notation.html")
    page.wait_for_function("!document.querySelector('mjx-container[tabindex]')")
    page.add_style_tag(content=NO_TRANSITIONS)
    stops = 0
    while True:
        page.keyboard.press("Tab")
        name, style = page.evaluate("""() => {
          const e = document.activeElement, s = getComputedStyle(e);
          return [e === document.body ? "" : e.outerHTML.slice(0, 80),
                  s.outlineStyle !== "none" && parseFloat(s.outlineWidth) > 1 || / [2-9]px/.test(s.boxShadow)]; }""")
        if not name:
            break
        stops += 1
        assert style or "form-control" in name, name
    assert stops > 30


def test_paper_is_white_and_has_whole_lines_and_open_solutions(browser: Browser, site: Path) -> None:
    page = browser.new_page(color_scheme="dark")
    visit(page, site / "notebooks" / "17_when_it_pays.html")
    page.emulate_media(media="print", color_scheme="dark")
    page.set_viewport_size({"width": 700, "height": 900})
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    assert all(answer.is_visible() for answer in page.locator(".solution.dropdown pre").all())
    cut = page.evaluate("[...document.querySelectorAll('.bd-article pre')].filter(e => e.scrollWidth > e.clientWidth + 1).length")
    assert cut == 0
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.close()
