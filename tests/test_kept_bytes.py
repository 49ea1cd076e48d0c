"""Tests of d2lpar.pages.kept_bytes: the bytes that a forward pass leaves behind, until they are used."""

import torch
from torch import nn

from d2lpar.larger_batches import accumulate_gradients
from d2lpar.models import LeNet
from d2lpar.pages.kept_bytes import most_kept_bytes


def test_a_square_keeps_its_input_once_and_no_parameter():
    net = nn.Linear(4, 4, bias=False)
    x = torch.ones(8, 4, requires_grad=True)
    assert most_kept_bytes(lambda net, x: (x * x).sum().backward(), net, x) == 8 * 4 * 4
    assert most_kept_bytes(lambda net, x: net(x).sum().backward(), net, x) == 8 * 4 * 4


def test_m_microbatches_keep_an_mth():
    X, y = torch.rand(64, 1, 28, 28), torch.randint(10, (64,))
    whole, *parts = (most_kept_bytes(accumulate_gradients, LeNet(), X, y, m) for m in (1, 2, 4, 8))
    assert whole > 64 * 28 * 28 * 4, "more than the images"
    assert all(abs(part * m / whole - 1) < 0.05 for part, m in zip(parts, (2, 4, 8)))


def test_what_is_used_is_kept_no_longer():
    net, x = nn.Linear(4, 4, bias=False), torch.ones(8, 4, requires_grad=True)

    def twice(net, x, hoard):
        losses = []
        for _ in range(2):
            loss = net(x + 1).sum()
            if hoard:
                losses.append(loss)
            else:
                loss.backward()

    assert most_kept_bytes(twice, net, x, True) == 2 * most_kept_bytes(twice, net, x, False)
