"""Each rank steps by itself, with all of its own gradient, and the ranks differ."""


def step(params, grads, lr):
    for p, grad in zip(params, grads):
        p.sub_(lr * grad)
