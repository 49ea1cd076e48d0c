"""Tests of book/tools/working_copy.py: the reader's copy is the newest that loses nothing, and `make lab` opens it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

import working_copy
from helpers.ports import free_port
from working_copy import MANIFEST, bring_up_to_date

NAME = "01_one.ipynb"


@pytest.fixture
def book(tmp_path: Path) -> Path:
    folder = tmp_path / "notebooks"
    folder.mkdir()
    (folder / NAME).write_text("the first edition")
    (folder / "02_two.ipynb").write_text("two")
    return folder


@pytest.fixture
def lab(book: Path) -> Path:
    """The copy, as the first call makes it."""
    folder = book.parent / "lab"
    assert bring_up_to_date(book, folder) == []
    return folder


def chapters(lab: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in lab.iterdir() if path.name != MANIFEST}


def test_the_first_call_copies_every_chapter_and_leaves_the_book_alone(book: Path, lab: Path) -> None:
    assert chapters(lab) == chapters(book) == {NAME: "the first edition", "02_two.ipynb": "two"}


def test_a_chapter_that_nobody_has_touched_follows_the_book(book: Path, lab: Path) -> None:
    for edition in ("the second edition", "the third edition"):
        (book / NAME).write_text(edition)
        assert bring_up_to_date(book, lab) == []
        assert chapters(lab)[NAME] == edition


def test_a_chapter_of_the_readers_stays_and_a_line_says_when_the_book_has_a_newer_one(book: Path, lab: Path) -> None:
    (lab / NAME).write_text("mine")
    assert bring_up_to_date(book, lab) == [], "the book has nothing new"
    (book / NAME).write_text("the second edition")
    for _ in range(2):
        [line] = bring_up_to_date(book, lab)
        assert f"lab/{NAME}" in line and "rename yours" in line
        assert chapters(lab) == {NAME: "mine", "02_two.ipynb": "two"}
    (lab / NAME).rename(lab / "mine.ipynb")
    assert bring_up_to_date(book, lab) == []
    assert chapters(lab) == {NAME: "the second edition", "mine.ipynb": "mine", "02_two.ipynb": "two"}


def test_the_appendix_is_copied_too_and_obeys_the_same_rules(book: Path, lab: Path) -> None:
    (book / "appendix").mkdir()
    for name in ("a", "b"):
        (book / "appendix" / f"{name}.ipynb").write_text("the first edition")
    assert bring_up_to_date(book, lab) == []
    (lab / "appendix" / "a.ipynb").write_text("mine")
    for name in ("a", "b"):
        (book / "appendix" / f"{name}.ipynb").write_text("the second edition")
    [line] = bring_up_to_date(book, lab)
    assert "lab/appendix/a.ipynb is as you have left it" in line
    assert [(lab / "appendix" / f"{name}.ipynb").read_text() for name in ("a", "b")] == ["mine", "the second edition"]


def test_a_chapter_that_is_as_in_the_book_again_follows_it_again(book: Path, lab: Path) -> None:
    (lab / NAME).write_text("the second edition")
    (book / NAME).write_text("the second edition")
    assert bring_up_to_date(book, lab) == []
    (book / NAME).write_text("the third edition")
    assert bring_up_to_date(book, lab) == [] and chapters(lab)[NAME] == "the third edition"


def test_a_deleted_chapter_comes_back_and_notebooks_of_the_readers_own_are_left_alone(book: Path, lab: Path) -> None:
    (lab / NAME).unlink()
    (lab / "99_own.ipynb").write_text("own")
    assert bring_up_to_date(book, lab) == []
    assert chapters(lab) == {**chapters(book), "99_own.ipynb": "own"}


@pytest.mark.parametrize("manifest", [None, "", "[]", '{"01_one.ipynb": 3}', "\0"])
def test_without_a_memory_every_difference_is_the_readers(manifest: str | None, book: Path, lab: Path) -> None:
    (lab / MANIFEST).unlink() if manifest is None else (lab / MANIFEST).write_text(manifest)
    (book / NAME).write_text("the second edition")
    assert len(bring_up_to_date(book, lab)) == 1
    assert chapters(lab)[NAME] == "the first edition"


def test_an_interrupted_copy_leaves_the_chapter_as_it_was(book: Path, lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*paths: Path) -> None:
        raise KeyboardInterrupt

    (book / NAME).write_text("the second edition")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "replace", stop)
        bring_up_to_date(book, lab)
    assert chapters(lab)[NAME] == "the first edition"
    assert bring_up_to_date(book, lab) == [] and chapters(lab)[NAME] == "the second edition"


def test_where_it_cannot_be_copied_it_says_so_in_one_line(book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (book.parent / "lab").write_text("in the way")
    monkeypatch.setattr(working_copy, "ROOT", book.parent)
    with pytest.raises(SystemExit, match=r"^The chapters cannot be copied: .*lab: .+\.$"):
        working_copy.main()


def test_git_and_the_tests_do_not_see_the_copy_and_make_clean_leaves_it(root: Path) -> None:
    assert "/lab/" in (root / ".gitignore").read_text().splitlines()
    assert re.search(r'^norecursedirs = .*"lab"', (root / "pyproject.toml").read_text(), re.M)
    clean = re.search(r"^clean:.*\n((?:\t.*\n)+)", (root / "Makefile").read_text(), re.M)
    assert clean and not re.search(r"\blab\b", clean[1])


def recipe(root: Path, target: str) -> list[str]:
    """The commands of a target of the Makefile, with this Python's programs in place of those in `.venv`."""
    own = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL")}  # where make runs the tests
    said = subprocess.run(["make", "-n", "-o", ".venv/installed", target], cwd=root, env=own, capture_output=True, text=True,
                          check=True).stdout
    return [line.replace(".venv/bin/python", sys.executable).replace(".venv/bin/jupyter", f"{sys.executable} -m jupyter")
            for line in said.splitlines()]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there is no make")
@pytest.mark.parametrize("target, folder", [("lab", "lab"), ("edit", "notebooks")])
def test_jupyterlab_opens_the_copy_for_readers_and_the_book_for_authors(target: str, folder: str, root: Path, tmp_path: Path) -> None:
    top = tmp_path / "a book"
    (top / "book").mkdir(parents=True)
    for part in ("notebooks", "book/tools"):
        shutil.copytree(root / part, top / part, ignore=shutil.ignore_patterns("__pycache__"))
    *before, lab = recipe(root, target)
    for command in before:
        subprocess.run(command, shell=True, cwd=top, check=True)
    port = free_port()
    settings = {f"JUPYTER_{name}_DIR": str(tmp_path / name) for name in ("CONFIG", "RUNTIME", "DATA")}
    server = subprocess.Popen(f"exec {lab} --no-browser --ServerApp.port={port} --ServerApp.port_retries=0 --IdentityProvider.token=t",
                              shell=True, cwd=top, env=os.environ | settings, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              start_new_session=True)
    try:
        page = fetch(server, f"http://127.0.0.1:{port}/lab?token=t")
        assert re.search(r'"preferredPath": "/?([^"]*)"', page)[1] == folder
        listed = json.loads(fetch(server, f"http://127.0.0.1:{port}/api/contents/{folder}?token=t"))
        assert {entry["name"] for entry in listed["content"]} >= {path.name for path in root.glob("notebooks/*.ipynb")}
        assert json.loads(fetch(server, f"http://127.0.0.1:{port}/api/contents/book?token=t"))["type"] == "directory", "links lead there"
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
        server.stdout.close()


def fetch(server: subprocess.Popen, address: str) -> str:
    """The page, as soon as the server is there."""
    for _ in range(600):
        assert server.poll() is None, server.stdout.read().decode()
        try:
            with urllib.request.urlopen(address, timeout=10) as answer:
                return answer.read().decode()
        except OSError:
            time.sleep(0.1)
    raise AssertionError("JupyterLab does not answer")
