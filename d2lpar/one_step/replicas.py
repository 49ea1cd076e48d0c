"""The parts of `DataParallel`, each by itself: inputs cut, a module replicated, outputs put together.

They do what `scatter`, `replicate` and `gather` of `torch.nn.parallel` do, on virtual devices too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils import _pytree as pytree  # nested tuples, lists and dicts; torch's own collectives use it too

from d2lpar.base.checks import (
    check_counts,
    check_device,
    check_devices,
    check_list,
    check_module,
    check_truth_values,
    shown,
)
from d2lpar.base.door import taught


def check_cut(inputs: Any, devices: Sequence[torch.device], dim: int) -> None:
    """Raise ValueError unless there are devices, every tensor that has dimensions can be cut along number `dim`, and
    nothing is an iterator, of which each device would get other items."""
    check_devices(devices, 1)
    check_counts(0, dim=dim)
    for x in pytree.tree_leaves(inputs):
        if isinstance(x, Tensor) and 0 < x.dim() <= dim:
            raise ValueError(f"a tensor of shape {tuple(x.shape)} cannot be cut along dimension {dim}, it has "
                             f"{x.dim()} of them")
        if isinstance(x, Iterator):
            raise ValueError(f"all devices would share an iterator: give a list, not {shown(x)}")
        inner = x.values() if isinstance(x, Mapping) else x if isinstance(x, list | tuple) else ()
        if any(isinstance(part, Tensor) for part in inner):  # would go whole to all
            raise ValueError(f"tensors are in a {type(x).__name__}, but only lists, tuples and dicts are taken apart")


def check_replicable(module: nn.Module, device: torch.device, copy: bool) -> None:
    """Raise ValueError unless `module` is a module with numbers in it, that PyTorch can replicate."""
    check_module(module)
    check_device(device)
    check_truth_values(copy=copy)
    for name, m in module.named_modules():
        if isinstance(m, torch.jit.ScriptModule):
            raise ValueError(f"a module of torch.jit cannot be replicated: {name or 'the module itself'} is one")
        if "forward" in vars(m) or m._compiled_call_impl:  # bound to `m`: its replica would run the forward pass of `m`
            raise ValueError(f"{name or 'the module'} has a forward pass of its own, not of its class, or is compiled, "
                             "and cannot be replicated. Compile the DataParallel instead")
    for name, x in [*module.named_parameters(), *module.named_buffers()]:
        if is_lazy(x):
            raise ValueError(f"{name} has no shape yet: call the lazy module once before it is replicated")


def check_outputs(outputs: Sequence[Any], device: torch.device, dim: int) -> None:
    """Raise ValueError unless all replicas have returned tensors, or None, nested alike, that can be joined."""
    check_list("outputs", outputs)
    check_device(device)
    check_counts(0, dim=dim)
    if len(outputs) == 0:
        raise ValueError("there are no outputs to put together")
    flat = [pytree.tree_flatten(result) for result in outputs]
    for rank, (leaves, nesting) in enumerate(flat):
        if nesting != flat[0][1] or not all(x is None or isinstance(x, Tensor) for x in leaves):
            raise ValueError("replicas must all return tensors or None, nested in the same way: "
                             f"rank {rank} returned {shown(nesting)} of {[type(x).__name__ for x in leaves]}")
        for x, first in zip(leaves, flat[0][0]):
            if (x is None) != (first is None):
                raise ValueError(f"rank {rank} returned {'None' if x is None else 'a tensor'} where rank 0 did not")
            if x is not None and _rest(x, dim) != _rest(first, dim):
                where = "the first dimension" if dim == 0 else f"dimension {dim}"
                raise ValueError(f"outputs of shapes {tuple(first.shape)} on rank 0 and {tuple(x.shape)} on rank {rank}"
                                 f" cannot be joined: only {where} may differ")
            if x is not None and 0 < x.dim() <= dim:
                raise ValueError(f"outputs of shape {tuple(x.shape)} cannot be joined along dimension {dim}")


@taught(check_cut,
        more="Tensors are cut along `dim` as `torch.chunk` does: the last shards are smaller, or not there. A tensor "
             "without dimensions is one number and cannot be cut, so it goes to all too.")
def scatter(inputs, devices, dim=0):
    """Cut every tensor in `inputs`, one shard per device; the rest goes to all.
    `inputs` may be nested; each device gets the same nesting."""
    def cut(x):
        if not isinstance(x, Tensor):
            return [x] * len(devices)
        shards = x.chunk(len(devices), dim) if x.dim() else [x] * len(devices)
        return [shard.to(d) for shard, d in zip(shards, devices)]

    leaves, nesting = pytree.tree_flatten(inputs)
    rows = zip(devices, *[cut(x) for x in leaves])
    return [pytree.tree_unflatten(row, nesting) for _, *row in rows]


@taught(check_replicable,
        more="All else, such as lists, locks and hooks, is shared with `module`. With copy=False a tensor that is on "
             "`device` already keeps its memory, and only its gradient is apart.")
def replicate(module, device, copy=True):
    """A replica of `module` as it is, with parameters and buffers copied to `device`.
    With copy=False what is on `device` already keeps its memory."""
    own = {}  # a tensor that is used twice is copied once
    for x in [*module.parameters(), *module.buffers()]:
        there = x.detach().to(device, copy=copy)
        if isinstance(x, nn.Parameter):
            own[x] = nn.Parameter(there, x.requires_grad)
        else:
            own[x] = there.requires_grad_(x.requires_grad)
    replicas = {m: m._replicate_for_data_parallel() for m in module.modules()}
    for m, replica in replicas.items():  # shallow copies so far, without parameters
        for name, child in m._modules.items():
            if child is not None:
                replica._modules[name] = replicas[child]
        for name, b in m._buffers.items():
            replica._buffers[name] = own.get(b)
        for name, p in m._parameters.items():
            replica._parameters[name] = None
            setattr(replica, name, own.get(p))
    return replicas[module]


@taught(check_outputs,
        more="Tensors without dimensions are single numbers. Where all replicas give None, it stays None.",
        raises="ValueError: for what cannot be joined, by its rank.")
def gather(outputs, device, dim=0):
    """Put the replicas' outputs together on `device`, in rank order.
    Tensors are joined along `dim`; single numbers become a vector."""
    def join(*parts):
        here = [part.to(device) for part in parts if part is not None]
        if not here:
            return None
        return torch.cat(here, dim) if here[0].dim() else torch.stack(here)

    return pytree.tree_map(join, *outputs)


def _rest(x: Tensor, dim: int) -> list:
    """The shape of a tensor without the dimension in which it is cut."""
    return [None if i == dim else size for i, size in enumerate(x.shape)]
