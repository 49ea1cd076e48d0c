import torch

from d2lpar import lenet, loss


def mean_of_means(X, y, params, lr, sizes):
    """Wrong, but the cut of 23 and 1 finds it."""
    total = [torch.zeros_like(p) for p in params]
    for A, b in zip(X.split(sizes), y.split(sizes)):
        if len(b):
            means = torch.autograd.grad(loss(lenet(A, params), b).mean(), params)
            total = [t + g for t, g in zip(total, means)]
    return [p.detach() - lr * t / len(sizes) for p, t in zip(params, total)]


def no_step_at_all(X, y, params, lr, sizes):
    """Wrong, but one worker has moved."""
    return [p.detach() for p in params]


def right_after_all(X, y, params, lr, sizes):
    """Divided by the sizes' sum, which is the size of the minibatch."""
    total = [torch.zeros_like(p) for p in params]
    for A, b in zip(X.split(sizes), y.split(sizes)):
        sums = torch.autograd.grad(loss(lenet(A, params), b).sum(), params)
        total = [t + g for t, g in zip(total, sums)]
    return [p.detach() - lr * t / sum(sizes) for p, t in zip(params, total)]


def the_first_shard_only(X, y, params, lr, sizes):
    """Wrong, but any cut finds it."""
    A, b = X[:sizes[0]], y[:sizes[0]]
    sums = torch.autograd.grad(loss(lenet(A, params), b).sum(), params)
    return [p.detach() - lr * g / len(X) for p, g in zip(params, sums)]
