"""Store what the pages measure on a cluster, for machines that cannot make one: `python book/lab/record_cluster.py`.

It runs their cells, in about three minutes, and writes `d2lpar/pages/stored/cluster.json`.
"""

from __future__ import annotations

import datetime
import json
import sys
from pathlib import Path

import matplotlib
import nbformat

from d2lpar.pages.cluster_results import measured, what_is_missing
from d2lpar.timing import describe_machine

ROOT = Path(__file__).resolve().parents[2]
CHAPTERS = [ROOT / "notebooks" / f"{name}.ipynb" for name in ("18_cluster_in_a_laptop", "19_other_peoples_clusters")]
STORED = ROOT / "d2lpar" / "pages" / "stored" / "cluster.json"


def run_cells(chapter: Path) -> None:
    """Run a chapter's code up to its exercises."""
    names: dict = {"__name__": "__main__"}
    for cell in nbformat.read(chapter, as_version=4).cells:
        if any(tag.startswith("exercise:") for tag in cell.metadata.get("tags", [])):
            break
        if cell.cell_type == "code":
            exec(compile(cell.source, f"{chapter.name} {cell.id}", "exec"), names)


def main() -> None:
    if lacks := what_is_missing():
        sys.exit(f"nothing is stored: {lacks}")
    matplotlib.use("Agg")
    for chapter in CHAPTERS:
        run_cells(chapter)
    machine = describe_machine()
    about = {"command": "python book/lab/record_cluster.py", "date": f"{datetime.date.today()}",
             "machine": machine["processor"], "details": machine}
    STORED.write_text(json.dumps({"about": about, "results": measured}, indent=1) + "\n", "utf8")


if __name__ == "__main__":
    main()
