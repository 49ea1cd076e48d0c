"""Which learning rate goes with k times the batch size: the linear rule and the warm-up."""

from __future__ import annotations

from d2lpar.base.checks import check_counts, check_lr, check_numbers
from d2lpar.base.door import taught


def check_scaling(lr: float, k: float) -> None:
    """Raise ValueError unless `lr` is a learning rate and `k` says how many times larger the batch is."""
    check_lr(lr)
    check_numbers(1, k=k)


def check_warmup(step: int, lr: float, k: float, warmup: int, num_updates: int) -> None:
    """Raise ValueError unless the update `step` is one of the run, and the warm-up ends within it."""
    check_scaling(lr, k)
    check_counts(0, step=step, warmup=warmup)
    check_counts(num_updates=num_updates)
    if warmup > num_updates:
        raise ValueError(f"a warm-up of {warmup} updates is longer than the run, which has {num_updates}")
    if step >= num_updates:
        raise ValueError(f"the run has updates 0 to {num_updates - 1}, there is no update {step}")


@taught(check_scaling,
        source="Goyal et al., 2017, section 2.1; used before by Krizhevsky, 2014.")
def linear_lr(lr, k):
    """The learning rate for k times the batch size by the linear rule: k times `lr`."""
    return k * lr


@taught(check_warmup,
        source="Goyal et al., 2017, section 2.2, the gradual warm-up.")
def warmup_lr(step, lr, k, warmup, num_updates):
    """The rate of update `step`, 0 to num_updates - 1: from `lr` straight up to k * lr.
    Update `warmup` is the first at the full rate; without a warm-up (0) all are."""
    done = 1 if step >= warmup else step / warmup
    return lr * (1 + (k - 1) * done)
