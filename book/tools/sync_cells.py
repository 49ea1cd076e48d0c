"""Copy each taught function from the package into the chapter that teaches it.

A cell tagged `taught:scratch` shows one top-level definition of the module `scratch`, and its first line says which;
d2lpar.pages.cells says what it leaves out. Run this after changing the package: `python book/tools/sync_cells.py`.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import nbformat

from d2lpar.pages.cells import cell_text
from revisions import notebooks

ROOT = Path(__file__).resolve().parents[2]
DEFINITION = re.compile(r"^(?:def |class )?(\w+)(?=\(| =|:)", re.MULTILINE)


@cache
def home(module: str) -> Path:
    """The file of the module of this name; the package and the lab have one together."""
    found = [*(ROOT / "d2lpar").rglob(f"{module}.py"), *(ROOT / "book" / "lab").glob(f"{module}.py")]
    if len(found) != 1:
        raise LookupError(f"the package and book/lab have {len(found)} modules of the name {module}")
    return found[0]


@cache
def definitions(module: str) -> dict[str, str]:
    """The lines of each top-level definition of the module of this name as a cell has them, by its name."""
    source, found = home(module).read_text("utf-8"), {}
    for node in ast.parse(source).body:
        names = [target.id for target in getattr(node, "targets", []) if isinstance(target, ast.Name)]
        for name in [node.name] if hasattr(node, "name") else names:
            found.setdefault(name, cell_text(source, node))
    return found


def package_text(module: str, name: str) -> str:
    """The lines of the top-level definition `name` of the module of this name, as a cell has them."""
    if name not in definitions(module):
        raise LookupError(f"{home(module).relative_to(ROOT)} has no top-level definition of {name}")
    return definitions(module)[name]


def defined_name(source: str) -> str:
    """What a taught cell defines."""
    found = DEFINITION.search(source)
    if found is None:
        raise LookupError(f"a taught cell defines a function, a class or a name, and this one none: {source!r}")
    return found[1]


def taught_cells(notebook: nbformat.NotebookNode) -> list[tuple[nbformat.NotebookNode, str]]:
    """The taught cells of a notebook, each with the text that the package has for it."""
    pairs = []
    for cell in notebook.cells:
        for tag in cell.metadata.get("tags", []):
            if tag.startswith("taught:"):
                pairs.append((cell, package_text(tag.removeprefix("taught:"), defined_name(cell.source))))
    return pairs


def full_name(module: str, name: str) -> str:
    """What `name` of the module of this name is called from outside: `d2lpar.scratch.train_batch`."""
    return ".".join([*home(module).relative_to(ROOT).with_suffix("").parts, name])


@cache
def taught_names() -> frozenset[str]:
    """The full names of all that the chapters teach, in the package and in the lab."""
    cells = [cell for path in notebooks(ROOT / "notebooks") for cell in nbformat.read(path, as_version=4).cells]
    return frozenset(full_name(tag.removeprefix("taught:"), defined_name(cell.source)) for cell in cells
                     for tag in cell.metadata.get("tags", []) if tag.startswith("taught:"))


def main() -> None:
    for path in notebooks(ROOT / "notebooks"):
        notebook = nbformat.read(path, as_version=4)
        stale = [(cell, text) for cell, text in taught_cells(notebook) if cell.source != text]
        for cell, text in stale:
            cell.source = text
        if stale:
            nbformat.write(notebook, path)
        print(f"{path.name}: {len(stale)} cells brought up to date")


if __name__ == "__main__":
    main()
