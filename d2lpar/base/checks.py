"""Checks that many modules need: what would be silently wrong is refused in one line that names it.

For all else Python's and PyTorch's own words do. What only one module can say about its arguments stands there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


def check_counts(least: int = 1, /, **values: Any) -> None:
    """Raise ValueError unless each of `values`, by name, is a whole number of at least `least`."""
    for name, value in values.items():
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
            raise ValueError(f"{_words(name)} must be a whole number of at least {least}, got {shown(value)}")


def check_seeds(**values: Any) -> None:
    """Raise ValueError unless each of `values` can seed a generator."""
    for name, value in values.items():
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**64:
            raise ValueError(f"{_words(name)} must be a whole number from 0 to 2**64 - 1, got {shown(value)}")


def check_numbers(least: float = 0, /, **values: Any) -> None:
    """Raise ValueError unless each of `values` is a finite number of at least `least`."""
    for name, value in values.items():
        if not is_number(value) or not value >= least:
            bound = f" of at least {least}" * (least > -math.inf)
            raise ValueError(f"{_words(name)} must be a finite number{bound}, got {shown(value)}")


def check_functions(**values: Any) -> None:
    """Raise ValueError unless each of `values` can be called."""
    for name, value in values.items():
        if not callable(value):
            raise ValueError(f"{_words(name)} must be a function, got {shown(value)}")


def check_truth_values(**values: Any) -> None:
    """Raise ValueError unless each of `values` is True or False."""
    for name, value in values.items():
        if not isinstance(value, bool):
            raise ValueError(f"{name} must be True or False, got {shown(value)}")


def check_list(name: str, things: Any) -> None:
    """Raise ValueError unless `things` is a list, or what can be indexed and has a length as lists have."""
    try:
        if len(things) >= 0 and hasattr(things, "__getitem__") and not isinstance(things, Mapping | str | bytes):
            return
    except TypeError:  # no length: a number, say, or a generator, which can be gone through only once
        pass
    raise ValueError(f"{name} must be a list, got {shown(things)}")


def check_tensors(name: str, tensors: Any) -> None:
    """Raise ValueError unless `tensors` is a list of tensors; it may be empty."""
    check_list(name, tensors)
    for i, x in enumerate(tensors):
        if not isinstance(x, Tensor):
            raise ValueError(f"{name} must be a list of tensors, but entry {i} is {shown(x)}")


def check_device(device: Any) -> None:
    """Raise ValueError unless `device` is a `torch.device`."""
    if not isinstance(device, torch.device):
        raise ValueError(f"a device is what try_devices gives, or torch.device('cpu'), got {shown(device)}")


def check_devices(devices: Any) -> None:
    """Raise ValueError unless `devices` is a list of `torch.device`."""
    if not isinstance(devices, list | tuple):
        raise ValueError(f"devices must be a list, as try_devices gives it, got {shown(devices)}")
    for device in devices:
        check_device(device)


def check_module(module: Any) -> None:
    """Raise ValueError unless `module` is a module of PyTorch."""
    if not isinstance(module, nn.Module):
        raise ValueError(f"a network must be a torch.nn.Module, got {shown(module)}")


def check_labels(X: Tensor, y: Tensor) -> None:
    """Raise ValueError unless y has one label for each example of X, and no further dimension to broadcast."""
    if y.shape != X.shape[:1]:
        raise ValueError(f"X needs one row and y one label per example, got shapes {tuple(X.shape)} and "
                         f"{tuple(y.shape)}")


def check_lr(lr: Any) -> None:
    """Raise ValueError unless `lr` is a finite number that is not negative."""
    check_numbers(the_learning_rate=lr)


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
