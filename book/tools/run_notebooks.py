"""Execute the notebooks top to bottom and store their outputs, normalised: `python book/tools/run_notebooks.py [NAME]`.

Nothing is stored of a notebook that fails. What is stored has no timestamps, no remains of progress bars and no path of
this machine, and the notebook's metadata says which images were used. A cell that is the same as in the last commit
keeps its id.
`book/_data/measured.json` says on which machine each notebook was run.
Afterwards, the prose that may no longer fit the new outputs is listed.
"""

from __future__ import annotations

import json
import os
import re
import sys
from importlib.metadata import version
from itertools import takewhile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from d2lpar.data import NUM_TEST, NUM_TRAIN, provenance
from d2lpar.timing import describe_machine
from revisions import committed, keep_ids, name_of, notebooks

ROOT = Path(__file__).resolve().parents[2]
MEASURED = ROOT / "book" / "_data" / "measured.json"
NUMBER = re.compile(r"(?<![\w.])\d+(?:[.,]\d+)*%?")
COMPARING = re.compile(r"\b(?:half|thirds?|quarters?|fifth|sixth|eighth|tenth|twice|times as|most|least|nearly|"
                       r"(?:fast|slow|larg|small|long|short|high|low|clos)e(?:r|st))\b")


def execute(path: Path) -> nbformat.NotebookNode:
    """A fresh run of the notebook in its own folder, as the reader's JupyterLab does it."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=600, kernel_name="python3", record_timing=False, coalesce_streams=True,
                            resources={"metadata": {"path": str(path.parent)}})
    client.execute()
    return notebook


def normalise(notebook: nbformat.NotebookNode, data: dict) -> None:
    """Take out what differs from run to run without meaning, and put in the provenance of the data."""
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
        "d2lpar": {"data": data},
    }
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type != "code":
            continue
        cell.outputs = [output for output in map(_cleaned, cell.outputs) if output is not None]


def _cleaned(output: nbformat.NotebookNode) -> nbformat.NotebookNode | None:
    """The output without overwritten lines and without the paths of a traceback; None if nothing is left."""
    if output.output_type == "error":
        output.traceback = output.traceback[-1:]  # "ValueError: ...", which is what the page is about
    if output.output_type == "stream":
        output.text = "\n".join(line.rsplit("\r", 1)[-1] for line in output.text.split("\n"))
        if not output.text.strip():
            return None
    return output


def machine(data: dict) -> dict[str, str]:
    """What the page on measuring says about this run: nothing that changes from run to run, no name and no path."""
    return {
        **describe_machine(),
        **{name: version(name) for name in ("torchvision", "numpy", "matplotlib")},
        "data": f"{data['source']}, the first {data['num_train']:,} training and {data['num_test']:,} test images",
        "SHA-256 of the data": f"{data['sha256'][:16]}…",
    }


def record(path: Path, facts: dict[str, str]) -> None:
    """Write down on which machine this notebook was run, and forget notebooks that are gone."""
    known = json.loads(MEASURED.read_text("utf8")) if MEASURED.exists() else {}
    folder = ROOT / "notebooks"
    known[name_of(path, folder)] = facts
    names = [name_of(there, folder) for there in notebooks(folder)]
    here = {name: known[name] for name in names if name in known}
    MEASURED.parent.mkdir(exist_ok=True)
    MEASURED.write_text(json.dumps(here, indent=1, ensure_ascii=False) + "\n", "utf8")


def doubtful_prose(before: nbformat.NotebookNode, after: nbformat.NotebookNode) -> list[str]:
    """A line for each cell whose output has changed, with what the prose below it should be checked for.

    These are the numbers that only the old output has and, if the tests do not compare the output, words that compare.
    """
    old, lines = {cell.id: _shown(cell) for cell in before.cells}, []
    for i, cell in enumerate(after.cells):
        new = _shown(cell)
        if cell.cell_type != "code" or old.get(cell.id, new) == new:
            continue
        below = takewhile(lambda other: other.cell_type != "code", after.cells[i + 1:])
        prose = "\n".join(other.source for other in below if other.cell_type == "markdown")
        gone = set(NUMBER.findall(old[cell.id])) - set(NUMBER.findall(new))
        found = [number for number in NUMBER.findall(prose) if number in gone]
        if "nbval-ignore-output" in cell.metadata.get("tags", []):
            found += COMPARING.findall(prose)
        if found:
            words = ", ".join(dict.fromkeys(found))
            lines.append(f"cell [{i}]: its output has changed; is the prose below it still true? {words}")
    return lines


def _shown(cell: nbformat.NotebookNode) -> str:
    """What a cell printed, and the alt texts of its figures."""
    parts = []
    for output in cell.get("outputs", []):
        parts += [output.get("text", ""), output.get("data", {}).get("text/plain", "")]
        parts += [facts["alt"] for facts in output.get("metadata", {}).values() if "alt" in facts]
    return "\n".join(parts)


def main(names: list[str]) -> None:
    os.environ.pop("D2LPAR_FULL", None)  # what is stored has the size of the book
    data = provenance(NUM_TRAIN, NUM_TEST)
    paths = [path for path in notebooks(ROOT / "notebooks") if not names or path.stem in names]
    if not paths:
        sys.exit(f"no notebook is called {' or '.join(names)}")
    for path in paths:
        print(f"{path.name}: running", flush=True)
        stored = nbformat.read(path, as_version=4)
        try:
            notebook = execute(path)
        except CellExecutionError as error:
            sys.exit(f"{path.name} failed and keeps its stored outputs:\n{error}")
        normalise(notebook, data)
        doubtful = doubtful_prose(stored, notebook)
        if before := committed(path):
            keep_ids(notebook, before)
        nbformat.write(notebook, path)
        record(path, machine(data))
        print(f"{path.name}: stored", *doubtful, sep="\n    ")


if __name__ == "__main__":
    main(sys.argv[1:])
