"""The check of the exercise `ex-rest-of-epoch`."""

import torch


def check(rest_of_epoch):
    """What is not right yet of the answer, in words, or "Right."."""
    firsts = set()
    for n, batch_size in (10, 3), (64, 16), (7, 7), (1000, 64):
        per_epoch = -(-n // batch_size)
        for seed in range(3):
            for epoch in range(3):
                case = f"Not yet: {n} examples by {batch_size}, seed {seed}, epoch {epoch}:"
                before = torch.get_rng_state()
                whole = rest_of_epoch(epoch * per_epoch, n, batch_size, seed)
                if not torch.equal(torch.get_rng_state(), before):
                    return f"{case} the random numbers of others are disturbed."
                if not isinstance(whole, list) or not all(isinstance(one, list) for one in whole):
                    return f"{case} give a list of lists, not {whole!r:.60}."
                sizes = [batch_size] * (n // batch_size) + [n % batch_size] * (n % batch_size > 0)
                if [len(one) for one in whole] != sizes:
                    return f"{case} its minibatches have {[len(one) for one in whole][:9]} examples."
                if sorted(i for one in whole for i in one) != list(range(n)):
                    return f"{case} not each example comes once."
                for done in range(per_epoch - 1, -1, -1):
                    if rest_of_epoch(epoch * per_epoch + done, n, batch_size, seed) != whole[done:]:
                        return f"{case} after {done} of its updates, it is not the rest of the whole."
                if n == 1000:
                    firsts.add(tuple(whole[0]))
    if len(firsts) < 9:
        return f"Not yet: of 3 epochs of 3 seeds only {len(firsts)} orders differ."
    return "Right."
