"""The check of the exercise `ex-count-words`."""

from functools import partial

import torch
from torch.nn import functional as F

from d2lpar import diagnose
from d2lpar.diagnosis.running import group_of_one
from d2lpar.pages.ddp_examples import Tagger, examples, train_ddp


def both_losses(words_loss):
    """On a single device, as it is and as it was."""
    X, y = examples(Tagger)
    scores = Tagger()(X)
    return words_loss(scores, y).item(), F.cross_entropy(scores, y).item()


def check(words_loss):
    """What is not right yet of the answer, in words, or "Right."."""
    with group_of_one(), torch.random.fork_rng(devices=[]):
        alone, right = both_losses(words_loss)
    if not abs(alone - right) < 1e-5:
        return f"Not yet: the loss on a single device is {alone:.4g}, and was {right:.4g}."
    found = diagnose(partial(train_ddp, loss=words_loss), Tagger, *examples(Tagger), 3)
    # a count in float32 is good enough
    said = [name for name in found.faults | found.notes if name != "reduced precision"]
    return f"Not yet: on three ranks diagnose says {said[0]}." if said else "Right."
