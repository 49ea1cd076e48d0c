"""Rounded up to a whole batch, at which the two differ."""

from math import ceil


def crossing(outputs_at_cut, num_params):
    return ceil(num_params / outputs_at_cut)
