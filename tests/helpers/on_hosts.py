"""What ranks run on the hosts of a cluster. Ranks import this file: it loads nothing that only tests need."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist


def shares(rank: int, values: int) -> torch.Tensor:
    x = torch.arange(values, dtype=torch.float64) * (rank + 1)
    dist.all_reduce(x)
    return x


def seconds_of_allreduce(rank: int, values: int) -> float:
    x = torch.ones(values)
    dist.barrier()
    begin = time.perf_counter()
    dist.all_reduce(x)
    return time.perf_counter() - begin


def seconds_of_message(rank: int) -> float:
    x = torch.full((2,), rank + 1.0)
    dist.barrier()
    begin = time.perf_counter()
    for receiver in (1, 0):  # there and back
        if rank == receiver:
            dist.recv(x, 1 - rank)
        else:
            dist.send(x, 1 - rank)
    assert x.tolist() == [1.0, 1.0]
    return time.perf_counter() - begin
