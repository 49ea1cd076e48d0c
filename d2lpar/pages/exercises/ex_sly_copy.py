"""The check of the exercise `ex-sly-copy`."""

import torch

from d2lpar.models import lenet_params


def check(sly_params):
    """What is not right yet of the answer, in words, or "Right."."""
    params = lenet_params()
    first, second = (sly_params(params, torch.device("cpu")) for _ in range(2))
    if not all(len(r) == 8 and all(map(torch.equal, r, params)) and all(p.requires_grad and p.is_leaf for p in r)
               for r in (first, second)):
        return "Not yet: it needs eight tensors, of the values of params, that require a gradient and are leaves."
    if first[1].data_ptr() == second[1].data_ptr():
        return "Not yet: both b1 lie in one place, and the picture shows it."
    if own := [i for i in (0, 2, 3, 4, 5, 6, 7) if first[i].data_ptr() != second[i].data_ptr()]:
        return f"Not yet: tensors {own} are real copies, in places of their own."
    return "Right."
