"""Sharding: each rank keeps only a part of the optimizer's state, of the gradients and of the parameters.

It is still data parallelism: each rank computes with the whole network, on its own examples, and the gradient is the
mean over the ranks, as in DDP. Each tensor is cut separately: it is flattened, padded with zeros, and cut into equal
parts, one per rank. All ranks start with the same network, and their losses use the same parameters in the same order:
if one rank leaves a parameter out, the other ranks wait for it. The optimizer must treat each value separately, as SGD
and Adam do. Code that needs a whole tensor or all gradients, such as gradient clipping, sees only a part of them.

`Memory` measures what a rank holds, at the peak as well.
"""

from __future__ import annotations

import hashlib
from typing import Any
from weakref import WeakValueDictionary

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional as F
from torch.nn.utils import parametrize
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from d2lpar.ddp import check_replicas, gradient_of, trained_params


def check_start(module: nn.Module) -> None:
    """Raise ValueError on all ranks unless they have the same network, unsharded, with the same parameter values."""
    check_replicas(module)
    digest = hashlib.sha256()
    for p in module.parameters():
        digest.update(p.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    own = digest.hexdigest(), any(isinstance(m, Whole) for m in module.modules())
    every: list = [None] * dist.get_world_size()
    dist.all_gather_object(every, own)
    if any(cut for _, cut in every):
        raise ValueError("part of this network is sharded already. Shard a network once, while all of it is whole")
    for rank, (theirs, _) in enumerate(every):
        if theirs != every[0][0]:
            raise ValueError(f"ranks 0 and {rank} start with different parameters. Call broadcast_start(module) first")


def padded(x):
    """A flat copy of x, padded with zeros until the ranks can divide it evenly."""
    return F.pad(x.detach().flatten(), (0, -x.numel() % dist.get_world_size()))


def mean_part(x):
    """Reduce-scatter: this rank's part of the mean of x over the ranks."""
    flat, k = padded(x), dist.get_world_size()
    part = flat.new_empty(len(flat) // k)
    dist.reduce_scatter_tensor(part, flat)
    return part.div_(k)


def all_gather_parts(part, shape):
    """All-gather: the whole tensor of this shape, from the parts of all ranks."""
    flat = part.new_empty(dist.get_world_size() * len(part))
    dist.all_gather_into_tensor(flat, part)
    return flat[:shape.numel()].view(shape)


def parts_to_step(module):
    """This rank's part of each trained parameter, as a view of it, for an optimizer."""
    check_start(module)  # package only
    parts = []
    for p in trained_params(module):
        flat = padded(p)
        p.data = flat[:p.numel()].view_as(p)
        parts.append(nn.Parameter(flat.chunk(dist.get_world_size())[dist.get_rank()]))
    return parts


def reduce_gradient(p, part):
    """Add this rank's part of the mean gradient to part.grad, and free p.grad."""
    mean = mean_part(gradient_of(p))
    part.grad = mean if part.grad is None else part.grad + mean
    p.grad = None


def step_and_gather(optimizer, params, parts):
    """One step on this rank's parts; then each of `params` gets its new values from the
    parts of all ranks, in place. No gradient is left in `parts`."""
    optimizer.step()
    for p, part in zip(params, parts):
        p.data.copy_(all_gather_parts(part.data, p.shape))
    optimizer.zero_grad()


class AllGather(Function):
    """All-gather; the backward pass reduce-scatters the gradient."""

    @staticmethod
    def forward(ctx, part, shape):
        """The whole tensor."""
        return all_gather_parts(part, shape)

    @staticmethod
    def backward(ctx, *grads):
        """This rank's part of the mean gradient."""
        return mean_part(*grads), None


class Whole(nn.Module):
    """Gathers the whole parameter from its parts whenever a layer reads it."""

    cut_over_ranks = True  # `diagnose` refuses a network with this mark

    def __init__(self, shape: torch.Size) -> None:
        super().__init__()
        self.shape = shape

    def forward(self, part: Tensor) -> Tensor:
        return AllGather.apply(part, self.shape)


def shard_parameters(module):
    """Keep this rank's part of each parameter; a layer gathers what it reads."""
    check_start(module)  # package only
    rank, k = dist.get_rank(), dist.get_world_size()
    places = [(m, name, p) for m in module.modules() for name, p in
              m.named_parameters(recurse=False, remove_duplicate=False)]
    shapes = {p: p.shape for p in module.parameters()}  # if two layers share one: once
    for p in shapes:
        p.data = padded(p).chunk(k)[rank].clone()
    for m, name, p in places:  # unsafe=True allows a part to have a different shape
        parametrize.register_parametrization(m, name, Whole(shapes[p]), unsafe=True)


class Memory(TorchDispatchMode):
    """Measures, within its `with` block, the tensors that an operation has read or created and that still exist.

    `history` has their bytes after each operation, so its maximum is the peak. Memory that an operation allocates and
    frees again does not count. Of a `DTensor`, this rank's part counts.
    """

    def __init__(self) -> None:
        super().__init__()
        self.places: WeakValueDictionary[int, Any] = WeakValueDictionary()
        self.history: list[int] = []

    def now(self) -> int:
        """The bytes of these tensors at this moment."""
        return sum(place.nbytes() for place in self.places.values())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(hasattr(t, "to_local") for t in types):  # a DTensor; operations on its part are seen separately
            return NotImplemented
        out = func(*args, **kwargs or {})
        for x in tree_leaves((args, kwargs, out)):
            if isinstance(x, Tensor) and not hasattr(x, "to_local"):
                place = x.untyped_storage()
                if place.device.type != "meta":  # where a DTensor works out shapes
                    self.places[id(place)] = place
        self.history.append(self.now())
        return out
