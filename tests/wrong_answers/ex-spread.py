import torch

from d2lpar.collectives import allreduce_flat, allreduce_naive, allreduce_ring, deliver, exchange


def a_last_turn_that_is_not_full(device_tensors):
    """Right for as many tensors as devices, or twice as many; what is left over is never added."""
    k, n = len(device_tensors), len(device_tensors[0])
    for first in range(0, n - k + 1, k):
        turn = range(first, first + k)
        for step in range(1, k):
            exchange(device_tensors, [((i + step) % k, i % k, i) for i in turn], add=True)
        for step in range(1, k):
            exchange(device_tensors, [(i % k, (i + step) % k, i) for i in turn], add=False)


def all_to_one_owner_in_one_round(device_tensors):
    """No device can receive three messages in one round: this raises."""
    k = len(device_tensors)
    for i in range(len(device_tensors[0])):
        others = [rank for rank in range(k) if rank != i % k]
        exchange(device_tensors, [(rank, i % k, i) for rank in others], add=True)
        exchange(device_tensors, [(i % k, rank, i) for rank in others], add=False)


def around_a_ring(device_tensors):
    """Fewer bytes and as many rounds, but no tensor has an owner."""
    allreduce_flat(device_tensors)


def behind_the_meters_back(device_tensors):
    """Games the count: the messages are the right ones, but carry zeros, and the sums are made without them."""
    k, n = len(device_tensors), len(device_tensors[0])
    zeros = [[torch.zeros_like(x) for x in tensors] for tensors in device_tensors]
    for first in range(0, n, k):
        turn = range(first, min(first + k, n))
        for step in range(1, k):
            exchange(zeros, [((i + step) % k, i % k, i) for i in turn], add=True)
        for step in range(1, k):
            exchange(zeros, [(i % k, (i + step) % k, i) for i in turn], add=False)
    for replicas in zip(*device_tensors):
        total = sum(replicas)
        for x in replicas:
            x.copy_(total)


def everything_added_on_rank_0(device_tensors):
    """The sums are right, but rank 0 makes all of them."""
    for replicas in zip(*device_tensors):
        allreduce_naive(replicas)


def new_lists(device_tensors):
    """The lists get new tensors, and the old ones stay as they were."""
    for i in range(len(device_tensors[0])):
        copies = [tensors[i].clone() for tensors in device_tensors]
        allreduce_naive(copies)
        for tensors, copy in zip(device_tensors, copies):
            tensors[i] = copy


def one_owner_after_the_other(device_tensors):
    """Sums and bytes are right, but owners never work at the same time: 48 rounds for eight tensors."""
    k = len(device_tensors)
    for i in range(len(device_tensors[0])):
        owner = i % k
        others = [rank for rank in range(k) if rank != owner]
        for rank in others:
            exchange(device_tensors, [(rank, owner, i)], add=True)
        for rank in others:
            exchange(device_tensors, [(owner, rank, i)], add=False)


def only_one_turn(device_tensors):
    """Right for the first tensor of every owner."""
    k = len(device_tensors)
    for step in range(1, k):
        exchange(device_tensors, [((i + step) % k, i, i) for i in range(k)], add=True)
    for step in range(1, k):
        exchange(device_tensors, [(i, (i + step) % k, i) for i in range(k)], add=False)


def sent_as_one_round(device_tensors):
    """Games the count: 48 messages one after the other, each said to be of the same round."""
    k = len(device_tensors)
    for i in range(len(device_tensors[0])):
        for rank in set(range(k)) - {i % k}:
            deliver(rank, i % k, device_tensors[rank][i], device_tensors[i % k][i], add=True, round=0)
        for rank in set(range(k)) - {i % k}:
            deliver(i % k, rank, device_tensors[i % k][i], device_tensors[rank][i], add=False, round=0)


def sent_as_one_round_that_has_begun(device_tensors):
    """Games the count: one round is begun, and all later messages are said to be of it too."""
    k = len(device_tensors)
    for i in range(len(device_tensors[0])):
        for rank in set(range(k)) - {i % k}:
            if i == 0 and rank == 1:
                exchange(device_tensors, [(1, 0, 0)], add=True)
            else:
                deliver(rank, i % k, device_tensors[rank][i], device_tensors[i % k][i], add=True, round=0)
        for rank in set(range(k)) - {i % k}:
            deliver(i % k, rank, device_tensors[i % k][i], device_tensors[rank][i], add=False, round=0)


def sums_left_with_their_owners(device_tensors):
    """Each sum stays on the rank that made it."""
    k = len(device_tensors)
    for i in range(len(device_tensors[0])):
        for rank in set(range(k)) - {i % k}:
            exchange(device_tensors, [(rank, i % k, i)], add=True)


def sums_made_behind_and_then_sent(device_tensors):
    """Games the count: each owner reads the others' tensors, and sends what it has added without any message."""
    k, n = len(device_tensors), len(device_tensors[0])
    copies = [[x.clone() for x in tensors] for tensors in device_tensors]
    for i in range(n):
        device_tensors[i % k][i].copy_(sum(tensors[i] for tensors in copies))
    for first in range(0, n, k):
        turn = range(first, min(first + k, n))
        for step in range(1, k):
            exchange(copies, [((i + step) % k, i % k, i) for i in turn], add=True)
        for step in range(1, k):
            exchange(device_tensors, [(i % k, (i + step) % k, i) for i in turn], add=False)


def tensors_of_one_size(device_tensors):
    """Right where all tensors have one shape: then those of one turn can be one buffer, and a ring adds it up."""
    buffers = [torch.stack(list(tensors)) for tensors in device_tensors]
    allreduce_ring(buffers)
    for tensors, buffer in zip(device_tensors, buffers):
        for x, new in zip(tensors, buffer):
            x.copy_(new)


def without_messages(device_tensors):
    """The sums are right, but no message is sent."""
    for replicas in zip(*device_tensors):
        total = sum(replicas)
        for x in replicas:
            x.copy_(total)
