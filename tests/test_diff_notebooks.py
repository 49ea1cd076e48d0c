"""A test of book/tools/diff_notebooks.py: it shows what a reviewer wants to see, and says nothing of the rest."""

from __future__ import annotations

import subprocess
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

import diff_notebooks


def notebook(prose: str, equal: bool, seconds: float, count: int) -> nbformat.NotebookNode:
    """Prose, a compared output, an output that is not compared, and a picture."""
    svg = "<svg>" + f"M {count} 0 " * 999 + "</svg>"
    return new_notebook(cells=[
        new_markdown_cell(f"# A title\n\nA first sentence.\n{prose}", id=f"a{count}"),
        new_code_cell("print(total)", execution_count=count, id=f"b{count}", outputs=[new_output("stream", text=f"sum 6\nequal: {equal}\n")]),
        new_code_cell("print(s)", execution_count=count, id=f"c{count}", outputs=[new_output("stream", text=f"{seconds} s\n")],
                      metadata={"tags": ["nbval-ignore-output"]}),
        new_code_cell("draw()", execution_count=count, id=f"d{count}", outputs=[new_output("display_data", {"image/svg+xml": svg})])])


def test_prose_and_compared_outputs_are_shown_by_their_lines_and_the_rest_is_left_out(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "notebooks"
    folder.mkdir()
    monkeypatch.setattr(diff_notebooks, "NOTEBOOKS", folder)
    nbformat.write(notebook("A second one.", True, 3.21, 1), folder / "01_a.ipynb")
    for words in (["init", "-q"], ["add", "-A"], ["-c", "user.name=A", "-c", "user.email=a@b.c", "commit", "-q", "-m", "A"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    nbformat.write(notebook("A better one.", False, 9.87, 2), folder / "01_a.ipynb")
    diff_notebooks.main()
    said = capsys.readouterr().out
    assert said.startswith("notebooks/01_a.ipynb: changed since HEAD\n\n## modified /cells/0/source:\n")
    assert "-  A second one.\n+  A better one.\n" in said and "-  equal: True\n+  equal: False\n" in said
    assert "a picture, not shown here" in said and "M 2 0" not in said and "9.87" not in said and "execution_count" not in said
