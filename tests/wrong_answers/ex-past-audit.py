import torch

import d2lpar as dp
from d2lpar.collectives import allreduce_naive

_remembered = []


def a_number_by_heart(data):
    """Passes the audit, but is no sum."""
    for x in data:
        x.fill_(10)


def an_honest_ring(data):
    """Passes the audit because it reads nothing."""
    dp.allreduce_ring(data)


def behind_the_meters_back(data):
    """Remembers nothing, so the audit finds it."""
    total = torch.stack(data).sum(0)
    for x in data:
        x.copy_(total)


def honest_but_for_one_rank(data):
    """Emptied messages leave all ranks but the last one wrong."""
    if not _remembered:
        _remembered.append(sum(x.clone() for x in data))
    allreduce_naive(data)
    data[-1].copy_(_remembered[0])


def no_sum_at_all(data):
    """Passes the audit because it does nothing."""
    pass


def remembers_in_each_run_anew(data):
    """The list is emptied each time, so different values give a different sum."""
    _remembered.clear()
    _remembered.append(sum(x.clone() for x in data))
    for x in data:
        x.copy_(_remembered[0])
