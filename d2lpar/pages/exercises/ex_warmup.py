"""The check of the exercise `ex-warmup`."""

from math import cos, pi


def check(lr_at):
    """What is not right yet of the answer, in words, or "Right."."""
    cases = [(0.1, 4, 2, 6), (0.2, 1, 0, 5), (0.05, 8, 5, 5), (0.1, 3, 0, 7),
             (0.3, 2, 1, 4), (0.02, 16, 10, 40), (0.1, 1.5, 100, 2000)]
    for lr, k, warmup, num_updates in cases:
        for step in range(num_updates):
            answer = lr_at(step, lr, k, warmup, num_updates)
            if answer is None:
                return "Not yet: lr_at returns nothing."
            if step < warmup:
                right = lr + (k - 1) * lr * step / warmup
            else:
                p = (step - warmup) / (num_updates - warmup)
                right = k * lr * (1 + cos(pi * p)) / 2
            is_text = isinstance(answer, str | bytes)
            if is_text or not abs(float(answer) - right) < 1e-6 * right + 1e-12:
                return (f"Not yet: lr={lr}, k={k}, warmup={warmup}, "
                        f"num_updates={num_updates}: update {step} has rate "
                        f"{right:.4g}, not {answer!r}.")
    return "Right."
