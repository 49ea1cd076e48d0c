"""Sharding: of the optimizer's numbers, of the gradients and of the parameters each rank keeps a part.

It is data parallelism all the same: each rank computes with the whole network, on its own examples, and the gradient is
the mean over the ranks, as in DDP. Each tensor is cut by itself, in a row, into as many equal parts as there are ranks;
zeros fill up the last. The ranks begin with the same network, and their losses use the same parameters in the same
order: a rank that leaves one out lets the others wait. The optimizer must treat each number by itself, as SGD and Adam
do; what looks at a whole tensor or at all gradients, as clipping does, sees a part.

`Memory` weighs what a rank holds, at its peak too.
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
    """Raise ValueError, on all ranks, unless they have the same network, of whole tensors, with the same numbers."""
    check_replicas(module)
    digest = hashlib.sha256()
    for p in module.parameters():
        digest.update(p.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    own = digest.hexdigest(), any(isinstance(m, Whole) for m in module.modules())
    every: list = [None] * dist.get_world_size()
    dist.all_gather_object(every, own)
    if any(cut for _, cut in every):
        raise ValueError("a part of this network is cut already: cut the network once, as it was made")
    for rank, (theirs, _) in enumerate(every):
        if theirs != every[0][0]:
            raise ValueError(f"ranks 0 and {rank} begin with different numbers: call broadcast_start(module) before")


def padded(x):
    """A copy of x in a row, with zeros behind until the ranks divide its length."""
    return F.pad(x.detach().flatten(), (0, -x.numel() % dist.get_world_size()))


def mean_part(x):
    """Reduce-scatter: this rank's part of the mean of all ranks' x."""
    flat, k = padded(x), dist.get_world_size()
    part = flat.new_empty(len(flat) // k)
    dist.reduce_scatter_tensor(part, flat)
    return part.div_(k)


def all_gather_parts(part, shape):
    """All-gather: the tensor of this shape, made of every rank's part."""
    flat = part.new_empty(dist.get_world_size() * len(part))
    dist.all_gather_into_tensor(flat, part)
    return flat[:shape.numel()].view(shape)


def parts_to_step(module):
    """For an optimizer: this rank's part of each trained parameter, as a view of it."""
    check_start(module)  # package only
    parts = []
    for p in trained_params(module):
        flat = padded(p)
        p.data = flat[:p.numel()].view_as(p)
        parts.append(nn.Parameter(flat.chunk(dist.get_world_size())[dist.get_rank()]))
    return parts


def reduce_gradient(p, part):
    """Add this rank's part of the mean gradient to part.grad, and let p.grad go."""
    mean = mean_part(gradient_of(p))
    part.grad = mean if part.grad is None else part.grad + mean
    p.grad = None


class AllGather(Function):
    """All-gather; in backward the gradient is reduce-scattered."""

    @staticmethod
    def forward(ctx, part, shape):
        """The whole tensor."""
        return all_gather_parts(part, shape)

    @staticmethod
    def backward(ctx, *grads):
        """This rank's part of the mean gradient."""
        return mean_part(*grads), None


class Whole(nn.Module):
    """What a layer finds when it asks for a parameter of which a part is here."""

    cut_over_ranks = True  # `diagnose` asks, and refuses such a network

    def __init__(self, shape: torch.Size) -> None:
        super().__init__()
        self.shape = shape

    def forward(self, part: Tensor) -> Tensor:
        return AllGather.apply(part, self.shape)


def shard_parameters(module):
    """Leave this rank its part of each parameter; a layer that reads one gathers it."""
    check_start(module)  # package only
    rank, k = dist.get_rank(), dist.get_world_size()
    places = [(m, name, p) for m in module.modules() for name, p in
              m.named_parameters(recurse=False, remove_duplicate=False)]
    shapes = {p: p.shape for p in module.parameters()}  # once if two layers share it
    for p in shapes:
        p.data = padded(p).chunk(k)[rank].clone()
    for m, name, p in places:  # unsafe: the whole one has another shape
        parametrize.register_parametrization(m, name, Whole(shapes[p]), unsafe=True)


class Memory(TorchDispatchMode):
    """Weighs, within its `with` block, the tensors that an operation has read or made and that are still there.

    `history` has their bytes after each operation, so its largest is the peak; what an operation takes and gives back
    by itself is not in it. Of a `DTensor` the part counts.
    """

    def __init__(self) -> None:
        super().__init__()
        self.places: WeakValueDictionary[int, Any] = WeakValueDictionary()
        self.history: list[int] = []

    def now(self) -> int:
        """What they take at this moment, in bytes."""
        return sum(place.nbytes() for place in self.places.values())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(hasattr(t, "to_local") for t in types):  # a DTensor; what it does with its part comes here by itself
            return NotImplemented
        out = func(*args, **kwargs or {})
        for x in tree_leaves((args, kwargs, out)):
            if isinstance(x, Tensor) and not hasattr(x, "to_local"):
                place = x.untyped_storage()
                if place.device.type != "meta":  # where a DTensor tries an operation without numbers
                    self.places[id(place)] = place
        self.history.append(self.now())
        return out
