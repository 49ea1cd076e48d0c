"""The check of the exercise `ex-lazy-rows`."""

import torch

from d2lpar.scratch import distance


def check(reduce_on_grid):
    """What is still wrong with the answer, in words, or "Right."."""
    g = torch.Generator().manual_seed(0)
    for n in (2, 6):
        two, four = (torch.randn(k, n, generator=g).double() for k in (2, 4))
        halves = [[torch.cat(kept[i:i + 2]) for i in (0, 2)] for kept in (
            reduce_on_grid([x.clone() for x in grads]) for grads in (two.repeat(2, 1), four))]
        seen = max(distance([half], [two.mean(0)]) for half in halves[0])
        hidden = max(distance([half], [four.mean(0)]) for half in halves[1])
        if not seen <= 1e-12:
            return f"Not yet: with two gradients, a rank is {seen:.1g} away from the mean, and the test notices."
        if not hidden > 0.01:
            return "Not yet: with four different gradients, the result is right to within 1%."
    return "Right."
