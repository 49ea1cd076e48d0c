"""Wrong, but the cut of 23 and 1 finds it."""

import torch

from d2lpar import lenet, loss


def wrong_step(X, y, params, lr, sizes):
    total = [torch.zeros_like(p) for p in params]
    for A, b in zip(X.split(sizes), y.split(sizes)):
        if len(b):
            means = torch.autograd.grad(loss(lenet(A, params), b).mean(), params)
            total = [t + g for t, g in zip(total, means)]
    return [p.detach() - lr * t / len(sizes) for p, t in zip(params, total)]
