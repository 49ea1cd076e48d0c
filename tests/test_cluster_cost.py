"""Tests of d2lpar.cost: the closed forms against allreduces whose messages were really sent."""

from collections.abc import Iterator

import pytest
import torch

from d2lpar import try_devices
from d2lpar.collectives import Meter, exchange
from d2lpar.cost import (
    Link,
    bus_bandwidth,
    double_tree_s,
    halving_s,
    hierarchical_halving_s,
    hierarchical_ring_s,
    ring_s,
    rounds_s,
)

LINKS = [Link(20e-6, 1 / 5e9), Link(1.0, 0.0), Link(0.0, 1.0)]
NEAR, FAR = Link(3e-6, 1 / 300e9), Link(14e-6, 1 / 12e9)


def numbers(k: int, length: int) -> list[torch.Tensor]:
    return [torch.arange(length) + 1000 * rank for rank in range(k)]


# Recursive halving and doubling


def allreduce_halving(data: list[torch.Tensor]) -> None:
    """Near partners first: halves at distance 1, quarters at distance 2, and so on, and the same way back."""
    held, way_back = list(data), []
    distance = 1
    while distance < len(data):
        halves = [list(x.tensor_split(2)) for x in held]
        keeps = [int(rank & distance > 0) for rank in range(len(data))]  # the upper half, or the lower
        exchange(halves, [(rank, rank ^ distance, 1 - keeps[rank]) for rank in range(len(data))], add=True)
        held = [parts[keep] for parts, keep in zip(halves, keeps)]
        way_back.append((halves, keeps, distance))
        distance *= 2
    for halves, keeps, distance in reversed(way_back):
        exchange(halves, [(rank, rank ^ distance, keeps[rank]) for rank in range(len(data))], add=False)


@pytest.mark.parametrize("k", [1, 2, 4, 8, 16])
def test_halving_costs_what_its_metered_rounds_cost(k):
    data = numbers(k, 48)
    exact = sum(x.clone() for x in data)
    with Meter(try_devices(k)) as meter:
        allreduce_halving(data)
    assert all(torch.equal(x, exact) for x in data)
    for link in LINKS:
        assert halving_s(8 * 48, k, link) == pytest.approx(rounds_s(meter.rounds, link), rel=1e-12, abs=0)


@pytest.mark.parametrize("per_node", [1, 2, 4, 8])
def test_a_hierarchical_allreduce_sends_the_same_messages_each_over_its_own_kind_of_link(per_node):
    k = 8
    data = numbers(k, 48)
    with Meter(try_devices(k)) as meter:
        allreduce_halving(data)
    seconds = 0.0
    for number in range(meter.num_rounds):
        messages = [m for m in meter.messages if m.round == number]
        [(link, size)] = {(NEAR if m.source // per_node == m.target // per_node else FAR, m.size_bytes) for m in messages}
        seconds += link.alpha_s + size * link.beta_s_per_byte
    assert hierarchical_halving_s(8 * 48, k, per_node, NEAR, FAR) == pytest.approx(seconds, rel=1e-12)


def test_a_hierarchical_ring_costs_a_ring_in_each_node_and_one_between_the_nodes():
    for k, per_node in ((8, 1), (8, 2), (64, 8), (8, 8)):
        expected = ring_s(9600, per_node, NEAR) + ring_s(9600 / per_node, k // per_node, FAR)
        assert hierarchical_ring_s(9600, k, per_node, NEAR, FAR) == pytest.approx(expected, rel=1e-12)


# Double binary trees in pieces


def two_trees(k: int) -> list[list[int | None]]:
    """The parent of each rank in two trees: an even number of ranks is mirrored for the second, an odd one shifted."""
    first: list[int | None] = [None]
    for rank in range(1, k):
        bit = rank & -rank
        up = rank ^ bit | bit << 1
        first.append(up if up < k else rank ^ bit)
    move = (lambda rank: (rank + 1) % k) if k % 2 else (lambda rank: k - 1 - rank)
    second: list[int | None] = [None] * k
    for rank, parent in enumerate(first):
        second[move(rank)] = None if parent is None else move(parent)
    return [first, second]


def turns(trees: list[list[int | None]]) -> dict[tuple[int, int], int]:
    """For each edge, by tree and child: even or odd rounds, so that no rank has two messages to send, or to receive."""
    edges = {(tree, child): parent for tree, parents in enumerate(trees) for child, parent in enumerate(parents) if parent is not None}
    found: dict[tuple[int, int], int] = {}
    for start in edges:
        todo = [(start, 0)]
        while todo:
            edge, turn = todo.pop()
            if edge not in found:
                found[edge] = turn
                todo += [(other, 1 - turn) for other, parent in edges.items() if parent == edges[edge] or other[1] == edge[1]]
    return found


def broadcast_rounds(trees: list[list[int | None]], pieces: int) -> list[list[tuple[int, int, int]]]:
    """The messages of each round in which both roots send their pieces to all: (source, target, piece)."""
    rounds: dict[int, list[tuple[int, int, int]]] = {}
    turn = turns(trees)

    def send_down(tree: int, rank: int, arrived: list[int]) -> Iterator[None]:
        for child, parent in enumerate(trees[tree]):
            if parent == rank:
                there, last = [], 0
                for piece in range(pieces):
                    number = max(arrived[piece], last) + 1
                    number += number % 2 != turn[tree, child]
                    rounds.setdefault(number, []).append((rank, child, tree * pieces + piece))
                    there.append(last := number)
                yield from send_down(tree, child, there)

    for tree, parents in enumerate(trees):
        list(send_down(tree, parents.index(None), [0] * pieces))
    return [rounds.get(number, []) for number in range(min(rounds), max(rounds) + 1)]


def allreduce_two_trees(data: list[torch.Tensor], pieces: int) -> None:
    """The broadcast backwards in time adds up: what came down goes up, the last round first."""
    rounds = broadcast_rounds(two_trees(len(data)), pieces)
    parts = [x.tensor_split(2 * pieces) for x in data]
    for moves in reversed(rounds):
        exchange(parts, [(target, source, piece) for source, target, piece in moves], add=True)
    for moves in rounds:
        exchange(parts, moves, add=False)


@pytest.mark.parametrize("k", [2, 3, 4, 6, 8, 13, 16])
@pytest.mark.parametrize("pieces", [1, 3])
def test_a_double_binary_tree_takes_no_more_rounds_than_the_closed_form_and_at_most_six_fewer(k, pieces):
    data = numbers(k, 48)
    exact = sum(x.clone() for x in data)
    with Meter(try_devices(k)) as meter:
        allreduce_two_trees(data, pieces)  # exchange refuses two messages to or from one rank
    assert all(torch.equal(x, exact) for x in data)
    for link in LINKS:
        closed, metered = double_tree_s(8 * 48, k, link, pieces), rounds_s(meter.rounds, link)
        a_round = link.alpha_s + 8 * 48 / (2 * pieces) * link.beta_s_per_byte
        assert closed - 6.001 * a_round <= metered <= 1.000001 * closed


def test_the_closed_forms_on_four_devices_by_hand():
    link = Link(10.0, 0.5)
    assert halving_s(8, 4, link) == 4 * 10 + 2 * (2 + 1)
    assert double_tree_s(8, 4, link, 2) == 12 * (10 + 1)
    assert hierarchical_halving_s(8, 4, 2, Link(1.0, 0.25), link) == 2 * (1 + 1) + 2 * (10 + 1)


# Bus bandwidth


@pytest.mark.parametrize("k", [2, 3, 8, 512])
def test_the_bus_bandwidth_of_a_ring_is_the_rate_of_its_links(k):
    seconds = ring_s(4e9, k, Link(0.0, 1 / 12e9))
    assert bus_bandwidth(4e9, k, seconds) == pytest.approx(12e9, rel=1e-12)
