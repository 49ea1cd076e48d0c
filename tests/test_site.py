"""The built site: what a link, a reader without eyes, without a network or with a kernel of her own would miss."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

import nbformat
import pytest
import yaml

from building_edition import answers
from d2lpar.pages.explorer import VEGALITE
from export_script import script_of

pytestmark = pytest.mark.slow

TYPO, PARTS = "(book/authors.md, Fix a typo)", "(book/authors.md, The parts of a chapter)"

LOADED = {"script": ("src",), "img": ("src", "srcset"), "iframe": ("src",), "source": ("src", "srcset"),
          "video": ("src", "poster"), "audio": ("src",), "embed": ("src",), "object": ("data",), "image": ("href",)}
LOADED_LINKS = {"stylesheet", "icon", "preload", "modulepreload", "prefetch", "preconnect", "dns-prefetch", "manifest"}


class Page(HTMLParser):
    """What one page points to, loads and shows."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path, self.ids, self.links, self.loads, self.images = path, set(), [], [], []
        self.feed(path.read_text("utf8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.ids |= {found[name] for name in ("id", "name") if name in found}
        self.loads += [found[name] for name in LOADED.get(tag, ()) if found.get(name)]
        if tag == "link" and LOADED_LINKS & set(found.get("rel", "").split()):
            self.loads.append(found["href"])
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        if tag == "img":
            self.images.append(found)


@pytest.fixture(scope="module")
def parsed(pages: list[Path], chinese_pages: list[Path]) -> dict[Path, Page]:
    return {page.resolve(): Page(page) for page in [*pages, *chinese_pages]}


def is_elsewhere(address: str) -> bool:
    return bool(urlsplit(address).netloc)


def test_every_internal_link_and_anchor_exists(parsed: dict[Path, Page]) -> None:
    checked, broken = 0, []
    for page in parsed.values():
        for address in page.links + page.loads:
            if is_elsewhere(address) or urlsplit(address).scheme:
                continue
            file, anchor = urldefrag(address)
            target = (page.path.parent / unquote(urlsplit(file).path)).resolve() if file else page.path.resolve()
            there = target.is_file() and (not anchor or target not in parsed or unquote(anchor) in parsed[target].ids)
            checked += 1
            broken += [] if there else [f"{page.path.name}: {address}"]
    assert checked > 100
    assert broken == [], f"Fix these links: the file or the heading does not exist {TYPO}"


def test_every_image_has_words_for_those_who_do_not_see_it(parsed: dict[Path, Page]) -> None:
    images = [(page.path.name, image) for page in parsed.values() for image in page.images]
    assert images
    silent = [f"{name}: {image.get('src')}, alt {image.get('alt')!r}" for name, image in images
              if len(re.findall(r"[\u3400-\u9fff]|[^\s\u3400-\u9fff]+", image.get("alt", ""))) < 3 or Path(image["src"]).stem in image["alt"]]
    assert silent == [], f"Say in at least three words what each picture shows {PARTS}"


def test_nothing_is_loaded_from_another_host(site: Path, parsed: dict[Path, Page]) -> None:
    foreign = [f"{page.path.name}: {address}" for page in parsed.values() for address in page.loads if is_elsewhere(address)]
    for sheet in site.rglob("*.css"):
        used = re.findall(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)", sheet.read_text("utf8"))
        foreign += [f"{sheet.name}: {a or b}" for a, b in used if is_elsewhere(a or b)]
    assert foreign == [], f"Put these files into book/_static/, so that the site works without a network {PARTS}"


def test_chapters_are_counted_wherever_a_page_names_them(root: Path, chapters: list[Path], parsed: dict[Path, Page], site: Path) -> None:
    toc = yaml.safe_load((root / "_toc.yml").read_text("utf8"))
    path = [toc["root"], *(chapter["file"] for part in toc["parts"] for chapter in part["chapters"])]
    for number, chapter in enumerate(chapters, 1):
        text = (site / "notebooks" / f"{chapter.stem}.html").read_text("utf8")
        text = re.sub(r'<code[^>]*><span class="pre">(.*?)</span></code>', r'\1', text)  # in a title
        title = re.search(r"^# (.*)$", nbformat.read(chapter, as_version=4).cells[0].source, re.M)[1].replace("'", "\u2019").replace("`", "")
        assert f"<title>{number} {title} &#8212;" in text
        assert f'<span class="section-number">{number} </span>{title}<' in text
        before = site / f"{path[path.index(f'notebooks/{chapter.stem}') - 1]}.html"
        assert f'<p class="prev-next-title">{number} {title}</p>' in before.read_text("utf8")


def test_exercises_are_counted_from_1_on_every_page_as_in_jupyterlab(root: Path, notebooks: list[Path], site: Path) -> None:
    for chapter in notebooks:
        text = (site / chapter.relative_to(root).with_suffix(".html")).read_text("utf8")
        exercises = sum(len(re.findall(r"^```\{exercise\}", cell.source, re.M)) for cell in nbformat.read(chapter, as_version=4).cells)
        assert exercises or chapter.parent.name == "appendix", f"Add an exercise to {chapter.name} (book/authors.md, Add an exercise)"
        assert re.findall(r'<span class="caption-number">Exercise (.*?) </span>', text) == [
            str(number) for number in range(1, exercises + 1)]


def test_a_page_loads_no_more_than_it_needs(site: Path, parsed: dict[Path, Page]) -> None:
    for page in parsed.values():
        files = {(page.path.parent / unquote(urlsplit(address).path)).resolve() for address in page.loads}
        scripts = sum(file.stat().st_size for file in files if file.suffix == ".js" and "mathjax" not in file.parts
                      and file.name != "search_texts.js")  # the text of the book
        explorer = any(file.name == "explorer.js" for file in files)  # Vega is 0.9 MB
        assert scripts < 200_000 + 950_000 * explorer, f"{page.path.name}: load fewer or smaller scripts {PARTS}"


@pytest.mark.slow
def test_the_search_leaves_out_folded_code(site: Path) -> None:
    texts = (site / "_static" / "search_texts.js").read_text("utf8")
    assert "def assign_buckets" in texts and "the numbers above, checked" not in texts


def test_each_chapter_can_be_downloaded_as_the_notebook_and_as_one_script(
        root: Path, notebooks: list[Path], site: Path, parsed: dict[Path, Page]) -> None:
    for chapter in notebooks:
        page = parsed[(site / chapter.relative_to(root).with_suffix(".html")).resolve()]
        offered = {Path(link).suffix: (page.path.parent / link) for link in page.links if Path(link).stem == chapter.stem}
        assert {".ipynb", ".py"} <= set(offered)
        assert json.loads(offered[".ipynb"].read_text("utf8")) == json.loads(chapter.read_text("utf8"))
        script = offered[".py"].read_text("utf8")
        assert script == script_of(chapter)
        compile(script, offered[".py"].name, "exec")


def test_the_building_edition_folds_the_answers_that_the_site_hides(root: Path, notebooks: list[Path], site: Path) -> None:
    for chapter in notebooks:
        text = (site / chapter.relative_to(root).with_suffix(".html")).read_text("utf8")
        found = [cell for cell in answers(nbformat.read(chapter, as_version=4))
                 if not any(VEGALITE in output.get("data", {}) for output in cell.outputs)]  # used to guess
        assert len(found) == len(set(re.findall(r"answers-\d+", text))), f"Tag the cells of {chapter.stem} that answer a question {PARTS}"
