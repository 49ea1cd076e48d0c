"""Which notebooks there are, as git has them, and the ids of the cells that have stayed since."""

from __future__ import annotations

import subprocess
from collections import defaultdict
from pathlib import Path

import nbformat


def notebooks(folder: Path) -> list[Path]:
    """The chapters of a folder, in order, and then the pages of its appendix."""
    return [*sorted(folder.glob("*.ipynb")), *sorted(folder.glob("appendix/*.ipynb"))]


def name_of(path: Path, folder: Path) -> str:
    """What a notebook is called in its folder: `02_name`, or `appendix/name`."""
    return path.relative_to(folder).with_suffix("").as_posix()


def committed(path: Path, revision: str = "HEAD") -> nbformat.NotebookNode | None:
    """The notebook at a revision; None where it was not there, or where there is no git."""
    text = git(path.parent, "show", f"{revision}:./{path.name}")
    return None if text is None else nbformat.reads(text, as_version=4)


def git(folder: Path, *arguments: str) -> str | None:
    """What a git command prints in this folder; None if it fails."""
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, encoding="utf8")
    except FileNotFoundError:
        return None
    return done.stdout if done.returncode == 0 else None


def keep_ids(notebook: nbformat.NotebookNode, before: nbformat.NotebookNode) -> None:
    """Give each cell whose kind and source were there before the id of then, in place; equal cells in their order."""
    free = defaultdict(list)
    for cell in before.cells:
        free[cell.cell_type, cell.source].append(cell.id)
    others = []
    for cell in notebook.cells:
        same = free[cell.cell_type, cell.source]
        same.remove(cell.id) if cell.id in same else others.append(cell)
    for cell in others:
        if same := free[cell.cell_type, cell.source]:
            kept = same.pop(0)
            for other in others:
                if other.id == kept:
                    other.id = cell.id  # a swap, so that no id is there twice
            cell.id = kept
