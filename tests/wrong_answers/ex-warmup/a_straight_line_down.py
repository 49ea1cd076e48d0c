"""A straight line down to 0, not a wave."""

from d2lpar.larger_batches.schedules import warmup_lr


def lr_at(step, lr, k, warmup, num_updates):
    if step < warmup:
        return warmup_lr(step, lr, k, warmup, num_updates)
    return k * lr * (num_updates - step) / (num_updates - warmup)
