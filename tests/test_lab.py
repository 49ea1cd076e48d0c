"""The chapters in JupyterLab, in a real browser: what readers see before a run, and that they can run, break and mend."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import nbformat
import pytest
from playwright.sync_api import Browser, Page
from playwright.sync_api import TimeoutError as TooLate

from d2lpar.pages.explorer import VEGALITE
from helpers.explorers import BARS, CURVES, bars_ms, curves_ms
from helpers.jupyterlab import TOKEN, environment, jupyterlab
from revisions import name_of, tracked_notebooks
from working_copy import bring_up_to_date

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[1]
GUIDE = "(book/authors.md, The parts of a chapter)"
NAMES = [name_of(path, ROOT / "notebooks") for path in tracked_notebooks(ROOT)]
SHORT = "03_bugs_that_train"  # runs in seconds


class Lab(NamedTuple):
    page: Page  # in which JupyterLab is open
    book: Path  # the chapters as the book has them
    copies: Path  # and as JupyterLab shows them


@pytest.fixture(scope="module")
def lab(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    top = tmp_path_factory.mktemp("lab")
    book, copies = top / "notebooks", top / "lab"
    shutil.copytree(ROOT / "notebooks", book)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment(top).items():
            patch.setenv(name, value)
        assert bring_up_to_date(book, copies, filled=True) == bring_up_to_date(book, top / "building") == []
        command = [sys.executable, "-m", "jupyter", "lab", "--allow-root", "--LabApp.expose_app_in_browser=True",
                   "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"]
        with jupyterlab(command, top, top) as address:
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            page.set_default_timeout(60_000)
            page.goto(f"{address}/lab?{TOKEN}")
            page.wait_for_function("window.jupyterapp?.restored.then(() => true)")
            yield Lab(page, book, copies)
            page.close()


# A notebook is in front, and its kernel has said all that JupyterLab writes down.
OPEN = """async path => {
  const panel = await jupyterapp.commands.execute("docmanager:open", {path});
  await panel.context.ready;
  await panel.sessionContext.ready;
  await panel.sessionContext.session.kernel.info;
  window.cells = panel.content.widgets;
}"""

SHUT = """async () => {
  const panel = jupyterapp.shell.currentWidget;
  await panel.sessionContext.shutdown();
  panel.dispose();
}"""

# Far down, a cell is not drawn before it is needed.
SCROLL = """async places => {
  for (const i of places) await jupyterapp.shell.currentWidget.content.scrollToItem(i, "center");
}"""

# By cell: pictures that have a size, explorers, and whether its source and its outputs are folded.
SHOWN = """() => cells.map(({node}) => [
  [...node.querySelectorAll(".jp-OutputArea img")].filter(e => e.naturalWidth > 100 && e.width > 100).length,
  ...[".vega-embed canvas", ".jp-InputPlaceholder", ".jp-OutputPlaceholder"].map(part => node.querySelectorAll(part).length)])"""


@pytest.fixture
def name(lab: Lab, request: pytest.FixtureRequest) -> Iterator[str]:
    """Of the chapter that is open."""
    lab.page.evaluate(OPEN, f"lab/{request.param}.ipynb")
    yield request.param
    lab.page.evaluate(SHUT)


def in_lab(*names: Any) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("name", names, indirect=True)


def stored(cell: nbformat.NotebookNode) -> list[int]:
    """What `SHOWN` has to find of a cell as the book has it."""
    kinds = [output.get("data", {}) for output in cell.get("outputs", [])]
    explorers = sum(VEGALITE in kind for kind in kinds)
    folded = [int(tag in cell.metadata.get("tags", [])) for tag in ("hide-input", "hide-output")]
    return [sum("image/svg+xml" in kind for kind in kinds) - explorers, explorers, *folded]


def cells_of(lab: Lab, name: str) -> list[nbformat.NotebookNode]:
    return nbformat.read(lab.copies / f"{name}.ipynb", as_version=4).cells  # a caption is a cell there


def look_at_all(lab: Lab, name: str) -> None:
    """The pictures of the chapter are there, and folded is what is folded on the site."""
    wanted = [stored(cell) for cell in cells_of(lab, name)]
    lab.page.evaluate(SCROLL, [i for i, parts in enumerate(wanted) if any(parts)])
    with suppress(TooLate):
        lab.page.wait_for_function(f"wanted => JSON.stringify(({SHOWN})()) === JSON.stringify(wanted)", arg=wanted)
    assert lab.page.evaluate(SHOWN) == wanted, (
        f"Run the notebook {name} again: JupyterLab shows different pictures, sliders or folded cells (left) from those that are stored (right) {GUIDE}")


def is_changed(page: Page) -> bool:
    """Whether the tab has the mark of what is not saved."""
    return page.locator(".lm-TabBar-tab.jp-mod-dirty").count() > 0


def look_before_a_run(lab: Lab, name: str) -> None:
    """The chapter shows all as the site does, and opening it has not changed it."""
    look_at_all(lab, name)
    lost = lab.page.locator("[title='Cross Reference Not Found']").evaluate_all("all => all.map(e => e.outerHTML.slice(0, 120))")
    assert lost == [], f"Fix the links in {name} to a label that does not exist (book/authors.md, Fix a typo)"
    assert "<Figure size" not in lab.page.locator(".jp-Notebook").inner_text(), f"End a plot cell of {name} with plt.show() or book.show(...) {GUIDE}"
    assert not is_changed(lab.page), f"Store the outputs of {name} again: JupyterLab changes it when it opens it {GUIDE}"


@pytest.mark.weekly
@in_lab(*(name for name in NAMES if name not in (SHORT, BARS, CURVES)))  # these are looked at below
def test_a_chapter_shows_all_as_the_site_does_before_it_is_run_and_opening_does_not_change_it(lab: Lab, name: str) -> None:
    look_before_a_run(lab, name)


def run_all(page: Page) -> list[str]:
    """The last lines of the errors, after Run All Cells of the menu."""
    page.evaluate("""window.ran = new Promise(done => jupyterapp.commands.commandExecuted.connect(
      (_, {id, result}) => { if (id === "runmenu:run-all") result.then(done, done); })); null""")
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    page.evaluate("window.ran.then(() => null)")
    return page.evaluate("""cells.flatMap(({model}) => model.outputs?.toJSON() ?? [])
      .filter(output => output.output_type === "error").map(({ename, evalue}) => `${ename}: ${evalue}`)""")


def prompts(page: Page) -> list[int | None]:
    """The numbers of the code cells that have been run, in their order."""
    return page.evaluate("cells.filter(({model}) => model.type === 'code').map(({model}) => model.executionCount)")


@in_lab(SHORT)
def test_a_chapter_runs_stops_where_a_reader_breaks_it_runs_again_when_it_is_mended_and_is_kept(lab: Lab, name: str) -> None:
    look_before_a_run(lab, name)
    page = lab.page
    places = [i for i, cell in enumerate(cells_of(lab, name)) if cell.cell_type == "code"]
    count, middle = len(places), len(places) // 2
    assert run_all(page) == [] and prompts(page) == list(range(1, count + 1))
    look_at_all(lab, name)

    page.evaluate(SCROLL, [places[middle]])
    cell = page.evaluate_handle("i => cells[i].node", places[middle]).as_element()
    text = cell.query_selector(".cm-content")
    text.click()
    page.keyboard.press("Control+Home")
    page.keyboard.type("raise RuntimeError('broken by me')\n")
    assert run_all(page) == ["RuntimeError: broken by me"]
    assert "broken by me" in cell.query_selector("[data-mime-type='application/vnd.jupyter.stderr']").inner_text()
    assert prompts(page) == [*range(count + 1, count + middle + 2), *[None] * (count - middle - 1)]

    text.click()
    page.keyboard.press("Control+Home")
    page.keyboard.press("Shift+End")
    page.keyboard.type("# mended by me")
    assert run_all(page) == [] and None not in prompts(page)
    assert is_changed(page)
    page.keyboard.press("Control+s")
    page.wait_for_function("!document.querySelector('.lm-TabBar-tab.jp-mod-dirty')")

    for chapter in (name, NAMES[0]):
        newer = nbformat.read(lab.book / f"{chapter}.ipynb", as_version=4)
        newer.cells[0].source += "\n\nA second edition."
        nbformat.write(newer, lab.book / f"{chapter}.ipynb")
    [line] = bring_up_to_date(lab.book, lab.copies, filled=True)
    assert f"lab/{name}.ipynb has your changes, so it was kept" in line
    assert "A second edition." in (lab.copies / f"{NAMES[0]}.ipynb").read_text("utf8")


# What an explorer has computed: its renderer has no name by which a page could find it.
SIGNAL = """name => {
  const view = part => part._result?.view ?? [...(part.layout ?? [])].map(view).find(Boolean);
  return cells.map(cell => cell.outputArea && view(cell.outputArea)).find(Boolean).signal(name);
}"""


@pytest.mark.parametrize("name, sliders, times, names", [
    (BARS, ["k", "batch", "tflops", "gbytes", "percent", "micro"], bars_ms, [f"bar_{i}" for i in range(4)]),
    (CURVES, ["power", "mbytes", "micros", "gbytes", "near", "work"], curves_ms, [f"curve_{i}" for i in range(6)])],
    indirect=["name"], ids=["bars", "curves"])
def test_an_explorer_is_there_before_a_run_and_its_numbers_follow_the_keyboard(
        lab: Lab, name: str, sliders: list[str], times: Callable[..., list[float]], names: list[str]) -> None:
    look_before_a_run(lab, name)
    page = lab.page
    page.evaluate(SCROLL, [i for i, cell in enumerate(cells_of(lab, name)) if stored(cell)[1]])
    picture = page.locator(".vega-embed canvas")
    before = picture.evaluate("e => e.toDataURL()")
    values = []
    for slider, key in zip(sliders, ["PageUp", "End", "End", "Shift+ArrowRight", "End", "Shift+ArrowRight"]):
        handle = page.locator(f".vega-bindings input[name={slider}]")
        stood = handle.input_value()
        handle.focus()
        page.keyboard.press(key)
        values.append(float(handle.input_value()))
        assert handle.input_value() != stood, (slider, key)
    page.wait_for_function(f"value => ({SIGNAL})('{sliders[-1]}') === value", arg=values[-1])
    right = times(*(int(value) for value in values))
    assert [page.evaluate(SIGNAL, shown) for shown in names] == pytest.approx(right, rel=0.01)  # the site's are compared exactly
    page.wait_for_function("before => document.querySelector('.vega-embed canvas').toDataURL() !== before", arg=before)
    assert not is_changed(page), "JupyterLab has put a picture of its own into the chapter"


# A cell gets this text and runs; what it prints.
WRITE = """async ([id, text]) => {
  const panel = jupyterapp.shell.currentWidget;
  const place = cells.findIndex(({model}) => model.id === id);
  await panel.content.scrollToItem(place, "center");
  panel.content.activeCellIndex = place;
  if (text) cells[place].model.sharedModel.setSource(text);
  await jupyterapp.commands.execute("notebook:run-cell");
  return cells[place].model.outputs.toJSON().map(output => output.text ?? output.evalue ?? "").join("");
}"""


def test_a_reader_writes_a_function_and_is_told_what_is_wrong_with_it(lab: Lab) -> None:
    page = lab.page
    page.evaluate(OPEN, "building/02_data_parallelism_from_scratch.ipynb")
    copy = nbformat.read(lab.copies.parent / "building" / "02_data_parallelism_from_scratch.ipynb", as_version=4).cells
    assert page.evaluate("cells.map(({model}) => model.outputs?.length ?? 0)") == [0] * len(copy)
    imports, cell = copy[1], next(cell for cell in copy if cell.source.startswith("@book.yours\ndef get_params"))
    page.evaluate(WRITE, [imports.id, ""])
    assert page.evaluate(WRITE, [cell.id, ""]) == "Not written yet: the book's own `get_params` is used.\n"
    alias, copies = (cell.source.replace("...  # yours", f"return [p.detach().to(device{more}).requires_grad_() for p in params]")
                     for more in ("", ", copy=True"))
    assert page.evaluate(WRITE, [cell.id, alias]).startswith("Not yet: for two tensors on the CPU, `result[0]` shares its memory")
    assert page.evaluate(WRITE, [cell.id, copies]) == "Right.\n"

    fold = page.evaluate_handle("id => cells.find(({model}) => model.id === id).node", f"{cell.id}-fold").as_element()
    page.evaluate(SCROLL, [next(i for i, other in enumerate(copy) if other.id == f"{cell.id}-fold")])
    hint, way = fold.query_selector_all("details")
    assert [part.query_selector("summary").inner_text() for part in (hint, way)] == ["A hint", "One way to write it"]
    assert not way.get_attribute("open") and not way.query_selector("pre").is_visible()
    way.query_selector("summary").click()
    assert "copy=True" in way.query_selector("pre").inner_text() and "Read it from left to right" in way.inner_text()
    page.evaluate(SHUT)
