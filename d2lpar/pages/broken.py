"""Broken examples: wrong code that a chapter shows, so that its readers can see what gives it away.

Nothing in the package uses these functions. Each of them runs without an error and looks right from one side at least;
its docstring says what is wrong, and where it was published if it was. A chapter that shows a further bug adds it here,
so that the page and the tests speak of the same one; bugs that only the tests need stand beside the tests.
"""

from __future__ import annotations

import torch

from d2lpar.collectives import allreduce_ring, exchange


def get_params_alias(params, device):
    """Wrong: a parameter that is already on `device` is not copied.

    Source: published in Dive into Deep Learning.
    """
    new_params = [p.to(device) for p in params]
    for p in new_params:
        p.requires_grad_()
    return new_params


def allreduce_rank_0(data):
    """Wrong: the second loop puts new tensors into the list, and changes no buffer.

    Source: published in Dive into Deep Learning in 2021, fixed there in December 2021.
    """
    for i in range(1, len(data)):
        data[0][:] += data[i].to(data[0].device)
    for i in range(1, len(data)):
        data[i] = data[0].to(data[i].device)


def allreduce_passing(data):
    """Wrong: whole buffers are passed on, and each rank adds up all that pass by.

    Source: Arnold, 2017, a PyTorch tutorial, which says that the chunks are left as an exercise.
    """
    k = len(data)
    passing = [[x.clone()] for x in data]
    arrived = [[torch.empty_like(x)] for x in data]
    moves = [(r, (r + 1) % k, 0) for r in range(k)]
    for _ in range(k - 1):
        exchange(passing, moves, add=False, into=arrived)
        for x, (new,) in zip(data, arrived):
            x.add_(new)
        passing, arrived = arrived, passing


def allreduce_whole(data):
    """Wrong: whole buffers go round, then whole sums that every rank already has.

    Source: ARENA, 2026, a course, as the solution of an exercise.
    """
    allreduce_passing(data)
    k = len(data)
    passing = [[x.clone()] for x in data]
    arrived = [[torch.empty_like(x)] for x in data]
    moves = [(r, (r + 1) % k, 0) for r in range(k)]
    for _ in range(k - 1):
        exchange(passing, moves, add=False, into=arrived)
        for x, (new,) in zip(data, arrived):
            x.copy_(new)  # not added: it is a sum already
        passing, arrived = arrived, passing


def allreduce_behind(data):
    """Wrong: it sends zeros around a ring, and adds up the buffers directly.

    Source: ours, so that a meter is deceived.
    """
    allreduce_ring([torch.zeros_like(x) for x in data])
    total = torch.stack([x.cpu() for x in data]).sum(0)
    for x in data:
        x.copy_(total)
