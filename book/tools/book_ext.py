"""What the site needs beyond jupyter-book.

Local MathJax, alt texts of figures, outputs that are sentences, a script of each chapter, links between taught cells
and the API page, the tables of the machines, of the sizes of chapters and of the bench, the buttons that need the
repository's address, no thebe, chapters' numbers, and numbers of exercises and figures that are those of JupyterLab.
"""

from __future__ import annotations

import gc
import html
import json
import os
import re
import shutil
import sys
from importlib.metadata import files
from pathlib import Path

from docutils import nodes
from myst_nb.core.render import MimeData, NbElementRenderer
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.builders.html import StandaloneHTMLBuilder
from sphinx.config import Config
from sphinx.environment import BuildEnvironment
from sphinx.errors import ConfigError, ExtensionError
from sphinx.util.docutils import SphinxDirective

from chapter_sizes import lines_of_code, measure
from chapter_sizes import table as table_of_sizes
from export_script import package_at, script_of
from revisions import notebooks
from sync_cells import defined_name, full_name, taught_names

sys.path.append(str(Path(__file__).parents[1] / "lab"))
from bench_report import Row, blocks, finding, from_json, table

MATHJAX = ("mathjax/tex-chtml.js", "mathjax/input/tex/extensions/", "mathjax/output/chtml/fonts/woff-v2/")
SCRIPTS = "_downloads"
UNIT = re.compile(r"(?<=\d) (?=[a-zA-Z])")  # between a number and its unit, where no line may break
COLUMNS = re.compile(r"\S  |^ {5}", re.M)  # in an output
REPOSITORY = re.compile(r"https://[\w.-]+(/[\w.-]+){2,}(?<!\.git)")
REPOSITORY_BUTTONS = ("use_repository_button", "use_edit_page_button", "use_issues_button")


def copy_mathjax(app: Sphinx, error: Exception | None) -> None:
    """Copy what the pages load: the bundle, the extensions that it fetches for some macros, and the fonts."""
    if error or app.builder.format != "html":
        return
    listed = files("sphinx-mathjax-offline")
    if listed is None:
        raise ExtensionError("sphinx-mathjax-offline is installed without a list of its files: install it with pip")
    for file in listed:
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


def follow_repository(app: Sphinx, config: Config) -> None:
    """Turn on every button that needs the repository's address if _config.yml has one, and none if it has not."""
    options = config.html_theme_options
    url, branch = options.get("repository_url", ""), options.get("repository_branch", "")
    if not url:
        if asked := [button for button in REPOSITORY_BUTTONS if options.get(button)]:
            raise ConfigError(f"_config.yml asks for {', '.join(asked)}, but its repository.url is empty")
        options["launch_buttons"] = {}
        return
    if not REPOSITORY.fullmatch(url):
        raise ConfigError(f"repository.url in _config.yml is {url!r}, not like https://github.com/OWNER/NAME")
    if not branch:
        raise ConfigError("_config.yml has a repository.url, but its repository.branch is empty")
    options.update(dict.fromkeys(REPOSITORY_BUTTONS, True))
    if not url.startswith("https://github.com/"):
        options["launch_buttons"] = options.get("launch_buttons", {}) | {"colab_url": ""}


def mend_launch_buttons(
        app: Sphinx, page: str, template: str, context: dict, doctree: nodes.document | None) -> None:
    """No logos, whose alt texts say less than the words beside them, and what Colab lacks: it gets no package."""
    for group in context.get("header_buttons", []):
        if group["label"] == "launch-buttons":
            for button in group["buttons"]:
                button["icon"] = "fas fa-play"
                if button["text"] == "Colab":
                    install = f"%pip install {package_at(app.config.html_theme_options['repository_url'])}"
                    button["tooltip"] = f"Launch on Colab. Run there first: {install}"


def drop_scripts(app: Sphinx, page: str, template: str, context: dict, doctree: nodes.document | None) -> None:
    """Nothing here uses Thebe, it names a foreign host, and its script, written twice, is an error on every page.

    The search page has no code to copy, no dropdowns and no tabs.
    """
    unused = ["sphinx-thebe", *["clipboard", "copybutton", "togglebutton", "design-tabs"] * (page == "search")]

    def is_unused(script: object) -> bool:
        return (any(name in str(getattr(script, "filename", script)) for name in unused)
                or "THEBE_JS_URL" in getattr(script, "attributes", {}).get("body", ""))

    context["script_files"][:] = [script for script in context["script_files"] if not is_unused(script)]


def numbered_title(app: Sphinx, page: str) -> str:
    """The title of a page, after its number if it is a chapter."""
    number = app.env.toc_secnumbers.get(page, {}).get("", ())
    return " ".join([*map(str, number), app.env.titles[page].astext()])


def number_titles(app: Sphinx, page: str, template: str, context: dict, doctree: nodes.document | None) -> None:
    """Sphinx gives chapters their numbers in headings and in the sidebar; here also where else a page is named."""
    if isinstance(app.builder, StandaloneHTMLBuilder) and page in app.env.titles:
        _, before, after = app.builder.relations[page]
        for where, named in (("prev", before), ("next", after)):
            if named:
                context[where]["title"] = html.escape(numbered_title(app, named))
        context["title"] = context["pagetitle"] = html.escape(numbered_title(app, page))


def count_on_each_page(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Exercise 3 of a chapter is Exercise 3 in JupyterLab, which knows no chapters."""
    for kinds in env.toc_fignumbers.values():
        for numbers in kinds.values():
            numbers.update({name: (i,) for i, name in enumerate(sorted(numbers, key=numbers.__getitem__), 1)})
    return []


def mend_signatures(app: Sphinx, page: str, template: str, context: dict, doctree: nodes.document | None) -> None:
    """Long signatures have a line per parameter, which Sphinx writes as a list of definitions without terms."""
    def mended(found: re.Match) -> str:
        return re.sub(r"<(/?)d[ld]>", r"<\1div>", found[0]).replace("<div>", '<div class="sig-params">', 1)

    context["body"] = re.sub(r'<dl>\n<dd><em class="sig-param.*?</dl>', mended, context.get("body", ""), flags=re.S)


def keep_alt_texts() -> None:
    """Give a figure the alt text that its output's metadata holds; MyST-NB reads only width and height there."""
    render_image = NbElementRenderer.render_image

    def render_image_with_alt(self: NbElementRenderer, data: MimeData) -> list[nodes.Element]:
        images = render_image(self, data)
        if alt := data.output_metadata.get(data.mime_type, {}).get("alt"):
            images[0]["alt"] = alt
        return images

    NbElementRenderer.render_image = render_image_with_alt


def mark_prose(app: Sphinx, doctree: nodes.document) -> None:
    """Tell outputs that are sentences from those with columns, which need their lines as they are."""
    for block in doctree.findall(nodes.literal_block):
        if "output" in block["classes"] and not COLUMNS.search(block.astext()):
            block["classes"].append("prose")


def link_taught_cells(app: Sphinx, doctree: nodes.document) -> None:
    """Put a link to the API page under each taught cell, and give the cell a name that the API page links to."""
    for cell in list(doctree.findall(nodes.container)):
        for tag in cell.get("cell_metadata", {}).get("tags", []):
            if tag.startswith("taught:"):
                name = defined_name(next(cell.findall(nodes.literal_block)).astext())
                target = full_name(tag.removeprefix("taught:"), name)
                if not target.startswith("d2lpar."):
                    continue  # of the lab, which has no API page
                link = pending_xref("", nodes.literal("", name), refdomain="py", reftype="obj", reftarget=target,
                                    refdoc=app.env.docname, refwarn=True)
                cell["ids"].append(_label(target))
                line = nodes.paragraph("", "API: ", link, classes=["api-link"])
                cell.parent.insert(cell.parent.index(cell) + 1, line)
                app.env.domains["std"].note_hyperlink_target(
                    _label(target), app.env.docname, _label(target), app.env.titles[app.env.docname].astext())


def link_to_taught_cell(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Under what a chapter teaches, a link to the cell that has its text."""
    if name in taught_names():
        lines += ["", f"Taught in :ref:`{_label(name)}`.", ""]


def skip_fields(app: Sphinx, what: str, name: str, obj: object, skip: bool, options: object) -> bool | None:
    """The fields of a named tuple stand in its signature already, and have no words of their own."""
    return True if type(obj).__name__ == "_tuplegetter" else None


def _label(target: str) -> str:
    return "taught-" + re.sub(r"\W|_", "-", target.removeprefix("d2lpar.")).lower()


class Machines(SphinxDirective):
    """A table of the machine for each group of chapters that were run on the same one, from what `make run` wrote."""

    def run(self) -> list[nodes.Node]:
        file = Path(self.env.srcdir, "book", "_data", "measured.json")
        self.env.note_dependency(str(file))
        groups: dict[str, list[str]] = {}
        for chapter, facts in json.loads(file.read_text("utf8")).items():
            groups.setdefault(json.dumps(facts), []).append(f"[](../notebooks/{chapter}.ipynb)")
        lines = []
        for facts, chapters in groups.items():
            lines += [", ".join(chapters), "", "| property | value |", "|---|---|"]
            lines += [f"| {name} | {value} |" for name, value in json.loads(facts).items()] + [""]
        return self.parse_text_to_nodes("\n".join(lines))


class ChapterSizes(SphinxDirective):
    """The table of the sizes of the chapters, as `book/tools/chapter_sizes.py` prints it."""

    def run(self) -> list[nodes.Node]:
        paths = notebooks(Path(self.env.srcdir, "notebooks"))
        for path in paths:
            self.env.note_dependency(str(path))
        head, *rows = table_of_sizes([measure(path) for path in paths])
        lines = [f"| {' | '.join(head)} |", "|---" + "|--:" * (len(head) - 1) + "|"]
        return self.parse_text_to_nodes("\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]))


class CodeSizes(SphinxDirective):
    """The lines of Python in each part of the code, as `book/tools/chapter_sizes.py` prints them."""

    def run(self) -> list[nodes.Node]:
        self.env.note_reread()  # any file of code counts
        rows = [f"| {part} | {lines:,} |" for part, lines in lines_of_code(Path(self.env.srcdir)).items()]
        return self.parse_text_to_nodes("\n".join(["| part | lines of Python |", "|---|--:|", *rows]))


class Bench(SphinxDirective):
    """The stored rows of one group of `make bench`: drawn, for two widths of the window, and as a folded
    table; without a group, where and how they were measured.
    """

    optional_arguments, final_argument_whitespace = 1, True

    def run(self) -> list[nodes.Node]:
        file = Path(self.env.srcdir, "book", "_data", "bench.json")
        self.env.note_dependency(str(file))
        report = from_json(file.read_text("utf8"))
        if self.arguments:
            rows = [row for row in report.rows if row.group == self.arguments[0]]
            if not rows:
                raise self.error(f"{file.name} has no group {self.arguments[0]!r}")
            numbers = UNIT.sub("\u00a0", table(rows))
            return [self.figure(rows), *self.parse_text_to_nodes(f":::{{dropdown}} The numbers\n{numbers}\n:::")]
        facts = report.machine | {"blocks": f"{report.builds} builds, with {report.repeats} blocks each",
                                  "the whole run": f"{report.seconds} s"}
        lines = ["| property | value |", "|---|---|", *(f"| {name} | {value} |" for name, value in facts.items())]
        return self.parse_text_to_nodes("\n".join(lines))

    def figure(self, rows: list[Row]) -> nodes.figure:
        from matplotlib import pyplot as plt  # here, so that a build that does not read the page does without torch

        from d2lpar.pages.plot import STYLE, draw_ratios

        name = nodes.make_id(f"fig-bench-{self.arguments[0]}")
        figure = nodes.figure("", ids=[name], classes=["bench"])
        ranges = {heading: {label: (row.low, row.ratio, row.high, row.limit) for label, row in block.items()}
                  for heading, block in blocks(rows).items()}
        for width in ("wide", "narrow"):
            file = Path(self.env.doctreedir, f"{name}-{width}.svg")
            with plt.style.context(STYLE):
                drawn = draw_ratios(ranges, narrow=width == "narrow")
                drawn.savefig(file, bbox_inches="tight", metadata={"Date": None})
                plt.close(drawn)
            uri = "/" + Path(os.path.relpath(file, self.env.srcdir)).as_posix()
            figure += nodes.image(uri=uri, alt=drawn.get_label(), classes=[width])
        figure += nodes.caption("", finding(rows))
        return figure


def _notebook(app: Sphinx, page: str) -> Path | None:
    source = Path(app.env.doc2path(page)) if page in app.env.found_docs else Path()
    return source if source.suffix == ".ipynb" else None


def setup(app: Sphinx) -> dict:
    gc.disable()  # to search for garbage takes a third of a build's time; to leave it, a third more memory
    keep_alt_texts()
    app.add_directive("machines", Machines)
    app.add_directive("chapter-sizes", ChapterSizes)
    app.add_directive("code-sizes", CodeSizes)
    app.add_directive("bench", Bench)
    app.connect("config-inited", follow_repository)
    app.connect("doctree-read", mark_prose)
    app.connect("doctree-read", link_taught_cells)
    app.connect("autodoc-process-docstring", link_to_taught_cell, priority=400)  # before napoleon
    app.connect("autodoc-skip-member", skip_fields)
    app.connect("html-page-context", add_script_button, priority=900)  # after the theme has made its buttons
    app.connect("html-page-context", mend_launch_buttons, priority=900)
    app.connect("html-page-context", drop_scripts, priority=900)
    app.connect("html-page-context", number_titles, priority=900)
    app.connect("html-page-context", mend_signatures)
    app.connect("env-get-updated", count_on_each_page, priority=900)  # after Sphinx has counted
    app.connect("build-finished", copy_mathjax)
    app.connect("build-finished", write_scripts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
