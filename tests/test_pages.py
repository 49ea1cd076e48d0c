"""The pages without code: what they promise about the package, the words and the machine is so."""

from __future__ import annotations

import ast
import html
import json
import re
import socket
from collections import Counter
from pathlib import Path

import nbformat
import pytest
import yaml

import run_notebooks
import sync_cells
from bench_report import GROUPS, finding, from_json, in_words
from revisions import name_of, tracked
from test_names import listed, public

CHAPTER, ADD = "(book/authors.md, Add a chapter)", "(book/authors.md, Add a function)"


def docstrings(root: Path) -> dict[str, str]:
    """Every public function and class of the package, as `module.name`, with its docstring."""
    found = {}
    for module in listed(root):
        for node in ast.parse(root.joinpath(*module.split(".")).with_suffix(".py").read_text("utf8")).body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
                found[f"{module.removeprefix('d2lpar.')}.{node.name}"] = ast.get_docstring(node) or ""
    return found


def stored_notebook(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `make run` run in the folder of `path`, where executing a notebook changes nothing."""
    nbformat.write(nbformat.v4.new_notebook(), path)
    data = {"source": "Fashion-MNIST", "num_train": 3584, "num_test": 2048, "sha256": "0123456789abcdef" * 4}
    monkeypatch.setattr(run_notebooks, "ROOT", path.parents[1])
    monkeypatch.setattr(run_notebooks, "MEASURED", path.parents[1] / "_data" / "measured.json")
    monkeypatch.setattr(run_notebooks, "provenance", lambda *sizes: data)
    monkeypatch.setattr(run_notebooks, "execute", lambda path: nbformat.read(path, as_version=4))


# the machine


def test_the_machine_of_every_chapter_is_written_down(root: Path, notebooks: list[Path]) -> None:
    text = (root / "book" / "_data" / "measured.json").read_text("utf8")
    assert not re.search(r"\d{1,2}:\d\d|20\d\d-\d\d", text) and socket.gethostname() not in text, (
        f"Take the time or the name of the machine out of book/_data/measured.json, and out of what run_notebooks.py writes {CHAPTER}")
    measured = json.loads(text)
    names = [name_of(notebook, root / "notebooks") for notebook in notebooks]
    assert list(measured) == names, f"Run the notebook that is new or has a new name: python book/tools/run_notebooks.py NAME {CHAPTER}"
    for name, notebook in zip(names, notebooks):
        data = nbformat.read(notebook, as_version=4).metadata["d2lpar"]["data"]
        facts, again = measured[name], f"Run: python book/tools/run_notebooks.py {Path(name).name} {CHAPTER}"
        assert [fact for fact, value in facts.items() if not value] == [], again
        assert set("processor GPUs memory system Python torch torchvision numpy matplotlib".split()) - set(facts) == set(), again
        assert facts["SHA-256 of the data"].rstrip("…") == data["sha256"][:16], again
        assert f"{data['num_train']:,}" in facts["data"] and f"{data['num_test']:,}" in facts["data"], again


def test_storing_a_notebook_writes_the_machine_down_and_forgets_notebooks_that_are_gone(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "notebooks" / "appendix").mkdir(parents=True)
    for name in ("01_a", "02_b"):
        stored_notebook(tmp_path / "notebooks" / f"{name}.ipynb", monkeypatch)
    run_notebooks.main([])
    first = json.loads(run_notebooks.MEASURED.read_text("utf8"))
    (tmp_path / "notebooks" / "01_a.ipynb").unlink()
    monkeypatch.setattr(run_notebooks, "machine", lambda data: {"processor": "another"})
    stored_notebook(tmp_path / "notebooks" / "03_c.ipynb", monkeypatch)
    run_notebooks.main(["03_c"])
    assert list(first) == ["01_a", "02_b"]
    then = json.loads(run_notebooks.MEASURED.read_text("utf8"))
    assert then == {"02_b": first["02_b"], "03_c": {"processor": "another"}}
    stored_notebook(tmp_path / "notebooks" / "appendix" / "a_page.ipynb", monkeypatch)
    monkeypatch.setattr(run_notebooks, "ROOT", tmp_path)
    monkeypatch.setattr(run_notebooks, "MEASURED", tmp_path / "_data" / "measured.json")
    run_notebooks.main(["a_page"])
    assert list(json.loads(run_notebooks.MEASURED.read_text("utf8"))) == ["02_b", "03_c", "appendix/a_page"]


@pytest.mark.slow
def test_the_page_shows_what_was_written_down(root: Path, site: Path) -> None:
    page = (site / "book" / "measured.html").read_text("utf8")
    for chapter, facts in json.loads((root / "book" / "_data" / "measured.json").read_text("utf8")).items():
        assert f"notebooks/{chapter}.html" in page
        for name, value in facts.items():
            assert f"<p>{name}</p>" in page and f"<p>{value}</p>" in page, name


def test_no_text_names_a_chapter_by_its_number(root: Path, notebooks: list[Path]) -> None:
    number = "(?:[1-9]|one|two|three|four|five|six)"
    named = re.compile(rf"(?<![a-z])chapters?[ _]\[?{number}\b|\b{number} chapters\b|chapter's\s+number", re.I)
    files = [file for file in tracked(root) if file.suffix in {".ipynb", ".py", ".md", ".toml", ".json", ".jsonl", ".csv"}]
    assert set(notebooks) < set(files)
    assert [f"{file.relative_to(root)}: {line.strip()[:160]}" for file in files
            for line in file.read_text("utf8").splitlines() if named.search(line)] == [], (
        "Link to the chapter by its title: its number may change (book/authors.md, How long a chapter is)")


# the package


def api_page(site: Path, name: str) -> Path:
    """The API page with the module of something in the package."""
    sources = {page: page.read_text("utf8") for page in (Path(__file__).parents[1] / "book" / "api").glob("*.md")}
    [page] = [page for page, text in sources.items() if any(
        name == module or name.startswith(f"{module}.") for module in re.findall(r"automodule:: (\S+)", text))]
    return site / "book" / "api" / f"{page.stem}.html"


@pytest.mark.slow
def test_every_public_function_is_on_an_api_page_and_the_public_names_at_the_top(root: Path, site: Path) -> None:
    assert [name for name in docstrings(root) if f'id="d2lpar.{name}"' not in api_page(site, f"d2lpar.{name}").read_text("utf8")] == [], (
        f"Give each of these a docstring, and its module a section on a page of book/api/ {ADD}")
    start = (site / "book" / "api.html").read_text("utf8")
    for name, module in public(root).items():
        link = f'href="api/{api_page(site, module).name}#{module}.{name}" title="{module}.{name}"'
        assert link in start, f"List {name} at the top of book/api.md {ADD}"


@pytest.mark.slow
def test_function_and_taught_cell_link_to_each_other(root: Path, site: Path, notebooks: list[Path]) -> None:
    pages = {name_of(notebook, root / "notebooks"): notebook for notebook in notebooks}
    taught, in_lab = set(), set()
    for chapter, notebook in pages.items():
        text = (site / "notebooks" / f"{chapter}.html").read_text("utf8")
        up = "../" * (chapter.count("/") + 1)
        for cell in nbformat.read(notebook, as_version=4).cells:
            for tag in cell.metadata.get("tags", []):
                if tag.startswith("taught:"):
                    name = sync_cells.full_name(tag.removeprefix("taught:"), sync_cells.defined_name(cell.source))
                    if name.startswith("book.lab."):
                        in_lab.add(name)
                        continue
                    page, anchor = api_page(site, name), f"taught-{re.sub('[._]', '-', name[7:]).lower()}"
                    assert f'API: <a class="reference internal" href="{up}book/api/{page.name}#{name}"' in text, name
                    assert f'id="{anchor}"' in text
                    entry = page.read_text("utf8").split(f'id="{name}"')[1].split('<dt class="sig')[0]
                    assert f'href="../../notebooks/{chapter}.html#{anchor}"' in entry, f"the entry of {name} leads elsewhere"
                    taught.add(name)
    assert taught | in_lab == sync_cells.taught_names() and len(taught) > 50 and len(in_lab) == 2


# the authors


def test_every_page_and_chapter_is_in_the_table_of_contents(root: Path, notebooks: list[Path]) -> None:
    toc = yaml.safe_load((root / "_toc.yml").read_text("utf8"))
    entries = [chapter for part in toc["parts"] for chapter in part["chapters"]]
    entries += [section for entry in entries for section in entry.get("sections", [])]
    pages = [file for file in tracked(root) if file.is_relative_to(root / "book") and file.suffix == ".md"]
    there = [page.relative_to(root).with_suffix("").as_posix() for page in [*notebooks, *pages]]
    listed = [toc["root"], *(entry["file"] for entry in entries)]
    assert [page for page in there if page not in listed] == [], f"Add a line `- file: NAME` to _toc.yml for each of these {CHAPTER}"
    assert [page for page in listed if page not in there] == [], f"Take these out of _toc.yml, or run git add on the page {CHAPTER}"
    assert [page for page, count in Counter(listed).items() if count > 1] == [], f"List each of these once in _toc.yml {CHAPTER}"


# the bench


@pytest.mark.slow
def test_the_page_shows_every_stored_row(root: Path, site: Path) -> None:
    page = (site / "book" / "bench.html").read_text("utf8")
    report = from_json((root / "book" / "_data" / "bench.json").read_text("utf8"))
    assert page.count("<tr") == len(report.rows) + len(GROUPS) + len(report.machine) + 3  # heads, builds and blocks, time
    for row in report.rows:
        what = re.sub(r"(\d) ([a-zA-Z])", "\\1\u00a0\\2", row.what)  # a number stays with its unit
        assert f"<p>{what}</p>" in page and f"<p>{in_words(row)}</p>" in page, row
    for group in GROUPS:
        rows = [row for row in report.rows if row.group == group]
        figure = re.search(rf'<figure[^>]*id="fig-bench-{group.replace(" ", "-")}".*?</figure>', page, re.DOTALL)[0]
        assert finding(rows) in html.unescape(figure).replace("\u2019", "'")
        for alt in re.findall('<img alt="(.*?)"', figure, re.DOTALL):
            assert all(f"{row.ratio:.3g}" in alt and row.what in alt for row in rows)
    for value in report.machine.values():
        assert f"<p>{value}</p>" in page
