"""The check of the exercise `ex-rest-of-epoch`."""

import random

import numpy as np
import torch

EPOCHS = 6


def check(rest_of_epoch):
    """What is not right yet of the answer, in words, or "Right."."""
    before = _random_states()
    orders = set()
    for n, batch_size in (10, 3), (64, 16), (7, 7), (1000, 64):
        per_epoch = -(-n // batch_size)
        sizes = [min(batch_size, n - start) for start in range(0, n, batch_size)]
        for seed in range(3):
            for epoch in range(EPOCHS):
                case = f"Not yet: {n} examples by {batch_size}, seed {seed}, epoch {epoch}:"
                whole = rest_of_epoch(epoch * per_epoch, n, batch_size, seed)
                if not isinstance(whole, list) or not all(isinstance(one, list) for one in whole):
                    return f"{case} return a list of lists, not {whole!r:.60}."
                order = [i for one in whole for i in one]
                if any(type(i) is not int for i in order):
                    return f"{case} the indices must be Python ints."
                if [len(one) for one in whole] != sizes:
                    return f"{case} its minibatches have {[len(one) for one in whole][:9]} examples."
                if sorted(order) != list(range(n)):
                    return f"{case} not every example comes exactly once."
                for done in range(per_epoch - 1, -1, -1):
                    if rest_of_epoch(epoch * per_epoch + done, n, batch_size, seed) != whole[done:]:
                        return f"{case} after {done} of its updates, the result is not the rest of the epoch."
                if n == 1000:
                    orders.add(tuple(order))
                    if sum((b - a) % n == 1 for a, b in zip(order, order[1:])) > 20:
                        return f"{case} it is not shuffled."
    if len(orders) < 3 * EPOCHS:
        return f"Not yet: {EPOCHS} epochs of 3 seeds have only {len(orders)} different orders."
    if _random_states() != before:
        return "Not yet: a global random number generator was changed."
    return "Right."


def _random_states():
    return random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist()
