import torch
from torch.nn.utils import clip_grad_norm_

from d2lpar.devices import all_gather_here


def alone(grads, max_norm, k, all_reduce):
    """Nothing is sent, so each rank has only its own shard."""
    factor = min(1, max_norm / torch.cat([g.flatten() for g in grads]).norm())
    for g in grads:
        g *= factor


def as_torch(grads, max_norm, k, all_reduce):
    """Averages rightly, and then lets PyTorch clip, which adds 1e-6 to the norm."""
    flat = torch.cat([g.flatten() for g in grads])
    all_reduce(flat)
    params = [torch.zeros_like(g, requires_grad=True) for g in grads]
    for p, g, part in zip(params, grads, flat.split([g.numel() for g in grads])):
        p.grad = g.copy_(part.view_as(g) / k)
    clip_grad_norm_(params, max_norm)


def by_another_collective(grads, max_norm, k, all_reduce):
    """Right, but with an all-gather for each tensor, which is not `all_reduce`."""
    for g in grads:
        g.copy_(sum(x.clone() for x in all_gather_here(g.clone())) / k)
    factor = min(1, max_norm / torch.cat([g.flatten() for g in grads]).norm())
    for g in grads:
        g *= factor


def clipped_before(grads, max_norm, k, all_reduce):
    """Each rank clips its own gradient, and the mean of what is left is shorter than it should be."""
    norm = torch.cat([g.flatten() for g in grads]).norm()
    flat = torch.cat([g.flatten() for g in grads]) * min(1, max_norm / norm)
    all_reduce(flat)
    for g, part in zip(grads, flat.split([g.numel() for g in grads])):
        g.copy_(part.view_as(g) / k)


def divided_after(grads, max_norm, k, all_reduce):
    """The sum is clipped and then divided: what was clipped is k times too short."""
    flat = torch.cat([g.flatten() for g in grads])
    all_reduce(flat)
    flat *= min(1, max_norm / flat.norm()) / k
    for g, part in zip(grads, flat.split([g.numel() for g in grads])):
        g.copy_(part.view_as(g))


def made_longer(grads, max_norm, k, all_reduce):
    """A gradient that is shorter than the bound is made longer."""
    flat = torch.cat([g.flatten() for g in grads])
    all_reduce(flat)
    flat *= max_norm / flat.norm()
    for g, part in zip(grads, flat.split([g.numel() for g in grads])):
        g.copy_(part.view_as(g))


def made_longer_by_the_sum(grads, max_norm, k, all_reduce):
    """Clips if the norm of the sum is above the bound: a mean that is below it is made longer."""
    flat = torch.cat([g.flatten() for g in grads])
    all_reduce(flat)
    norm = flat.norm()
    flat = flat * max_norm / norm if norm > max_norm else flat / k
    for g, part in zip(grads, flat.split([g.numel() for g in grads])):
        g.copy_(part.view_as(g))


def one_for_each_tensor(grads, max_norm, k, all_reduce):
    """Right, with a collective for each tensor."""
    for g in grads:
        all_reduce(g)
        g /= k
    factor = min(1, max_norm / torch.cat([g.flatten() for g in grads]).norm())
    for g in grads:
        g *= factor


def one_more_for_the_norm(grads, max_norm, k, all_reduce):
    """Right, with a second collective for a norm that every rank knows already."""
    flat = torch.cat([g.flatten() for g in grads])
    all_reduce(flat)
    flat /= k
    squares = flat.square().sum().reshape(1)
    all_reduce(squares)
    flat *= min(1, max_norm / (squares / k).sqrt())
    for g, part in zip(grads, flat.split([g.numel() for g in grads])):
        g.copy_(part.view_as(g))


def other_tensors(grads, max_norm, k, all_reduce):
    """The list gets other tensors, and those that the parameters hold stay as they were."""
    flat = torch.cat([g.flatten() for g in grads])
    all_reduce(flat)
    flat /= k
    flat *= min(1, max_norm / flat.norm())
    grads[:] = [part.view_as(g) for g, part in zip(grads, flat.split([g.numel() for g in grads]))]


def own_norm(grads, max_norm, k, all_reduce):
    """The factor is that of the own shard, so the ranks differ."""
    flat = torch.cat([g.flatten() for g in grads])
    factor = min(1, max_norm / flat.norm())
    all_reduce(flat)
    flat *= factor / k
    for g, part in zip(grads, flat.split([g.numel() for g in grads])):
        g.copy_(part.view_as(g))


def returned(grads, max_norm, k, all_reduce):
    """The result is returned, and the gradients stay as they were."""
    flat = torch.cat([g.flatten() for g in grads])
    all_reduce(flat)
    flat /= k
    flat *= min(1, max_norm / flat.norm())
    return [part.view_as(g) for g, part in zip(grads, flat.split([g.numel() for g in grads]))]


def tensor_by_tensor(grads, max_norm, k, all_reduce):
    """Each tensor is clipped by itself, so the gradient gets another direction."""
    flat = torch.cat([g.flatten() for g in grads])
    all_reduce(flat)
    for g, part in zip(grads, flat.split([g.numel() for g in grads])):
        part = part.view_as(g) / k
        g.copy_(part * min(1, max_norm / part.norm()))


def the_sum(grads, max_norm, k, all_reduce):
    """The sum is clipped, and what is not clipped is k times too large."""
    flat = torch.cat([g.flatten() for g in grads])
    all_reduce(flat)
    flat *= min(1, max_norm / flat.norm())
    for g, part in zip(grads, flat.split([g.numel() for g in grads])):
        g.copy_(part.view_as(g))


def zeros_forgotten(grads, max_norm, k, all_reduce):
    """Divides by the norm, even if it is zero."""
    flat = torch.cat([g.flatten() for g in grads])
    all_reduce(flat)
    flat /= k
    flat *= min(1, max_norm / flat.norm().item())
    for g, part in zip(grads, flat.split([g.numel() for g in grads])):
        g.copy_(part.view_as(g))


def divided_by_two(grads, max_norm, k, all_reduce):
    """Divides by 2, whatever k is: a gradient that is clipped hides the factor."""
    flat = torch.cat([g.flatten() for g in grads])
    all_reduce(flat)
    flat /= 2 if k > 1 else 1
    flat *= min(1, max_norm / (flat.norm().item() + 1e-300))
    for g, part in zip(grads, flat.split([g.numel() for g in grads])):
        g.copy_(part.view_as(g))


def lost_where_not_in_rows(grads, max_norm, k, all_reduce):
    """`reshape` of a gradient that does not lie in rows is a copy, and what is written there is lost."""
    flat = torch.cat([g.flatten() for g in grads])
    all_reduce(flat)
    flat /= k
    flat *= min(1, max_norm / (flat.norm().item() + 1e-300))
    for g, part in zip(grads, flat.split([g.numel() for g in grads])):
        g.reshape(-1).copy_(part)


def own_zeros_kept(grads, max_norm, k, all_reduce):
    """A rank whose own gradient is zero has nothing to clip, and so it does not write what the others have."""
    flat = torch.cat([g.flatten() for g in grads])
    nothing = not flat.any()
    all_reduce(flat)
    if nothing:
        return
    flat /= k
    flat *= min(1, max_norm / (flat.norm().item() + 1e-300))
    for g, part in zip(grads, flat.split([g.numel() for g in grads])):
        g.copy_(part.view_as(g))
