"""A museum of bugs: wrong code that a chapter shows, so that its readers can see what gives it away.

Nothing in the package uses these functions. Each of them runs without an error and looks right from one side at least;
its docstring says what is wrong, and where it was published if it was. A chapter that shows a further bug adds it here,
so that the page and the tests speak of the same one; bugs that only the tests need stand beside the tests.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from d2lpar.collectives import allreduce_ring
from d2lpar.messages import exchange


def get_params_alias(params: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """Wrong: a parameter that is on `device` already is not copied.

    Published in Dive into Deep Learning.
    Taught in: notebooks/02_data_parallelism_from_scratch.ipynb
    """
    new_params = [p.to(device) for p in params]
    for p in new_params:
        p.requires_grad_()
    return new_params


def allreduce_unchecked(data: Sequence[Tensor]) -> None:
    """Wrong where two buffers are one, which it does not check.

    Taught in: notebooks/02_data_parallelism_from_scratch.ipynb
    """
    for i in range(1, len(data)):
        data[0][:] += data[i].to(data[0].device)
    for i in range(1, len(data)):
        data[i][:] = data[0].to(data[i].device)


def allreduce_rank_0(data: list[Tensor]) -> None:
    """Wrong: the second loop puts new tensors into the list, and changes no buffer.

    Published in Dive into Deep Learning in 2021, mended there in December 2021.
    Taught in: notebooks/02_data_parallelism_from_scratch.ipynb
    """
    for i in range(1, len(data)):
        data[0][:] += data[i].to(data[0].device)
    for i in range(1, len(data)):
        data[i] = data[0].to(data[i].device)


def allreduce_passing(data: Sequence[Tensor]) -> None:
    """Wrong: it sends whole buffers on, and each rank adds to its own what passes by.

    Published in a PyTorch tutorial, which says that the chunks are left as an exercise.
    Source: Arnold, 2017.
    Taught in: notebooks/03_allreduce.ipynb
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


def allreduce_whole(data: Sequence[Tensor]) -> None:
    """Wrong: whole buffers go round, and then whole sums, which all ranks have already.

    Published in a course, as the solution of an exercise.
    Source: ARENA, 2026.
    Taught in: notebooks/03_allreduce.ipynb
    """
    allreduce_passing(data)
    k = len(data)
    passing = [[x.clone()] for x in data]
    arrived = [[torch.empty_like(x)] for x in data]
    moves = [(r, (r + 1) % k, 0) for r in range(k)]
    for _ in range(k - 1):
        exchange(passing, moves, add=False, into=arrived)
        for x, (new,) in zip(data, arrived):
            x.copy_(new)
        passing, arrived = arrived, passing


def allreduce_behind(data: Sequence[Tensor]) -> None:
    """Wrong: the messages are a ring's, but carry zeros; the sum is made without them.

    Ours, so that a meter is deceived.
    Taught in: notebooks/03_allreduce.ipynb
    """
    allreduce_ring([torch.zeros_like(x) for x in data])
    total = torch.stack([x.cpu() for x in data]).sum(0)
    for x in data:
        x.copy_(total)
