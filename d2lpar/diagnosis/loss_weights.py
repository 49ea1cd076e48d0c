"""What is the total weight of all examples in a loss? It is read off the autograd graph, before and during the backward
pass.

Between the loss and the first functions that reduce several elements to one, every function adds or multiplies scalars.
So the gradient that arrives at such a reduction in the backward pass is its factor in the loss: 1 for a mean that is
the loss, 1/4 for the mean of one of four micro-batches, 1/n for a sum that is divided by n.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from torch import Tensor

SINGLE = ("MulBackward DivBackward AddBackward SubBackward RsubBackward NegBackward ToCopyBackward CloneBackward "
          "ViewBackward ReshapeAliasBackward UnsafeViewBackward SqueezeBackward UnsqueezeBackward SelectBackward "
          "StackBackward CatBackward ExpandBackward AliasBackward").split()
JOINING = ("MeanBackward SumBackward NllLossBackward NllLoss2DBackward MseLossBackward SmoothL1LossBackward "
           "HuberLossBackward BinaryCrossEntropyBackward BinaryCrossEntropyWithLogitsBackward SoftMarginLossBackward "
           "L1LossBackward").split()
MOST_FUNCTIONS = 500
NONE, MEAN, SUM = 0, 1, 2  # PyTorch's codes for the reductions


class LossTerm(NamedTuple):
    """A mean or a sum in a loss, and the total weight of the elements that it reduces."""

    place: int  # in the walk, so that the terms of one backward pass can be told apart
    weight: float  # total, of the elements that are reduced
    is_sum: bool
    count: int  # how many examples are reduced
    factor: float  # what the mean or sum itself is multiplied by


def watch_loss(loss: Any, note: Callable[[LossTerm], None]) -> bool:
    """Have each mean or sum in a loss noted when the backward pass reaches it.

    Returns whether PyTorch's own functional collectives are in the graph, whose backward pass calls collectives.
    """
    if not isinstance(loss, Tensor) or loss.numel() != 1 or loss.grad_fn is None:
        return False
    waiting: list[tuple[Any, int]] = [(loss.grad_fn, loss.output_nr)]
    seen, place = set(), 0
    while waiting and len(seen) < MOST_FUNCTIONS:
        function, output = waiting.pop(0)
        if function in seen:
            continue
        seen.add(function)
        name = function.name().rstrip("0123456789")
        joined = _joined(function, name)
        if joined is not None:
            function.register_prehook(partial(_note, note, place, *joined))
            place += 1
        elif name in SINGLE or _keeps_a_single_number(function, name):
            waiting += [edge for edge in function.next_functions if edge[0] is not None]
        elif name == "_DDPSinkBackward":  # of a DDP that looks for unused parameters: each output is one of its inputs
            waiting += [edge for edge in function.next_functions[output:output + 1] if edge[0] is not None]
    return _has_collectives(loss.grad_fn)


def _has_collectives(function: Any) -> bool:
    waiting, seen = [function], {function}
    while waiting and len(seen) < 10 * MOST_FUNCTIONS:
        one = waiting.pop()
        if "C10D" in one.name().upper():
            return True
        new = {then for then, _ in one.next_functions if then is not None} - seen
        seen |= new
        waiting += new
    return False


def _joined(function: Any, name: str) -> tuple[bool, int] | None:
    """Whether a function sums (or averages), and over how many examples; None if it is not a known reduction."""
    if name not in JOINING:
        return None
    try:
        if name in ("MeanBackward", "SumBackward"):
            sizes = list(function._saved_self_sym_sizes)
            return (name == "SumBackward", int(sizes[0])) if sizes and any(size > 1 for size in sizes) else None
        inputs, reduction = function._saved_self, function._saved_reduction
        if reduction == NONE:
            return None
        count = len(inputs) if inputs.dim() else 1
        if "NllLoss" in name:
            count = round(float(function._saved_total_weight)) or count
        return reduction == SUM, count
    except (AttributeError, RuntimeError):
        return None


def _keeps_a_single_number(function: Any, name: str) -> bool:
    """Whether this is a mean or a sum of one number, such as of a loss that is a single number already."""
    try:
        return name in ("MeanBackward", "SumBackward") and all(size == 1 for size in function._saved_self_sym_sizes)
    except (AttributeError, RuntimeError):
        return False


def _note(note: Callable[[LossTerm], None], place: int, is_sum: bool, count: int, grads: Any) -> None:
    grad = next((x for x in grads if isinstance(x, Tensor)), None)
    if grad is not None and grad.numel() == 1:
        factor = float(grad.detach())
        note(LossTerm(place, factor * (count if is_sum else 1), is_sum, count, factor))
