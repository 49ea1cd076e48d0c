"""What the site needs beyond jupyter-book: local MathJax, alt texts of figures, a script of each chapter, no thebe."""

from __future__ import annotations

import shutil
from importlib.metadata import files
from pathlib import Path

from docutils import nodes
from myst_nb.core.render import MimeData, NbElementRenderer
from sphinx.application import Sphinx

from export_script import script_of

MATHJAX = ("mathjax/tex-chtml.js", "mathjax/input/tex/extensions/", "mathjax/output/chtml/fonts/woff-v2/")
SCRIPTS = "_downloads"


def copy_mathjax(app: Sphinx, error: Exception | None) -> None:
    """Copy what the pages load: the bundle, the extensions that it fetches for some macros, and the fonts."""
    if error or app.builder.format != "html":
        return
    for file in files("sphinx-mathjax-offline"):
        _, _, inside = file.as_posix().partition("/static/")
        if inside.startswith(MATHJAX):
            target = Path(app.outdir, "_static", inside)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file.locate(), target)


def write_scripts(app: Sphinx, error: Exception | None) -> None:
    if error or app.builder.format != "html":
        return
    for page in app.env.found_docs:
        if notebook := _notebook(app, page):
            target = Path(app.outdir, SCRIPTS, f"{notebook.stem}.py")
            target.parent.mkdir(exist_ok=True)
            target.write_text(script_of(notebook), "utf8")


def add_script_button(app: Sphinx, page: str, template: str, context: dict, doctree: nodes.document | None) -> None:
    notebook = _notebook(app, page)
    for group in context.get("header_buttons", []):
        if notebook and group["label"] == "download-buttons":
            group["buttons"].insert(1, {
                "type": "link", "url": context["pathto"](f"{SCRIPTS}/{notebook.stem}.py", 1), "text": ".py",
                "tooltip": "Download as one script", "icon": "fab fa-python", "label": "download-script-button"})


def drop_thebe(app: Sphinx, page: str, template: str, context: dict, doctree: nodes.document | None) -> None:
    """Nothing here uses it, it names a foreign host, and its script, written twice, is an error on every page."""
    def is_thebe(script: object) -> bool:
        return "sphinx-thebe" in str(script) or "THEBE_JS_URL" in getattr(script, "attributes", {}).get("body", "")

    context["script_files"][:] = [script for script in context["script_files"] if not is_thebe(script)]


def keep_alt_texts() -> None:
    """Give a figure the alt text that its output's metadata holds; MyST-NB reads only width and height there."""
    render_image = NbElementRenderer.render_image

    def render_image_with_alt(self: NbElementRenderer, data: MimeData) -> list[nodes.Element]:
        images = render_image(self, data)
        if alt := data.output_metadata.get(data.mime_type, {}).get("alt"):
            images[0]["alt"] = alt
        return images

    NbElementRenderer.render_image = render_image_with_alt


def _notebook(app: Sphinx, page: str) -> Path | None:
    source = Path(app.env.doc2path(page)) if page in app.env.found_docs else Path()
    return source if source.suffix == ".ipynb" else None


def setup(app: Sphinx) -> dict:
    keep_alt_texts()
    app.connect("html-page-context", add_script_button, priority=900)  # after the theme has made its buttons
    app.connect("html-page-context", drop_thebe, priority=900)
    app.connect("build-finished", copy_mathjax)
    app.connect("build-finished", write_scripts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
