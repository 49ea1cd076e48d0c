"""The check of the exercise `ex-updates`."""

import random

import torch


def check(epochs_for_same_updates):
    """What is not right yet of the answer, in words, or "Right."."""
    draw = random.Random(0).randint
    drawn = [(draw(1, 999), draw(1, 40), draw(1, 9), draw(1, 20)) for _ in range(20)]
    chosen = [(3584, 256, 2, 5), (100, 8, 3, 5), (9, 16, 4, 2), (10, 4, 2, 3)]
    for case in chosen + drawn:
        num_examples, b, k, num_epochs = case
        answer = epochs_for_same_updates(*case)
        if answer is None:
            return "Not yet: epochs_for_same_updates returns nothing."
        if type(answer) is not int:
            return f"Not yet: epochs are a whole number, an int; you give {answer!r}."
        before = num_epochs * len(torch.empty(num_examples).split(b))
        per_epoch = len(torch.empty(num_examples).split(k * b))
        right = next(e for e in range(1, 10_000) if e * per_epoch >= before)
        if answer != right:
            return (f"Not yet: {num_examples} examples, b = {b}, k = {k}, {num_epochs} "
                    f"epochs are {before} updates; {answer} epochs of {per_epoch} are "
                    f"{answer * per_epoch}, and {right} epochs would do.")
    return "Right."
