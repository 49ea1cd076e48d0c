"""Frees the whole gradients before each micro-batch, without having reduced them."""


def gather_gradients(losses, params, parts, reduce):
    for loss in losses:
        for p in params:
            p.grad = None
        loss.backward()
    for p, part in zip(params, parts):
        reduce(p, part)
