"""Lets the parts' gradients go, too, so that only the last micro-batch counts."""


def gather_gradients(losses, params, parts, reduce):
    for loss in losses:
        loss.backward()
        for p, part in zip(params, parts):
            part.grad = None
            reduce(p, part)
