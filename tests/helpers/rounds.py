"""Rounds of messages: parts that are easily written and read, and the moves that no round may have, with the words."""

import torch


def numbers(*ranks):
    """`parts[rank][c]`: a tensor of two equal numbers for each number."""
    return [[torch.full((2,), float(x)) for x in rank] for rank in ranks]


def values(parts):
    assert all(x.unique().numel() == 1 for rank in parts for x in rank)
    return [[x[0].item() for x in rank] for rank in parts]


def refused():
    base = torch.ones(6)
    yield "a rank sends twice", numbers([1], [2], [4]), [(0, 1, 0), (0, 2, 0)], None, "rank 0 sends two messages"
    yield "a rank sends two parts", numbers([1, 2], [3, 4], [5, 6]), [(0, 1, 0), (0, 2, 1)], None, "rank 0 sends two"
    yield "a rank receives twice", numbers([1], [2], [4]), [(0, 2, 0), (1, 2, 0)], None, "rank 2 receives two messages"
    yield "two parts", numbers([1, 2], [3, 4], [5, 6]), [(1, 0, 0), (2, 0, 1)], None, "rank 0 receives two"
    yield "another dtype", [[torch.ones(2)], [torch.ones(2)], [torch.ones(2)], [torch.ones(2).int()]], [
        (0, 1, 0), (2, 3, 0)], None, "move .2, 3, 0.: torch.float32 is sent into torch.int32"
    yield "one place for several elements", [[torch.ones(2)], [torch.ones(1).expand(2)]], [(0, 1, 0)], None, (
        "part 0 of rank 1 is an expanded tensor")
    places = [[base[:2]], [torch.ones(2)], [base[1:3]], [torch.ones(2)]]
    yield "two messages into one place", [[torch.ones(2)] for _ in range(4)], [(1, 0, 0), (3, 2, 0)], places, (
        "moves .1, 0, 0. and .3, 2, 0. write into one place")
    row, column = base.view(3, 2)[1], base.view(3, 2)[:2, 1]
    yield "into a row and a column that cross", [[torch.ones(2)] for _ in range(4)], [(1, 0, 0), (3, 2, 0)], [
        [row], [torch.ones(2)], [column], [torch.ones(2)]], "moves .1, 0, 0. and .3, 2, 0. write into one place"
    yield "into one place as two dtypes", [[torch.ones(3)], [torch.ones(3).int()], [base[:3]], [base[2:5].view(torch.int32)]], [
        (0, 2, 0), (1, 3, 0)], None, "moves .0, 2, 0. and .1, 3, 0. write into one place"
    yield "into one tensor, which is a part of two ranks", [[torch.ones(6)], [torch.ones(6)], [base], [base]], [
        (0, 2, 0), (1, 3, 0)], None, "moves .0, 2, 0. and .1, 3, 0. write into one place"
    yield "a place to arrive in that another rank sends", [[base[:2]], [torch.ones(2)]], [(0, 1, 0), (1, 0, 0)], [
        [torch.ones(2)], [base[1:3]]], "move .0, 1, 0. writes what move .0, 1, 0. reads"
    yield "a swap", numbers([1], [2]), [(0, 1, 0), (1, 0, 0)], None, "move .0, 1, 0. writes what move .1, 0, 0. reads"
    yield "passing on what arrives", numbers([1], [2], [4]), [(0, 1, 0), (1, 2, 0)], None, (
        "move .0, 1, 0. writes what move .1, 2, 0. reads")
    yield "a rank to itself", numbers([1], [2]), [(1, 1, 0)], None, "move .1, 1, 0. writes what move .1, 1, 0. reads"
    ones, first, second = torch.ones(3), base[:3], base[2:5]
    yield "ranks that share an element", [[first], [ones], [second], [ones.clone()]], [(0, 1, 0), (3, 2, 0)], None, (
        "move .3, 2, 0. writes what move .0, 1, 0. reads")
    yield "the other end of it", [[second], [ones], [first], [ones.clone()]], [(0, 1, 0), (3, 2, 0)], None, (
        "move .3, 2, 0. writes what move .0, 1, 0. reads")
    yield "a row that crosses a column", [[ones[1:]], [row], [column], [torch.ones(2)]], [(0, 1, 0), (2, 3, 0)], None, (
        "move .0, 1, 0. writes what move .2, 3, 0. reads")
    yield "a place to arrive in that is also sent", numbers([1], [2]), [(0, 1, 0), (1, 0, 0)], "parts", "writes what"
    for move in ((0, 2, 0), (2, 0, 0), (-1, 0, 0), (0, -1, 0), (0, 1, 2), (0, 1, -1), (0, 1, 1)):
        yield f"{move} of what is not there", numbers([1, 2], [4]), [(1, 0, 0), move], None, "is no part .* on rank"
    yield "no part to arrive in", numbers([1, 2], [4, 8]), [(1, 0, 0), (0, 1, 1)], numbers([0], [0]), (
        r"move \(0, 1, 1\): there is no part 1 on rank 1")
    yield "no rank to arrive on", numbers([1], [2]), [(1, 0, 0), (0, 1, 0)], numbers([0]), "no part 0 on rank 1"
    yield "a shape that would broadcast", [[torch.ones(1)], [torch.ones(2)]], [(0, 1, 0)], None, (
        r"move \(0, 1, 0\): shape \(1,\) does not fit into \(2,\)")
    yield "as many elements in another shape", [[torch.ones(1, 2)], [torch.ones(2)]], [(0, 1, 0)], None, "does not fit"
