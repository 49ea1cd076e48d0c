@torch.no_grad()
def not_zeroed(params, lr, batch_size):
    """The next backward pass adds to the old gradient."""
    for p in params:
        p -= lr * p.grad / batch_size


@torch.no_grad()
def not_divided(params, lr, batch_size):
    """The step of the sum."""
    for p in params:
        p -= lr * p.grad
        p.grad.zero_()


@torch.no_grad()
def a_new_tensor(params, lr, batch_size):
    """`p = p - ...` changes no parameter."""
    for p in params:
        p = p - lr * p.grad / batch_size


@torch.no_grad()
def the_gradient_is_gone(params, lr, batch_size):
    """None instead of zeros."""
    for p in params:
        p -= lr * p.grad / batch_size
        p.grad = None


def autograd_is_on(params, lr, batch_size):
    """Without no_grad."""
    for p in params:
        p -= lr * p.grad / batch_size
        p.grad.zero_()


@torch.no_grad()
def zeroed_first(params, lr, batch_size):
    """The gradient is gone before the step."""
    for p in params:
        p.grad.zero_()
        p -= lr * p.grad / batch_size


@torch.no_grad()
def a_new_tensor_and_its_gradient(params, lr, batch_size):
    """After `p = p - ...`, p has no gradient."""
    for p in params:
        p = p - lr * p.grad / batch_size
        p.grad.zero_()
