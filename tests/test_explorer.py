"""Pictures with sliders: what Vega is told is the function's own text, and what it cannot be told is refused."""

from __future__ import annotations

import inspect
import re
import sys
from math import ceil, log2

import pytest
from vl_convert import vega_to_svg, vegalite_to_vega

from d2lpar import cost, ways
from d2lpar.checks import check_counts
from d2lpar.cost import Link
from d2lpar.pages import explorer, plot
from d2lpar.pages.explorer import Slider, bars, curves, expression, show_explorer, still_of
from d2lpar.ways import alone_s, data_parallel_s


def computed(text: str, **values: float) -> float:
    """What Vega makes of an expression."""
    picture = vega_to_svg({"$schema": "https://vega.github.io/schema/vega/v5.json",
                           "signals": [{"name": name, "value": value} for name, value in values.items()],
                           "marks": [{"type": "text", "encode": {"enter": {"text": {"signal": f"'found ' + ({text})"}}}}]})
    return float(re.search(r"found ([-+.e0-9]+)", picture)[1])


def two_thirds(x: float, y: float = 3) -> float:
    """Everything that a formula may hold."""
    check_counts(y=3)
    a, b = x / y, -abs(x)
    c = max(a, b, 2) ** 2 / 7
    return (c if a >= b else a) + ceil(log2(y)) + min(a, 1.5e-3)


@pytest.mark.parametrize("x, y", [(0.5, 3), (4, 5), (100, 2)])
def test_an_expression_has_the_value_of_the_function(x, y):
    assert computed(expression(two_thirds, y="y"), x=x, y=y) == pytest.approx(two_thirds(x, y), rel=1e-12)


def test_the_formulas_of_the_three_ways_are_told_as_they_are_written():
    numbers = {"k": 3, "batch": 100, "flop": 911e6, "flops_per_s": 10e12, "work_s": 0.027, "shard_s": 0.009, "params_s": 0.045,
               "reads_s": 0.171, "busiest_s": 0.014, "crossing_s": 0.01, "widest_s": 0.007, "overlap": 0.3, "micro": 5}
    for formula in (alone_s, data_parallel_s, ways.tensor_parallel_s, ways.pipeline_s):
        names = list(inspect.signature(formula).parameters)
        text = expression(formula, **{name: name for name in names})
        assert computed(text, **numbers) == pytest.approx(formula(*(numbers[name] for name in names)), rel=1e-12)


def test_an_argument_that_is_not_given_keeps_its_default():
    assert "overlap" not in expression(data_parallel_s) and "0.25 * min" in expression(data_parallel_s, overlap="0.25").replace("(", "").replace(")", "")


def loop(x: float) -> float:
    for _ in range(3):
        x = 2 * x
    return x


def of_a_name_from_outside(x: float) -> float:
    return x * plot.MARKERS


def nothing(x: float) -> None:
    """Has no line that returns."""


def remainder(x: float) -> float:
    return -x % 3


def into_a_list(x: float, b: list) -> float:
    a, b[0] = x, 2
    return a


@pytest.mark.parametrize("formula", [loop, remainder, into_a_list, of_a_name_from_outside, nothing, cost.fit_link, lambda x: x, len, Slider])
def test_what_vega_cannot_be_told_is_refused(formula):
    with pytest.raises(ValueError):
        expression(formula)


def spec():
    return bars({"batch": Slider("batch size", 8, 1, 9, 1), "k": Slider("ranks", 2, 1, 8, 1)},
                {"flop": "1e9", "flops_per_s": "1e12", "shard_s": "0.012", "params_s": "[1, 2, 3, 4, 5, 6, 7, 8][k - 1] / 1e9"},
                {"alone": alone_s, "by data": data_parallel_s}, alone="alone")


def test_a_specification_is_one_that_vega_takes_and_every_slider_has_a_name():
    vega = vegalite_to_vega(spec(), vl_version=explorer.VEGALITE_VERSION)
    bound = {signal["name"]: signal["bind"] for signal in vega["signals"] if "bind" in signal}
    assert {name: bind["name"] for name, bind in bound.items()} == {"batch": "batch size", "k": "ranks"}
    assert "http" not in str(spec()).replace("https://vega.github.io/schema/vega-lite/v5.json", "")


def test_the_still_picture_shows_the_numbers_of_the_functions():
    still, words = still_of(spec())
    alone, by_data = f"{1e3 * alone_s(8, 1e9, 1e12):.1f} ms", f"{1e3 * data_parallel_s(2, 0.012, 2e-9):.1f} ms"
    assert alone in still and f"{by_data}, 2.00 times as fast" in still
    assert words == f"Bars at batch size: 8; ranks: 2. alone: {alone}; by data: {by_data}, 2.00 times as fast."


# Curves


PRICES = {"link.alpha_s": "micros / 1e6", "link.beta_s_per_byte": "1e-9 / gbytes"}
LINK = Link(14e-6, 1 / 12e9)


def curves_of(**changes):
    made = {"sliders": {"power": Slider("devices: 2 to the power of", 9, 1, 12, 1), "micros": Slider("us", 14, 1, 50, 1),
                        "gbytes": Slider("GB/s", 12, 1, 400, 1)},
            "given": {"k": "pow(2, power)", "size_bytes": "45e6", "per_node": "min(k, 8)", "pieces": "16", **PRICES,
                      "between.alpha_s": "micros / 1e6", "between.beta_s_per_byte": "1e-9 / gbytes",
                      "inside.alpha_s": "2e-6", "inside.beta_s_per_byte": "1e-11"},
            "formulas": {"ring": cost.ring_s, "tree": cost.tree_s, "halving": cost.halving_s, "two trees": cost.double_tree_s,
                         "near first": cost.hierarchical_halving_s},
            "along": "k", "places": [2**i for i in range(1, 13)], "alone": "2"}
    return curves(**{**made, **changes})


def test_a_price_of_a_link_is_given_as_an_expression_of_its_own():
    numbers = {"k": 64, "size_bytes": 45e6, "micros": 14, "gbytes": 12}
    text = expression(cost.ring_s, **PRICES)
    assert computed(text, **numbers) == pytest.approx(cost.ring_s(45e6, 64, LINK), rel=1e-12)
    with pytest.raises(ValueError, match=r"how to compute link.beta_s_per_byte"):
        expression(cost.ring_s, **{"link.alpha_s": "1"})


def test_the_words_of_curves_are_the_numbers_of_the_functions():
    still, words = still_of(curves_of())
    seconds = {"ring": cost.ring_s(45e6, 512, LINK), "tree": cost.tree_s(45e6, 512, LINK), "halving": cost.halving_s(45e6, 512, LINK),
               "two trees": cost.double_tree_s(45e6, 512, LINK, 16), "near first": cost.hierarchical_halving_s(45e6, 512, 8, Link(2e-6, 1e-11), LINK)}
    expected = [f"{name}: {float(f'{1e3 * s:.3g}'):g} ms, speed-up {float(f'{2 / (2 / 512 + s):.3g}'):g}" for name, s in seconds.items()]
    assert words == "Curves at devices: 2 to the power of: 9; us: 14; GB/s: 12. " + "; ".join(expected) + "."
    assert "512 devices" in still


def test_each_curve_has_the_values_of_its_function_along_the_axis():
    values = {}
    for row in curves_of()["transform"]:
        values[row["as"]] = [computed(row["calculate"].replace("datum.k", str(k)), size_bytes=45e6, micros=14, gbytes=12, alone=2000)
                             for k in (2, 64, 4096)]
    for i, formula in enumerate((cost.ring_s, cost.tree_s, cost.halving_s)):
        assert values[f"curve_{i}"] == pytest.approx([1e3 * formula(45e6, k, LINK) for k in (2, 64, 4096)], rel=1e-12)
    nested = [1e3 * cost.hierarchical_halving_s(45e6, k, min(k, 8), Link(2e-6, 1e-11), LINK) for k in (2, 64, 4096)]
    assert values["curve_4"] == pytest.approx(nested, rel=1e-12) and values["share"] == pytest.approx([1000, 2000 / 64, 2000 / 4096])


def test_what_is_given_by_what_is_given_by_the_place_follows_the_place_too():
    given = {"power_of_two": "pow(2, power)", "k": "power_of_two", "half": "k / 2", "nodes": "half / 4", "size_bytes": "nodes * 1e6",
             "link.alpha_s": "half / 1e6", "link.beta_s_per_byte": "1e-9"}
    [row, _] = curves_of(given=given, formulas={"ring": cost.ring_s})["transform"]
    for k in (2, 64):
        found = computed(row["calculate"].replace("datum.k", str(k)), power=9, power_of_two=512, k=512, half=256, nodes=64, size_bytes=64e6)
        assert found == pytest.approx(1e3 * cost.ring_s(k / 8 * 1e6, k, Link(k / 2e6, 1e-9)), rel=1e-12)


def test_the_axis_holds_all_curves_wherever_the_sliders_of_the_chapter_stand():
    least = min(1e3 * cost.ring_s(1e6, 2, Link(1e-6, 1 / 400e9)), 10 / 4096)
    most = max(1e3 * cost.tree_s(500e6, 4096, Link(50e-6, 1e-9)), 1e3 * cost.ring_s(500e6, 4096, Link(50e-6, 1e-9)), 10_000 / 2)
    assert explorer.RANGE_MS[0] < least and most < explorer.RANGE_MS[1]


@pytest.mark.parametrize("alpha", ["0", "-1e-3"])
def test_a_curve_without_a_time_above_zero_is_refused_instead_of_left_out_of_the_words(alpha):
    given = {"k": "pow(2, power)", "size_bytes": "0", "link.alpha_s": alpha, "link.beta_s_per_byte": "0"}
    with pytest.raises(ValueError, match="only 0 of 1 curves have a time above 0"):
        still_of(curves_of(given=given, formulas={"ring": cost.ring_s}))


@pytest.mark.parametrize("alone", ["k / 2", "per_node"])
def test_the_time_alone_cannot_depend_on_the_number_of_devices(alone):
    with pytest.raises(ValueError, match="cannot depend on k"):
        curves_of(alone=alone)


def test_what_nothing_gives_is_no_picture():
    given = {"k": "pow(2, power)", "size_bytes": "1"}
    for broken in (lambda: curves_of(given=given, formulas={"ring": cost.ring_s}),
                   lambda: bars({"batch": Slider("batch size", 8, 1, 9, 1)}, {"flop": "1"}, {"alone": alone_s}, "alone")):
        with pytest.raises(ValueError):
            still_of(broken())


@pytest.fixture
def put(monkeypatch):
    """What is put on the page: the formats, and their metadata."""
    put = []
    monkeypatch.setattr(explorer, "in_notebook", lambda: True)
    monkeypatch.setattr("IPython.display.display", lambda data, raw, metadata: put.append((data, metadata)))
    return put


def test_on_a_page_it_is_a_specification_with_a_still_picture_and_words(put):
    show_explorer(spec())
    [(data, metadata)] = put
    assert data[explorer.VEGALITE] == spec() and (data["image/svg+xml"], words := data["text/plain"]) == still_of(spec())
    assert metadata == {"image/svg+xml": {"alt": words}}


def test_where_no_still_can_be_drawn_there_are_the_specification_and_words(put, monkeypatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    show_explorer(spec())
    [(data, metadata)] = put
    assert set(data) == {explorer.VEGALITE, "text/plain"} and "JupyterLab" in data["text/plain"] and metadata == {}
