def the_mean(X, y, params):
    """mean instead of sum."""
    loss(lenet(X, params), y).mean().backward()


def returns_the_loss(X, y, params):
    """No backward."""
    return loss(lenet(X, params), y).sum()


def overwrites(X, y, params):
    """Earlier gradients are thrown away."""
    for p in params:
        p.grad = None
    loss(lenet(X, params), y).sum().backward()
