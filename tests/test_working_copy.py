"""Tests of book/tools/working_copy.py: the reader's copy is the newest that loses nothing, and `make lab` opens it."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

import working_copy
from helpers.jupyterlab import TOKEN, environment, fetch, jupyterlab
from revisions import notebooks
from working_copy import MANIFEST, START, bring_up_to_date

NAME = "01_one.ipynb"


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    folder = tmp_path / "notebooks"
    folder.mkdir()
    store(folder / NAME, "the first edition")
    store(folder / "02_two.ipynb", "two")
    return folder


def store(path: Path, source: str, text: str = "", **metadata: object) -> None:
    """A notebook of one cell that has printed this text."""
    cell = new_code_cell(source, id="one", outputs=[new_output("stream", text=text)] if text else [], metadata=metadata)
    nbformat.write(new_notebook(cells=[cell]), path)


@pytest.fixture
def lab(book: Path) -> Path:
    """The copy, as the first call makes it."""
    folder = book.parent / "lab"
    assert bring_up_to_date(book, folder) == []
    return folder


def source(path: Path) -> str:
    return nbformat.read(path, as_version=4).cells[0].source


def chapters(lab: Path) -> dict[str, str]:
    return {path.name: source(path) for path in lab.iterdir() if path.name != MANIFEST}


def test_the_first_call_copies_every_chapter_and_leaves_the_book_alone(book: Path, lab: Path) -> None:
    assert chapters(lab) == chapters(book) == {NAME: "the first edition", "02_two.ipynb": "two"}


def test_a_chapter_that_nobody_has_touched_follows_the_book(book: Path, lab: Path) -> None:
    for edition in ("the second edition", "the third edition"):
        store(book / NAME, edition)
        assert bring_up_to_date(book, lab) == []
        assert chapters(lab)[NAME] == edition


def test_a_chapter_of_the_readers_stays_and_a_line_says_when_the_book_has_a_newer_one(book: Path, lab: Path) -> None:
    store(lab / NAME, "mine")
    assert bring_up_to_date(book, lab) == [], "the book has nothing new"
    store(book / NAME, "the second edition")
    for _ in range(2):
        [line] = bring_up_to_date(book, lab)
        assert f"lab/{NAME}" in line and "rename your copy" in line
        assert chapters(lab) == {NAME: "mine", "02_two.ipynb": "two"}
    (lab / NAME).rename(lab / "mine.ipynb")
    assert bring_up_to_date(book, lab) == []
    assert chapters(lab) == {NAME: "the second edition", "mine.ipynb": "mine", "02_two.ipynb": "two"}


def test_to_read_a_chapter_to_unfold_a_cell_and_to_have_another_python_are_no_changes(book: Path, lab: Path) -> None:
    store(lab / NAME, "the first edition", jupyter={"source_hidden": False})
    store(book / NAME, "the second edition")
    assert bring_up_to_date(book, lab) == [] and chapters(lab)[NAME] == "the second edition"


@pytest.mark.parametrize("change", [
    lambda lab: store(lab / NAME, "the first edition", text="a time of mine"),
    *(lambda lab, text=text: (lab / NAME).write_text(text) for text in ("mine", "[]", '{"cells": [3]}', '{"cells": 3}', '{"cells": [[]]}')),
    *(lambda lab, text=text: (lab / MANIFEST).write_text(text) for text in ("", "[]", '{"01_one.ipynb": 3}', "\0")),
    lambda lab: (lab / MANIFEST).unlink()])
def test_what_was_run_what_is_no_notebook_and_what_is_not_remembered_is_the_readers(change: Callable, book: Path, lab: Path) -> None:
    change(lab)
    mine = (lab / NAME).read_text()
    store(book / NAME, "the second edition")
    assert len(bring_up_to_date(book, lab)) == 1 and (lab / NAME).read_text() == mine


def test_the_appendix_is_copied_too_and_obeys_the_same_rules(book: Path, lab: Path) -> None:
    (book / "appendix").mkdir()
    for name in ("a", "b"):
        store(book / "appendix" / f"{name}.ipynb", "the first edition")
    assert bring_up_to_date(book, lab) == []
    store(lab / "appendix" / "a.ipynb", "mine")
    for name in ("a", "b"):
        store(book / "appendix" / f"{name}.ipynb", "the second edition")
    [line] = bring_up_to_date(book, lab)
    assert "lab/appendix/a.ipynb has your changes, so it was kept" in line
    assert [source(lab / "appendix" / f"{name}.ipynb") for name in ("a", "b")] == ["mine", "the second edition"]


def test_a_deleted_chapter_comes_back_and_notebooks_of_the_readers_own_are_left_alone(book: Path, lab: Path) -> None:
    (lab / NAME).unlink()
    store(lab / "99_own.ipynb", "own")
    assert bring_up_to_date(book, lab) == []
    assert chapters(lab) == {**chapters(book), "99_own.ipynb": "own"}


def test_an_interrupted_copy_leaves_the_chapter_as_it_was(book: Path, lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*paths: Path) -> None:
        raise KeyboardInterrupt

    store(book / NAME, "the second edition")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "replace", stop)
        bring_up_to_date(book, lab)
    assert chapters(lab)[NAME] == "the first edition"
    assert bring_up_to_date(book, lab) == [] and chapters(lab)[NAME] == "the second edition"


def test_the_overview_leads_to_every_chapter_and_all_its_links_lead_somewhere(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    shutil.copytree(root / "notebooks", tmp_path / "notebooks")
    shutil.copytree(root / "book", tmp_path / "book", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(working_copy, "ROOT", tmp_path)
    top, filled = tmp_path / "lab", tmp_path / "lab" / "filled"
    for edition in (False, True):
        working_copy.main(edition)
    for lab, chapters in ((top, root.glob("notebooks/*.ipynb")), (filled, root.glob("notebooks/*.ipynb")),
                          *((folder / "zh", (folder / "zh").glob("*.ipynb")) for folder in (top, filled))):
        text = "\n\n".join(cell.source for cell in nbformat.read(lab / START, as_version=4).cells)
        assert all(f"\n## {title}" in text for title in (("从哪里开始？", "各章", "输出里的英文") if lab.name == "zh" else ("How do I start?", "The chapters")))
        links = re.findall(r"\]\((.*?)\)|:link: (.*)|\{figure\} (.*)", text)
        files = {"".join(link) for link in links}
        told = re.findall(r"\]\(([^)#:]+)[^)]*\)(（英文）)?", text) if lab.name == "zh" else []
        wrong = [file for file, mark in told if bool(mark) == (lab in (lab / file).resolve().parents) and not file.endswith(f"/{START}")]
        assert wrong == [], "twins.in_lab says which pages are in English"
        assert {path.name for path in chapters} - {START} - files == set(), "List these chapters in book/index.md (book/authors.md, Add a chapter)"
        assert [file for file in files if not (lab / file.partition("#")[0]).is_file()] == [], "Fix these links in book/index.md (book/authors.md, Fix a typo)"
    for chapter in [*filled.rglob("*.ipynb"), *(top / "zh").rglob("*.ipynb")]:
        links = re.findall(r"\]\(([^)#:]+\.(?:ipynb|md))", "".join(cell.source for cell in nbformat.read(chapter, as_version=4).cells))
        assert links and [link for link in links if not (chapter.parent / link).is_file()] == [], (
            f"Fix these links in {chapter.name}, or in the English chapter (book/authors.md, Fix a typo)")


def test_captions_which_only_the_site_shows_become_cells_below_their_figures(book: Path, lab: Path) -> None:
    store(book / NAME, "draw()", mystnb={"figure": {"caption": "What it shows."}})
    for edition, caption in ((False, ":::::{dropdown} Fig. 1\nWhat it shows.\n:::::"), (True, "*Fig. 1* What it shows.")):
        assert bring_up_to_date(book, lab, filled=edition) == []
        assert [cell.source for cell in nbformat.read(lab / NAME, as_version=4).cells] == ["draw()", caption]


def recipe(root: Path, **settings: str) -> list[str]:
    """The commands of `make lab`, with this Python's programs instead of those in `.venv`, whatever the language of the system."""
    others = {"MAKEFLAGS", "MAKELEVEL", "LC_ALL", "LC_MESSAGES", "LANG"}  # the first two are there where make runs the tests
    own = {name: value for name, value in os.environ.items() if name not in others} | settings
    said = subprocess.run(["make", "-n", "-o", ".venv/installed", "lab"], cwd=root, env=own, capture_output=True, text=True,
                          check=True).stdout
    python = shlex.quote(sys.executable)
    return [line.replace(".venv/bin/python", python).replace(".venv/bin/jupyter", f"{python} -m jupyter")
            for line in said.splitlines()]


@pytest.mark.skipif(sys.platform == "win32", reason="there is no make")
@pytest.mark.parametrize("options, where", [(["LANG=zh_CN.UTF-8"], "lab/zh"), (["LANG=zh_CN.UTF-8", "FILLED=1"], "lab/filled/zh"), (["LANG=en_US.UTF-8"], "lab"),
                                            (["LANG=zh_CN.UTF-8", "LC_ALL=C"], "lab"), (["LC_MESSAGES=zh_TW", "LANG=en_US"], "lab/zh"), (["LANG="], "lab")])
def test_the_start_page_is_in_chinese_where_the_system_is(root: Path, options: list[str], where: str) -> None:
    assert f"/lab/tree/{where}/{START}" in recipe(root, **dict(option.split("=") for option in options))[-1]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there is no make")
def test_jupyterlab_opens_the_copy_at_the_overview_with_every_figure(root: Path, tmp_path: Path) -> None:
    top = tmp_path / "a book"
    for part in ("notebooks", "book", "zh"):
        shutil.copytree(root / part, top / part, ignore=shutil.ignore_patterns("__pycache__"))
    *before, lab = recipe(root)
    *filled, opened = recipe(root, FILLED="1")
    assert "preferred_dir=lab/filled " in opened and f"tree/lab/filled/{START}" in opened
    for command in before + filled:
        subprocess.run(command, shell=True, cwd=top, env=os.environ | environment(tmp_path), check=True)
    with jupyterlab(shlex.split(lab), top, tmp_path) as address:
        page = fetch(f"{address}/lab?{TOKEN}")
        assert re.search(r'"preferredPath": "/?([^"]*)"', page)[1] == "lab"

        def contents(path: str) -> dict:
            return json.loads(fetch(f"{address}/api/contents/{path}?{TOKEN}"))

        assert {entry["name"] for entry in contents("lab")["content"]} >= {path.name for path in root.glob("notebooks/*.ipynb")}
        assert contents("book")["type"] == "directory", "links lead there"
        assert f'"treePath": "lab/{START}"' in fetch(f"{address}/?{TOKEN}"), "the overview opens first"
        for chapter in [*notebooks(top / "lab"), *notebooks(top / "lab" / "zh"), *notebooks(top / "lab" / "filled")]:
            cells = contents(chapter.relative_to(top).as_posix())["content"]["cells"]
            assert all(cell["metadata"]["trusted"] for cell in cells if cell["cell_type"] == "code"), "figures come with a run only"
