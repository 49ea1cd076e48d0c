"""The parts of `DataParallel`, each by itself: inputs cut, a module replicated, outputs put together.

They do what `scatter`, `replicate` and `gather` of `torch.nn.parallel` do, on virtual devices too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree  # nested tuples, lists and dicts; torch's own collectives use it too

from d2lpar.base.checks import shown


def check_cut(inputs: Any) -> None:
    """Raise ValueError if tensors would go whole to all devices, or each device would get other items."""
    for x in pytree.tree_leaves(inputs):
        if isinstance(x, Iterator):
            raise ValueError(f"all devices would share an iterator: give a list, not {shown(x)}")
        inner = x.values() if isinstance(x, Mapping) else x if isinstance(x, list | tuple) else ()
        if any(isinstance(part, Tensor) for part in inner):  # of a class that pytree does not know
            raise ValueError(f"tensors are in a {type(x).__name__}, but only lists, tuples and dicts are taken apart")


def check_replicable(module: nn.Module) -> None:
    """Raise ValueError for a forward pass that is bound to `module`: a replica would run it on the parameters of
    `module`."""
    for name, m in module.named_modules():
        if isinstance(m, torch.jit.ScriptModule):
            raise ValueError(f"a module of torch.jit cannot be replicated: {name or 'the module itself'} is one")
        if "forward" in vars(m) or m._compiled_call_impl:
            raise ValueError(f"{name or 'the module'} has a forward pass of its own, not of its class, or is compiled, "
                             "and cannot be replicated. Compile the DataParallel instead")


def check_outputs(outputs: Sequence[Any]) -> None:
    """Raise ValueError where one replica has returned None and another a tensor, which would be left out."""
    for i, column in enumerate(zip(*map(pytree.tree_leaves, outputs))):
        if len({x is None for x in column}) > 1:
            raise ValueError(f"output {i} is None on some ranks only: {[type(x).__name__ for x in column]}")


def scatter(inputs, devices, dim=0):
    """Cut every tensor in `inputs`, one shard per device; the rest goes to all.
    `inputs` may be nested; each device gets the same nesting.

    Tensors are cut along `dim` as `torch.chunk` does: the last shards are smaller, or not there. A tensor without
    dimensions is one number and cannot be cut, so it goes to all too.
    """
    check_cut(inputs)  # package only
    def cut(x):
        if not isinstance(x, Tensor):
            return [x] * len(devices)
        shards = x.chunk(len(devices), dim) if x.dim() else [x] * len(devices)
        return [shard.to(d) for shard, d in zip(shards, devices)]

    leaves, nesting = pytree.tree_flatten(inputs)
    rows = zip(devices, *[cut(x) for x in leaves])
    return [pytree.tree_unflatten(row, nesting) for _, *row in rows]


def replicate(module, device, copy=True):
    """A replica of `module` as it is, with parameters and buffers copied to `device`.
    With copy=False what is on `device` already keeps its memory.

    All else, such as lists, locks and hooks, is shared with `module`. With copy=False a tensor that is on `device`
    already keeps its memory, and only its gradient is apart.
    """
    check_replicable(module)  # package only
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


def gather(outputs, device, dim=0):
    """Put the replicas' outputs together on `device`, in rank order.
    Tensors are joined along `dim`; single numbers become a vector.

    Tensors without dimensions are single numbers. Where all replicas give None, it stays None.

    Raises:
        ValueError: for a None among tensors.
    """
    check_outputs(outputs)  # package only
    def join(*parts):
        here = [part.to(device) for part in parts if part is not None]
        if not here:
            return None
        return torch.cat(here, dim) if here[0].dim() else torch.stack(here)

    return pytree.tree_map(join, *outputs)
