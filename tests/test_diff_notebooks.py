"""Tests of book/tools/diff_notebooks.py: it shows what a reviewer wants to see, and says nothing of the rest."""

import subprocess

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

import diff_notebooks


def picture(svg):
    return new_output("display_data", {"image/svg+xml": svg}, metadata={"image/svg+xml": {"alt": "A line."}})


@pytest.fixture
def book(tmp_path, monkeypatch):
    """A checkout with the tool and one notebook: prose, a compared output, an ignored one, a picture."""
    notebook = new_notebook(metadata={"d2lpar": {"data": {"num_train": 10}}}, cells=[
        new_markdown_cell("# A title\n\nA first sentence.\nA second one."),
        new_code_cell("print(total)", execution_count=1, outputs=[new_output("stream", text="sum 6\nequal: True\n")]),
        new_code_cell("print(seconds)", execution_count=2, outputs=[new_output("stream", text="3.21 s\n")],
                      metadata={"tags": ["nbval-ignore-output"]}),
        new_code_cell("draw()", execution_count=3, outputs=[picture("<svg>" + "M 0 0 " * 999 + "</svg>")])])
    (tmp_path / "notebooks").mkdir()
    nbformat.write(notebook, tmp_path / "notebooks" / "01_a.ipynb")
    git(tmp_path, "init", "-q")
    commit(tmp_path)
    monkeypatch.setattr(diff_notebooks, "NOTEBOOKS", tmp_path / "notebooks")
    return tmp_path


def git(folder, *arguments):
    subprocess.run(["git", "-c", "user.name=A", "-c", "user.email=a@b.c", *arguments], cwd=folder, check=True)


def commit(folder):
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "Notebooks")


@pytest.fixture
def shown(book, capsys):
    """Changes the notebook by a function, and gives what the tool prints."""
    def show(change, *revision):
        path = book / "notebooks" / "01_a.ipynb"
        notebook = nbformat.read(path, as_version=4)
        change(notebook)
        nbformat.write(notebook, path)
        diff_notebooks.main(*revision)
        return capsys.readouterr().out

    return show


def change_prose(notebook):
    notebook.cells[0].source = notebook.cells[0].source.replace("second one", "better one")


def test_changed_prose_and_a_compared_output_are_shown_by_their_lines(shown):
    text = shown(change_prose)
    assert text.startswith("notebooks/01_a.ipynb: changed since HEAD\n\n## modified /cells/0/source:\n")
    assert "-  A second one.\n+  A better one.\n" in text
    assert "/cells/1" not in text and "\x1b" not in text

    def change(notebook):
        notebook.cells[1].outputs[0].text = "sum 6\nequal: False\n"

    text = shown(change)
    assert "## modified /cells/1/outputs/0/text:" in text
    assert "-  equal: True\n+  equal: False\n" in text


def change_what_is_left_out(notebook):
    notebook.cells[2].outputs[0].text = "9.87 s\n"
    ids = [cell.id for cell in notebook.cells]
    for number, cell in enumerate(notebook.cells):
        cell.id = ids[-1 - number]
        if cell.cell_type == "code":
            cell.execution_count = 7 + number


def test_ignored_outputs_execution_counts_and_ids_are_not_shown(shown):
    assert shown(change_what_is_left_out) == (
        "notebooks/01_a.ipynb: only numbers, ids or outputs that are not compared changed since HEAD\n")


def test_a_new_cell_a_new_tag_and_a_new_provenance_are_shown(shown):
    def change(notebook):
        notebook.cells.insert(1, new_code_cell("new = 1"))
        notebook.cells[2].metadata["tags"] = ["hide-input"]
        notebook.metadata.d2lpar.data.num_train = 20

    text = shown(change)
    assert "## inserted before /cells/1:\n+  code cell:\n+    source:\n+      new = 1\n" in text
    assert "hide-input" in text and "## replaced /metadata/d2lpar/data/num_train:\n-  10\n+  20\n" in text


def test_notebooks_that_came_went_or_stayed_are_named(book, shown):
    path = book / "notebooks" / "01_a.ipynb"
    path.with_name("02_b.ipynb").write_text(path.read_text("utf8"), "utf8")
    path.with_name("00_z.ipynb").write_text(path.read_text("utf8"), "utf8")
    git(book, "add", "notebooks/00_z.ipynb")
    git(book, "commit", "-q", "-m", "Another")
    path.with_name("00_z.ipynb").unlink()
    assert shown(lambda notebook: None).splitlines() == [
        "notebooks/00_z.ipynb: deleted since HEAD", "notebooks/02_b.ipynb: new since HEAD",
        "notebooks/01_a.ipynb: as in HEAD"]
