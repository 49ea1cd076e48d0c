"""Tests of d2lpar.pages.broken: every bug is still wrong, in the way that its chapter says, and looks right where it does."""

import inspect
import re

import pytest
import torch

from d2lpar import allreduce
from d2lpar.pages import broken
from d2lpar.pages.cells import without_checks

BUGS = [function for name, function in inspect.getmembers(broken, inspect.isfunction)
        if function.__module__ == broken.__name__]
CPU = torch.device("cpu")
GUIDE = "(book/authors.md, Show a bug)"


def three_numbers():
    return [torch.tensor([1.0]), torch.tensor([2.0]), torch.tensor([4.0])]


# By hand


def test_the_alias_of_a_parameter_on_the_same_device_is_the_parameter():
    params = [torch.tensor([1.0])]
    replicas = [broken.get_params_alias(params, CPU) for _ in range(2)]
    replicas[0][0].data += 1
    assert replicas[1][0].tolist() == params[0].tolist() == [2.0] and params[0].requires_grad


@pytest.mark.parametrize("bug", [without_checks(allreduce)[0], broken.allreduce_rank_0, broken.allreduce_whole,
                                 broken.allreduce_passing, broken.allreduce_behind], ids=lambda bug: bug.__name__)
def test_a_demonstration_with_three_numbers_prints_the_right_sums(bug):
    data = three_numbers()
    assert bug(data) is None
    assert [x.tolist() for x in data] == [[7.0]] * 3


def test_only_rank_0_gets_the_sum_that_is_rebound():
    buffers = three_numbers()
    data = list(buffers)
    broken.allreduce_rank_0(data)
    assert [x.tolist() for x in buffers] == [[7.0], [2.0], [4.0]], "the buffers, which the update reads"
    assert data[0] is buffers[0] and not any(x is buffer for x, buffer in zip(data[1:], buffers[1:])), "the list, which a demonstration prints"


def test_what_passes_by_is_added_in_another_order_on_every_rank():
    data = [torch.tensor([x], dtype=torch.float64) for x in (1.0, 1e16, -1e16)]
    broken.allreduce_passing(data)
    # each adds to its own what the rank before it had, then the one before that; 1 is lost beside 1e16
    assert [x.item() for x in data] == [(1 - 1e16) + 1e16, (1e16 + 1) - 1e16, (-1e16 + 1e16) + 1] == [0, 0, 1]


# The labels


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_every_bug_says_what_is_wrong_and_whose_it_is(bug):
    doc = inspect.getdoc(bug)
    assert doc.startswith("Wrong") and "\n\nSource: " in doc, f"Begin the docstring of {bug.__name__} with `Wrong`, and add a paragraph `Source: ...` {GUIDE}"


def test_nothing_in_the_package_uses_a_bug(root):
    names = [bug.__name__ for bug in BUGS]
    for module in (root / "d2lpar").rglob("*.py"):
        if module.stem != "broken" and module.parent.name != "to_write":  # whose table says that they are given
            text = module.read_text("utf8")
            assert not re.search(r"import.*\bbroken\b|broken import", text), f"Import nothing from broken.py in {module.name} {GUIDE}"
            assert [name for name in names if name in text] == [], f"Name no bug of broken.py in {module.name} {GUIDE}"
