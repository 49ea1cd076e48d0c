"""The check of the exercise `ex-six-cuts`."""

import torch

from d2lpar.models import lenet_params
from d2lpar.scratch import distance, one_worker


def check(wrong_step):
    """What is not right yet of the answer, in words, or "Right."."""
    def off(sizes, lr=0.2, seed=0):
        X, y = torch.rand(sum(sizes), 1, 28, 28, dtype=torch.float64) - 0.5, torch.arange(sum(sizes)) % 10
        params = [p.double().requires_grad_() for p in lenet_params(seed=seed)]
        return distance(wrong_step(X, y, params, lr, sizes), one_worker(X, y, params, lr))

    for sizes in ([12, 12], [8, 8, 8], [23, 1], [1, 2, 3, 18], [24, 0], [1] * 24):
        if not (far := off(sizes)) < 1e-12:
            return f"Not yet: for shards of {sizes} the step is off by {far:.2g}, so this page would notice."
    if max(off([4, 3]), off([30, 18]), off([12, 12], 0.01), off([0, 24]), off([12, 12], seed=1), off([1] * 30)) < 1e-12:
        return "Not yet: this step is right for everything that we tried."
    return "Right."
