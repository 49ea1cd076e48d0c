"""Pictures with sliders, for readers without a kernel: a Vega-Lite specification whose formulas are the package's own.

A formula is written once, as a Python function. `expression` turns the text of that function into an expression of
Vega, which a browser computes when a slider moves. JupyterLab draws the specification by itself; on the site
`book/tools/explorer_ext.py` and `explorer.js` do. Every chapter may have one.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, NamedTuple

from matplotlib.colors import to_hex

from d2lpar.checks import is_number, shown
from d2lpar.pages.plot import rank_style
from d2lpar.timing import in_notebook

VEGALITE_VERSION = "5.21"
VEGALITE = "application/vnd.vegalite.v5+json"
WIDTH = 560  # pixels of the still picture, and in JupyterLab
ROW = 44  # pixels for each bar
COLORS = ("#8a8a8a", "#5b8c1a", "#8b1a1a")  # of bars like the one to compare with, of faster, of slower: no rank's
DASHES = ([1, 0], [8, 3], [3, 2], [12, 3, 3, 3], [16, 6], [6, 2, 2, 2])  # of curves
RANGE_MS = [1e-3, 5e4]  # of the axis beside curves
_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_SIGNS: dict[type, str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
_ORDER: dict[type, str] = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
_CALLS = {"min": "min({})", "max": "max({})", "ceil": "ceil({})", "abs": "abs({})", "log2": "(log({}) / LN2)"}


class Slider(NamedTuple):
    """An input that readers move: its label, where it starts, and from where to where it goes in which steps."""

    label: str
    start: float
    low: float
    high: float
    step: float


def expression(formula: Callable, **given: str) -> str:
    """The value of `formula` as an expression of Vega, in terms of its arguments, or of what is `given` for them.

    It reads the function's text: assignments of names, then a return, of arithmetic without %, whose sign differs in
    Vega, comparisons, a choice with `if` and `else`, and min, max, ceil, abs and log2; what checks the arguments is
    left out. An argument that is a `Link` may be given as two expressions, under the names of its prices:
    `**{"link.alpha_s": "a", "link.beta_s_per_byte": "b"}`.

    Raises:
        ValueError: for anything else in it, and for a function without a text.
    """
    try:
        [definition] = ast.parse(textwrap.dedent(inspect.getsource(formula))).body
    except (OSError, TypeError, ValueError, SyntaxError):
        raise ValueError(f"a formula is a function with a text of its own, got {shown(formula)}") from None
    if not isinstance(definition, ast.FunctionDef):
        raise ValueError(f"a formula is a function, got {shown(formula)}")
    values = {name: _constant(p.default) for name, p in inspect.signature(formula).parameters.items()
              if p.default is not p.empty}
    values |= {name: name for name in inspect.signature(formula).parameters if name not in values}
    for name, value in given.items():
        if name.partition(".")[0] not in values or not isinstance(value, str):
            raise ValueError(f"{definition.name} has no argument {name}, or {shown(value)} is no expression")
    values |= {name: value if value.isidentifier() else f"({value})" for name, value in given.items()}
    for line in definition.body:
        if isinstance(line, ast.Expr):  # the docstring, and checks
            continue
        if isinstance(line, ast.Return) and line.value is not None:
            return _translated(line.value, values)
        values |= _assigned(line, values)
    raise ValueError(f"{definition.name} returns nothing")


def _assigned(line: ast.stmt, values: Mapping[str, str]) -> dict[str, str]:
    match line:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            return {name: _translated(value, values)}
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=parts)) if len(targets) == len(parts):
            names = [target.id for target in targets if isinstance(target, ast.Name)]
            if len(names) == len(targets):
                return {name: _translated(part, values) for name, part in zip(names, parts)}
    raise ValueError(f"a formula has no line like {ast.unparse(line)}")


def _translated(node: ast.expr, values: Mapping[str, str]) -> str:
    match node:
        case ast.Constant(value=value) if is_number(value):
            return _constant(value)
        case ast.Name(id=name) if name in values:
            return values[name]
        case ast.Attribute(value=ast.Name(id=name), attr=field) if f"{name}.{field}" in values:
            return values[f"{name}.{field}"]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return f"(-{_translated(operand, values)})"
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return f"pow({_translated(left, values)}, {_translated(right, values)})"
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _SIGNS:
            return f"({_translated(left, values)} {_SIGNS[type(op)]} {_translated(right, values)})"
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _ORDER:
            return f"({_translated(left, values)} {_ORDER[type(op)]} {_translated(right, values)})"
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return "({} ? {} : {})".format(*(_translated(part, values) for part in (test, body, orelse)))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _CALLS:
            return _CALLS[name].format(", ".join(_translated(arg, values) for arg in args))
    raise ValueError(f"Vega is not told how to compute {ast.unparse(node)}")


def _constant(value: Any) -> str:
    return repr(value) if is_number(value) and value >= 0 else f"({value!r})"


def _inputs(sliders: Mapping[str, Slider]) -> list[dict[str, Any]]:
    return [{"name": name, "value": s.start,
             "bind": {"input": "range", "min": s.low, "max": s.high, "step": s.step, "name": s.label}}
            for name, s in sliders.items()]


def _told(formula: Callable, sliders: Mapping[str, Slider], given: Mapping[str, str]) -> dict[str, str]:
    """What an expression has for the arguments of `formula`: names, but the prices of a link as they are given."""
    arguments = inspect.signature(formula).parameters
    return {name: given[name] if "." in name else name for name in (*sliders, *given)
            if name.partition(".")[0] in arguments}


def bars(sliders: Mapping[str, Slider], given: Mapping[str, str], formulas: Mapping[str, Callable],
         alone: str) -> dict:
    """A specification of one bar for each formula, on one axis, and a dashed line at the bar called `alone`.

    Args:
        sliders: by the name that stands for their value in formulas and in what is given.
        given: further arguments of formulas by name, as expressions of Vega, of sliders and of what is given before;
            "[3, 5][k - 1]" is a table.
        formulas: by the name of the bar, functions that give seconds; each argument is a slider's, a given one, or
            keeps its default.
        alone: the name of the bar that all others are compared with.

    Raises:
        ValueError: if a formula cannot be told to Vega.
    """
    names = [f"bar_{i}" for i in range(len(formulas))]
    line = names[list(formulas).index(alone)]
    params = _inputs(sliders)
    params += [{"name": name, "expr": value} for name, value in given.items() if "." not in name]
    for name, formula in zip(names, formulas.values()):
        params.append({"name": name, "expr": f"{expression(formula, **_told(formula, sliders, given))} * 1000"})
    params.append({"name": "longest", "expr": f"max({', '.join(names)})"})
    for name in names:
        against = "" if name == line else (
            f" + ({name} > {line} * 1.0005 ? ', slower than {alone}' : "
            f"{name} > {line} * 0.9995 ? ', as fast as {alone}' : "
            f"', ' + format({line} / {name}, '.2f') + ' times as fast')")
        params.append({"name": name.replace("bar", "words"),
                       "expr": f"format({name}, {name} < 10 ? '.2f' : ',.1f') + ' ms'{against}"})
    value, words = (" : ".join(f"datum.bar == {i} ? {stem}_{i}" for i in range(len(names))) + " : 0"
                    for stem in ("bar", "words"))
    where = {"y": {"field": "name", "type": "nominal", "sort": None, "title": None,
                   "axis": {"domain": False, "ticks": False, "labelPadding": 8, "labelFontSize": 13}}}
    axis = {"title": "time of one step (ms)", "grid": True, "gridOpacity": 0.5, "tickCount": 5, "labelFontSize": 12,
            "titleFontSize": 12}
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "width": WIDTH - 120, "height": {"step": ROW}, "background": "white", "padding": 6,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "params": params,
        "data": {"values": [{"bar": i, "name": name} for i, name in enumerate(formulas)]},
        "transform": [
            {"calculate": value, "as": "value"},
            {"calculate": words, "as": "words"},
            {"calculate": f"datum.value > {line} * 1.0005 ? 'slower' : "
                          f"datum.value > {line} * 0.9995 ? 'alone' : 'faster'", "as": "kind"}],
        "layer": [
            {"mark": {"type": "bar", "height": 18, "yOffset": 7}, "encoding": {
                **where,
                "x": {"field": "value", "type": "quantitative", "axis": axis, "stack": None,
                      "scale": {"domainMin": 0, "domainMax": {"expr": "longest * 1.05"}, "nice": False}},
                "color": {"field": "kind", "type": "nominal", "legend": None, "scale": {
                    "domain": ["alone", "faster", "slower"],
                    "range": list(COLORS)}}}},
            {"mark": {"type": "rule", "strokeDash": [5, 4], "color": "black"},
             "encoding": {"x": {"datum": {"expr": line}, "type": "quantitative"}}},
            {"mark": {"type": "text", "align": "left", "baseline": "middle", "yOffset": -11, "fontSize": 12,
                      "color": "black"},
             "encoding": {**where, "x": {"value": 4}, "text": {"field": "words"}}}],
        "config": {"view": {"stroke": None}, "font": "sans-serif"},
    }


def curves(sliders: Mapping[str, Slider], given: Mapping[str, str], formulas: Mapping[str, Callable],
           along: str, places: Sequence[int], alone: str) -> dict:
    """A specification of one curve of seconds for each formula, and words on each at the place that a slider names.

    The words say the time, and the speed-up of a step that computes for `alone` seconds on one device and shares that
    with others before it takes the time of the formula. A dotted line shows this share.

    Args:
        sliders, given, formulas: as for `bars`; what is given may be a price of a link, as "link.alpha_s".
        along: the argument that grows along the axis, a number of devices; for words it has to be given.
        places: its values.
        alone: seconds of computing on one device, as an expression of Vega.

    Raises:
        ValueError: if a formula cannot be told to Vega, or `alone` depends on `along`.
    """
    if along in _NAME.findall(_at(along, along, alone, given)):
        raise ValueError(f"the time alone is that of one device, and cannot depend on {along}, got {alone!r}")
    names, middle, there = list(formulas), (min(places) * max(places)) ** 0.5, f"datum.{along}"
    params, columns = _inputs(sliders), []
    params += [{"name": name, "expr": value} for name, value in given.items() if "." not in name]
    params.append({"name": "alone", "expr": f"({alone}) * 1000"})
    for i, formula in enumerate(formulas.values()):
        told = _told(formula, sliders, given)
        in_place = {name: _at(there, along, given[name] if "." in name else name, given) for name in told}
        columns.append({"calculate": f"{expression(formula, **in_place)} * 1000", "as": f"curve_{i}"})
        params.append({"name": f"curve_{i}", "expr": f"{expression(formula, **told)} * 1000"})
        params.append({"name": f"words_{i}", "expr":
                       f"format(curve_{i}, ',.3r') + ' ms, speed-up ' + "
                       f"format(alone / (alone / {along} + curve_{i}), ',.3r')"})
    columns.append({"calculate": f"alone / {there}", "as": "share"})
    fonts = {"gridOpacity": 0.5, "labelFontSize": 12, "titleFontSize": 12}
    x = {"field": along, "type": "quantitative",
         "axis": {"title": "number of devices", "values": list(places), "format": ",d", "labelOverlap": True,
                  "labelSeparation": 8, **fonts},
         "scale": {"type": "log", "base": 2, "domain": [min(places), max(places)], "nice": False}}
    y = {"type": "quantitative", "scale": {"type": "log", "domain": RANGE_MS, "nice": False},
         "axis": {"title": "time (ms)", "values": [10.0**i for i in range(-3, 5)], "format": ",~g", **fonts,
                  "titleAngle": 0, "titleAlign": "left", "titleX": -40, "titleY": -10}}
    label = " : ".join(f"datum.value == {i} ? '{name}: ' + words_{i}" for i, name in enumerate(names))
    curve = {"field": "curve", "type": "nominal", "legend": {
        "title": None, "orient": "bottom", "offset": 6, "columns": 1, "labelExpr": f"{label} : ''",
        "labelLimit": 400, "labelFontSize": 11, "symbolType": "stroke", "symbolSize": 250}}
    colors = [to_hex(rank_style(i)["color"]) for i in range(len(names))]  # Vega knows no triples
    on_curve, on_share = ({"x": x, "y": {**y, "field": field}} for field in ("value", "share"))
    here = {"x": {"datum": {"expr": along}, "type": "quantitative"}}
    devices = {"value": {"expr": f"format({along}, ',d') + ' devices'"}}
    at_first, at_second = ([{"filter": f"{there} == {place}"}] for place in places[:2])  # a text is drawn once
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "width": WIDTH, "height": 300, "background": "white", "padding": 6,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "usermeta": {"names": names},
        "params": params,
        "data": {"values": [{along: place} for place in places]},
        "transform": columns,
        "layer": [
            {"mark": {"type": "line", "strokeDash": [2, 3], "color": "black", "clip": True}, "encoding": on_share},
            {"transform": at_second, "mark": {"type": "text", "align": "left", "dx": 6, "dy": -8, "clip": True},
             "encoding": {**on_share, "text": {"value": "computing, shared"}}},
            {"transform": at_first, "mark": {"type": "rule", "color": COLORS[0]}, "encoding": here},
            {"transform": at_first,
             "mark": {"type": "text", "fontSize": 12, "dx": {"expr": f"{along} > {middle} ? -5 : 5"},
                      "align": {"expr": f"{along} > {middle} ? 'right' : 'left'"}},
             "encoding": {**here, "y": {"value": 8}, "text": devices}},
            {"transform": [{"fold": [f"curve_{i}" for i in range(len(names))], "as": ["key", "value"]},
                           {"calculate": "toNumber(substring(datum.key, 6))", "as": "curve"}],
             "mark": {"type": "line", "strokeWidth": 2, "clip": True},
             "encoding": {**on_curve,
                          "color": {**curve, "scale": {"domain": list(range(len(names))), "range": colors}},
                          "strokeDash": {**curve, "scale": {"domain": list(range(len(names))),
                                                            "range": list(DASHES[:len(names)])}}}}],
        "config": {"view": {"stroke": None}, "font": "sans-serif"},
    }


def _at(there: str, along: str, text: str, given: Mapping[str, str]) -> str:
    """An expression in terms of sliders, and in the place `there` of the axis: what is given is put in its place."""
    def placed(name: re.Match) -> str:
        if name[0] == along:
            return there
        return f"({_at(there, along, given[name[0]], given)})" if name[0] in given else name[0]

    return _NAME.sub(placed, text)


def show_explorer(spec: dict) -> None:
    """Put a specification on the page, with a still picture for where no script runs, and words for who sees neither.

    The still is drawn where vl-convert is installed, as where pages are stored. Outside a notebook nothing is shown.
    """
    if in_notebook():
        from IPython.display import display

        words, metadata = "A picture with sliders, which JupyterLab and the site show.", {}
        data = {VEGALITE: spec, "text/plain": words}
        if find_spec("vl_convert"):
            still, words = still_of(spec)
            data |= {"image/svg+xml": still, "text/plain": words}
            metadata = {"image/svg+xml": {"alt": words}}
        display(data, raw=True, metadata=metadata)


def still_of(spec: dict) -> tuple[str, str]:
    """What a specification shows before a slider moves: as a picture, in SVG, and in words."""
    import vl_convert  # here: only who stores a chapter with an explorer needs it

    sliders = [param for param in spec["params"] if "bind" in param]
    still = vl_convert.vegalite_to_svg(spec, vl_version=VEGALITE_VERSION)
    start = "; ".join(f"{param['bind']['name']}: {param['value']:g}" for param in sliders)
    if names := spec.get("usermeta", {}).get("names"):
        found = re.findall(f">((?:{'|'.join(map(re.escape, names))}): [\\d.,]*[1-9][\\d.,]* ms[^<]*)</text>", still)
        if len(found) < len(names):
            raise ValueError(f"at {start} only {len(found)} of {len(names)} curves have a time above 0, which a "
                             "logarithmic axis needs")
        return still, f"Curves at {start}. {'; '.join(found)}."
    found = re.findall(r">([-\u2212]?[\d.,]+ ms[^<]*)</text>", still)
    return still, (f"Bars at {start}. "
                   + "; ".join(f"{row['name']}: {text}" for row, text in zip(spec["data"]["values"], found)) + ".")
