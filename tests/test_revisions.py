"""Tests of book/tools/revisions.py: a cell that stays keeps its id, so that a diff shows the cells that changed."""

import shutil
import subprocess

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

import revisions
import run_notebooks


def notebook(*cells):
    """A notebook of cells given as (id, source); those whose source begins with # are Markdown."""
    return new_notebook(cells=[(new_markdown_cell if source.startswith("#") else new_code_cell)(source, id=name)
                               for name, source in cells])


BEFORE = [("a", "# one"), ("b", "x = 1"), ("c", "x = 2")]


@pytest.mark.parametrize("now, ids", [
    ([("n1", "# one"), ("n2", "new"), ("n3", "x = 1"), ("n4", "x = 2")], "a n2 b c"),
    ([("n1", "x = 2"), ("n2", "# one"), ("n3", "x = 1")], "c a b"),
    ([("n1", "# one"), ("n2", "x = 1 + 1"), ("n3", "x = 2")], "a n2 c"),
    ([("a", "# one"), ("b", "x = 1 + 1"), ("n", "x = 1"), ("c", "x = 2")], "a n b c"),
], ids=["inserted", "moved", "changed", "copied, and the first of the two changed"])
def test_cells_that_stay_keep_their_ids(now, ids):
    after = notebook(*now)
    revisions.keep_ids(after, notebook(*BEFORE))
    assert [cell.id for cell in after.cells] == ids.split()
    assert [cell.source for cell in after.cells] == [source for _, source in now]
    nbformat.validate(after)


@pytest.mark.parametrize("now, ids", [
    ([("n1", "same"), ("n2", "same"), ("n3", "same")], "a b n3"),
    ([("b", "same"), ("n", "same")], "b a"),
    ([("b", "other"), ("n1", "same"), ("n2", "same")], "n2 a b"),
])
def test_equal_cells_keep_their_ids_in_order_and_no_id_is_there_twice(now, ids):
    after = notebook(*now)
    revisions.keep_ids(after, notebook(("a", "same"), ("b", "same")))
    assert [cell.id for cell in after.cells] == ids.split()
    assert len(set(ids.split())) == len(now)


def commit_all(folder):
    for arguments in (["init", "-q"], ["add", "-A"],
                      ["-c", "user.name=A", "-c", "user.email=a@b.c", "commit", "-q", "-m", "Notebooks"]):
        subprocess.run(["git", *arguments], cwd=folder, check=True)


@pytest.fixture
def book(tmp_path):
    """A git checkout with one notebook."""
    (tmp_path / "notebooks").mkdir()
    nbformat.write(notebook(*BEFORE), tmp_path / "notebooks" / "01_a.ipynb")
    commit_all(tmp_path)
    return tmp_path


def test_only_what_git_tracks_belongs_to_the_book_whoever_owns_it(book, monkeypatch):
    (book / "book.log").write_text("the user's own")
    (book / "notebooks" / "Untitled.ipynb").write_text("hers too")
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")  # as in a container
    found = revisions.tracked.__wrapped__(book)
    assert [path.relative_to(book).as_posix() for path in found] == ["notebooks/01_a.ipynb"]
    assert revisions.tracked_notebooks(book) == [book / "notebooks" / "01_a.ipynb"]


def test_without_git_the_names_at_the_top_say_what_belongs_to_the_book(book, root):
    shutil.rmtree(book / ".git")
    (book / "book.log").write_text("the user's own")
    for name in ("README.md", "notebooks/.ipynb_checkpoints/01_a.ipynb", "d2lpar/__pycache__/a.pyc", "_build/html/a.html"):
        (book / name).parent.mkdir(parents=True, exist_ok=True)
        (book / name).touch()
    found = revisions.tracked.__wrapped__(book)
    assert [path.relative_to(book).as_posix() for path in found] == ["README.md", "notebooks/01_a.ipynb"]
    there = {file.relative_to(root).parts[0] for file in revisions.tracked(root)}
    assert {name: "in TOP only" if name in revisions.TOP else "at the top only" for name in there ^ {*revisions.TOP}} == {}, (
        "Name in TOP in book/tools/revisions.py what is at the top of the repository (book/authors.md, Where things are)")


@pytest.mark.parametrize("with_git", [True, False])
def test_storing_a_notebook_keeps_the_ids_of_the_last_commit(book, monkeypatch, with_git):
    def execute(path):
        run = notebook(("n1", "# one"), ("n2", "print(1)"), ("n3", "x = 2"))
        run.cells[2].outputs = [new_output("stream", text="2\n")]
        return run

    for name, value in {"ROOT": book, "MEASURED": book / "measured.json", "execute": execute,
                        "provenance": lambda *sizes: {"source": "none"}, "machine": lambda data: {}}.items():
        monkeypatch.setattr(run_notebooks, name, value)
    if not with_git:
        shutil.rmtree(book / ".git")
    run_notebooks.main([])
    stored = nbformat.read(book / "notebooks" / "01_a.ipynb", as_version=4)
    assert [cell.id for cell in stored.cells] == (["a", "n2", "c"] if with_git else ["n1", "n2", "n3"])
    assert stored.cells[2].outputs[0].text == "2\n"
