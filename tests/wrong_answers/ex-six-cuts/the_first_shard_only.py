"""Wrong, but any cut finds it."""

import torch

from d2lpar import lenet, loss


def wrong_step(X, y, params, lr, sizes):
    A, b = X[:sizes[0]], y[:sizes[0]]
    sums = torch.autograd.grad(loss(lenet(A, params), b).sum(), params)
    return [p.detach() - lr * g / len(X) for p, g in zip(params, sums)]
