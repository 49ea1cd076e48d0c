"""Tests of d2lpar/pages/on_ranks.py: what it says of a hang, of an error and of a process that dies."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

from d2lpar.ddp import gradient_of, trained_params
from d2lpar.pages import building, differences, on_ranks

pytestmark = [pytest.mark.usefixtures("one_core"), pytest.mark.timeout(120)]


@pytest.fixture(autouse=True)
def a_short_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    on_ranks.group(2).run(abs)  # so that the limit is for the function alone
    monkeypatch.setattr(differences, "LIMIT_S", 6.0)


def right(module):
    for p in trained_params(module):
        p.grad = sum_of(gradient_of(p)) / dist.get_world_size()


def sum_of(x):
    dist.all_reduce(x)
    return x


def only_rank_0(module):
    for p in trained_params(module):
        if dist.get_rank() == 0:
            dist.all_reduce(p.grad)


def endless(module):
    while True:
        time.sleep(0.01)  # a core is free for the other tests


def one_more_is_started(module):
    for p in trained_params(module):
        dist.all_reduce(gradient_of(p))
        p.grad /= dist.get_world_size()
    if dist.get_rank() == 1:
        dist.all_reduce(torch.ones(1), async_op=True)


def of_different_sizes(module):
    dist.all_reduce(torch.ones(5 if dist.get_rank() else 3))


def raises(module):
    raise KeyError("what is that?")


def dies(module):
    os.kill(os.getpid(), signal.SIGKILL)


def cannot_be_sent(module):
    return GROUP.run(abs)


GROUP = on_ranks.group(2)

CASES = {
    only_rank_0: "a rank waits for another that never comes: after 6 seconds, rank 0 is in the line `dist.all_reduce(p.grad)`, "
                 "and rank 1 has returned. All ranks have to call the same collectives, in the same order.",
    endless: "your function has not returned on all ranks: after 6 seconds, rank 0 ",  # a rank is in one line of the loop or the other
    one_more_is_started: "the ranks take part in different numbers of collectives: rank 0 in 1, rank 1 in 2.",
    of_different_sizes: "two ranks' collectives do not match: ",
    raises: "your function raises KeyError on rank ",
    dies: "was killed by SIGKILL before your function had returned",
}


def said_of(fn: Callable) -> str:
    fn.__name__, fn.__module__ = "average_gradients", "__main__"  # as in a notebook: it is sent as it is
    return building.what_is_wrong(fn)


@pytest.mark.parametrize("fn", CASES, ids=lambda fn: fn.__name__)
def test_a_wrong_function_is_told_in_words_and_the_next_one_finds_ranks_that_work(fn: Callable) -> None:
    assert CASES[fn] in (said := said_of(fn)), said
    assert "if the gradients of two ranks are 2 and 6, " in said and "Stack (most recent" not in said
    assert said_of(right) == ""


def test_the_line_of_an_error_is_shown() -> None:
    assert "in the line `raise KeyError(\"what is that?\")`" in said_of(raises)


def test_a_function_that_uses_a_group_of_ranks_cannot_be_sent() -> None:
    assert "your function cannot be sent to the ranks" in said_of(cannot_be_sent)
