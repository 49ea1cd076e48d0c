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
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from IPython.display import display

from d2lpar.checks import check_functions, is_number, shown
from d2lpar.plot import in_notebook

VEGALITE_VERSION = "5.21"
VEGALITE = "application/vnd.vegalite.v5+json"
WIDTH = 560  # pixels of the still picture, and in JupyterLab
ROW = 44  # pixels for each bar
COLORS = ("#8a8a8a", "#5b8c1a", "#8b1a1a")  # of bars like the one to compare with, of faster, of slower: no rank's
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
    left out.

    Raises:
        ValueError: for anything else in it, and for a function without a text.
    """
    check_functions(formula=formula)
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
        if name not in values or not isinstance(value, str):
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


def bars(sliders: Mapping[str, Slider], given: Mapping[str, str], formulas: Mapping[str, Callable],
         alone: str) -> dict:
    """A specification of one bar for each formula, on one axis, and a dashed line at the bar called `alone`.

    Args:
        sliders: by the name that stands for their value in formulas and in what is given.
        given: further arguments of formulas by name, as expressions of Vega; "[3, 5][k - 1]" is a table.
        formulas: by the name of the bar, functions that give seconds; each argument is a slider's, a given one, or
            keeps its default.
        alone: the name of the bar that all others are compared with.

    Raises:
        ValueError: if a formula cannot be told to Vega, or an argument of it is neither a slider nor given.
    """
    check_bars(sliders, given, formulas, alone)
    names = [f"bar_{i}" for i in range(len(formulas))]
    line = names[list(formulas).index(alone)]
    params: list[dict[str, Any]] = [
        {"name": name, "value": s.start,
         "bind": {"input": "range", "min": s.low, "max": s.high, "step": s.step, "name": s.label}}
        for name, s in sliders.items()]
    params += [{"name": name, "expr": value} for name, value in given.items()]
    for name, formula in zip(names, formulas.values()):
        arguments = inspect.signature(formula).parameters
        told = {argument: argument for argument in arguments if argument in sliders or argument in given}
        params.append({"name": name, "expr": f"{expression(formula, **told)} * 1000"})
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


def show_explorer(spec: dict) -> None:
    """Put a specification on the page, with a still picture for where no script runs, and words for who sees neither.

    Outside a notebook nothing is shown.
    """
    check_spec(spec)
    if in_notebook():
        still, words = still_of(spec)
        data = {VEGALITE: spec, "image/svg+xml": still, "text/plain": words}
        display(data, raw=True, metadata={"image/svg+xml": {"alt": words}})


def still_of(spec: dict) -> tuple[str, str]:
    """What a specification shows before a slider moves: as a picture, in SVG, and in words."""
    import vl_convert  # here: only who runs or stores a chapter with an explorer needs it

    sliders = [param for param in check_spec(spec)["params"] if "bind" in param]
    still = vl_convert.vegalite_to_svg(spec, vl_version=VEGALITE_VERSION)
    found = re.findall(r">([\d.,]+ ms[^<]*)</text>", still)
    return still, ("Bars at " + "; ".join(f"{param['bind']['name']}: {param['value']:g}" for param in sliders) + ". "
                   + "; ".join(f"{row['name']}: {text}" for row, text in zip(spec["data"]["values"], found)) + ".")


def check_bars(sliders: Mapping, given: Mapping, formulas: Mapping, alone: str) -> None:
    """Raise ValueError unless each formula finds its arguments, and sliders can be moved."""
    for name, things in (("sliders", sliders), ("given", given), ("formulas", formulas)):
        if not isinstance(things, Mapping) or not all(isinstance(key, str) for key in things):
            raise ValueError(f"{name} must be given by name, got {shown(things)}")
    for name, slider in sliders.items():
        if not isinstance(slider, Slider) or not isinstance(slider.label, str) or not all(map(is_number, slider[1:])):
            raise ValueError(f"{name} must be a Slider, with a label and four numbers, got {shown(slider)}")
        if not slider.low <= slider.start <= slider.high or slider.step <= 0:
            raise ValueError(f"a slider starts between its ends, and has steps above 0, got {shown(slider)}")
    for name in (*sliders, *given):
        if not name.isidentifier() or name == "longest" or re.fullmatch(r"(bar|words)_\d+", name):
            raise ValueError(f"{shown(name)} is no name for a slider or for what is given, or stands for a bar already")
    if isinstance(alone, str) and re.search(r"""['"\\]""", alone):
        raise ValueError(f"the name of the bar to compare with has no quotes and no backslash, got {shown(alone)}")
    if not isinstance(alone, str) or alone not in formulas:
        raise ValueError(f"one of the bars must be {shown(alone)}, got {shown(list(formulas))}")
    check_functions(**formulas)
    for name, formula in formulas.items():
        for argument, p in inspect.signature(formula).parameters.items():
            if p.default is p.empty and argument not in sliders and argument not in given:
                raise ValueError(f"{name} asks for {argument}, which is neither a slider nor given")


def check_spec(spec: dict) -> dict:
    """The specification itself; ValueError unless it is one that `bars` gives."""
    if not isinstance(spec, dict) or not {"params", "data", "layer"} <= set(spec):
        raise ValueError(f"a specification is what bars gives, got {shown(spec)}")
    return spec
