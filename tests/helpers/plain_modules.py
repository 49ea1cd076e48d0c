"""The oracle of data parallelism: what the plain module gives, or copies of it one after the other; how to compare."""

import copy

import torch
from torch.utils import _pytree as pytree

from d2lpar.data_parallel import DataParallel
from helpers.modules import rand

CPU = torch.device("cpu")


def weighted(out):
    """A loss in which every entry of every float output counts differently."""
    floats = [x for x in pytree.tree_leaves(out) if x.requires_grad]
    return sum((x * rand(*x.shape, seed=50 + n, dtype=x.dtype)).sum() for n, x in enumerate(floats))


def gradients(module):
    return [None if p.grad is None else p.grad.clone() for p in module.parameters()]


def state(module):
    """Everything that a call could change, by value."""
    return [x.detach().clone() for x in (*module.parameters(), *module.buffers())], gradients(module)


def same(a, b):
    """Whether two nested lists hold the same bits."""
    (a, a_nesting), (b, b_nesting) = pytree.tree_flatten(a), pytree.tree_flatten(b)
    return a_nesting == b_nesting and all(
        torch.equal(x, y) if isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor) else x is y
        for x, y in zip(a, b))


def assert_close(a, b, bound=1e-12):
    (a, a_nesting), (b, b_nesting) = pytree.tree_flatten(a), pytree.tree_flatten(b)
    assert a_nesting == b_nesting
    for x, y in zip(a, b):
        if y is None:
            assert x is None
        elif not y.is_floating_point():
            assert torch.equal(x, y)
        else:
            assert x is not None and x.shape == y.shape and x.dtype == y.dtype and x.device == y.device
            assert (x - y).norm() <= bound * y.norm()


def fresh(inputs):
    """The inputs as leaves of their own, so that their gradients can be told apart."""
    return pytree.tree_map_only(torch.Tensor, lambda x: x.detach().clone().requires_grad_(x.requires_grad), inputs)


def check_equals_plain(module, k, *inputs, **kwargs):
    """Outputs, gradients of parameters and of inputs, and buffers; the gradients, for use in a test."""
    results = []
    module.zero_grad()
    for net, wrap in [(copy.deepcopy(module), lambda net: net), (module, lambda net: DataParallel(net, [CPU] * k))]:
        args, kw = fresh((inputs, kwargs))
        out = wrap(net)(*args, **kw)
        weighted(out).backward()
        of_inputs = [x.grad for x in pytree.tree_leaves((args, kw)) if isinstance(x, torch.Tensor) and x.requires_grad]
        results.append((pytree.tree_map(torch.Tensor.detach, out), gradients(net), of_inputs, list(net.buffers())))
    plain, parallel = results
    assert any(grad is not None and grad.norm() > 0 for grad in [*plain[1], *plain[2]])
    assert_close(parallel, plain)
    return parallel[1]
