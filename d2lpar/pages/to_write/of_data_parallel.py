"""The check of the function of `d2lpar.data_parallel` that readers write."""

import torch
from torch import nn

from d2lpar.data_parallel import by_deepcopy
from d2lpar.devices import try_devices
from d2lpar.pages.building import Difference, call, same


class Linear(nn.Module):
    """A linear classifier of four values, which notes whom it was called for."""

    seen: list = []

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        self.weight = nn.Parameter(torch.randn(3, 4, generator=generator, dtype=torch.float64))
        self.bias = nn.Parameter(torch.zeros(3, dtype=torch.float64))

    def forward(self, X):
        self.seen.append(len(X))
        return X @ self.weight.T + self.bias


def data(n):
    """n examples of four values, and their classes."""
    generator = torch.Generator().manual_seed(n)
    return torch.randn(n, 4, generator=generator, dtype=torch.float64), torch.arange(n) % 3


def check_by_deepcopy(yours):
    for n, k in ((4, 1), (4, 2), (7, 3), (7, 5)):
        words = f"for {n} images on {k} device{'s' * (k > 1)}"
        nets = Linear(), Linear()
        Linear.seen.clear()
        call(yours, words, nets[0], *data(n), try_devices(k))
        sizes, start = list(Linear.seen), Linear()
        by_deepcopy(nets[1], *data(n), try_devices(k))
        for (name, ours), theirs, before in zip(nets[0].named_parameters(), nets[1].parameters(), start.parameters()):
            same(f"the network's `{name}`", ours.detach(), before.detach(),
                 f"{words}, your function changes the network: afterwards")
            same(f"the gradient of `{name}`", ours.grad, theirs.grad, words)
        if max(sizes) > -(-n // k):
            raise Difference(f"{words}, one copy is called for {max(sizes)} images: each should get its shard only, "
                             f"of at most {-(-n // k)}.")
        if sum(sizes) != n:
            raise Difference(f"{words}, the copies are called for {sum(sizes)} images in all.")
