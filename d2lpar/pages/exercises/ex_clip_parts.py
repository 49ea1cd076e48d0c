"""The check of the exercise `ex-clip-parts`."""

from functools import partial

import torch

from d2lpar.devices import all_gather_here, run_on_devices
from d2lpar.scratch import distance


def check(clip_parts):
    """What is not right yet of the answer, in words, or "Right."."""
    def on_rank(parts, max_norm):
        calls = []

        def all_reduce(x):
            calls.append(x.numel())
            x.copy_(sum(y.clone() for y in all_gather_here(x.clone())))

        clip_parts(parts, max_norm, all_reduce)
        return calls

    # the bound in norms of the gradient; a part of three rows, cut for two or four ranks, leaves one rank with less
    for k, size, bound in [(2, 1, 0.1), (2, 10, 0.9), (3, 1, 0.5), (4, 1, 0.2), (2, 1, 1.5), (1, 1, 0.3), (2, 0, 1)]:
        g = torch.Generator().manual_seed(k)
        whole = [size * torch.randn(rows, 2, generator=g).double() for rows in (5, 3, 1)]
        whole[0][-1] *= 10  # most of the norm is on the last rank
        norm = torch.cat([x.flatten() for x in whole]).norm().item()
        max_norm = bound * norm or 1.0
        cut = [[x.clone() for x in x.tensor_split(k)] for x in whole]
        parts = [list(of_rank) for of_rank in zip(*cut)]
        calls = run_on_devices(partial(on_rank, max_norm=max_norm), [list(of_rank) for of_rank in parts])
        found = [torch.cat(same) for same in zip(*parts)]
        far = distance(found, [x * min(1, bound) for x in whole])
        case = f"{k} rank(s), a gradient of norm {norm:.3g}, bound {max_norm:.3g}"
        if far > 1e-12 and distance(found, [x * min(1, max_norm / (norm + 1e-6)) for x in whole]) <= 1e-12:
            return f"Not yet: {case}:\n  clip_grad_norm_ adds 1e-6 to the norm."
        if not far <= 1e-12:
            return f"Not yet: {case}:\n  all parts together are {far:.1g} away from a single device's gradient."
        if k > 1 and (odd := [each for each in calls if each != [1]]):
            return f"Not yet: right, but all_reduce was called for {odd[0]} values instead of once for one."
    return "Right."
