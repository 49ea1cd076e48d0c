"""A notebook as one complete Python script: what the download button of each chapter gives.

    python book/tools/export_script.py NOTEBOOK.ipynb OUT.py
"""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import nbformat
from nbconvert import PythonExporter


def script_of(path: str | Path) -> str:
    """The text of the script: code as it stands, prose as comments; it goes on after a cell that is meant to fail."""
    notebook = nbformat.read(path, as_version=4)
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
