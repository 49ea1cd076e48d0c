"""Data parallelism for any module: a replica per device, each in a thread of its own (chapter 4).

`DataParallel` does what `torch.nn.DataParallel` does, on virtual devices too: each call scatters the inputs, replicates
the module, applies the replicas side by side and gathers their outputs. The backward pass runs in the same threads, and
the gradients are summed, in rank order, onto the module's own parameters.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils import _pytree as pytree  # nested tuples, lists and dicts; torch's own collectives use it too

from d2lpar.checks import check_device, check_devices, check_list, check_module, shown
from d2lpar.devices import run_on_devices, try_devices


def scatter(inputs: Any, devices: Sequence[torch.device]) -> list[Any]:
    """Cut every tensor in `inputs` into one shard per device; the rest goes to all.

    `inputs` may be nested; each device gets the same nesting. A tensor without
    dimensions is one number and cannot be cut, so it goes to all too.
    Taught in: notebooks/04_concise_data_parallelism.ipynb
    """
    check_devices(devices, 1)

    def cut(x: Any) -> list:
        if not isinstance(x, Tensor):
            return [x] * len(devices)
        shards = x.tensor_split(len(devices)) if x.dim() else [x] * len(devices)
        return [shard.to(d) for shard, d in zip(shards, devices)]

    leaves, nesting = pytree.tree_flatten(inputs)
    columns = [cut(x) for x in leaves]
    return [
        pytree.tree_unflatten([column[r] for column in columns], nesting)
        for r in range(len(devices))
    ]


def replicate(module: nn.Module, device: torch.device) -> nn.Module:
    """A copy of `module` as it is now, with its own parameters and buffers on `device`.

    Taught in: notebooks/04_concise_data_parallelism.ipynb
    """
    check_module(module)
    check_device(device)
    copies: dict[int, Tensor] = {}  # by id, so that a tensor used twice is copied once
    for p in module.parameters():
        own = p.detach().to(device, copy=True)
        copies[id(p)] = nn.Parameter(own, p.requires_grad)
    for b in module.buffers():
        copies[id(b)] = b.detach().to(device, copy=True)
    for m in module.modules():  # deepcopy refuses what a module has computed and kept
        for x in pytree.tree_leaves(vars(m)):
            if isinstance(x, Tensor) and not x.is_leaf:
                copies[id(x)] = x.detach().to(device, copy=True)
    return copy.deepcopy(module, copies)


def gather(outputs: Sequence[Any], device: torch.device) -> Any:
    """Put the replicas' outputs together on `device`, in rank order.

    Tensors are joined along their first dimension; those without one, single
    numbers, become a vector.
    Taught in: notebooks/04_concise_data_parallelism.ipynb
    """
    check_outputs(outputs)
    check_device(device)

    def join(*parts: Tensor) -> Tensor:
        here = [part.to(device) for part in parts]
        return torch.cat(here) if here[0].dim() else torch.stack(here)

    return pytree.tree_map(join, *outputs)


class DataParallel(nn.Module):
    """`module` on several devices, also virtual ones, as with `torch.nn.DataParallel`.

    Args:
        module: any module whose parameters and buffers lie on the first device. It
            stays the owner of the parameters; its gradients accumulate there, and its
            buffers are replica 0's.
        device_ids: devices, or their places in `try_devices`; all GPUs by default.

    Called with tensors, by position or keyword, alone or nested in tuples, lists and
    dicts: each is cut along its first dimension. With fewer examples than devices, the
    last devices get nothing to do. Dropout draws from the one random generator of the
    process, in whatever order the threads come: its masks are not the same in the next
    run.

    Raises:
        ValueError: for no devices, a device that is not there, or a module that is not
            on the first one.
        Exception: what the module raised in a replica, with a note that names the rank;
            parameters, gradients and buffers are then as they were.
    """

    def __init__(self, module: nn.Module,
                 device_ids: Sequence[torch.device | int] | None = None) -> None:
        super().__init__()
        self.device_ids = check_device_ids(device_ids)
        check_on(self.device_ids[0], module)
        self.module = module

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        check_on(self.device_ids[0], self.module)
        leaves, nesting = pytree.tree_flatten((inputs, kwargs))
        k = min(len(self.device_ids), check_lengths(leaves))
        if k == 0:  # no examples, nothing to share out
            [(inputs, kwargs)] = scatter((inputs, kwargs), self.device_ids[:1])
            return self.module(*inputs, **kwargs)
        params = [p for p in self.module.parameters() if p.requires_grad]
        call = _Call(self.module, self.device_ids[:k], nesting, len(leaves),
                     torch.is_grad_enabled())
        outputs = _Replicas.apply(call, *leaves, *params)
        return pytree.tree_unflatten(list(outputs), call.out_nesting)


class _Call:
    """One call of a DataParallel: what the forward pass leaves for the backward pass."""

    def __init__(self, module: nn.Module, devices: Sequence[torch.device], nesting: Any, num_leaves: int,
                 grad: bool) -> None:
        self.module, self.devices, self.nesting, self.num_leaves, self.grad = module, devices, nesting, num_leaves, grad

    def apply(self, leaves: Sequence[Any], wanted: Sequence[bool]) -> list[Tensor]:
        """Run all replicas; their outputs, flattened and joined. If one fails, the buffers are as they were."""
        ranks = range(len(self.devices))
        buffers = [(m, name, b, b.clone())
                   for m in self.module.modules() for name, b in m._buffers.items() if b is not None]
        others = self.devices[1:]
        copies = run_on_devices(replicate, [self.module] * len(others), others) if others else []
        self.replicas = [self.module, *copies]
        # detached: hooks on the module's own parameters are for the sum, not for replica 0's share of it
        self.params = [{name: p.detach().requires_grad_(p.requires_grad) for name, p in replica.named_parameters()}
                       for replica in self.replicas]
        self.shards = [[x.detach().requires_grad_() if want else x for x, want in zip(shard, wanted)]
                       for shard in scatter(list(leaves), self.devices)]
        self.wanted = [[x for x, want in zip(shard, wanted) if want] for shard in self.shards]
        try:
            return self._gathered(run_on_devices(self._forward, ranks))
        except BaseException:
            for m, name, b, before in buffers:  # the first replica is the module itself
                m._buffers[name] = b  # a forward pass may have put another tensor there
                b.copy_(before)
            raise

    def _gathered(self, results: Sequence[Any]) -> list[Tensor]:
        check_outputs(results)
        flat = [pytree.tree_flatten(result) for result in results]
        self.out_nesting = flat[0][1]
        self.outputs = [outputs for outputs, _ in flat]
        return [gather([x.detach() for x in column], self.devices[0]) for column in zip(*self.outputs)]

    def _forward(self, rank: int) -> Any:
        with torch.set_grad_enabled(self.grad):
            inputs, kwargs = pytree.tree_unflatten(self.shards[rank], self.nesting)
            return functional_call(self.replicas[rank], self.params[rank], inputs, kwargs)

    def gradients(self, rank: int, grads: Sequence[Tensor | None],
                  retain_graph: bool) -> tuple[Sequence[Tensor | None], Sequence[Tensor | None]]:
        """Gradients of one replica with respect to its shards and to its parameters; None for what was not used."""
        pairs = [(x, grad) for x, grad in zip(self.outputs[rank], grads) if grad is not None and x.requires_grad]
        inputs = self.wanted[rank]
        params = [p for p in self.params[rank].values() if p.requires_grad]
        found = torch.autograd.grad([x for x, _ in pairs], [*inputs, *params], [grad.to(x.device) for x, grad in pairs],
                                    allow_unused=True, retain_graph=retain_graph)
        return found[:len(inputs)], found[len(inputs):]


class _Replicas(torch.autograd.Function):
    """Forward and backward pass of all replicas, each in the thread of its device."""

    @staticmethod
    def forward(ctx: Any, call: _Call, *leaves_and_params: Any) -> tuple[Tensor, ...]:
        ctx.call, ctx.wanted = call, ctx.needs_input_grad[1:1 + call.num_leaves]
        ctx.set_materialize_grads(False)
        joined = call.apply(leaves_and_params[:call.num_leaves], ctx.wanted)
        ctx.sizes = [[len(x) if x.dim() else None for x in outputs] for outputs in call.outputs]
        ctx.mark_non_differentiable(*[x for x, parts in zip(joined, zip(*call.outputs))
                                      if not any(part.requires_grad for part in parts)])
        return tuple(joined)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple:
        if torch.is_grad_enabled():
            raise RuntimeError("a DataParallel cannot be differentiated twice: create_graph=True is not supported")
        call, ranks = ctx.call, range(len(ctx.call.devices))
        columns = [[None] * len(ranks) if grad is None else
                   grad.unbind() if sizes[0] is None else grad.split(list(sizes))
                   for grad, sizes in zip(grads, zip(*ctx.sizes))]
        # a GPU's own backward thread is waiting in this function, so there the replicas take turns; its queue does not
        at_once = run_on_devices if all(d.type == "cpu" for d in call.devices) else map
        keep = torch._C._autograd._get_current_graph_task_keep_graph()  # what the caller said to backward()
        found = list(at_once(partial(call.gradients, retain_graph=keep), ranks, [list(row) for row in zip(*columns)]))
        inputs = iter([_join(shards, parts, call.devices[0])
                       for shards, parts in zip(zip(*call.wanted), zip(*(of_inputs for of_inputs, _ in found)))])
        of_leaves = [next(inputs) if want else None for want in ctx.wanted]
        return None, *of_leaves, *[_sum(parts) for parts in zip(*(of_params for _, of_params in found))]


def _join(shards: Sequence[Tensor], grads: Sequence[Tensor | None], device: torch.device) -> Tensor | None:
    """The gradient of an input from those of its shards, with zeros where a replica did not use it."""
    if all(grad is None for grad in grads):
        return None
    if shards[0].dim() == 0:  # was not cut, but given to all
        return _sum(grads)
    return gather([torch.zeros_like(x) if grad is None else grad for x, grad in zip(shards, grads)], device)


def _sum(parts: Sequence[Tensor | None]) -> Tensor | None:
    """The sum in rank order on the first device, without the replicas that did not use the parameter."""
    total = None
    for part in parts:
        if part is not None:
            # not in place: two parameters may share one gradient, and autograd still needs it
            total = part if total is None else total + part.to(total.device)
    return total


def check_device_ids(device_ids: Sequence[torch.device | int] | None) -> list[torch.device]:
    """The devices that are meant; ValueError if there are none, or one that is not there."""
    if device_ids is None:
        return try_devices(max(1, torch.cuda.device_count()))
    if isinstance(device_ids, int | str | torch.device):
        raise ValueError("device_ids is a list of devices or of places, such as try_devices(2), "
                         f"got {shown(device_ids)}")
    check_list("device_ids", device_ids)
    if len(device_ids) == 0:
        raise ValueError("a module needs at least one device, got device_ids=[]")
    devices = []
    for place in device_ids:
        if isinstance(place, int) and not isinstance(place, bool):
            if place < 0:
                raise ValueError(f"places in the list of devices count from 0, got {place}")
            place = try_devices(place + 1)[place]
        try:
            device = torch.device(place)
        except (RuntimeError, TypeError):
            raise ValueError(f"device_ids are devices or their places, got {shown(place)} among them") from None
        if device.type == "cuda" and not (device.index or 0) < torch.cuda.device_count():
            raise ValueError(f"there is no {device}: this machine has {torch.cuda.device_count()} GPUs")
        devices.append(torch.empty(0, device=device).device)  # "cuda" alone means the current one
    return devices


def check_outputs(outputs: Sequence[Any]) -> None:
    """Raise ValueError unless all replicas have returned tensors, nested in the same way, that can be joined."""
    check_list("outputs", outputs)
    if len(outputs) == 0:
        raise ValueError("there are no outputs to put together")
    flat = [pytree.tree_flatten(result) for result in outputs]
    for rank, (leaves, nesting) in enumerate(flat):
        if nesting != flat[0][1] or not all(isinstance(x, Tensor) for x in leaves):
            raise ValueError("replicas must all return tensors, nested in the same way: "
                             f"rank {rank} returned {shown(nesting)} of {[type(x).__name__ for x in leaves]}")
        for x, first in zip(leaves, flat[0][0]):
            if x.dim() != first.dim() or x.shape[1:] != first.shape[1:]:
                raise ValueError(f"outputs of shapes {tuple(first.shape)} on rank 0 and {tuple(x.shape)} on rank {rank}"
                                 " cannot be joined: only the first dimension may differ")


def check_on(device: torch.device, module: nn.Module) -> None:
    """Raise ValueError unless `module` is a module, with all its parameters and buffers on `device`."""
    check_module(module)
    elsewhere = [f"{name} on {x.device}" for name, x in [*module.named_parameters(), *module.named_buffers()]
                 if x.device != device]
    if elsewhere:
        raise ValueError(f"the module must be on {device}, the first of its devices, but has {', '.join(elsewhere[:3])}"
                         + f" and {len(elsewhere) - 3} more" * (len(elsewhere) > 3))


def check_lengths(leaves: Sequence[Any]) -> int:
    """The number of examples in the inputs; ValueError if they differ."""
    lengths = sorted({len(x) for x in leaves if isinstance(x, Tensor) and x.dim()})
    if len(lengths) > 1:
        raise ValueError(f"the inputs must have one entry per example each, got lengths {lengths}")
    return lengths[0] if lengths else 1
