"""The check of the exercise `ex-clip`."""

from functools import partial

import torch

from d2lpar.devices import all_gather_here, run_on_devices
from d2lpar.scratch import distance


def check(average_and_clip):
    """What is not right yet of the answer, in words, or "Right."."""
    def on_rank(grads, max_norm, k):
        calls = []

        def all_reduce(x):
            calls.append(x.numel())
            x.copy_(sum(y.clone() for y in all_gather_here(x.clone())))

        average_and_clip(grads, max_norm, k, all_reduce)
        return calls

    # the bound in norms of the mean; where nothing is clipped, a wrong divisor shows; rank 0's own may be zeros
    for k, size, bound, first in [(2, 1, 0.1, 1), (2, 1, 1 / 0.7, 1), (3, 10, 0.1, 1), (3, 1, 2, 1),
                                  (2, 1e-3, 1e3, 1), (1, 1, 0.3, 1), (3, 1, 0.5, 0), (2, 0, 1, 1)]:
        g = torch.Generator().manual_seed(k)
        ranks = [[(r + first) ** 2 * size * torch.randn(2, n, generator=g).double()
                  for n in (3, 1, 5)] for r in range(k)]
        for grads in ranks:
            grads[0] = grads[0].t()  # such as that of a transposed weight: not in rows
        mean = [sum(same) / k for same in zip(*ranks)]
        norm = torch.cat([x.flatten() for x in mean]).norm().item()
        max_norm = bound * norm or 1.0
        right = [x * min(1, bound) for x in mean]
        as_torch = [x * min(1, max_norm / (norm + 1e-6)) for x in mean]
        calls = run_on_devices(partial(on_rank, max_norm=max_norm, k=k),
                               [list(grads) for grads in ranks])
        case = f"{k} rank(s), a mean of norm {norm:.3g}, bound {max_norm:.3g}"
        for rank, grads in enumerate(ranks):
            far = distance(grads, right)
            if far > 1e-12 >= distance(grads, as_torch):
                return f"Not yet: {case}:\n  clip_grad_norm_ adds 1e-6 to the norm."
            if far > 1e-12:
                return (f"Not yet: {case}:\n  the tensors that rank {rank} gave are "
                        f"{far:.1g} away from a single device's.")
        if k > 1 and (odd := [len(each) for each in calls if len(each) != 1]):
            return f"Not yet: right, with {odd[0]} calls of all_reduce instead of one."
    return "Right."
