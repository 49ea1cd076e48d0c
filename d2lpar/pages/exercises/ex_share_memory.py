"""The check of the exercise `ex-share-memory`."""

import torch

from d2lpar.models import lenet_params
from d2lpar.scratch import get_params


def check(share_memory):
    """What is not right yet of the answer, in words, or "Right."."""
    cpu = torch.device("cpu")
    if share_memory([get_params(lenet_params(), cpu) for _ in range(3)]) is not False:
        return "Not yet: three real replicas share nothing, so the answer should be False."
    for a, b, i in ((0, 1, 1), (0, 1, 0), (0, 1, 7), (1, 2, 4), (0, 2, 2)):
        replicas = [get_params(lenet_params(), cpu) for _ in range(3)]
        replicas[b][i] = replicas[a][i].detach()  # a different object at the same address
        if share_memory(replicas) is not True:
            return f"Not yet: of three replicas, {a} and {b} share tensor {i}, and your check misses it."
    return "Right."
