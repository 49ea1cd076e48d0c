"""Tests of d2lpar.base.door: what a door asks, and that below it stands the plain function that a chapter shows."""

from __future__ import annotations

import ast
import inspect
import signal
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

import d2lpar
import sync_cells
from d2lpar import allreduce, get_params, split_batch, train_batch
from d2lpar.base.door import bare, is_door, taught
from d2lpar.base.interrupts import Waiting

seen = []


def check_small(b):
    if b > 9:
        raise ValueError(f"b must be at most 9, got {b}")


@contextmanager
def noted(a):
    seen.append(f"in with {a}")
    yield
    seen.append("out")


@taught(check_small, lambda a: seen.append(f"a is {a}"), around=noted, c=lambda c, b: [x + b for x in c],
        more="More.", raises="ValueError: for a large b.", source="Somebody, 1999.")
def example(a, b=2, c=()):
    """A list."""
    return [a, b, *c]


@taught()
def without_anything(a):
    """As it is."""
    return a


def test_a_door_asks_each_check_for_what_it_names_then_enters_and_replaces():
    seen.clear()
    assert example(1, c=[5]) == [1, 2, 7] and seen == ["a is 1", "in with 1", "out"]
    seen.clear()
    with pytest.raises(ValueError, match="at most 9, got 10"):
        example(1, b=10)
    assert seen == []


def test_a_call_with_other_arguments_fails_in_pythons_own_words():
    with pytest.raises(TypeError, match=r"example\(\) missing 1 required positional argument: 'a'"):
        example()
    with pytest.raises(TypeError, match=r"example\(\) got an unexpected keyword argument 'd'"):
        example(1, d=3)


def test_help_and_the_api_page_are_told_what_is_raised_and_whose_method_it_is():
    assert example.__doc__ == "A list.\n\nMore.\n\nRaises:\n    ValueError: for a large b.\n\nSource: Somebody, 1999."
    assert str(inspect.signature(example)) == "(a, b=2, c=())" and example.__name__ == "example"


def test_a_door_without_anything_is_the_function_itself():
    assert without_anything.__closure__ is None and not hasattr(without_anything, "__wrapped__")


def test_a_whole_call_holds_interrupts_and_one_that_is_not_does_not(ctrl_c_is_obeyed):
    def handler():
        return isinstance(signal.getsignal(signal.SIGINT), Waiting)

    assert taught(whole=True)(handler)() is True and taught(lambda: None)(handler)() is False


def test_bare_functions_have_no_door_also_where_they_call_each_other():
    one = torch.ones(2)
    with pytest.raises(ValueError, match="overlap in memory"):
        allreduce([one, one])
    [plain] = bare(allreduce)
    plain([one, one])
    assert one.tolist() == [2.0, 2.0]
    step, cut = bare(train_batch, split_batch)
    assert step.__globals__["split_batch"] is cut and step.__globals__["allreduce"] is allreduce
    assert inspect.getsource(cut).startswith("def split_batch") and inspect.unwrap(train_batch).__globals__["split_batch"] is split_batch


@pytest.mark.parametrize("order", [1, -1])
def test_bare_functions_have_no_door_in_their_default_arguments_either(order):
    plain = dict(zip(names := ("train", "train_batch")[::order], bare(*(getattr(d2lpar, name) for name in names))))
    assert inspect.signature(plain["train"]).parameters["step"].default is plain["train_batch"]


def test_what_is_decorated_below_its_door_stays_so():
    from d2lpar import sgd

    [plain] = bare(sgd)
    [p] = get_params([torch.ones(1)], torch.device("cpu"))
    p.grad = torch.ones(1)
    plain([p], 0.5, 1)  # of a leaf that requires grad, so without no_grad it would fail
    assert p.item() == 0.5


def doored(root: Path) -> dict[str, tuple[str, ast.FunctionDef, str]]:
    """Every function of the package that has a door: its module, its definition, and its text below the door."""
    found = {}
    for file in sorted((root / "d2lpar").rglob("*.py")):
        for node in ast.parse(file.read_text("utf8")).body:
            if isinstance(node, ast.FunctionDef) and any(map(is_door, node.decorator_list)):
                assert node.name not in found, "two of one name"
                found[node.name] = (file.stem, node, sync_cells.package_text(file.stem, node.name))
    return found


def test_the_door_stands_first_and_what_is_below_it_is_the_algorithm_and_nothing_else(root: Path) -> None:
    functions = doored(root)
    assert len(functions) > 60
    for name, (module, node, text) in functions.items():
        assert is_door(node.decorator_list[0]), f"{name} of {module}"
        own = [line.strip() for line in text.splitlines()]
        assert not any("check_" in line or "taught" in line or "uninterrupted" in line for line in own), name
        every = [n for n in ast.walk(node) if isinstance(n, ast.arg)]
        inner = [n for n in ast.walk(node) if isinstance(n, ast.FunctionDef)]
        assert not any(arg.annotation for arg in every) and not any(n.returns for n in inner), f"{name} has annotations"
        docstring = ast.get_docstring(node)
        assert docstring and len(docstring.splitlines()) <= 2, name
        assert all(len(line) <= 88 for line in text.splitlines()), name
