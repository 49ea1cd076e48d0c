from math import cos, pi

from d2lpar.larger_batches import warmup_lr


def a_straight_line_down(step, lr, k, warmup, num_updates):
    """A straight line down to 0, not a wave."""
    if step < warmup:
        return warmup_lr(step, lr, k, warmup, num_updates)
    return k * lr * (num_updates - step) / (num_updates - warmup)


def down_to_the_old_rate(step, lr, k, warmup, num_updates):
    """Down to the rate of one device, not to 0."""
    if step < warmup:
        return warmup_lr(step, lr, k, warmup, num_updates)
    wave = (1 + cos(pi * (step - warmup) / (num_updates - warmup))) / 2
    return lr * (1 + (k - 1) * wave)


def jumps_after_the_warmup(step, lr, k, warmup, num_updates):
    """The wave has begun with update 0, so the rate jumps at the end of the warm-up."""
    if step < warmup:
        return warmup_lr(step, lr, k, warmup, num_updates)
    return k * lr * (1 + cos(pi * step / num_updates)) / 2


def never_below_a_thousandth(step, lr, k, warmup, num_updates):
    """The rate stops at a thousandth, where a long run goes lower."""
    if step < warmup:
        return warmup_lr(step, lr, k, warmup, num_updates)
    done = (step - warmup) / (num_updates - warmup)
    return max(k * lr * (1 + cos(pi * done)) / 2, lr / 1000)


def no_warmup(step, lr, k, warmup, num_updates):
    """The cosine alone, from the first update on."""
    return k * lr * (1 + cos(pi * step / num_updates)) / 2


def reaches_zero_at_the_last_update(step, lr, k, warmup, num_updates):
    """The last update has rate 0: it is lost. (And a run of one update after the warm-up divides by zero.)"""
    if step < warmup:
        return warmup_lr(step, lr, k, warmup, num_updates)
    return k * lr * (1 + cos(pi * (step - warmup) / max(1, num_updates - 1 - warmup))) / 2


def starts_at_zero(step, lr, k, warmup, num_updates):
    """A warm-up from 0, not from the rate of one device."""
    if step < warmup:
        return k * lr * step / warmup
    return k * lr * (1 + cos(pi * (step - warmup) / (num_updates - warmup))) / 2


def stays_at_the_top(step, lr, k, warmup, num_updates):
    """Up, and not down again."""
    return warmup_lr(step, lr, k, warmup, num_updates)


def whole_k_only(step, lr, k, warmup, num_updates):
    """k is rounded down: right where it is a whole number."""
    k = int(k)
    if step < warmup:
        return warmup_lr(step, lr, k, warmup, num_updates)
    done = (step - warmup) / (num_updates - warmup)
    return k * lr * (1 + cos(pi * done)) / 2
