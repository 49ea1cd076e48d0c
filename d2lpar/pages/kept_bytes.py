"""What autograd keeps of a forward pass until the backward pass has used it, counted in bytes."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks


class Kept:
    """One tensor, for as long as autograd keeps it."""

    def __init__(self, x: Tensor) -> None:
        self.x = x


def most_kept_bytes(function: Callable, net: nn.Module, *args: Any) -> int:
    """The most bytes that autograd keeps at once in `function(net, *args)`; parameters of `net` do not count."""
    alive: Counter[tuple[int, int]] = Counter()
    most, parameters = 0, {p.untyped_storage().data_ptr() for p in net.parameters()}

    def keep(x: Tensor) -> Kept:
        nonlocal most
        kept = Kept(x)
        if x.untyped_storage().data_ptr() not in parameters:
            place = x.data_ptr(), x.nbytes  # a tensor that is kept twice counts once
            alive[place] += 1
            weakref.finalize(kept, alive.subtract, [place])
            most = max(most, sum(size for (_, size), times in alive.items() if times > 0))
        return kept

    with saved_tensors_hooks(keep, lambda kept: kept.x):
        function(net, *args)
    return most
