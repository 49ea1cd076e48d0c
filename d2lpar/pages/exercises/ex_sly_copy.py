"""The check of the exercise `ex-sly-copy`."""

import torch

from d2lpar.models import lenet_params


def check(sly_params):
    """What is not right yet of the answer, in words, or "Right."."""
    params = lenet_params()
    first, second = (sly_params(params, torch.device("cpu")) for _ in range(2))
    if not all(len(r) == 8 and all(map(torch.equal, r, params)) and all(p.requires_grad and p.is_leaf for p in r)
               for r in (first, second)):
        return "Not yet: return eight leaf tensors that have the values of params and require gradients."
    if first[1].data_ptr() == second[1].data_ptr():
        return "Not yet: the two b1 share memory, and the picture shows it."
    if own := [i for i in (0, 2, 3, 4, 5, 6, 7) if first[i].data_ptr() != second[i].data_ptr()]:
        return f"Not yet: tensors {own} are real copies, and share no memory."
    return "Right."
