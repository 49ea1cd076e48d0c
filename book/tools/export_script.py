"""A notebook as one complete Python script: what the download button of each chapter gives.

    python book/tools/export_script.py NOTEBOOK.ipynb OUT.py
"""

from __future__ import annotations

import sys
import textwrap
import tomllib
from pathlib import Path

import nbformat
import yaml
from nbconvert import PythonExporter
from nbformat.v4 import new_markdown_cell

from building_edition import reading_edition

ROOT = Path(__file__).resolve().parents[2]
OPENING = """\
{name}.py: a chapter of the book "{title}" as one script.

It needs Python {python}, and the book's package, d2lpar, which brings PyTorch.
{get}

Run it with:  python {name}.py

Figures: each opens in a window, and the script goes on when you close it.
Without a screen, or with MPLBACKEND=agg in the environment, there are none."""


def opening(name: str) -> str:
    """What the script says first: what it needs, where to get that, how to run it, and what it will do."""
    config = yaml.safe_load((ROOT / "_config.yml").read_text("utf8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf8"))["project"]
    url = config["repository"]["url"]
    get = (f"Get both with:  python -m pip install {package_at(url)}" if url else
           'In a copy of the book\'s repository, `python -m pip install ".[pages]"` gets both.')
    return OPENING.format(name=name, title=config["title"], python=project["requires-python"], get=get)


def package_at(url: str) -> str:
    """What pip is told to install from the repository at `url`: the package, with all that chapters show."""
    return f'"d2lpar[pages] @ git+{url}"'


def script_of(path: str | Path) -> str:
    """The text of the script: code as it stands, prose as comments; it goes on after a cell that is meant to fail."""
    notebook = reading_edition(nbformat.read(path, as_version=4))
    notebook.cells.insert(0, new_markdown_cell(opening(Path(path).stem)))
    for cell in notebook.cells:
        if "raises-exception" in cell.metadata.get("tags", []):
            cell.source = _catching(cell.source)
    exporter = PythonExporter(exclude_input_prompt=True, exclude_output_prompt=True)
    return exporter.from_notebook_node(notebook)[0]


def _catching(source: str) -> str:
    return (f"try:\n{textwrap.indent(source, '    ')}\n"
            "except Exception as error:  # this cell is meant to fail\n"
            "    print(f'{type(error).__name__}: {error}')")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    Path(sys.argv[2]).write_text(script_of(sys.argv[1]), "utf8")
