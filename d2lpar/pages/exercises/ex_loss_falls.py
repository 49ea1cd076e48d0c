"""The check of the exercise `ex-loss-falls`."""

import torch


def check(step):
    """What is still wrong with the answer, in words, or "Right."."""
    generator = torch.Generator().manual_seed(0)
    for k in (2, 3):
        A = torch.randn(12 * k, 2 * k, generator=generator, dtype=torch.float64)
        b = A @ torch.randn(2 * k, generator=generator, dtype=torch.float64)
        params = [torch.zeros(2 * k, dtype=torch.float64) for _ in range(k)]

        def gradient(A, b, x):
            return 2 * A.T @ (A @ x - b) / len(b)

        def loss(x):
            return (A @ x - b).square().mean().item()

        wrong = False
        for i in range(10):
            before = params[0].clone()
            grads = [gradient(A[r::k], b[r::k], p) for r, p in enumerate(params)]
            right = sum(grads) / k
            step(params, [g.clone() for g in grads], 0.05)
            if any(not torch.equal(p, params[0]) for p in params):
                return f"Not yet: {k} ranks: after step {i + 1} their parameters differ, and the test notices."
            if not loss(params[0]) < loss(before):
                return f"Not yet: {k} ranks: the loss does not fall in step {i + 1}, and the test notices."
            taken = (before - params[0]) / 0.05
            along = (taken @ right) / (right @ right) * right
            wrong = wrong or bool((taken - along).norm() > 0.01 * right.norm())
        if not wrong:
            return f"Not yet: {k} ranks: every step follows the mean gradient or a multiple of it."
    return "Right."
