"""What every parallel result of the book is compared with: one worker, and how near is near (chapter 1)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from d2lpar.models import lenet, loss


def one_worker(X: Tensor, y: Tensor, params: list[Tensor], lr: float) -> list[Tensor]:
    """LeNet's parameters after one step of SGD on (X, y), with no word about devices.

    Returns new tensors and leaves `params` alone.
    Taught in: notebooks/01_why_gradients_split.ipynb
    """
    gradients = torch.autograd.grad(loss(lenet(X, params), y).sum(), params)
    return [p.detach() - lr * g / len(X) for p, g in zip(params, gradients)]


def distance(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> float:
    """The largest relative distance ‖a - b‖ / ‖b‖ of any tensor from its counterpart.

    Taught in: notebooks/01_why_gradients_split.ipynb
    """
    pairs = [(a.detach().cpu(), b.detach().cpu()) for a, b in zip(ours, theirs)]
    return max(((a - b).norm() / b.norm()).item() for a, b in pairs)


def same_bits(replicas: Sequence[Sequence[Tensor]]) -> bool:
    """Whether every tensor of every replica equals its counterpart in replica 0 exactly.

    Taught in: notebooks/02_data_parallelism_from_scratch.ipynb
    """
    return all(
        torch.equal(p.cpu(), q.cpu())
        for other in replicas[1:] for p, q in zip(replicas[0], other)
    )
