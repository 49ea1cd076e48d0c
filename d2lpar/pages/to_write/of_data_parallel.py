"""The check of the function of `d2lpar.data_parallel` that readers write."""

from typing import ClassVar

import torch
from torch import nn

from d2lpar.data_parallel import by_deepcopy
from d2lpar.devices import try_devices
from d2lpar.pages.differences import Difference, call, same
from d2lpar.pages.elsewhere import place

TWO = [torch.device("cuda", 0), torch.device("cuda", 1)]  # pretended: see elsewhere.py


class Linear(nn.Module):
    """A linear classifier of four values, which notes how many images it is called with."""

    seen: ClassVar[list] = []

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        self.weight = nn.Parameter(torch.randn(3, 4, generator=generator, dtype=torch.float64))
        self.bias = nn.Parameter(torch.zeros(3, dtype=torch.float64))

    def forward(self, X):
        self.seen.append(len(X))
        return X @ self.weight.T + self.bias


class OnGPU(nn.Module):
    """A linear classifier on a pretended GPU: `to` and `deepcopy` give it tensors there. It notes where copies compute."""

    seen: ClassVar[list] = []

    def __init__(self, device=TWO[0]):
        super().__init__()
        own = Linear()
        self.tensors = [place(own.weight, device), place(own.bias, device)]

    def parameters(self, recurse=True):  # type: ignore[override]
        """The two tensors."""
        return iter(self.tensors)

    def named_parameters(self, *args, **kwargs):  # type: ignore[override]
        """With their names."""
        return zip(("weight", "bias"), self.tensors)

    def to(self, device):  # type: ignore[override]
        """Sent to the device, in place, as modules are."""
        self.tensors = [place(p, device) for p in self.tensors]
        return self

    def __deepcopy__(self, memo):
        return OnGPU(self.tensors[0].device)

    def forward(self, X):
        self.seen.append(self.tensors[0].device)
        return X @ self.tensors[0].T + self.tensors[1]


def data(n):
    """n examples of four values, and their classes."""
    generator = torch.Generator().manual_seed(n)
    return torch.randn(n, 4, generator=generator, dtype=torch.float64), torch.arange(n) % 3


def check_by_deepcopy(yours):
    for n, k in ((4, 1), (4, 2), (7, 3), (7, 5)):
        words = f"for {n} images on {k} device{'s' * (k > 1)}"
        nets = Linear(), Linear()
        Linear.seen.clear()
        try:
            call(yours, words, nets[0], *data(n), try_devices(k))
        except Difference as difference:
            if k == 5 and "NoneType" in str(difference):
                raise Difference(f"{difference}. (`chunk` makes 4 shards of 7 images for 5 devices, so a fifth copy of the "
                                 "network has no gradient.)") from None
            raise
        sizes, start = list(Linear.seen), Linear()
        by_deepcopy(nets[1], *data(n), try_devices(k))
        for (name, ours), theirs, before in zip(nets[0].named_parameters(), nets[1].parameters(), start.parameters()):
            same(f"the network's `{name}`", ours.detach(), before.detach(),
                 f"{words}, your function changes the network: afterwards")
            same(f"the gradient of `{name}`", ours.grad, theirs.grad, words)
        if max(sizes) > -(-n // k):
            raise Difference(f"{words}, one copy is called with {max(sizes)} images: each should get only its shard, of at "
                             f"most {-(-n // k)}.")
        if sum(sizes) != n:
            raise Difference(f"{words}, the copies are called with {sum(sizes)} images in all.")
    words, net = "with two GPUs (they are simulated)", OnGPU()
    OnGPU.seen.clear()
    call(yours, words, net, *(place(x, TWO[0]) for x in data(3)), TWO)
    if set(OnGPU.seen) != set(TWO):
        raise Difference(f"{words}, all copies compute on {OnGPU.seen[0]}: send each copy and its shard to its device.")
    if [getattr(p.grad, "device", None) for p in net.parameters()] != [TWO[0]] * 2:
        raise Difference(f"{words}, the gradients of the network are not on its device, {TWO[0]}.")
