"""The building edition of a chapter: its functions are the reader's to write, and nothing gives an answer away.

`working_copy.py` makes it for `make lab`. Every cell that teaches a function of `d2lpar.pages.to_write` becomes its
first lines, `...  # yours`, and a check. What explains the function is folded below, with a hint and the function
itself. Cells have no outputs, and below a prediction the answer is folded.
"""

from __future__ import annotations

import ast
import re
from copy import deepcopy

from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell

from d2lpar.pages.to_write import PARTLY, TO_WRITE
from sync_cells import defined_name

IMPORT = "import d2lpar.pages as book\n"
NOTE = "yours-to-write"  # the cell that says how to write a function
NUMBERED = re.compile(r"^(.*?)(?:\s{2,}|^ +)# (\d\. .*)$")  # a line of a function with the number of a step
QUESTION = re.compile(r"^\*\*(Predict|预测)", re.MULTILINE)
PROSE = re.compile(r"(?!#|\(|:::|```|\||\$\$|<|\*\*(?:Predict|预测)|[-*] |\d+\. )")  # how a paragraph begins
LIST = re.compile(r"[-*] |\d+\. ")


def building_edition(chapter: NotebookNode, words: dict[str, str]) -> NotebookNode:
    """The chapter as a reader opens it who writes its functions. `words` are the titles of the folds."""
    notebook = deepcopy(chapter)
    fold_answers(notebook, words["answer"])
    for cell in list(notebook.cells):
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
            if name := written_in(cell):
                if not any(other.id == NOTE for other in notebook.cells):
                    notebook.cells.insert(notebook.cells.index(cell), new_markdown_cell(words["note"], id=NOTE))
                fold = new_markdown_cell(fold_of(name, cell.source, notebook, words), id=f"{cell.id}-fold")
                notebook.cells.insert(notebook.cells.index(cell) + 1, fold)
                cell.source = stub(cell.source, name)
    notebook.cells = [cell for cell in notebook.cells if not any(tag_of(cell, kind) for kind in ("hint", "explains"))]
    import_the_checks(notebook)
    return notebook


def reading_edition(chapter: NotebookNode) -> NotebookNode:
    """The chapter as it is, without the hints for those who write its functions."""
    notebook = deepcopy(chapter)
    notebook.cells = [cell for cell in notebook.cells if not tag_of(cell, "hint")]
    return notebook


def tag_of(cell: NotebookNode, kind: str) -> str:
    """What follows `kind:` in the tags of a cell, or nothing."""
    return next((tag.partition(":")[2] for tag in cell.metadata.get("tags", []) if tag.startswith(f"{kind}:")), "")


def written_in(cell: NotebookNode) -> str:
    """The function of this cell that the reader writes, or nothing."""
    module = tag_of(cell, "taught")
    name = defined_name(cell.source) if module else ""
    return name if TO_WRITE.get(name) == module else ""


def stub(source: str, name: str) -> str:
    """The cell in which she writes the function `name`: how it begins, and its check."""
    [node] = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    lines = source.splitlines()
    if name in PARTLY:
        kept = [hole(line) for line in lines]
    else:
        begin = node.body[0].end_lineno or 0
        numbered = [found[2] for line in lines[begin:] if (found := NUMBERED.match(line))]
        kept = [*lines[:begin], *(f"    # {step}" for step in numbered), "    ...  # yours"]
    return "\n".join(["@book.yours", *kept, "", "", f"book.check({name})"])


def hole(line: str) -> str:
    """A line that she writes, if it has a number: what it assigns to stays."""
    if not (found := NUMBERED.match(line)):
        return line
    target = re.match(r" *(?:\w+ = )?", found[1])
    return f"{target[0] if target else ''}...  # yours: {found[2]}"


def fold_of(name: str, source: str, notebook: NotebookNode, words: dict[str, str]) -> str:
    """A hint and one way to write the function, each folded."""
    hints, told = ([cell.source for cell in notebook.cells if tag_of(cell, kind) == name]
                   for kind in ("hint", "explains"))
    folds = [f":::::{{dropdown}} {words['hint']}\n{text}\n:::::" for text in hints]
    way = "\n\n".join([f"```python\n{source}\n```", *told])
    return "\n\n".join([*folds, f":::::{{dropdown}} {words['way']}\n{way}\n:::::"])


def fold_answers(notebook: NotebookNode, title: str) -> None:
    """Fold what follows a cell that answers a prediction: as on the site, the first paragraph, and a list after it."""
    for answer in answers(notebook):
        below = notebook.cells[notebook.cells.index(answer) + 1:]
        if below and below[0].cell_type == "markdown":
            below[0].source = folded(below[0].source, title)


def answers(notebook: NotebookNode) -> list[NotebookNode]:
    """The cells that answer predictions: as explorer_ext.py finds them on the site.

    One with the tag `predict-opening` answers the question of the first cell. For any other question it is the next
    cell with the tag `predict`, or else the first one with outputs directly below.
    """
    found, asked, directly = [], False, None
    for place, cell in enumerate(notebook.cells):
        tags = cell.metadata.get("tags", [])
        if cell.cell_type == "markdown":
            asked = asked or bool(QUESTION.search(cell.source))
            directly = place > 0 and bool(QUESTION.search(cell.source))
        elif "predict-opening" in tags or (asked and ("predict" in tags or (directly and cell.get("outputs")))):
            found.append(cell)
            asked = directly = False
    return found


def folded(text: str, title: str) -> str:
    """The text with its first paragraph folded, and a list after it; as it is if it does not begin with a paragraph."""
    first, *others = text.split("\n\n")
    if not PROSE.match(first):
        return text
    if others and LIST.match(others[0]):
        first, others = f"{first}\n\n{others[0]}", others[1:]
    return "\n\n".join([f":::::{{dropdown}} {title}\n{first}\n:::::", *others])


def import_the_checks(notebook: NotebookNode) -> None:
    """Import `book` in the first cell that uses it for a check, unless an earlier cell does."""
    for cell in notebook.cells:
        if cell.cell_type == "code" and IMPORT.strip() in cell.source:
            return
        if cell.cell_type == "code" and cell.source.startswith("@book.yours"):
            cell.source = f"{IMPORT}\n\n{cell.source}"
            return
