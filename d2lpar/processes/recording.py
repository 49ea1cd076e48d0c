"""Looks over the shoulder of a training: what gradient each step had, whose it was, and where it led.

It stands in nobody's way: hooks of PyTorch note what passes, so that the training itself need not be changed.
`diagnosis` compares what was seen on several ranks with what was seen on one worker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

Values = dict[str, Tensor]


class Step(NamedTuple):
    """One step of an optimizer, in tensors by the names of the network's parameters."""

    before: Values  # the parameters as the step found them
    gradients: Values  # what the optimizer took
    own: Values  # what this process's backward passes gave since the last step
    after: Values  # the parameters as the step left them
    trainable: frozenset[str]  # what asked for a gradient
    replaced: frozenset[str]  # what is not the tensor that it was when the training began


class Record(NamedTuple):
    """What was seen of a training."""

    buffers: Values  # of the network, as its first forward pass found them
    steps: list[Step]
    losses: list[float] | None  # what it returned, if that was a list of numbers


def record_training(train: Callable, net: nn.Module, batches: Sequence[tuple[Tensor, Tensor]]) -> Record:
    """Run `train(net, batches)`, and note each step that an optimizer of `torch.optim` makes in it."""
    at_first, own, hooked = dict(net.named_parameters()), {}, []
    buffers, steps, open_steps = [], [], []

    def look_at_forward(*_: Any) -> None:
        if not buffers:
            buffers.append(_copies(dict(net.named_buffers())))
        look_at_backward()

    def look_at_backward() -> None:
        for p in net.parameters():  # again in each forward pass: some may be new, or no longer frozen
            if p.requires_grad and not any(p is q for q in hooked):
                hooked.append(p)
                p.register_hook(lambda grad, p=p: _add(own, p, grad))

    def look() -> Step:
        now = dict(net.named_parameters())
        return Step(
            _copies(now), _copies({name: p.grad for name, p in now.items()}),
            {name: own[id(p)] for name, p in now.items() if id(p) in own}, {},
            frozenset(name for name, p in now.items() if p.requires_grad),
            frozenset(name for name, p in now.items() if p is not at_first.get(name)))

    def look_before(_: Any, args: tuple, kwargs: dict) -> tuple[tuple, dict] | None:
        open_steps.append(found := look())
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
        if closure is None:
            return None

        def seen_closure() -> Any:
            loss = closure()
            if open_steps[-1] is found:  # only its first call finds the parameters as they were
                open_steps[-1] = look()
            return loss

        return args[:1], kwargs | {"closure": seen_closure}

    def look_after(*_: Any) -> None:
        own.clear()
        steps.append(open_steps.pop()._replace(after=_copies(dict(net.named_parameters()))))

    look_at_backward()
    hooks = [net.register_forward_pre_hook(look_at_forward), register_optimizer_step_pre_hook(look_before),
             register_optimizer_step_post_hook(look_after)]
    try:
        returned = train(net, batches)
    finally:
        for hook in hooks:
            hook.remove()
    return Record(buffers[0] if buffers else {}, steps, _numbers(returned))


def _add(own: dict[int, Tensor], p: Tensor, grad: Tensor) -> None:
    copy = grad.detach().cpu().clone()
    own[id(p)] = own[id(p)] + copy if id(p) in own else copy


def _copies(tensors: dict[str, Any]) -> Values:
    return {name: x.detach().cpu().clone() for name, x in tensors.items() if x is not None}


def _numbers(returned: Any) -> list[float] | None:
    """A list of numbers, also if each is a tensor; None of anything else."""
    try:
        return [float(x) for x in returned] or None
    except (TypeError, ValueError, RuntimeError):
        return None
