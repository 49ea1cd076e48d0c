"""Looks over the shoulder of a training: what gradient each step had, whose it was, and where it led.

It stands in nobody's way: hooks of PyTorch note what passes, so that the training itself need not be changed.
`diagnosis` compares what was seen on several ranks with what was seen on one worker.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_module_registration_hook
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from d2lpar.processes.sharding import Whole

Values = dict[str, Tensor]
SHARDED = ("this training cuts its parameters over the ranks, as fully_shard does: diagnose compares replicas, which "
           "are whole on each rank")


class Step(NamedTuple):
    """One step of an optimizer, in tensors by the names of the network's parameters."""

    before: Values  # the parameters as the step found them
    gradients: Values  # what the optimizer took
    passes: list[Values]  # what each of this process's backward passes gave since the last step, before any exchange
    after: Values  # the parameters as the step left them
    trainable: frozenset[str]  # what asked for a gradient
    replaced: frozenset[str]  # what is not the tensor that it was when the training began
    rates: list[float]  # of the optimizer's groups
    others: list[Tensor]  # parameters of the optimizer that are not the network's, as the step left them
    forwards: int  # forward passes since the last step, in training
    examples: list[bytes]  # what went through the network in them, a key for each

    @property
    def own(self) -> Values:
        """What all of this process's backward passes gave together."""
        total: Values = {}
        for grads in self.passes:
            total |= {name: total[name] + grad if name in total else grad for name, grad in grads.items()}
        return total


class Record(NamedTuple):
    """What was seen of a training."""

    buffers: Values  # of the network, as its first forward pass found them
    steps: list[Step]
    end: Values  # the parameters as the training left them
    wrapped: bool  # whether there was a DistributedDataParallel
    no_sync: bool  # whether one of its forward passes was told not to send
    losses: list[float] | None  # what it returned, if that was a list of numbers


def record_training(train: Callable, net: nn.Module, batches: Sequence[tuple[Tensor, Tensor]]) -> Record:
    """Run `train(net, batches)`, and note each step that an optimizer of `torch.optim` makes in it.

    A step within another one is a part of it. A gradient is noted without the factor of a GradScaler.
    """
    at_first, passes, hooked, examples = dict(net.named_parameters()), {}, [], []
    buffers, steps, open_steps, wrappers = [], [], [], []
    counts, scale, last = {"forwards": 0, "unsent": 0}, [1.0], []

    def look_at_forward(_: nn.Module, args: tuple) -> None:
        if torch._C._functorch.peek_interpreter_stack():  # not public: within torch.func.grad tensors have no numbers
            return
        if not buffers:
            buffers.append(_copies(net.named_buffers()))
        look_at_backward()
        if net.training and torch.is_grad_enabled():
            counts["forwards"] += 1
            examples.extend(_keys(args[0]) if args else ())

    def look_at_backward() -> None:
        for p in net.parameters():  # again in each forward pass: some may be new, or no longer frozen
            if p.requires_grad and not any(p is q for q in hooked):
                hooked.append(p)
                p.register_hook(partial(note, p))

    def note(p: Tensor, grad: Tensor | None) -> None:
        if grad is not None:  # DDP hands None on where the loss has not used a parameter
            own = passes.setdefault(torch._C._current_graph_task_id(), {})  # not public, but one for each backward
            own[id(p)] = own.get(id(p), 0) + _copy(grad) / scale[0]

    def look_at_wrapper(module: nn.Module, *_: Any) -> None:
        if isinstance(module, DistributedDataParallel) and not any(module is other for other in wrappers):
            wrappers.append(module)
            module.register_forward_pre_hook(lambda wrapper, _: counts.update(
                unsent=counts["unsent"] + (not wrapper.require_backward_grad_sync)))

    def look_at_scale(scaler: Any, outputs: Any) -> Any:
        scaled = scale_loss(scaler, outputs)
        scale[0] = float(scaler.get_scale())
        return scaled

    def look(optimizer: Any) -> Step:
        if any(isinstance(m, Whole) for m in net.modules()):
            raise ValueError(SHARDED)
        now = dict(net.named_parameters())
        return Step(
            _copies(now.items()), _copies((name, p.grad) for name, p in now.items()),
            [{name: own[id(p)] for name, p in now.items() if id(p) in own} for own in passes.values()], {},
            frozenset(name for name, p in now.items() if p.requires_grad),
            frozenset(name for name, p in now.items() if p is not at_first.get(name)),
            [float(group["lr"]) for group in optimizer.param_groups], [], counts["forwards"], list(examples))

    def look_before(optimizer: Any, args: tuple, kwargs: dict) -> tuple[tuple, dict] | None:
        open_steps.append(found := look(optimizer))
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
        if closure is None:
            return None

        def seen_closure() -> Any:
            loss = closure()
            if open_steps[-1] is found:  # only its first call finds the parameters as they were
                open_steps[-1] = look(optimizer)
            return loss

        return args[:1], kwargs | {"closure": seen_closure}

    def wait_for_the_last_hook(optimizer: Any, *_: Any) -> None:
        waiting = [True]  # hooks of the optimizer's own come after those of all, and may change the gradients

        def look_once(*step: Any) -> tuple[tuple, dict] | None:
            return look_before(*step) if waiting and waiting.pop() else None

        last.append(optimizer.register_step_pre_hook(look_once))

    def look_after(optimizer: Any, *_: Any) -> None:
        found = open_steps.pop()
        last.pop().remove()
        if not open_steps:
            now = dict(net.named_parameters())
            known = set(map(id, now.values()))
            others = [_copy(p) for group in optimizer.param_groups for p in group["params"] if id(p) not in known]
            steps.append(found._replace(after=_copies(now.items()), others=others))
            passes.clear()
            examples.clear()
            counts["forwards"] = 0

    look_at_backward()
    scale_loss = torch.amp.GradScaler.scale
    hooks = [net.register_forward_pre_hook(look_at_forward), register_optimizer_step_pre_hook(wait_for_the_last_hook),
             register_optimizer_step_post_hook(look_after), register_module_module_registration_hook(look_at_wrapper)]
    try:
        with mock.patch.object(torch.amp.GradScaler, "scale", look_at_scale):
            returned = train(net, batches)
    finally:
        for hook in hooks + last:
            hook.remove()
    return Record(buffers[0] if buffers else {}, steps, _copies(net.named_parameters()),
                  bool(wrappers), counts["unsent"] > 0, _numbers(returned))


def _copy(x: Tensor) -> Tensor:
    """In float64, and a complex number as two."""
    if hasattr(x, "device_mesh"):  # a DTensor
        raise ValueError(SHARDED)
    x = x.detach().cpu().to_dense()
    return (torch.view_as_real(x.resolve_conj()) if x.is_complex() else x).to(torch.float64, copy=True)


def _copies(tensors: Iterable[tuple[str, Any]]) -> Values:
    return {name: _copy(x) for name, x in tensors if x is not None}


def _keys(X: Any) -> list[bytes]:
    """One for each example, the same for the same numbers up to float32; none for what is no tensor of numbers."""
    try:
        return [hashlib.blake2b(row.to(torch.float32).numpy().tobytes(), digest_size=8).digest() for row in _copy(X)]
    except (AttributeError, RuntimeError, TypeError):
        return []


def _numbers(returned: Any) -> list[float] | None:
    """A list of numbers, also if each is a tensor; None of anything else."""
    try:
        return [float(x) for x in returned] or None
    except (TypeError, ValueError, RuntimeError):
        return None
