"""Explorers on the site: the specification goes beside its still picture, and the pages that have one get the scripts.

`explorer.js` puts inputs and the moving picture in place of the still one, which stays where no script runs. Vega, in
the version that also drew the still picture, comes out of the package vl-convert, so that no page asks another host.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from docutils import nodes
from myst_nb.core.render import MimeData, NbElementRenderer
from sphinx.application import Sphinx

from d2lpar.pages.explorer import VEGALITE, VEGALITE_VERSION

VEGA = "vega_bundle.js"
SCRIPTS = (VEGA, "explorer.js")


def keep_specifications() -> None:
    """MyST-NB knows no explorers and would warn: here each becomes a script that holds data."""
    render_unhandled = NbElementRenderer.render_unhandled

    def render_explorer(self: NbElementRenderer, data: MimeData) -> list[nodes.Element]:
        if data.mime_type != VEGALITE:
            return render_unhandled(self, data)
        given: Any = data.content
        here = {key: value for key, value in given.items() if key != "$schema"}  # an address, which says no more
        spec = json.dumps(here, ensure_ascii=False).replace("</", "<\\/")
        return [nodes.raw("", f'<script type="application/json" class="explorer">{spec}</script>', format="html")]

    NbElementRenderer.render_unhandled = render_explorer


def put_beside_pictures(app: Sphinx, doctree: nodes.document) -> None:
    """Of the formats of one output only one is kept: so the specification moves into the one that is the picture."""
    for bundle in list(doctree.findall(nodes.container)):
        formats = {part.get("mime_type"): part for part in bundle.children if isinstance(part, nodes.Element)}
        if bundle.get("nb_element") == "mime_bundle" and VEGALITE in formats and "image/svg+xml" in formats:
            formats["image/svg+xml"] += formats[VEGALITE].children
            bundle.remove(formats[VEGALITE])


def add_scripts(app: Sphinx, page: str, template: str, context: dict, doctree: nodes.document | None) -> None:
    if doctree is not None and any('class="explorer"' in raw.astext() for raw in doctree.findall(nodes.raw)):
        for script in SCRIPTS:
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
    app.connect("doctree-read", put_beside_pictures)
    app.connect("html-page-context", add_scripts)
    app.connect("build-finished", write_vega)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
