"""Modules to train on several devices: plain ones, ones of any function, and ones that fail when told to."""

import torch
from torch import nn


def rand(*shape, seed=0, dtype=torch.float64):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype) - 0.5


class Apply(nn.Module):
    """A function of this module and its inputs as the forward pass; parameters by name."""

    def __init__(self, fn, **params):
        super().__init__()
        self.fn = fn
        for name, p in params.items():
            setattr(self, name, nn.Parameter(p))

    def forward(self, *args, **kwargs):
        return self.fn(self, *args, **kwargs)


def known(net):
    """Parameters and running statistics that are no zeros and ones, the same on every machine."""
    with torch.no_grad():
        for n, x in enumerate(net.state_dict().values()):
            if x.is_floating_point():
                x.copy_(rand(*x.shape, seed=n, dtype=x.dtype) + 0.6 * (x.dim() < 2))  # a variance is above zero
    return net


def mlp(dtype=torch.float64):
    return known(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).to(dtype))


def convnet(dtype=torch.float64):
    return known(nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)).to(dtype))


class Picky(nn.Module):
    """Refuses NaN after its first layer has counted them, and a gradient at 99."""

    def __init__(self):
        super().__init__()
        self.norm, self.out = nn.BatchNorm1d(6), nn.Linear(6, 2)

    def forward(self, x):
        h = self.norm(x)
        if x.isnan().any():
            raise FloatingPointError("NaN in the batch")
        return Refuse99.apply(self.out(h), x)


class Refuse99(torch.autograd.Function):
    @staticmethod
    def forward(ctx, scores, x):
        ctx.refuse = (x == 99).any()
        return scores.clone()

    @staticmethod
    def backward(ctx, grad):
        if ctx.refuse:
            raise FloatingPointError("99 in the batch")
        return grad, None
