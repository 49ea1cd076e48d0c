"""Each rank writes its own part only, and the ranks differ."""


def step(params, grads, lr):
    k, mean = len(params), sum(grads) / len(grads)
    for r, p in enumerate(params):
        p.chunk(k)[r].sub_(lr * mean.chunk(k)[r])
