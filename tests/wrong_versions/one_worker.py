def not_divided(X, y, params, lr):
    """The sum of the gradients, not their mean."""
    gradients = torch.autograd.grad(loss(lenet(X, params), y).sum(), params)
    return [p.detach() - lr * g for p, g in zip(params, gradients)]


def divided_twice(X, y, params, lr):
    """The mean of the losses, divided once more."""
    gradients = torch.autograd.grad(loss(lenet(X, params), y).mean(), params)
    return [p.detach() - lr * g / len(X) for p, g in zip(params, gradients)]


def in_place(X, y, params, lr):
    """Changes the caller's parameters."""
    gradients = torch.autograd.grad(loss(lenet(X, params), y).sum(), params)
    for p, g in zip(params, gradients):
        p.data -= lr * g / len(X)
    return [p.detach() for p in params]


def with_history(X, y, params, lr):
    """Not detached."""
    gradients = torch.autograd.grad(loss(lenet(X, params), y).sum(), params)
    return [p - lr * g / len(X) for p, g in zip(params, gradients)]


def uphill(X, y, params, lr):
    """Adds the gradient."""
    gradients = torch.autograd.grad(loss(lenet(X, params), y).sum(), params)
    return [p.detach() + lr * g / len(X) for p, g in zip(params, gradients)]
