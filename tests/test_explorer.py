"""The explorers: their numbers are those of the package, wherever the sliders stand; and what a page shows of them."""

import copy
import json
import re
import sys

import nbformat
import pytest
from matplotlib.colors import to_hex
from vl_convert import vega_to_svg, vegalite_to_vega

from d2lpar.pages import explorer, plot
from d2lpar.pages.explorer import show_explorer, specification, still_of
from helpers.explorers import BARS, CURVES, bars_ms, curves_ms

# Ten places of the six sliders for each explorer: the start, the ends, and some between.
PLACES = {
    "three_ways": [(2, 16, 400, 371, 0, 1), (1, 16, 10, 1, 0, 1), (8, 1024, 1000, 400, 100, 16), (8, 16, 10, 400, 50, 16),
                   (3, 64, 70, 2, 25, 3), (5, 1000, 330, 41, 95, 2), (7, 200, 1000, 1, 5, 8), (4, 16, 500, 50, 0, 4),
                   (6, 512, 200, 12, 60, 1), (2, 24, 10, 1, 100, 16)],
    "allreduce_times": [(9, 45, 14, 12, 3, 1000), (1, 1, 1, 1, 0, 10), (12, 500, 50, 400, 6, 10_000), (12, 1, 50, 400, 0, 10),
                        (1, 500, 1, 1, 6, 3000), (5, 100, 7, 25, 2, 500), (7, 3, 20, 100, 3, 90), (3, 250, 2, 4, 5, 40),
                        (10, 60, 33, 50, 1, 7000), (11, 8, 5, 300, 4, 20)],
}
MS = {"three_ways": bars_ms, "allreduce_times": curves_ms}
KIND = {"three_ways": "bar", "allreduce_times": "curve"}


def with_sliders(name: str, places: tuple[float, ...]) -> dict:
    """The specification as if its sliders had been moved."""
    spec = copy.deepcopy(specification(name))
    for param, place in zip([param for param in spec["params"] if "bind" in param], places, strict=True):
        param["value"] = place
    return spec


def numbers_of(spec: dict, kind: str) -> list[float]:
    """What Vega computes for each bar, or for each curve where the sliders stand."""
    vega = vegalite_to_vega(spec, vl_version=explorer.VEGALITE_VERSION)
    named = [signal["name"] for signal in vega["signals"] if re.fullmatch(rf"{kind}_\d", signal["name"])]
    vega |= {part: [] for part in ("data", "axes", "legends", "scales")}
    vega["marks"] = [{"type": "text", "encode": {"enter": {"text": {"signal": f"'found ' + {name}"}}}} for name in named]
    return [float(found) for found in re.findall(r"found ([-+.e0-9]+)", vega_to_svg(vega))]


@pytest.mark.parametrize("name, places", [(name, places) for name, all_places in PLACES.items() for places in all_places])
def test_the_numbers_are_those_of_the_package(name, places):
    found = numbers_of(with_sliders(name, places), KIND[name])
    assert found == pytest.approx(MS[name](*places), rel=1e-9) and len(found) == len(specification(name)["usermeta"]["names"])


@pytest.mark.parametrize("places", PLACES["allreduce_times"])
def test_each_curve_has_along_its_axis_what_it_has_where_the_sliders_stand(places):
    spec = with_sliders("allreduce_times", places)
    rows = "\n".join(row["calculate"].replace("datum.k", "k") for row in spec["transform"] if row["as"].startswith("curve_"))
    assert rows.replace("datum.", "").splitlines() == [param["expr"] for param in spec["params"] if param["name"].startswith("curve_")]
    inner = {row["as"]: row["calculate"].replace("datum.", "") for row in spec["transform"] if row["as"] in ("rounds", "pieces", "m")}
    assert inner == {param["name"]: param["expr"] for param in spec["params"] if param["name"] in inner} and len(inner) == 3


def test_the_axis_holds_all_curves_wherever_the_sliders_stand():
    sliders = [param["bind"] for param in specification("allreduce_times")["params"] if "bind" in param]
    low, high = specification("allreduce_times")["encoding"]["y"]["scale"]["domain"]
    for power in (1, 12):
        for near in (0, 6):
            assert min(curves_ms(power, sliders[1]["min"], sliders[2]["min"], sliders[3]["max"], near, 10)) > low
            assert max(curves_ms(power, sliders[1]["max"], sliders[2]["max"], sliders[3]["min"], near, 10)) < high


def test_the_curves_have_the_colours_of_the_book_and_as_many_dashes():
    [line] = [layer for layer in specification("allreduce_times")["layer"] if "color" in layer.get("encoding", {})]
    plot.use_book_style()
    colors = line["encoding"]["color"]["scale"]["range"]
    assert colors == [to_hex(plot.rank_style(i)["color"]) for i in range(6)]
    assert len({tuple(dash) for dash in line["encoding"]["strokeDash"]["scale"]["range"]}) == 6


@pytest.mark.parametrize("name", PLACES)
def test_the_words_are_the_numbers_and_are_those_that_the_page_has(name, root):
    _, words = still_of(specification(name))
    for called, ms in zip(specification(name)["usermeta"]["names"], MS[name](*PLACES[name][0])):
        assert re.search(rf"\b{called}: ([\d.,]+) ms", words)[1].replace(",", "") in (f"{ms:.2f}", f"{ms:.1f}", f"{ms:.3g}")
    page = nbformat.read(root / "notebooks" / f"{BARS if name == 'three_ways' else CURVES}.ipynb", as_version=4)
    [shown] = [out for cell in page.cells if cell.cell_type == "code" for out in cell.outputs if explorer.VEGALITE in out.get("data", {})]
    assert shown.data[explorer.VEGALITE] == specification(name) and shown.data["text/plain"] == words, (
        "Run the notebook of the figure again, because its specification has changed (book/authors.md, The parts of a chapter)")


def test_nothing_in_them_asks_another_host():
    for name in PLACES:
        assert re.findall(r"http[^\"]*", json.dumps(specification(name)).replace("https://vega.github.io/schema/vega-lite/v5.json", "")) == [], (
            f"Take these addresses out of {name}.vl.json: the site works without a network (book/authors.md, The parts of a chapter)")


@pytest.fixture
def put(monkeypatch):
    """What is put on the page: the formats, and their metadata."""
    put = []
    monkeypatch.setattr(explorer, "in_notebook", lambda: True)
    monkeypatch.setattr("IPython.display.display", lambda data, raw, metadata: put.append((data, metadata)))
    return put


def test_on_a_page_it_is_a_specification_with_a_still_picture_and_words(put):
    show_explorer("three_ways")
    [(data, metadata)] = put
    assert data[explorer.VEGALITE] == specification("three_ways")
    assert (data["image/svg+xml"], words := data["text/plain"]) == still_of(specification("three_ways"))
    assert metadata == {"image/svg+xml": {"alt": words}}


def test_where_no_still_can_be_drawn_there_are_the_specification_and_words(put, monkeypatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    show_explorer("three_ways")
    [(data, metadata)] = put
    assert set(data) == {explorer.VEGALITE, "text/plain"} and "JupyterLab" in data["text/plain"] and metadata == {}
