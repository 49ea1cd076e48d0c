def first_parameter_left(losses, params, parts, reduce):
    """Leaves the first parameter for the end."""
    for loss in losses:
        loss.backward()
        for p, part in zip(params[1:], parts[1:]):
            reduce(p, part)
    reduce(params[0], parts[0])


def last_micro_batch_only(losses, params, parts, reduce):
    """Reduces after the last micro-batch, as before, in the loop."""
    for i, loss in enumerate(losses):
        loss.backward()
        if i == len(losses) - 1:
            for p, part in zip(params, parts):
                reduce(p, part)


def only_the_last_counts(losses, params, parts, reduce):
    """Lets the parts' gradients go, too, so that only the last micro-batch counts."""
    for loss in losses:
        loss.backward()
        for p, part in zip(params, parts):
            part.grad = None
            reduce(p, part)


def thrown_away(losses, params, parts, reduce):
    """Frees the whole gradients before each micro-batch, without having reduced them."""
    for loss in losses:
        for p in params:
            p.grad = None
        loss.backward()
    for p, part in zip(params, parts):
        reduce(p, part)


def never_reduced(losses, params, parts, reduce):
    """Keeps its part of its own gradient, and never talks to the other ranks."""
    for loss in losses:
        loss.backward()
        for p, part in zip(params, parts):
            mine = p.grad[:len(part)]
            part.grad = mine if part.grad is None else part.grad + mine
            p.grad = None
