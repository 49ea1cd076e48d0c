"""Which files belong to the book, what git has of its notebooks, and the ids of the cells that have not changed."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from collections import defaultdict
from functools import cache
from pathlib import Path

import nbformat

# what belongs to the book at the top of a copy without git, such as a downloaded archive
TOP = (".binder .ci .devcontainer .gitattributes .github .gitignore .pre-commit-config.yaml CHANGELOG.md CITATION.cff "
       "CONTRIBUTING.md LICENSE Makefile README.md README.zh.md _config.yml _toc.yml book conftest.py d2lpar notebooks "
       "pyproject.toml requirements.txt tests zh").split()
GENERATED = {"__pycache__", ".ipynb_checkpoints", ".pytest_cache", ".ruff_cache"}


@cache
def tracked(root: Path) -> tuple[Path, ...]:
    """The files of the book that exist, sorted: those that git tracks, without a file of the user's own.

    Without git they are the files below the names in `TOP`.
    """
    listed = git(root, "ls-files", "-z", "--full-name", ".") if (root / ".git").exists() else None
    if listed is not None:
        files = [root / name for name in listed.split("\0") if name]
    else:
        files = [path for name in TOP for path in (root / name, *(root / name).rglob("*"))
                 if not GENERATED & set(path.parts)]
    return tuple(sorted(file for file in files if file.is_file()))


def notebooks(folder: Path) -> list[Path]:
    """The chapters of a folder, in order, and then the pages of its appendix."""
    return [*sorted(folder.glob("*.ipynb")), *sorted(folder.glob("appendix/*.ipynb"))]


def tracked_notebooks(root: Path) -> list[Path]:
    """The notebooks of the book at `root`, without any of the user's own."""
    return [path for path in notebooks(root / "notebooks") if path in tracked(root)]


def name_of(path: Path, folder: Path) -> str:
    """What a notebook is called in its folder: `02_name`, or `appendix/name`."""
    return path.relative_to(folder).with_suffix("").as_posix()


def committed(path: Path, revision: str = "HEAD") -> nbformat.NotebookNode | None:
    """The notebook at a revision; None where it was not there, or where there is no git."""
    text = git(path.parent, "show", f"{revision}:./{path.name}")
    return None if text is None else nbformat.reads(text, as_version=4)


def export(root: Path, revision: str, folder: Path) -> None:
    """Write all files of a revision into a folder; a revision that git does not know ends the program."""
    archive = folder / "archive.tar"
    if git(root, "archive", f"--output={archive}", revision) is None:
        sys.exit(f"git does not know the revision {revision}")
    with tarfile.open(archive) as files:
        files.extractall(folder, filter="data")
    archive.unlink()


def git(folder: Path, *arguments: str) -> str | None:
    """What a git command prints in this folder, whoever owns it; None if it fails."""
    try:
        done = subprocess.run(["git", "-c", "safe.directory=*", *arguments], cwd=folder, capture_output=True,
                              encoding="utf8")
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
