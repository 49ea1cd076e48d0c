"""Copy the chapters into `lab/`, where readers work on them: `python book/tools/working_copy.py` (`make lab`).

They are copied as the building edition, in which readers write the functions (see `building_edition.py`). With the
option `--filled` (`make lab FILLED=1`) they are copied into `lab/filled/` as they are, with functions and outputs.

JupyterLab saves what it runs, and the chapters in `notebooks/` hold what the site shows and the tests compare. A
chapter is copied where it is not there yet, or as the book has left it. One that the reader has run or changed stays.
JupyterLab trusts the copies as they are made, so it shows their figures at once, and opening one changes nothing.
It begins with an overview, START, which is made of the site's first page.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from argparse import ArgumentParser
from collections.abc import Iterable
from contextlib import closing, suppress
from hashlib import sha256
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from ipykernel.ipkernel import IPythonKernel
from nbformat import NotebookNode
from nbformat.sign import NotebookNotary
from nbformat.v4 import new_markdown_cell, new_notebook

import twins
from building_edition import building_edition, reading_edition
from revisions import notebooks

ROOT = Path(__file__).resolve().parents[2]
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAAC0lEQVR42mNgAAIAAAUAAen63NgAAAAASUVORK5CYII="  # PNG
MANIFEST = ".copied.json"  # by name, the digest of the chapter as it was copied
START = "00_start_here.ipynb"
CLICK = """## How these pages work

Click a title below to open a chapter in a new tab.
**Shift+Enter** runs a cell and moves on to the next; **Run All Cells** in the menu *Run* runs a whole chapter.
"""
YOURS = """
Change whatever you like: this is your own copy, in the folder `{folder}`, and the book itself stays as it is.
To get a chapter back as it was, delete your copy of it and run `{command}` again.
[Part I is also available in Chinese (中文)](zh/00_start_here.ipynb), in the folder `{folder}/zh`.
"""
BUILDING = """
This is the **building edition**: the functions of a chapter are yours to write.
A function begins as its name, its docstring and the line `...  # yours`.
Replace that line with your code and run the cell.
The last line of the cell checks your function: it prints *Right.*, or the smallest case in which the function is wrong.
Until you have written a function, the book's own is used, so you can skip any of them, or come back later.
A hint and one way to write the function are folded below the cell.

A cell shows no output until you run it, so **Predict** means what it says: decide first, then run the cell.
What the output means is folded below it.

To read instead of writing, run `make lab FILLED=1`.
It opens the chapters with all functions and outputs, in the folder `lab/filled`.
"""
FILLED = """
These are the chapters as the book has them, with all functions and outputs.
The outputs that you see first are the book's.
To write the functions yourself, run `make lab`.
"""
WORDS = {"figure": "Fig.", "book": "../book/", "hint": "A hint", "way": "One way to write it", "answer": "The answer",
         "note": "*Yours to write: replace `...  # yours` with your code, and run the cell. Its last line checks your "
                 "function. Until you have written it, this page uses the book's own; after that, it uses yours, right "
                 "or not. To go back, put the dots back. A hint, and one way to write it, are folded below.*",
         "building": CLICK + BUILDING + YOURS.format(folder="lab", command="make lab"),
         "filled": CLICK + FILLED + YOURS.format(folder="lab/filled", command="make lab FILLED=1")}


def bring_up_to_date(book: Path, copies: Path, name_of_copies: str = "lab", words: dict[str, str] = WORDS,
                     filled: bool = False) -> list[str]:
    """Copy the chapters of `book` into `copies`; a line for each that stays although the book's is newer."""
    copies.mkdir(exist_ok=True, parents=True)
    copied, kept = read_manifest(copies), []
    chapters = {original.relative_to(book).as_posix(): as_opened(original, words, filled)
                for original in notebooks(book)}
    if (index := book.parent / "book" / "index.md").exists():
        chapters[START] = overview(index.read_text("utf8"), words, filled)
    if filled and "/" in name_of_copies:  # lab/filled, one level further down than lab
        for name, notebook in chapters.items():
            lead_out(notebook, name_of_copies.count("/") - 1 + name.count("/"))
    trust(chapters.values())
    for name, notebook in chapters.items():
        content, copy = nbformat.writes(notebook).encode(), copies / name
        copy.parent.mkdir(exist_ok=True)
        newest = digest(content)
        found = digest(copy.read_bytes()) if copy.exists() else None
        if found in (None, newest, copied.get(name)):
            if found != newest:
                write(copy, content)
            copied[name] = newest
        elif copied.get(name) != newest:
            kept.append(f"{name_of_copies}/{name} has your changes, so it was kept. The book has a "
                        "newer version: to get it, rename your copy and run the same command again.")
    write(copies / MANIFEST, json.dumps(copied, indent=1).encode())
    return kept


def as_opened(chapter: Path, words: dict[str, str], filled: bool = False) -> NotebookNode:
    """A chapter in one of the two editions, with what JupyterLab adds when it opens one, and saves: which Python it is,
    and explorers as PNG. Captions, which only the site shows, become cells below their figures.
    """
    notebook = nbformat.read(chapter, as_version=4)
    notebook = reading_edition(notebook) if filled else building_edition(notebook, words)
    notebook.metadata.language_info = IPythonKernel.language_info
    figures = [cell for cell in notebook.cells if "figure" in cell.metadata.get("mystnb", {})]
    for number, cell in enumerate(figures, 1):
        title, text = f"{words['figure']} {number}", cell.metadata.mystnb.figure.caption
        folded = f":::::{{dropdown}} {title}\n{text}\n:::::"  # before a run: it says what the figure will show
        text = f"*{title}* {text}" if filled else folded
        caption = new_markdown_cell(text, id=f"{cell.id}-caption")
        notebook.cells.insert(notebook.cells.index(cell) + 1, caption)
    for output in chain.from_iterable(cell.get("outputs", []) for cell in notebook.cells):
        if "application/vnd.vegalite.v5+json" in output.get("data", {}):
            output.data["image/png"] = PIXEL
    return notebook


def lead_out(notebook: NotebookNode, deeper: int) -> None:
    """Add a level to each link that leaves the folder of the copies, which is one level further down."""
    leaves = re.compile(rf"(?<=[(< ])(?=(?:\.\./){{{deeper + 1},}}\w)")
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = leaves.sub("../", cell.source)


def overview(index: str, words: dict[str, str], filled: bool = False) -> NotebookNode:
    """The site's first page as a notebook: its links lead to the copies, and it says how to run these."""
    index = re.sub(r"(?<=\]\()\.\./notebooks/|(?<=:link: )\.\./notebooks/(?=.*\n:link-type)", "", index)
    index = re.sub(r"(?<=\]\()(?=(?:projects/)?\w+\.md\))|(?<=:link: )(?=it_hangs)", "../book/", index)
    index = re.sub(r"(?<=\{figure\} )", words["book"], index)
    index = re.sub(r"(:link: \.\..*)\n:link-type: doc", r"\1.md", index.replace("\n:link-type: url", ""))
    index = re.sub(r"(:link: .*)\n:link-type: doc", r"\1.ipynb", index)
    opening, _, *sections, _ = index.split("\n## ")  # without the bug, and how to run the book
    cells = [opening, words["filled" if filled else "building"], *(f"## {section}" for section in sections)]
    notebook = new_notebook(cells=[new_markdown_cell(text, id=f"start-{i}") for i, text in enumerate(cells)])
    kernel = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    notebook.metadata = {"kernelspec": kernel, "language_info": IPythonKernel.language_info}
    return notebook


def trust(chapters: Iterable[NotebookNode]) -> None:
    """Let this user's JupyterLab show the pictures of these notebooks, as they are now, before they are run."""
    notary = NotebookNotary()
    with closing(notary.store):
        for notebook in chapters:
            notary.sign(notebook)


def digest(content: bytes) -> str:
    """The SHA-256 of what a reader can lose, code, text and outputs: a cell may be folded, and Python another."""
    with suppress(ValueError, TypeError, LookupError):  # that is no notebook, but somebody's
        cells = json.loads(content)["cells"]
        content = json.dumps([[cell["cell_type"], cell["source"], cell.get("outputs")] for cell in cells]).encode()
    return sha256(content).hexdigest()


def read_manifest(copies: Path) -> dict[str, str]:
    """What has been copied; nothing, if that cannot be read: then every chapter counts as the reader's."""
    try:
        copied = json.loads((copies / MANIFEST).read_bytes())
    except (OSError, ValueError):
        return {}
    return copied if isinstance(copied, dict) else {}


def write(path: Path, content: bytes) -> None:
    """All of the content or nothing, whenever it is interrupted."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.write_bytes(content)
    os.replace(part, path)


def main(filled: bool) -> None:
    lab = "lab/filled" if filled else "lab"
    try:
        kept = bring_up_to_date(ROOT / "notebooks", ROOT / lab, lab, filled=filled)
        with TemporaryDirectory() as made:
            twins.write_sources(Path(made), twins.twins(), twins.in_lab)
            zh = f"{lab}/zh"
            kept += bring_up_to_date(Path(made, "notebooks"), ROOT / zh, zh, twins.WORDS["lab"], filled)
            shutil.copytree(Path(made, "book"), ROOT / zh / "book", dirs_exist_ok=True)
    except OSError as problem:
        sys.exit(f"{problem.filename}: {problem.strerror}. Chapters are copied to lab/, and JupyterLab's "
                 "trust records are stored in your home folder: both must be writable.")
    for line in kept:
        print(line)


if __name__ == "__main__":
    parser = ArgumentParser(description="Copy the chapters into lab/, where readers work on them.")
    parser.add_argument("--filled", action="store_true", help="with all functions and outputs, into lab/filled/")
    main(parser.parse_args().filled)
