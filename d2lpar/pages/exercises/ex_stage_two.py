"""The check of the exercise `ex-stage-two`."""

import torch
from torch import nn


class Micro:
    """The loss of one micro-batch. When its backward pass begins, it counts the whole gradients that exist."""

    def __init__(self, params, seed, held):
        self.params, self.seed, self.held = params, seed, held

    def backward(self):
        self.held.append(sum(p.grad is not None for p in self.params))
        generator = torch.Generator().manual_seed(self.seed)
        sum((torch.randn(p.shape, generator=generator) * p).sum() for p in self.params).backward()


def check(reduce_gradients):
    """What is still wrong with the answer, in words, or "Right."."""
    for num_micro in (1, 2, 5):
        params, calls, held = [nn.Parameter(torch.zeros(n)) for n in (4, 6, 2)], [], []
        parts = [nn.Parameter(p.detach()[:p.numel() // 2].clone()) for p in params]

        def reduce(p, part):
            calls.append(p)
            if p.grad is None:
                raise ValueError("reduce was called for a parameter that has no gradient")
            mine = p.grad[:p.numel() // 2].clone()
            part.grad = mine if part.grad is None else part.grad + mine
            p.grad = None

        reduce_gradients([Micro(params, seed, held) for seed in range(num_micro)], params, parts, reduce)
        case = f"Not yet: {num_micro} micro-batches:"
        if len(held) != num_micro:
            return f"{case} there should be one backward pass for each, but there were {len(held)}."
        if any(held):
            return f"{case} when a backward pass begins, {max(held)} whole gradients still exist."
        if any(p.grad is not None for p in params):
            return f"{case} at the end a whole gradient still exists."
        if len(calls) != num_micro * len(params):
            return f"{case} reduce was called {len(calls)} times, not {num_micro * len(params)}."
        alone = [nn.Parameter(torch.zeros_like(p)) for p in params]
        for seed in range(num_micro):
            Micro(alone, seed, []).backward()
        for i, (p, part) in enumerate(zip(alone, parts)):
            if part.grad is None or not torch.allclose(part.grad, p.grad[:p.numel() // 2]):
                return f"{case} part {i} does not have the gradient of all micro-batches."
    return "Right."
