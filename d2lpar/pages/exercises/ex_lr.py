"""The check of the exercise `ex-lr`."""

import torch

from d2lpar.one_step.models import lenet_params
from d2lpar.one_step.yardstick import distance, one_worker


def check(small_rates):
    """What is not right yet of the answer, in words, or "Right."."""
    generator = torch.Generator().manual_seed(0)
    start = [p.double().requires_grad_() for p in lenet_params()]

    def moves(X, y, lr):
        after = one_worker(X, y, start, lr)
        return [new - old.detach() for new, old in zip(after, start)]

    for lr, sizes in ((0.2, [4]), (0.2, [4, 4]), (0.3, [2, 2, 2]), (0.2, [4, 4, 1]),
                      (0.2, [1, 4, 2])):
        X = torch.rand(sum(sizes), 1, 28, 28, generator=generator, dtype=torch.float64)
        y = torch.randint(10, (len(X),), generator=generator)
        rates = small_rates(lr, list(sizes))
        if not isinstance(rates, (list, tuple)) or len(rates) != len(sizes):
            return f"Not yet: sizes {sizes} need a list with one rate for each."
        parts = zip(X.split(sizes), y.split(sizes), rates)
        together = [sum(step) for step in zip(*(moves(*part) for part in parts))]
        apart = distance(together, moves(X, y, lr))
        if not apart <= 1e-12:
            return (f"Not yet: with sizes {sizes} and rates {rates}, the small steps "
                    f"end {apart:.1%} away from one step at {lr}.")
    return "Right."
