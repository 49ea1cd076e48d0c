"""Checks that many modules need: what would be silently wrong is refused in one line that names it.

For all else Python's and PyTorch's own words do. What only one module can say about its arguments stands there.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from torch import Tensor


def check_counts(least: int = 1, /, **values: Any) -> None:
    """Raise ValueError unless each of `values`, by name, is a whole number of at least `least`; whether it is whole,
    Python asks where it counts by it."""
    for name, value in values.items():
        if not value >= least:  # NaN is not
            raise ValueError(f"{_words(name)} must be a whole number of at least {least}, got {value}")


def check_labels(X: Tensor, y: Tensor) -> None:
    """Raise ValueError unless y has one label for each example of X, and no further dimension to broadcast."""
    if y.shape != X.shape[:1]:
        raise ValueError(f"X needs one row and y one label per example, got shapes {tuple(X.shape)} and "
                         f"{tuple(y.shape)}")


def check_lr(lr: float) -> None:
    """Raise ValueError unless `lr` is a finite number that is not negative."""
    if not 0 <= lr < math.inf:
        raise ValueError(f"the learning rate must be a finite number of at least 0, got {lr}")


def is_number(value: Any) -> bool:
    """Whether `value` is a number that a float can hold: no truth value, not infinite, and not NaN."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond all floats
        return False


def shown(value: Any) -> str:
    """`value` for a message: in one line that is not too long."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)} and {value.dtype}"
    text = " ".join(repr(value).split())
    return text if len(text) <= 200 else f"{text[:200]} ..."


def _words(name: str) -> str:
    """The name of an argument as it is, but `the_learning_rate` as words."""
    return name.replace("_", " ") if name.startswith(("the_", "a_")) else name
