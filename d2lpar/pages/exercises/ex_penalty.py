"""The check of the exercise `ex-penalty`."""

import torch
from torch import Tensor

from d2lpar.one_step.yardstick import distance


def check(shard_loss):
    """What is not right yet of the answer, in words, or "Right."."""
    for n, lam in ((12, 0.1), (7, 3.0)):
        features = torch.randn(n, 3, dtype=torch.float64)
        w = torch.randn(3, dtype=torch.float64, requires_grad=True)
        losses = (features @ w - 1) ** 2
        before = torch.cat([losses, w]).detach()
        right = losses.sum() + lam / 2 * n * (w ** 2).sum()
        [slope] = torch.autograd.grad(right, w, retain_graph=True)
        for sizes in ([n - 3, 3], [3, n - 3], [1, 2, n - 3], [0, n], [n, 0], [1] * n):
            given = [part.clone() for part in losses.split(sizes)]
            parts = [shard_loss(part, w, lam, n) for part in given]
            if not all(isinstance(p, Tensor) and p.numel() == 1 for p in parts):
                return "Not yet: shard_loss must give a tensor that holds one number."
            if w.grad is not None or not torch.equal(torch.cat([*given, w]), before):
                return "Not yet: shard_loss must leave losses, w and w.grad alone."
            total = sum(p.reshape(()) for p in parts)
            if not (off := distance([total], [right])) < 1e-12:
                return f"Not yet: shards of {sizes} give a sum that is {off:.2g} off."
            [ours] = torch.autograd.grad(total, w, retain_graph=True)
            if not distance([ours], [slope]) < 1e-12:
                return f"Not yet: with shards of {sizes} the gradient is another."
    return "Right."
