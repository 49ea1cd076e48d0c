"""Tensors that behave as if they were on different devices, on a machine that has one.

`place(x, device)` returns such a tensor. Its arithmetic takes place on the CPU, but it raises PyTorch's own error if
tensors on two devices meet in one operation. So a check sees a missing `.to(device)` on any laptop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree  # nested tuples, lists and dicts; torch's own collectives use it too

CPU = torch.device("cpu")


class Placed(Tensor):
    """A tensor that claims to be on the device `claimed`; `place` makes one."""

    claimed: Any

    @classmethod
    def __torch_function__(cls, func: Callable, types: Iterable, args: tuple = (), kwargs: dict | None = None) -> Any:
        """Every operation on such tensors passes through here, and so does `x.device` or `x.grad`."""
        kwargs, attribute = dict(kwargs or {}), getattr(func, "__self__", None)
        if attribute is Tensor.device:
            return where(args[0])
        there = {where(x) for x in pytree.tree_leaves((args, kwargs))
                 if isinstance(x, Placed) or (isinstance(x, Tensor) and x.dim())}
        if func in (Tensor.cpu, Tensor.cuda):
            index = args[1] if len(args) > 1 else kwargs.pop("device", 0)
            func, args = Tensor.to, (args[0], CPU if func is Tensor.cpu else torch.device("cuda", index or 0))
        if func is Tensor.to:
            args, kwargs, target = without_target(args, kwargs)
        else:
            if len(there) > 1 and func not in (Tensor.copy_, Tensor.backward, torch.autograd.grad):
                a, b = sorted(map(str, there))[:2]
                raise RuntimeError("Expected all tensors to be on the same device, but found at least two devices, "
                                   f"{a} and {b}!")
            first = next((x for x in pytree.tree_leaves(args) if isinstance(x, Tensor)), None)
            target = torch.device(kwargs.pop("device", None) or where(first))
        result = super().__torch_function__(func, types, args, kwargs)
        if attribute is Tensor.grad and isinstance(result, Tensor):  # which PyTorch returns as a plain tensor
            result = result.as_subclass(Placed)
        for x in pytree.tree_leaves(result):
            if isinstance(x, Placed) and not hasattr(x, "claimed"):
                x.claimed = target
        return result


def without_target(args: tuple, kwargs: dict) -> tuple[tuple, dict, torch.device]:
    """The arguments of `to` without the device, and that device. A tensor that moves is copied, as between devices."""
    x, *rest = args
    named = [y for y in [*rest, kwargs.pop("device", None)] if isinstance(y, (torch.device, str, Tensor))]
    rest = [y for y in rest if not any(y is z for z in named)]
    target = where(x) if not named else where(named[0]) if isinstance(named[0], Tensor) else torch.device(named[0])
    if target.type == "cuda" and target.index is None:
        target = torch.device("cuda", 0)
    if target != where(x):
        kwargs["copy"] = True
    return (x, *(rest or [CPU])), kwargs, target


def where(x: Any) -> torch.device:
    """The device that a tensor claims to be on."""
    return getattr(x, "claimed", CPU)


def place(x: Tensor, device: torch.device | str) -> Tensor:
    """A copy of `x` that claims to be on `device`; a leaf, which requires a gradient if `x` does."""
    placed = x.detach().clone().as_subclass(Placed)
    placed.claimed = torch.device(device)
    return placed.requires_grad_(x.requires_grad)


class Pretending(TorchFunctionMode):
    """New tensors, and tensors of the CPU that are sent away, can be on a pretended device, too."""

    def __torch_function__(self, func: Callable, types: Iterable, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = dict(kwargs or {})
        if not any(isinstance(x, Placed) for x in pytree.tree_leaves((args, kwargs))):
            if func in (Tensor.to, Tensor.cuda):
                return func(args[0].as_subclass(Placed), *args[1:], **kwargs)
            if torch.device(kwargs.get("device") or CPU).type == "cuda":
                device = kwargs.pop("device")
                return place(func(*args, **kwargs), device)
        return func(*args, **kwargs)


def pretending(*args: Any) -> AbstractContextManager:
    """In this block, `device=x.device` works even if the x in `args` only claims to be there."""
    return Pretending() if any(isinstance(x, Placed) for x in pytree.tree_leaves(args)) else nullcontext()
