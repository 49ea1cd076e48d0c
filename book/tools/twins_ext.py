"""Two languages: what a page needs to lead to its twin, and in Chinese the anchors and numbers of the English page."""

from __future__ import annotations

import os
from gettext import NullTranslations

import nbformat
import yaml
from docutils import nodes
from myst_parser.mdit_to_docutils.base import default_slugify
from sphinx import locale
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.environment import BuildEnvironment

import twins
import twins_site

ANCHORS: dict[str, str] = {}  # of the page that is read: for each heading the English one
NOTE = "{.external .english}"
make_id = nodes.make_id


def anchor_of(string: str) -> str:
    """docutils makes an anchor of a heading's Latin letters: of 小结 none, and of two such headings id1 and id2."""
    return make_id(ANCHORS.get(string, string))


def slug_of(text: str) -> str:
    return default_slugify(ANCHORS.get(nodes.fully_normalize_name(text), text))


class Words(NullTranslations):
    def gettext(self, message: str) -> str:
        return twins.WORDS["words"].get(message, message)


def begin(app: Sphinx, config: Config) -> None:
    config.html_context.setdefault("twins", list(twins.twins()))  # when it changes, Sphinx writes all pages again
    if config.language == "zh_CN":
        nodes.make_id = anchor_of
        app.connect("source-read", read_in_chinese)
        app.connect("doctree-resolved", lead_out)
        app.connect("env-get-updated", number_as_in_english, priority=950)  # after Sphinx has counted
        for translations in locale.translators.values():
            translations.add_fallback(Words())


def read_in_chinese(app: Sphinx, page: str, source: list[str]) -> None:
    """Keep the anchors. On the page, and not in the notebook that it offers, lead to English where nothing else is."""
    ANCHORS.clear()
    anchors = twins.anchors(twins.load(page), twins.translation_of(page))
    ANCHORS.update({nodes.fully_normalize_name(chinese): english for chinese, english in anchors.items()})

    def address(page: str, led: str) -> str | None:
        return None if led in app.config.html_context["twins"] else f"{'../' * (1 + page.count('/'))}{led}.html"

    if page.startswith("notebooks/"):
        notebook = nbformat.reads(source[0], as_version=4)
        for cell in notebook.cells:
            if cell.cell_type == "markdown":
                cell.source = twins.pointed(cell.source, page, address, NOTE)
        source[0] = nbformat.writes(notebook)
    else:
        source[0] = twins.pointed(source[0], page, address, NOTE)


def lead_out(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Point links at English pages even if they name a label, or have their address on a different line."""
    up = "../" * page.count("/")
    for link in doctree.findall(nodes.reference):
        target, hash_sign, anchor = link.get("refid", "").partition("#")
        if "reftitle" in link and not link.get("internal") and not link["refuri"].startswith(f"{up}../"):
            link["refuri"] = up + link["refuri"]  # found by MyST, as if the page were at the top
        elif target.endswith((".ipynb", ".md")):
            there = os.path.splitext(os.path.normpath(os.path.join(os.path.dirname(page), target)))[0]
            link["refuri"] = f"{up}../{there}.html{hash_sign}{make_id(anchor)}"
            del link["refid"]


def number_as_in_english(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """A chapter has the number of the English one, whichever chapters before it are there."""
    parts = yaml.safe_load((twins.ROOT / "_toc.yml").read_text("utf8"))["parts"]
    chapters = [chapter["file"] for part in parts if "numbered" in part for chapter in part["chapters"]]
    for page in set(chapters) & set(env.found_docs):
        number, numbers = chapters.index(page) + 1, env.toc_secnumbers[page]
        counted = [env.titles[page], *(one for one in env.tocs[page].findall(nodes.reference) if "secnumber" in one)]
        for holder, key in [*((node, "secnumber") for node in counted), *((numbers, key) for key in numbers)]:
            if holder.get(key):
                holder[key] = (number, *holder[key][1:])
    return []


def build_the_other(app: Sphinx, error: Exception | None) -> None:
    if not error and app.builder.name == "html" and app.config.language == "en" and len(twins.twins()) > 1:
        twins_site.build(app.outdir)


def setup(app: Sphinx) -> dict:
    app.connect("config-inited", begin)
    app.connect("build-finished", build_the_other, priority=990)  # when all shared files are there
    return {"parallel_read_safe": True, "parallel_write_safe": True}
