"""Which learning rate goes with k times the batch size: the linear rule and the warm-up."""

from __future__ import annotations


def check_warmup(step: int, warmup: int, num_updates: int) -> None:
    """Raise ValueError unless the update `step` is one of the run, and the warm-up ends within it."""
    if not 0 <= warmup <= num_updates:
        raise ValueError(f"a warm-up of {warmup} updates is longer than the run, which has {num_updates}")
    if not 0 <= step < num_updates:
        raise ValueError(f"the run has updates 0 to {num_updates - 1}, there is no update {step}")


def linear_lr(lr, k):
    """The learning rate for k times the batch size by the linear rule: k times `lr`.

    Source: Goyal et al., 2017, section 2.1; used before by Krizhevsky, 2014.
    """
    return k * lr


def warmup_lr(step, lr, k, warmup, num_updates):
    """The rate of update `step`, 0 to num_updates - 1: from `lr` straight up to k * lr.
    Update `warmup` is the first at the full rate; without a warm-up (0) all are.

    Source: Goyal et al., 2017, section 2.2, the gradual warm-up.
    """
    check_warmup(step, warmup, num_updates)  # package only
    done = 1 if step >= warmup else step / warmup
    return lr * (1 + (k - 1) * done)
