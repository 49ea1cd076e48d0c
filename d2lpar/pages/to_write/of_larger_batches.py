"""The checks of the functions of `d2lpar.larger_batches` that readers write."""

from functools import wraps

import torch
from torch import nn

from d2lpar.pages.differences import Difference, call, compare
from d2lpar.pages.kept_bytes import most_kept_bytes


def as_number(fn):
    """`fn`, which may also return a tensor with one value, as long as that does not remember how it was computed."""
    @wraps(fn)
    def converted(*args):
        found = fn(*args)
        plain = isinstance(found, torch.Tensor) and found.numel() == 1 and not found.requires_grad
        return found.item() if plain else found

    return converted


def check_linear_lr(yours):
    for lr, k in ((0.3, 2), (0.05, 8), (0.2, 1), (0.5, 1.5)):
        compare(yours, f"for the rate {lr} and {k} times the batch size", lambda lr=lr, k=k: (lr, k))


def check_warmup_lr(yours):
    for lr, k, warmup, updates in ((0.2, 3, 2, 4), (0.05, 8, 5, 7), (0.3, 2, 0, 3), (0.3, 1, 2, 3)):
        for step in range(updates):
            compare(yours, f"for lr={lr}, k={k} and warmup={warmup}, at step={step}",
                    lambda args=(step, lr, k, warmup, updates): args)


def check_noise_scale(yours):
    def rows(*values):
        return torch.tensor(values, dtype=torch.float64)

    drawn = torch.randn(6, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for words, gradients, b in (
            ("for the gradients 2 and 6, each the mean over 3 examples", rows([2.0], [6.0]), 3),
            ("for the gradients 2, 4 and 9, each the mean over 1 example", rows([2.0], [4.0], [9.0]), 1),
            ("for the gradients (2, 1) and (6, 3), each the mean over 3 examples", rows([2.0, 1.0], [6.0, 3.0]), 3),
            ("for the gradients (5, -4) and (7, -6), each the mean over 4 examples", rows([5.0, -4.0], [7.0, -6.0]), 4),
            ("for 6 gradients of 5 values, each the mean over 8 examples", 2 + drawn, 8),
            ("for the gradients 3 and -3, whose mean is zero", rows([3.0], [-3.0]), 2)):
        compare(as_number(yours), words, lambda x=gradients, b=b: (x.clone(), b))


class Counting(nn.Linear):
    """A linear layer that notes how many examples it is called with."""

    def __init__(self):
        super().__init__(3, 4, dtype=torch.float64)
        self.sizes = []
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(torch.arange(p.numel(), dtype=torch.float64).view_as(p) / 10 - 0.4)

    def forward(self, input):
        self.sizes.append(len(input))
        return super().forward(input)


def check_accumulate_gradients(yours):
    def batch(n):
        X = torch.randn(n, 3, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
        return X, torch.arange(n) % 4

    def distances(scores, y):
        return (scores.sum(1) - y).square()

    for words, n, m, loss in (
            ("for 4 examples in 1 micro-batch", 4, 1, ()), ("for 4 examples in 2 micro-batches", 4, 2, ()),
            ("for 5 examples in 2 micro-batches, of 3 and 2", 5, 2, ()),
            ("for 7 examples in 3 micro-batches, of 3, 2 and 2", 7, 3, ()),
            ("for 2 examples in 3 micro-batches, the last of which is empty", 2, 3, ()),
            ("for 5 examples in 2 micro-batches with a squared distance as `loss`", 5, 2, (distances,))):
        compare(as_number(yours), words, lambda n=n, m=m, loss=loss: (Counting(), *batch(n), m, *loss))

        net = Counting()
        call(yours, words, net, *batch(n), m, *loss)
        sizes = sorted(size for size in net.sizes if size)
        if sizes != sorted(len(x) for x in batch(n)[0].tensor_split(m) if len(x)):
            raise Difference(f"{words}, the network is called with {sizes} examples, but it should be called once for each "
                             "micro-batch.")

    def twice():
        net = Counting()
        for p in net.parameters():
            p.grad = torch.ones_like(p)
        return net, *batch(5), 2

    compare(as_number(yours), "if there are gradients already, to which the new ones are added", twice)
    whole = most_kept_bytes(yours, Counting(), *batch(12), 1)
    parts = most_kept_bytes(yours, Counting(), *batch(12), 4)
    if parts > 0.5 * whole:
        raise Difference(f"for 12 examples in 4 micro-batches, autograd keeps {parts:,} bytes at once, and for one micro-batch "
                         f"{whole:,}: no memory is saved. Call `backward()` for each micro-batch before the next one begins.")
