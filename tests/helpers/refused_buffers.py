"""Buffers that no collective may touch, each with the words that must say why."""

import numpy as np
import torch


def overlapping_buffers():
    base, memory, matrix = torch.ones(6), np.ones(6, np.float32), torch.ones(4, 4)
    replica = torch.ones(3)
    yield "the same tensor", [replica, replica]
    yield "shifted by one", [base[:5], base[1:]]
    yield "every second and its neighbours", [base[::2], base[1::2]]
    yield "a row and a column", [matrix[1], matrix[:, 2]]
    yield "two tensors of one numpy array", [torch.from_numpy(memory[:4]), torch.from_numpy(memory[2:])]
    yield "the first and the last", [base[:3], torch.ones(3), base[2:5]]


def refused():
    yield "no tensor", [], "at least one tensor, got none|got lengths \\[\\]"
    yield "shapes", [torch.ones(2), torch.ones(2), torch.ones(3)], (
        r"shape of entry 2 is torch.Size\(\[3\]\), but entry 0 has torch.Size\(\[2\]\)")
    yield "shapes that would broadcast", [torch.ones(2, 2), torch.ones(2)], "shape of entry 1"
    yield "dtypes", [torch.ones(2), torch.ones(2, dtype=torch.float64)], (
        "dtype of entry 1 is torch.float64, but entry 0 has torch.float32")
    yield "expanded", [torch.ones(3), torch.ones(1).expand(3)], "entry 1 is an expanded tensor"
    yield "overlapping itself", [torch.ones(3, 3), torch.arange(5.0).unfold(0, 3, 1)], "entry 1"
    yield "leaf", [torch.ones(2), torch.ones(2, requires_grad=True)], "entry 1 requires grad.*no_grad"
    yield "the result of a computation", [torch.ones(2, requires_grad=True) * 2, torch.ones(2)], "entry 0 requires grad"
    yield "truth values", [torch.tensor([True]), torch.tensor([True])], "entry 0 is boolean"


def refused_lists():
    a, b, c = torch.ones(2), torch.ones(2) * 2, torch.ones(2) * 4
    base = torch.arange(6.0)
    yield "no lists", [], r"at least 1, got lengths \[\]"
    yield "empty lists", [[], []], r"at least 1, got lengths \[0, 0\]"
    yield "different lengths", [[a, b], [c]], r"same number of tensors.*got lengths \[2, 1\]"
    yield "shapes", [[a, torch.ones(3)], [b, torch.ones(2)]], "tensor 1 of each list: the shape of entry 1"
    yield "dtypes between lists", [[a], [b.double()]], "tensor 0 of each list: the dtype of entry 1"
    yield "dtypes within a list", [[a, torch.ones(2, dtype=torch.int64)], [b, torch.ones(2, dtype=torch.int64)]], (
        "tensors of rank 0 cannot share one buffer: their dtypes are .'torch.float32', 'torch.int64'.")
    yield "leaf", [[a, b], [c, torch.ones(2, requires_grad=True)]], "tensor 1 of each list: entry 1 requires grad"
    yield "expanded", [[a, torch.ones(1).expand(2)], [b, torch.ones(2)]], "tensor 1 of each list: entry 0 is an expan"
    yield "one tensor in two lists", [[a, b], [c, b]], "tensor 1 of each list: entries 0 and 1 overlap"
    yield "one element in two lists, at another place", [[base[:3], torch.ones(3)], [torch.ones(3), base[2:5]]], (
        "overlap")
    yield "one element in two lists, and another tensor in between", [
        [base[::3], base[1:2]], [torch.ones(2), base[3:4]]], "overlap"
    yield "one tensor twice in one list", [[a, a], [b, c]], "overlap"


def remember(tensors):
    return [x.detach().to_dense().clone() for x in tensors]


def unchanged(tensors, before):
    return all(x.is_meta or torch.equal(x.detach().to_dense(), b) for x, b in zip(tensors, before))
