def nothing_when_there_is_no_warmup(step, lr, k, warmup, num_updates):
    """It divides by a warm-up of 0."""
    return lr * (1 + (k - 1) * min(step / warmup, 1))


def one_update_late(step, lr, k, warmup, num_updates):
    """Update `warmup` is the last before the full rate."""
    done = 1 if step > warmup else step / (warmup + 1)
    return lr * (1 + (k - 1) * done)


def from_zero(step, lr, k, warmup, num_updates):
    """It rises from 0 instead of from `lr`."""
    return k * lr * (1 if step >= warmup else step / warmup)


def it_goes_on_rising(step, lr, k, warmup, num_updates):
    """The rate is not kept after the warm-up."""
    return lr * (1 + (k - 1) * (step / warmup if warmup else 1))


def over_the_whole_run(step, lr, k, warmup, num_updates):
    """It rises until the end of the run."""
    return lr * (1 + (k - 1) * step / (num_updates - 1))
