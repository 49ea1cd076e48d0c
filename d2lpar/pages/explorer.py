"""Figures with sliders, for readers without a kernel: two Vega-Lite specifications, `stored/NAME.vl.json`.

When a slider moves, a browser computes the new figure. JupyterLab renders a specification without help; on the site,
`book/tools/explorer_ext.py` and `explorer.js` render it. The specifications repeat the formulas of `d2lpar.cost` and
`d2lpar.ways` as Vega expressions; `tests/test_explorer.py` compares the numbers.
"""

from __future__ import annotations

import json
import re
from importlib.util import find_spec

from d2lpar.pages.results import FOLDER
from d2lpar.timing import in_notebook

VEGALITE_VERSION = "5.21"
VEGALITE = "application/vnd.vegalite.v5+json"


def specification(name: str) -> dict:
    """The Vega-Lite specification `stored/NAME.vl.json`."""
    return json.loads((FOLDER / f"{name}.vl.json").read_text("utf8"))


def show_explorer(name: str) -> None:
    """Put a specification on the page, with a still picture if no script runs, and words for readers who see neither.

    Drawing the still picture takes vl-convert, which is installed where pages are stored. Outside a notebook nothing
    is shown.
    """
    if in_notebook():
        from IPython.display import display

        spec, words, metadata = specification(name), "A picture with sliders, which JupyterLab and the site show.", {}
        data = {VEGALITE: spec, "text/plain": words}
        if find_spec("vl_convert"):
            still, words = still_of(spec)
            data |= {"image/svg+xml": still, "text/plain": words}
            metadata = {"image/svg+xml": {"alt": words}}
        display(data, raw=True, metadata=metadata)


def still_of(spec: dict) -> tuple[str, str]:
    """What a specification shows before a slider moves: an SVG picture, and the same in words."""
    import vl_convert  # here, because only storing a chapter with an explorer needs it

    still = vl_convert.vegalite_to_svg(spec, vl_version=VEGALITE_VERSION)
    start = "; ".join(f"{param['bind']['name']}: {param['value']:g}" for param in spec["params"] if "bind" in param)
    kind, names = spec["usermeta"]["kind"], spec["usermeta"]["names"]
    if kind == "Curves":
        found = re.findall(f">((?:{'|'.join(map(re.escape, names))}): [\\d.,]+ ms[^<]*)</text>", still)
    else:
        found = [f"{name}: {text}" for name, text in zip(names, re.findall(r">([\d.,]+ ms[^<]*)</text>", still))]
    return still, f"{kind} at {start}. {'; '.join(found)}."
