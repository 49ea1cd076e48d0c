"""Tests of d2lpar.pages.cells: a cell shows the algorithm, and the package's own function checks its arguments too."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import nbformat
import pytest
import torch

import d2lpar
import sync_cells
from d2lpar import allreduce, get_params, sgd, split_batch, train_batch
from d2lpar.pages.cells import cell_text, without_checks
from revisions import notebooks

SOURCE = '''
x = 1

@uninterrupted()  # package only
@torch.no_grad()
def double(data):
    """Twice the data.
    In place.

    Raises:
        ValueError: for no data.
    """
    check(data)  # package only
    return 2 * data  # not for the package only


def plain(data):
    """Only one paragraph."""
    return data
'''


def test_a_cell_leaves_out_what_is_for_the_package_only_and_all_but_the_first_paragraph_of_the_docstring():
    first, double, plain = ast.parse(SOURCE).body
    assert cell_text(SOURCE, first) == "x = 1"
    assert cell_text(SOURCE, double).splitlines() == [
        "@torch.no_grad()", "def double(data):", '    """Twice the data.', '    In place."""',
        "    return 2 * data  # not for the package only"]
    assert cell_text(SOURCE, plain) == SOURCE[SOURCE.index("def plain"):].rstrip()


def test_functions_without_checks_call_one_another():
    one = torch.ones(2)
    with pytest.raises(ValueError, match="overlap in memory"):
        allreduce([one, one])
    [unchecked] = without_checks(allreduce)
    unchecked([one, one])
    assert one.tolist() == [2.0, 2.0]
    step, cut = without_checks(train_batch, split_batch)
    assert step.__globals__["split_batch"] is cut and step.__globals__["allreduce"] is allreduce
    assert inspect.unwrap(train_batch).__globals__["split_batch"] is split_batch
    assert inspect.getsource(cut) == inspect.getsource(split_batch)  # so that a traceback shows its lines


@pytest.mark.parametrize("order", [1, -1])
def test_a_default_argument_is_without_checks_too(order):
    names = ("evaluate_accuracy_gpus", "split_batch")[::order]
    unchecked = dict(zip(names, without_checks(*(getattr(d2lpar, name) for name in names))))
    default = inspect.signature(unchecked["evaluate_accuracy_gpus"]).parameters["split_f"].default
    assert default is unchecked["split_batch"]


def test_a_decorator_that_the_cell_shows_stays():
    [unchecked] = without_checks(sgd)
    [p] = get_params([torch.ones(1)], torch.device("cpu"))
    p.grad = torch.ones(1)
    unchecked([p], 0.5, 1)  # of a leaf that requires grad, so without no_grad it would fail
    assert p.item() == 0.5


def taught_functions(root: Path) -> list[ast.FunctionDef]:
    """The functions that chapters show, each parsed from its cell."""
    read = [nbformat.read(path, as_version=4) for path in notebooks(root / "notebooks")]
    nodes = [ast.parse(cell.source).body[0] for notebook in read for cell, _ in sync_cells.taught_cells(notebook)]
    return [node for node in nodes if isinstance(node, ast.FunctionDef)]


def test_a_cell_shows_the_algorithm_and_nothing_else(root: Path) -> None:
    functions = taught_functions(root)
    assert len(functions) > 60
    guide = "(book/authors.md, Add a chapter)"
    for node in functions:
        assert re.findall(r".*(?:check_|uninterrupted).*", ast.unparse(node)) == [], f"In {node.name}, end these lines with `# package only` {guide}"
        assert not any((isinstance(n, ast.arg) and n.annotation) or (isinstance(n, ast.FunctionDef) and n.returns)
                       for n in ast.walk(node)), f"Take the type annotations out of {node.name}, which a cell shows {guide}"
        docstring = ast.get_docstring(node)
        assert docstring and len(docstring.splitlines()) <= 2, f"Begin the docstring of {node.name} with a paragraph of at most two lines {guide}"


def test_what_raises_an_error_says_so_where_help_and_editors_look():
    assert "Raises:" in (inspect.getdoc(allreduce) or "") and "Raises:" in (train_batch.__doc__ or "")
    assert str(inspect.signature(train_batch)) == "(X, y, replicas, devices, lr)"
