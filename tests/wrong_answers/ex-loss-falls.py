import torch


def each_its_own(params, grads, lr):
    """Each rank steps by itself, with all of its own gradient, and the ranks differ."""
    for p, grad in zip(params, grads):
        p.sub_(lr * grad)


def not_gathered(params, grads, lr):
    """Each rank writes its own part only, and the ranks differ."""
    k, mean = len(params), sum(grads) / len(grads)
    for r, p in enumerate(params):
        p.chunk(k)[r].sub_(lr * mean.chunk(k)[r])


def stands_still(params, grads, lr):
    """Does nothing, and the loss stays where it is."""
    return None


def twice_as_far(params, grads, lr):
    """The sum in place of the mean: a multiple of it, as a larger rate."""
    k, total = len(params), sum(grads)
    parts = [p.chunk(k)[r] - lr * total.chunk(k)[r] for r, p in enumerate(params)]
    for p in params:
        p.copy_(torch.cat(parts))


def uphill(params, grads, lr):
    """Up instead of down: the loss shows it."""
    k, mean = len(params), sum(grads) / len(grads)
    parts = [p.chunk(k)[r] + lr * mean.chunk(k)[r] for r, p in enumerate(params)]
    for p in params:
        p.copy_(torch.cat(parts))
