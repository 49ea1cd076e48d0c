"""Data parallelism for any module: one replica per device, each in a thread of its own.

`DataParallel` does what `torch.nn.DataParallel` does, and runs on virtual devices, too. Each call scatters the inputs,
replicates the module, applies the replicas side by side and gathers their outputs; `scatter`, `replicate` and `gather`
come first, and do what the functions of the same names in `torch.nn.parallel` do. The backward pass runs in the same
threads, and the gradients are summed, in rank order, into the `grad` of the module's own parameters.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.forward_ad import unpack_dual
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence
from torch.utils import _pytree as pytree  # nested tuples, lists and dicts; torch's own collectives use it too

from d2lpar.checks import shown
from d2lpar.devices import num_ranks_here, rank_here, run_on_devices, try_devices


def by_deepcopy(net, X, y, devices):
    """The gradients of the mean cross-entropy on (X, y), computed on all devices.
    Each parameter of `net`, which is on `devices[0]`, gets its gradient.

    In eight lines: for networks that take one tensor, return one tensor, and do nothing unusual.
    """
    shards = [A.to(d) for A, d in zip(X.chunk(len(devices)), devices)]  # 1. scatter
    replicas = [copy.deepcopy(net).to(A.device) for A in shards]        # 2. replicate
    outputs = [replica(A) for replica, A in zip(replicas, shards)]      # 3. apply
    scores = torch.cat([x.to(devices[0]) for x in outputs])             # 4. gather
    F.cross_entropy(scores, y).backward()
    for p, *copies in zip(net.parameters(), *[r.parameters() for r in replicas]):
        p.grad = sum(q.grad.to(devices[0]) for q in copies)             # 5. sum


def check_cut(inputs: Any) -> None:
    """Raise ValueError for an iterator, or for tensors in a container that `scatter` does not look into."""
    for x in pytree.tree_leaves(inputs):
        if isinstance(x, Iterator):
            raise ValueError(f"all devices would share an iterator. Pass a list instead of {shown(x)}")
        inner = x.values() if isinstance(x, Mapping) else x if isinstance(x, list | tuple) else ()
        if any(isinstance(part, Tensor) for part in inner):  # of a class that pytree does not know
            raise ValueError(f"tensors in a {type(x).__name__} would not be cut: pass a list, a tuple or a dict")


def check_replicable(module: nn.Module) -> None:
    """Raise ValueError if a forward pass is bound to `module` itself: a replica would run it on the parameters of
    `module`."""
    for name, m in module.named_modules():
        if isinstance(m, torch.jit.ScriptModule):
            raise ValueError(f"{name or 'the module'} is a torch.jit module, which cannot be replicated")
        if "forward" in vars(m) or m._compiled_call_impl:
            raise ValueError(f"{name or 'the module'} cannot be replicated: its forward() was set on the object, not "
                             "its class, or it is compiled. Compile the DataParallel instead")
        if isinstance(m, nn.SyncBatchNorm) and (m.training or m.running_mean is None) and (num_ranks_here() or 1) > 1:
            raise ValueError(f"{name or 'the module'} is PyTorch's SyncBatchNorm, which in a thread sees only its own "
                             "shard. d2lpar.SyncBatchNorm sees the whole batch")


def check_outputs(outputs: Sequence[Any], dim: int) -> None:
    """Raise ValueError unless each output is None on all ranks, or on all a tensor that can be joined along `dim`."""
    def common(x: Any) -> Any:  # must be equal on all ranks; False if x cannot be joined
        if not isinstance(x, Tensor) or (x.dim() and not -x.dim() <= dim < x.dim()):
            return x is None and "None"
        return x.dim(), *(size for i, size in enumerate(x.shape) if i != dim % x.dim())

    k = len(outputs)  # all that the lambda may hold: pytree keeps it in a reference cycle
    try:
        nesting = pytree.tree_structure(outputs[0], lambda x: k > 1 and isinstance(x, PackedSequence))
        columns = list(zip(*map(nesting.flatten_up_to, outputs)))
    except ValueError:  # they are nested in different ways
        columns = [outputs]
    for i, column in enumerate(columns):  # torch.cat also joins nested tensors, and skips shape (0,)
        found = {common(x) for x in column if not isinstance(x, Tensor) or not (x.is_nested or x.shape == (0,))}
        if len(found) > 1 or False in found:
            kinds = pytree.tree_map(lambda x: tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__, [*outputs],
                                    is_leaf=lambda x: type(x) not in (list, tuple, dict))
            raise ValueError(f"output {i} {'is None on some ranks only' if 'None' in found else 'cannot be joined'}, "
                             f"dim={dim}: {shown(kinds)}, by rank. Return tensors, in the same lists, tuples and "
                             "dicts on every rank, padded to the same size (pad_packed_sequence: total_length=)")


def scatter(inputs, devices, dim=0):
    """Cut every tensor in `inputs`, one shard per device; the rest goes to all.
    `inputs` may be nested; each device gets the same nesting.

    Tensors are cut along `dim` as by `torch.chunk`: the last shards may be smaller, or missing. A tensor without
    dimensions is a single number, which cannot be cut, so every device gets it.
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
    With copy=False, a tensor that is already on `device` is not copied.

    Everything else, such as lists, locks and hooks, is shared with `module`. A parameter that is not copied shares
    its memory with the module's, but has a gradient of its own.
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

    Tensors without dimensions are single numbers. An output that is None on every replica stays None.

    Raises:
        ValueError: for an output that is None on some replicas only.
    """
    check_outputs(outputs, dim)  # package only
    def join(*parts):
        here = [part.to(device) for part in parts if part is not None]
        if not here:
            return None
        return torch.cat(here, dim) if here[0].dim() else torch.stack(here)

    return pytree.tree_map(join, *outputs)


class DataParallel(nn.Module):
    """`module` on several devices, like `torch.nn.DataParallel`, but on virtual ones, too.

    Args:
        module: any module whose parameters and buffers are on the first device when it
            is called (if there is only one device, they are moved there). It owns the
            parameters, and the gradients accumulate there. Changes that a forward pass
            makes to a buffer are kept from replica 0, and changes to a parameter if all
            replicas agree; anything else stored on a replica is lost after the call.
        device_ids: devices, or their indices in `try_devices`; by default all GPUs.
        output_device: where the outputs are gathered; by default the first device.
        dim: the dimension along which inputs are cut and outputs joined.

    Call it with tensors, by position or keyword, alone or nested in tuples, lists and
    dicts: each is cut along `dim`. Dropout draws from the process's one random
    generator, in whatever order the threads run, so the next run has different masks.
    The appendix has a table of the main differences from `torch.nn.DataParallel`.

    Raises:
        ValueError: for no devices, a missing device, a module that is not on the first
            device or cannot be replicated, inputs of different lengths, outputs that
            cannot be joined, a change to an argument or parameter that would be lost,
            or a gradient that would be lost or counted k times: of a trainable tensor
            which is neither the module's own nor an input, of a tensor that the forward
            pass stores on the module, or of a parameter that it returns.
        Exception: whatever the module raised in a replica, with a note that names the
            rank; gradients, parameters and buffers are then as they were before.
    """

    def __init__(self, module: nn.Module, device_ids: Sequence[torch.device | int] | None = None,
                 output_device: torch.device | int | None = None, dim: int = 0) -> None:
        super().__init__()
        self.module, self.dim = module, dim
        self.device_ids = check_device_ids(device_ids)
        self.output_device = self.device_ids[0]
        if output_device is not None:
            [self.output_device] = check_device_ids([output_device])
        if len(self.device_ids) == 1:
            module.to(self.device_ids[0])

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        check_on(self.device_ids[0], self.module)
        given = {**dict(enumerate(inputs)), **kwargs}
        leaves, nesting = pytree.tree_flatten(given)
        state = [*self.module.parameters(), *self.module.buffers()]
        check_transforms([*leaves, *state])
        wanted = [*trainable(leaves), *trainable(dict.fromkeys(state))]
        k = min(len(self.device_ids), check_lengths(given, self.dim, len(self.device_ids))) or 1
        shards = scatter(leaves, self.device_ids[:k], self.dim)
        ranks = range(len(shards))
        modules, places = [self.module for _ in ranks], self.device_ids[:len(shards)]
        with unchanged_on_error(state):  # replica 0 shares their memory
            replicas = run_on_devices(Replica, modules, ranks, places, shards)
            run_on_devices(Replica.forward, replicas, [nesting for _ in ranks])
            with torch.no_grad():
                gathered = gather([r.outputs for r in replicas], self.output_device, self.dim)
            outputs, nesting = pytree.tree_flatten(gathered)
            check_transforms(outputs)
            keep_changes(self.module, [r.state for r in replicas])
        for r in replicas:  # in replica 0's order: other ranks may order a dict differently
            r.outputs = nesting.flatten_up_to(r.outputs)
        outputs = InThreads.apply(replicas, outputs, self.dim, *wanted)
        return pytree.tree_unflatten(outputs, nesting)


class Replica:
    """One rank's part of a call: its shard, its outputs, and the gradients it computes."""

    def __init__(self, module: nn.Module, rank: int, device: torch.device, shard: Sequence[Any]) -> None:
        self.origin, self.device = module, device
        self.module = replicate(module, device, copy=rank > 0)
        self.state = [*self.module.parameters(), *self.module.buffers()]
        # detached like the parameters: a replica's graph ends here
        leaves = [x.detach().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x for x in shard]
        self.inputs, self.tensors = trainable(leaves), trainable(dict.fromkeys(self.state))
        # a module may change its input in place, and the caller's must not change
        self.shard = [x.clone() if isinstance(x, Tensor) else x for x in leaves]

    def forward(self, nesting: Any) -> None:
        """Apply the replica to its shard, a flat list; `nesting` says which argument each tensor belongs to."""
        given = pytree.tree_unflatten(self.shard, nesting)
        inputs = [x for name, x in given.items() if isinstance(name, int)]
        kwargs = {name: x for name, x in given.items() if isinstance(name, str)}
        own, before = [*self.inputs, *self.tensors], _kept_by(self.module) if torch.is_grad_enabled() else []
        gpu = self.device.index if self.device.type == "cuda" else -1  # -1: no GPU
        with torch.cuda.device(gpu):
            self.outputs = self.module(*inputs, **kwargs)
        check_not_filled(given, pytree.tree_unflatten(self.shard, nesting), self.outputs)
        if torch.is_grad_enabled():
            check_leaves(self.outputs, [*self.shard, *own], self.origin)
            _check_returned(self.outputs, self.module)
            check_nothing_kept(own, before, self.module)
            for x in own:
                x.register_hook(_check_expected)

    def backward(self, grads: Sequence[Tensor | None], retain_graph: bool) -> list[Tensor | None]:
        """The gradients of its inputs and tensors; None for those that were not used."""
        outputs = pytree.tree_leaves(self.outputs)
        leaves = [*self.inputs, *self.tensors]
        pairs = [(x, grad.to(x.device)) for x, grad in zip(outputs, grads) if grad is not None and x.requires_grad]
        try:
            torch.autograd.backward([x for x, _ in pairs], [grad for _, grad in pairs], retain_graph=retain_graph)
            return [x.grad for x in leaves]
        finally:
            for x in leaves:
                x.grad = None


class InThreads(torch.autograd.Function):
    """All replicas as one node of the caller's graph: its backward pass runs theirs."""

    @staticmethod
    def forward(ctx: Any, replicas: list[Replica], outputs: list[Tensor | None], dim: int, *leaves: Tensor) -> tuple:
        """The outputs that the replicas computed, now linked to `leaves`."""
        ctx.replicas, ctx.dim = replicas, dim
        ctx.places = [x.device for x in leaves]
        ctx.set_materialize_grads(False)
        columns = zip(*[pytree.tree_leaves(r.outputs) for r in replicas])
        ctx.mark_non_differentiable(*[x for x, xs in zip(outputs, columns) if x is not None and not trainable(xs)])
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple:
        """The gradients of `leaves`: inputs joined, parameters summed in rank order."""
        check_once_differentiable()
        replicas: list[Replica] = ctx.replicas
        columns = zip(*[pytree.tree_leaves(r.outputs) for r in replicas])
        parts = [ungather(grad, outs, ctx.dim) for grad, outs in zip(grads, columns)]
        backward = partial(Replica.backward, retain_graph=graph_is_kept())
        found = list(zip(*run_on_devices(backward, replicas, list(zip(*parts)))))
        shards = list(zip(*[r.inputs for r in replicas]))
        of_inputs = [joined(xs, grads, ctx.dim) for xs, grads in zip(shards, found)]
        of_leaves = [*of_inputs, *map(summed, found[len(shards):])]
        # an input may be on a different device from its first shard
        return None, None, None, *[g if g is None else g.to(place) for g, place in zip(of_leaves, ctx.places)]


def trainable(things: Iterable[Any]) -> list[Tensor]:
    """The tensors among `things` that require a gradient."""
    return [x for x in things if isinstance(x, Tensor) and x.requires_grad]


@contextmanager
def unchanged_on_error(tensors: Iterable[Tensor]) -> Iterator[None]:
    """If the block fails, restore the values of `tensors`."""
    before = [(x, x.detach().clone()) for x in tensors]
    try:
        yield
    except BaseException as error:
        if isinstance(error, KeyError) and any(isinstance(key, Tensor) for key in error.args):
            error.add_note("a replica has its own parameters: use their names as keys of the table")
        with torch.inference_mode():  # inference tensors can only be changed in this mode
            for x, old in before:
                if not _alike(x, old):  # an expanded tensor cannot be written to
                    x.copy_(old)
        raise


def keep_changes(module: nn.Module, states: Sequence[Sequence[Tensor]]) -> None:
    """Give `module` the memory of replica 0's tensors; ValueError if the ranks now disagree about a parameter."""
    named = [*module.named_parameters(), *module.named_buffers()]
    for (name, x), (first, *others) in zip(named, zip(*states)):
        if isinstance(x, nn.Parameter) and not all(_alike(y.to(first.device), first) for y in others):
            raise ValueError(f"forward() changes the parameter {name} differently on each rank, as max_norm= does, and "
                             "only one of the changes could be kept. Change it after the call")
    for (_, x), first in zip(named, states[0]):
        if x.layout is not torch.strided or not x.is_set_to(first):
            x.data = first.data


def _alike(x: Tensor, y: Tensor) -> bool:
    """Whether two tensors have the same values, counting NaN as equal to NaN; sparse tensors are not compared."""
    return x.layout is not torch.strided or (
        x.shape == y.shape and (torch.equal(x, y) or torch.allclose(x, y, 0, 0, equal_nan=True)))


def ungather(grad: Tensor | None, parts: Sequence[Tensor], dim: int) -> Sequence[Tensor | None]:
    """Undo `gather`: the slice of `grad` that belongs to each of the parts."""
    if grad is None:
        return [None] * len(parts)
    if parts[0].dim() == 0:
        return grad.unbind()
    return grad.split([x.shape[dim] for x in parts], dim)


def joined(shards: Sequence[Tensor], grads: Sequence[Tensor | None], dim: int) -> Tensor | None:
    """The gradient of an input, joined from its shards'; zeros where a replica has none."""
    if all(grad is None for grad in grads):
        return None
    if shards[0].dim() == 0:  # not cut: every device got it
        return summed(grads)
    pairs = zip(shards, grads)
    parts = [torch.zeros_like(x) if grad is None else grad for x, grad in pairs]
    return gather(parts, shards[0].device, dim)


def summed(parts: Sequence[Tensor | None]) -> Tensor | None:
    """The sum in rank order, leaving out replicas that did not use the tensor."""
    total = None
    for part in parts:
        if part is not None:  # not in place: two parameters may share one gradient
            total = part if total is None else total + part.to(total.device)
    return total


def graph_is_kept() -> bool:
    """Whether the running backward pass was called with retain_graph=True."""
    return torch._C._autograd._get_current_graph_task_keep_graph()


def check_once_differentiable() -> None:
    """Raise RuntimeError if create_graph=True was requested."""
    if torch.is_grad_enabled():
        raise RuntimeError("a DataParallel cannot be differentiated twice: create_graph=True is not supported")


def check_transforms(things: Iterable[Any]) -> None:
    """Raise RuntimeError in a mode that does not reach the replicas' threads, or if one of `things` has a tangent."""
    if (torch._C._functorch.peek_interpreter_stack() or torch.jit.is_tracing() or torch._C._len_torch_dispatch_stack()
            or any(isinstance(x, Tensor) and unpack_dual(x).tangent is not None for x in things)):
        raise RuntimeError("torch.func, forward-mode derivatives, torch.jit.trace and modes such as FlopCounterMode do "
                           "not reach the threads of the replicas. Use them with the module itself")


def check_leaves(outputs: Any, own: Sequence[Any], module: nn.Module) -> None:
    """Raise ValueError if a leaf of the outputs' graph is not among `own`."""
    known, seen = {id(x) for x in own}, set()
    tensors = trainable(pytree.tree_leaves(outputs))
    foreign = [x for x in tensors if x.is_leaf and id(x) not in known]
    nodes: list[Any] = [x.grad_fn for x in tensors if not x.is_leaf]
    while nodes and not foreign:
        node = nodes.pop()
        if node not in seen:
            seen.add(node)
            nodes += [n for n, _ in node.next_functions if n is not None]
            leaf = getattr(node, "variable", None)
            foreign += [leaf] if leaf is not None and id(leaf) not in known else []
    if foreign:
        raise ValueError(f"the output depends on {_home(foreign[0], module)}, of shape {tuple(foreign[0].shape)}, "
                         "which is not part of the replica: its gradient would be lost. Make it a parameter "
                         "(nn.Parameter, or nn.ModuleList for a list of layers) and use it through `self`, or pass it "
                         "as an input. For gradients with respect to an input, call its requires_grad_()")


def _check_returned(outputs: Any, module: nn.Module) -> None:
    """Raise ValueError if a parameter of `module` is an output: the replicas' copies would be joined."""
    returned = {id(x) for x in trainable(pytree.tree_leaves(outputs))}
    for name, p in module.named_parameters():
        if id(p) in returned:
            raise ValueError(f"forward() returns the parameter {name} itself: all replicas' copies would be joined, "
                             "and each would count in its gradient. Read it from the module after the call")


_OF_EVERY_MODULE = frozenset(vars(nn.Module()))


def _kept_by(module: nn.Module) -> list[tuple[str, Tensor]]:
    """The tensors that require a gradient in attributes and buffers of `module` and its layers, each with its name."""
    return [(f"{prefix}.{name}".removeprefix("."), x) for prefix, m in module.named_modules()
            for name, value in {**vars(m), **m._buffers}.items() if name not in _OF_EVERY_MODULE
            for x in trainable(_tensors_in(value))]


def _tensors_in(value: Any) -> list[Tensor]:
    """The tensors in nested lists, tuples and dicts; in a long list of numbers it looks only at the types."""
    found, seen, rest = [], set(), [value]
    while rest:
        x = rest.pop()
        if isinstance(x, Tensor):
            found.append(x)
        elif isinstance(x, list | tuple | dict) and id(x) not in seen:  # a list may contain itself
            seen.add(id(x))
            items = list(x.values() if isinstance(x, dict) else x)
            kinds = {kind for kind in set(map(type, items)) if issubclass(kind, Tensor | list | tuple | dict)}
            rest += [item for item in items if type(item) in kinds] if kinds else []
    return found


def check_nothing_kept(leaves: Sequence[Tensor], before: Sequence[tuple[str, Tensor]], module: nn.Module) -> None:
    """Raise ValueError if a forward pass left gradients in `leaves`, or a tensor that requires one on `module`."""
    if any(x.grad is not None for x in leaves):
        raise ValueError("forward() called backward(), and those gradients would be lost with the replica. "
                         "Return the loss, and call backward() on what DataParallel returns")
    known = {id(x) for _, x in before}
    for m in module.modules():  # hooks of the old weight_norm, spectral_norm and pruning compute a weight and store it
        names = [getattr(hook, "name", getattr(hook, "_tensor_name", "")) for hook in m._forward_pre_hooks.values()]
        known.update(id(vars(m).get(name)) for name in names if isinstance(name, str))
    for name, x in _kept_by(module):
        if id(x) not in known:
            raise ValueError(f"forward() stores a tensor that requires grad in self.{name}. The replica is discarded "
                             "after the call, so a loss that used it would lose its gradient. Compute it outside, "
                             "from the outputs or the parameters, or store its detach()")


def _check_expected(grad: Tensor) -> None:
    """Raise RuntimeError if a gradient reaches a replica, but not through its outputs: it would never be summed."""
    if rank_here() is None:
        raise RuntimeError("a loss depends on a tensor that a replica computed but did not return; its gradient would "
                           "be lost with the replica. Return everything the loss needs")


def _home(x: Tensor, module: nn.Module) -> str:
    """Where a module stores a tensor that a replica lacks; ValueError if it is a parameter of the module itself."""
    for name, p in module.named_parameters():
        if p is x:
            raise ValueError(f"the output depends on the parameter {name} of the module itself, of shape "
                             f"{tuple(x.shape)}, instead of the replica's: its gradient would be lost. Was a method "
                             "stored? Store its name instead")
    for prefix, m in module.named_modules():
        for name, value in vars(m).items():
            parts = [] if name in _OF_EVERY_MODULE else pytree.tree_leaves(value)
            layers = [part for part in parts if isinstance(part, nn.Module)]
            if any(t is x for t in [*parts, *(p for layer in layers for p in layer.parameters())]):
                return f"a trainable tensor in {'.'.join(filter(None, [prefix, name]))}"
    return "a trainable tensor"


def check_device_ids(device_ids: Sequence[torch.device | int] | None) -> list[torch.device]:
    """`device_ids` as devices; ValueError for a single device or number instead of a list."""
    if device_ids is None:
        return try_devices(max(1, torch.cuda.device_count()))
    if isinstance(device_ids, int | str | torch.device):
        raise ValueError(f"device_ids must be a list, such as try_devices(2) or [0, 1], got {shown(device_ids)}")
    devices = [try_devices(d + 1)[d] if isinstance(d, int) else torch.device(d) for d in device_ids]
    return [torch.empty(0, device=d).device for d in devices]  # "cuda" alone means the current GPU


def check_on(device: torch.device, module: nn.Module) -> None:
    """Raise ValueError unless all parameters and buffers of `module` are on `device`."""
    elsewhere = [f"{name} on {x.device}" for name, x in [*module.named_parameters(), *module.named_buffers()]
                 if x.device != device]
    if elsewhere:
        raise ValueError(f"the module must be on {device}, the first of its devices, but has {', '.join(elsewhere[:3])}"
                         + f" and {len(elsewhere) - 3} more" * (len(elsewhere) > 3))


def check_lengths(given: Mapping, dim: int, num_devices: int) -> int:
    """The number of examples along `dim`, 1 if there is nothing to cut; ValueError if inputs do not fit together."""
    def rows(x: Any) -> bool:
        if isinstance(x, np.ndarray):
            return lengths[0] in x.shape[dim:][:1]
        flat = {list: str | bytes | int | float | np.generic, tuple: str | bytes}.get(type(x))  # (28, 28) is a shape
        return flat is not None and len(x) == lengths[0] and all(isinstance(entry, flat) for entry in x)

    tensors = [(name, x) for name, arg in given.items() for x in pytree.tree_leaves(arg) if isinstance(x, Tensor)]
    for name, x in tensors:
        if x.dim() and not -x.dim() <= dim < x.dim():
            raise ValueError(f"argument {name!r} has no dimension {dim} to cut along: its shape is {tuple(x.shape)}. "
                             "Add one with unsqueeze()")
    lengths = sorted({x.shape[dim] for _, x in tensors if x.dim()}) or [1]
    if len(lengths) > 1:
        raise ValueError(f"each input must have one entry per example, got lengths {lengths}. If one is a mask or "
                         "table for all examples, make it a buffer, or expand it")
    for name, arg in given.items():
        if min(num_devices, lengths[0]) > 1 and any(map(rows, pytree.tree_leaves(arg, is_leaf=rows))):
            raise ValueError(f"argument {name!r} is as long as the batch, {lengths[0]}, but each device would get all "
                             f"of it: {shown(arg)}. Pass a tensor, or store a table for all examples on the module")
    return lengths[0]


def check_not_filled(given: Mapping, before: Mapping, outputs: Any) -> None:
    """Raise ValueError if forward() put something into an argument that is not among the outputs."""
    returned = set(map(id, pytree.tree_leaves(outputs)))
    for name in given:
        now, old = [list(map(id, pytree.tree_leaves(arguments[name]))) for arguments in (given, before)]
        if now != old and (Counter(now) - Counter(old)).keys() - returned:
            raise ValueError(f"forward() puts something into argument {name!r}, which would be lost: each replica has "
                             "its own lists and dicts. Return it")
