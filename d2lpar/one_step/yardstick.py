"""What every parallel result of the book is compared with: one worker, and how near is near."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import torch
from torch import Tensor

from d2lpar.base.checks import check_lr
from d2lpar.one_step.models import check_images, lenet, loss


def check_counterparts(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> None:
    """Raise ValueError unless each tensor has a counterpart of its shape, and there is one; none is complex."""
    shapes = [[tuple(x.shape) for x in tensors] for tensors in (ours, theirs)]
    if not shapes[1] or shapes[0] != shapes[1]:
        raise ValueError(f"each tensor needs a counterpart of its shape, got {shapes[0]} and {shapes[1]}")
    if any(x.is_complex() for tensors in (ours, theirs) for x in tensors):
        raise ValueError("complex numbers are not compared, as their imaginary parts would be lost")


def check_comparable(replicas: Sequence[Sequence[Tensor]]) -> None:
    """Raise ValueError unless each replica has the tensors of the first."""
    for other in replicas:
        check_counterparts(other, replicas[0])


def one_worker(X, y, params, lr):
    """LeNet's parameters after one step of SGD on (X, y), with no word about devices.
    They are new tensors; `params` stay as they are.

    Raises:
        ValueError: for images that are not finite, or no learning rate.
    """
    check_images(X, y)  # package only
    check_lr(lr)  # package only
    gradients = torch.autograd.grad(loss(lenet(X, params), y).sum(), params)
    return [p.detach() - lr * g / len(X) for p, g in zip(params, gradients)]


def distance(ours, theirs):
    """The largest relative distance ‖a - b‖ / ‖b‖ of any tensor from its counterpart.
    NaN is infinitely far from everything.

    Equal tensors, also of zeros, are at 0.

    Raises:
        ValueError: if a tensor is missing or has another shape.
    """
    ours = list(ours)  # package only
    theirs = list(theirs)  # package only
    check_counterparts(ours, theirs)  # package only
    def relative(a, b):
        far = ((a - b).norm() / b.norm()).item()
        return 0.0 if torch.equal(a, b) else far if far < inf else inf

    return max(relative(a.detach().cpu().double(), b.detach().cpu().double())
               for a, b in zip(ours, theirs, strict=True))


def same_bits(replicas):
    """Whether each tensor of each replica has the bits of its counterpart in replica 0.
    NaN is never the same.

    Raises:
        ValueError: if a replica lacks a tensor.
    """
    replicas = [list(tensors) for tensors in replicas]  # package only
    check_comparable(replicas)  # package only
    first, *others = replicas
    return all(equal_bits(p, q) for other in others
               for p, q in zip(other, first, strict=True))


def equal_bits(p: Tensor, q: Tensor) -> bool:
    """Whether two tensors of one shape are of one dtype, the same in every bit, and without NaN."""
    p, q = (x.detach().cpu().contiguous().reshape(-1) for x in (p, q))
    return p.dtype == q.dtype and torch.equal(p, q) and torch.equal(p.view(torch.uint8), q.view(torch.uint8))
