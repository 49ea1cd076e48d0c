"""What changed in the notebooks since the last commit, cell by cell: `python book/tools/diff_notebooks.py [REVISION]`.

It leaves out outputs that the tests do not compare, and the numbers and ids of the cells, which need no review. Of a
picture that changed it says only that it did. Cells are counted from 0, as in the revision.
"""

from __future__ import annotations

import io
import os
import re
import sys
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import nbformat
from nbdime import diff_notebooks
from nbdime.prettyprint import PrettyPrintConfig, pretty_print_diff

from revisions import committed, git, keep_ids, notebooks

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"


def reviewed(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The same notebook, in place, without what is left out."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            if {"nbval-ignore-output", "nbval-skip"} & {*cell.metadata.get("tags", [])}:
                cell.outputs = []
            for output in cell.outputs:
                output.pop("execution_count", None)
                for kind, content in output.get("data", {}).items():
                    if kind.startswith("image/"):
                        output.data[kind] = f"a picture, not shown here: {sha256(content.encode()).hexdigest()[:8]}"
    return notebook


def changes(before: nbformat.NotebookNode, after: nbformat.NotebookNode) -> str:
    """In nbdime's words, what there is to review; empty if nothing."""
    before, after = reviewed(before), reviewed(after)
    keep_ids(after, before)  # else cells that swapped their ids would seem to have swapped their texts
    out = io.StringIO()
    config = PrettyPrintConfig(out, SimpleNamespace(id=False, details=False), use_git=False, use_diff=False,
                               use_color=sys.stdout.isatty())
    pretty_print_diff(before, diff_notebooks(before, after), "", config)
    return re.sub(r"(?<!\n)\n(?=\S*## )", "\n\n", out.getvalue())  # always an empty line between two changes


def main(revision: str = "HEAD") -> None:
    if git(NOTEBOOKS, "rev-parse", "--git-dir") is None:
        sys.exit("This is not a git checkout, or git is not installed: there is nothing to compare the notebooks with.")
    if git(NOTEBOOKS, "rev-parse", "--verify", f"{revision}^{{commit}}") is None:
        sys.exit(f"git does not know the revision {revision!r}. Name a commit, a tag or a branch, such as main~3.")
    listed = git(NOTEBOOKS, "ls-tree", "-r", "--name-only", revision) or ""
    then = {name for name in listed.splitlines() if name.endswith(".ipynb")}
    now = {path.relative_to(NOTEBOOKS).as_posix() for path in notebooks(NOTEBOOKS)}
    for name in sorted(then ^ now):
        print(f"notebooks/{name}: {'new' if name in now else 'deleted'} since {revision}")
    for name in sorted(then & now):
        before, after = committed(NOTEBOOKS / name, revision), nbformat.read(NOTEBOOKS / name, as_version=4)
        if before == after:
            print(f"notebooks/{name}: as in {revision}")
        elif text := changes(before, after):
            print(f"notebooks/{name}: changed since {revision}\n\n{text}")
        else:
            print(f"notebooks/{name}: only numbers, ids or outputs that are not compared changed since {revision}")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:2])
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has left the pager
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
