"""Checkpoints: what is left of a training that is killed. Each is a file of `torch.save`, whole or not there at all.

`step-00000040-9c56cc51b374c3ba.pt` is the state after 40 updates; behind the step stands the start of the SHA-256 of
the file's bytes, as in the names of PyTorch's own weights. One process writes into a folder at a time.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path

import torch
from torch import Tensor
from torch.utils._pytree import keystr, tree_leaves_with_path

UNFINISHED = "unfinished"


def checkpoints(folder: str | Path) -> list[Path]:
    """The checkpoints in `folder`, the oldest first; whether they are whole is not looked at."""
    return sorted(Path(folder).glob("step-*.pt"))


def check_finite(state: object) -> None:
    """Raise ValueError if a tensor in `state` holds NaN or infinity, which would take the place of what is right.

    A mask of attention in a network's state may hold minus infinity: its finite values are all the same.
    """
    for path, x in tree_leaves_with_path(state):
        if not isinstance(x, Tensor) or not x.is_floating_point() or x.isfinite().all():
            continue
        name, rest = f"state{keystr(path)}", x[x != -torch.inf]
        is_mask = bool(rest.isfinite().all() and (rest == rest[:1]).all()) and "optim" not in name.lower()
        if not is_mask:
            what = "NaN" if x.isnan().any() else "infinity"
            raise ValueError(f"{name}, of shape {tuple(x.shape)}, holds {what}: nothing was saved, and the previous "
                             "checkpoint stays. If it is a buffer that the network computes itself, register it with "
                             "persistent=False")


@contextmanager
def no_remains(folder: str | Path) -> Generator[None]:
    """Make the folder; if what is written there does not become whole, as on a full disk, take it away."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        Path(folder, UNFINISHED).unlink(missing_ok=True)


def whole_or_not_there(save: Callable) -> Callable:
    """The same function, which refuses NaN first; of a file that does not become whole, nothing is left."""
    @wraps(save)
    def checked_save(folder: str | Path, step: int, state: object) -> None:
        check_finite(state)
        with no_remains(folder):
            save(folder, step, state)

    return checked_save


@whole_or_not_there  # package only
def save_checkpoint(folder, step, state):
    """Write `state` into a file that is whole or not there; keep the last two.

    Raises:
        ValueError: for NaN or infinity. OSError: if the disk is full.
    """
    file = io.BytesIO()
    torch.save(state, file)
    data = file.getvalue()
    unfinished = Path(folder, UNFINISHED)
    with open(unfinished, "wb") as disk:
        disk.write(data)
        disk.flush()
        os.fsync(disk.fileno())  # on the disk, not only on its way
    digest = hashlib.sha256(data).hexdigest()[:16]
    os.replace(unfinished, Path(folder, f"step-{step:08}-{digest}.pt"))
    for old in checkpoints(folder)[:-2]:
        old.unlink()


def newest_checkpoint(folder):
    """The path and the state of the newest whole checkpoint, or None and None.
    One that is not whole is named, and put aside.

    On the CPU, of numbers, strings and tensors only: no code of the file is run.
    """
    for path in reversed(checkpoints(folder)):
        data = path.read_bytes()
        digest = hashlib.sha256(data).hexdigest()[:16]
        if path.stem.endswith(digest):
            return path, torch.load(io.BytesIO(data), "cpu", weights_only=True)
        path.rename(path.with_suffix(".broken"))
        print(f"{path.name} is not whole: its digest is {digest}")
    return None, None
