def no_gradient_asked_for(params, device):
    """Training fails deep inside autograd."""
    return [p.clone().to(device) for p in params]


def no_copy(params, device):
    """On a CPU, `to` returns the tensor itself."""
    return [p.detach().to(device).requires_grad_() for p in params]


def not_detached(params, device):
    """The copies remember the originals."""
    return [p.to(device, copy=True) + 0 for p in params]


def device_ignored(params, device):
    """Always on the device of the original."""
    return [p.detach().clone().requires_grad_() for p in params]


def one_tensor_only(params, device):
    """Returns in the loop."""
    for p in params:
        return [p.detach().to(device, copy=True).requires_grad_()]


def the_originals_get_the_flag(params, device):
    """Asks the caller's tensors for gradients, too."""
    return [p.requires_grad_().detach().to(device, copy=True).requires_grad_() for p in params]


def forgets_to_return(params, device):
    """Computes the copies only."""
    [p.detach().to(device, copy=True).requires_grad_() for p in params]
