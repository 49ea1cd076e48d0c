"""The script that each chapter can be downloaded as."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

import export_script
from export_script import script_of


def written(path: Path, *cells: nbformat.NotebookNode) -> Path:
    nbformat.write(new_notebook(cells=list(cells)), path)
    return path


def run(script: str, folder: Path) -> str:
    (folder / "script.py").write_text(script, "utf8")
    done = subprocess.run([sys.executable, "-I", "script.py"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_prose_becomes_comments_and_code_stays_as_it_is(tmp_path: Path) -> None:
    script = script_of(written(tmp_path / "a.ipynb", new_markdown_cell("# Title\n\nA 'quote"), new_code_cell("x = 3\nprint(x)")))
    assert "# # Title" in script and "# A 'quote" in script and "\nx = 3\nprint(x)\n" in script
    assert "In[" not in script
    assert run(script, tmp_path) == "3\n"


def test_the_script_begins_with_what_it_needs_and_how_to_run_it(chapters: list[Path]) -> None:
    for chapter in chapters:
        head, title, rest = script_of(chapter).partition("\n# # ")
        assert f"python {chapter.stem}.py\n" in head and "[pages]" in head
        assert "Python >=3.11,<3.15" in head, "Change the versions of Python in all files that name them (book/authors.md, Where things are)"
        assert all(line.startswith("#") or not line for line in head.splitlines())
        compile(title + rest, chapter.stem, "exec")


def test_the_script_names_the_repository_where_the_site_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for file in ("_config.yml", "pyproject.toml"):
        text = (export_script.ROOT / file).read_text("utf8")
        (tmp_path / file).write_text(text.replace('url: ""', "url: https://github.com/owner/name"), "utf8")
    monkeypatch.setattr(export_script, "ROOT", tmp_path)
    assert 'python -m pip install "d2lpar[pages] @ git+https://github.com/owner/name"\n' in export_script.opening("01_a")


def test_the_script_goes_on_after_a_cell_that_is_meant_to_fail(tmp_path: Path) -> None:
    fails = new_code_cell("if True:\n    raise ValueError('two replicas')", metadata={"tags": ["raises-exception"]})
    script = script_of(written(tmp_path / "a.ipynb", fails, new_code_cell("print('after')")))
    assert run(script, tmp_path) == "ValueError: two replicas\nafter\n"


def test_a_cell_that_fails_without_being_meant_to_stops_the_script(tmp_path: Path) -> None:
    script = script_of(written(tmp_path / "a.ipynb", new_code_cell("1 / 0"), new_code_cell("print('after')")))
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        run(script, tmp_path)


@pytest.mark.slow
def test_the_command_line_writes_the_same_text(tmp_path: Path, root: Path) -> None:
    notebook, out = written(tmp_path / "a.ipynb", new_code_cell("print('ä')")), tmp_path / "a.py"
    subprocess.run([sys.executable, root / "book" / "tools" / "export_script.py", notebook, out], check=True)
    assert out.read_text("utf8") == script_of(notebook)
