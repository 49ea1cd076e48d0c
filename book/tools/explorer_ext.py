"""Explorers, steppers, the race, a game and predictions on the site: their pages get the script, and what it draws.

`explorer.js`, `stepper.js`, `race.js` and `which_run.js` replace the still picture by a figure that readers use. The
still picture stays where no script runs, and their data is stored next to it. A page that is not a notebook uses the
directive `race`. Vega, in the version that also drew the still picture, comes out of the package vl-convert, so that no
page asks another host. `predict.js` hides an answer until the reader has given one.
"""

from __future__ import annotations

import json
from itertools import takewhile
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from myst_nb.core.render import MimeData, NbElementRenderer
from sphinx.application import Sphinx

from d2lpar.pages.explorer import VEGALITE, VEGALITE_VERSION
from d2lpar.pages.race import RACE, race_html
from d2lpar.pages.stepper import STEPPER
from d2lpar.pages.which_run import WHICH_RUN

VEGA = "vega_bundle.js"
KINDS = {VEGALITE: "explorer", STEPPER: "stepper", RACE: "race", WHICH_RUN: "which-run"}
SCRIPTS = {"explorer": (VEGA, "explorer.js"), "stepper": ("svg.js", "stepper.js"), "race": ("svg.js", "race.js"),
           "which-run": ("svg.js", "which_run.js"), "tag_predict": ("predict.js",)}


class RaceDirective(Directive):
    """The race, with its settings at their start."""

    def run(self) -> list[nodes.Node]:
        """The still picture, and the data for the script."""
        return [nodes.raw("", race_html(), format="html")]


def keep_specifications() -> None:
    """MyST-NB knows no such kind and would warn: here each becomes a script that holds data."""
    render_unhandled = NbElementRenderer.render_unhandled

    def render_ours(self: NbElementRenderer, data: MimeData) -> list[nodes.Element]:
        if data.mime_type not in KINDS:
            return render_unhandled(self, data)
        given: Any = data.content
        here = {key: value for key, value in given.items() if key != "$schema"}  # an address, which says no more
        spec = json.dumps(here, ensure_ascii=False).replace("</", "<\\/")
        kind = KINDS[data.mime_type]
        return [nodes.raw("", f'<script type="application/json" class="{kind}">{spec}</script>', format="html")]

    NbElementRenderer.render_unhandled = render_ours


def put_beside_pictures(app: Sphinx, doctree: nodes.document) -> None:
    """Of the formats of one output only one is kept: so the specification moves into the one that is the picture."""
    for bundle in list(doctree.findall(nodes.container)):
        formats = {part.get("mime_type"): part for part in bundle.children if isinstance(part, nodes.Element)}
        for kind in KINDS.keys() & formats.keys():
            if bundle.get("nb_element") == "mime_bundle" and "image/svg+xml" in formats:
                formats["image/svg+xml"] += formats[kind].children
                bundle.remove(formats[kind])


def mark_predictions(app: Sphinx, doctree: nodes.document) -> None:
    """Mark each question that begins with a bold Predict, and the cell that answers it: the next cell with the tag
    `predict`, or else the first one with outputs directly below the question. The question at the top of a chapter may
    be answered much further down, by a cell with the tag `predict-opening`. A number in the classes of both pairs them.
    """
    question = opening = None
    count = 0
    for node in list(doctree.findall(nodes.Element)):
        classes = node.get("classes", [])
        if isinstance(node, nodes.strong) and node.astext().startswith(("Predict", "预测")):
            question = node.parent
            if question.parent.parent is doctree:  # the opening
                opening = question
            else:
                cell = first_output(question)
                if cell and "tag_predict" not in cell["classes"]:
                    cell["classes"].append("tag_predict")
        elif asked := opening if "tag_predict-opening" in classes else question if "tag_predict" in classes else None:
            asked["classes"] += ["predict-question", f"asked-{count}"]
            classes += ["tag_predict", f"answers-{count}"]
            count += 1
            question = None if asked is question else question
            opening = None if asked is opening else opening


def first_output(question: nodes.Element) -> nodes.Element | None:
    """The cell directly below this question that has the tag, or else outputs; no explorer, which is used to guess."""
    below = question.parent[question.parent.index(question) + 1:]
    cells: list[Any] = [*takewhile(lambda node: isinstance(node, nodes.Element) and "cell" in node["classes"], below)]
    tagged = [cell for cell in cells if "tag_predict" in cell["classes"]]
    shown = [cell for cell in cells if any("cell_output" in part["classes"] for part in cell)]
    for cell in (tagged + shown)[:1]:
        if not any('class="explorer"' in raw.astext() for raw in cell.findall(nodes.raw)):
            return cell
    return None


def add_scripts(app: Sphinx, page: str, template: str, context: dict, doctree: nodes.document | None) -> None:
    there = set()
    for node in doctree.findall(nodes.Element) if doctree else ():
        there |= set(node["classes"])
        if isinstance(node, nodes.raw):
            there |= {kind for kind in KINDS.values() if f'class="{kind}"' in node.astext()}
    for kind, scripts in SCRIPTS.items():
        for script in scripts if kind in there else ():
            app.add_js_file(script, loading_method="defer")


def write_vega(app: Sphinx, error: Exception | None) -> None:
    if error or app.builder.format != "html":
        return
    target = Path(app.outdir, "_static", VEGA)
    if not target.exists() or target.stat().st_mtime < Path(__file__).stat().st_mtime:
        import vl_convert  # here: only who builds the site needs it

        bundle = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=VEGALITE_VERSION)
        target.write_text(f"(() => {{{bundle}\n}})();\n", "utf8")  # its names are nobody else's


def setup(app: Sphinx) -> dict:
    keep_specifications()
    app.add_directive("race", RaceDirective)
    app.connect("doctree-read", put_beside_pictures)
    app.connect("doctree-read", mark_predictions)
    app.connect("html-page-context", add_scripts)
    app.connect("build-finished", write_vega)
    # With a new env_version all pages are read again.
    return {"env_version": 2, "parallel_read_safe": True, "parallel_write_safe": True}
