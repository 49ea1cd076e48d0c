"""The check of the exercise `ex-means`."""

from math import inf

import torch

from d2lpar.scratch import distance


def check(combine):
    """What is not right yet of the answer, in words, or "Right."."""
    numbers = torch.Generator().manual_seed(0)
    for sizes in ([6, 6], [9, 3], [0, 5, 0, 8], [3, 1, 4, 1, 5, 9]):
        gradients = torch.randn(sum(sizes), 2, 3, dtype=torch.float64, generator=numbers)
        means = [shard.mean(0) for shard in gradients.split(sizes)]
        off = distance([torch.as_tensor(combine(means, sizes))], [gradients.mean(0)])
        if not off < 1e-12:
            shards = f"{', '.join(map(str, sizes[:-1]))} and {sizes[-1]}"
            far = f"{off:.0%}" if 0.01 < off < 1e3 else f"a relative {off:.1g}"
            return f"Not yet: for shards of {shards} your result is " + (f"off by {far}." if off < inf else "NaN.")
    return "Right."
