"""What one step does when, on every rank: the spans of its timeline."""

from __future__ import annotations

import inspect
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import FunctionType
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from d2lpar.base.checks import shown
from d2lpar.base.devices import rank_here
from d2lpar.base.timing import Span, Stopwatch
from d2lpar.one_step.scratch import check_step


def record_step(step: Callable, X: Tensor, y: Tensor, replicas: Sequence[Sequence[Tensor]],
                devices: Sequence[torch.device], lr: float) -> list[Span]:
    """What `train_batch` or `train_batch_threads` does when, on every rank: forward, backward, allreduce, update.

    The step itself runs, and a stopwatch stands around the functions that it calls meanwhile. A call in the thread of a
    device belongs to its rank; without such threads the ranks take turns.

    Raises:
        ValueError: if `step` is no function written in Python, and as `step` does.
    """
    inside = inspect.unwrap(step) if callable(step) else step
    if not isinstance(inside, FunctionType):
        raise ValueError(f"a step is a function written in Python, got {shown(step)}")
    check_step(X, y, replicas, devices, lr)
    watch, caller, turns = Stopwatch(devices), threading.get_ident(), Counter[str]()

    def around(what: str, fn: Callable) -> Callable:
        def clocked(*args: Any, **kwargs: Any) -> Any:
            turns[what] += 1
            turn = (turns[what] - 1) % len(devices)
            here = rank_here()
            rank = turn if here is None or threading.get_ident() == caller else here
            with ExitStack() as stack:
                for r in range(len(devices)) if what == "allreduce" else [rank]:
                    stack.enter_context(watch(r, what, devices[r]))
                return fn(*args, **kwargs)
        return clocked

    names = inside.__globals__
    calls = {"lenet": "forward", "allreduce": "allreduce", "sgd": "update"}
    with ExitStack() as stack:
        clocked_calls = {name: around(what, names[name]) for name, what in calls.items() if name in names}
        stack.enter_context(patch.dict(names, clocked_calls))
        stack.enter_context(patch.object(torch.Tensor, "backward", around("backward", torch.Tensor.backward)))
        step(X, y, replicas, devices, lr)
    return watch.spans
