"""Checkpoints: what is left when a run is killed. Each is a file written by `torch.save`, whole or not there at all.

`step-00000040-9c56cc51b374c3ba.pt` is the state after 40 updates. The digits after the step are the digest of the
state, so equal states have equal names, whichever run wrote them. Only one process may write to a folder at a time.
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
CAN_BE_READ = {Tensor, torch.nn.Parameter, bool, int, float, complex, str, type(None), torch.Size, torch.dtype}


def checkpoints(folder: str | Path) -> list[Path]:
    """The checkpoints in `folder`, oldest first; it does not check whether they are whole."""
    return sorted(Path(folder).glob("step-*.pt"))


def check_finite(state: object) -> None:
    """Raise ValueError if a tensor in `state` holds NaN or infinity, before it replaces a good checkpoint.

    An attention mask in a network's state may hold minus infinity: its finite values are all the same.
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


def check_readable(state: object) -> None:
    """Raise ValueError if `state` holds an object that `newest_checkpoint` refuses, because loading it may run code."""
    for path, x in tree_leaves_with_path(state):
        if type(x) not in CAN_BE_READ:
            raise ValueError(f"state{keystr(path)} is of {type(x)}: nothing was saved, because a checkpoint is read "
                             "back only if it holds nothing but numbers, strings and tensors")


@contextmanager
def no_remains(folder: str | Path) -> Generator[None]:
    """Make the folder; if a file is left unfinished there, as on a full disk, delete it."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        Path(folder, UNFINISHED).unlink(missing_ok=True)


def whole_or_not_there(save: Callable) -> Callable:
    """The same function, but it first refuses NaN and unreadable objects, and it leaves no half-written file."""
    @wraps(save)
    def checked_save(folder: str | Path, step: int, state: object) -> None:
        check_finite(state)
        check_readable(state)
        with no_remains(folder):
            save(folder, step, state)

    return checked_save


def sync_folder(folder: str | Path) -> None:
    """Wait until the disk has the names in `folder`, too; on Windows, a program cannot ask for that."""
    if os.name != "nt":
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def digest_of(state):
    """Sixteen hexadecimal digits, the same for equal states: the start of the SHA-256
    of all values, with their names, types and shapes.

    Two states are equal if they hold the same bits, on whichever devices their tensors are.
    """
    sha = hashlib.sha256()
    leaves = ((keystr(path), x) for path, x in tree_leaves_with_path(state))
    for name, x in sorted(leaves, key=lambda leaf: leaf[0]):
        if isinstance(x, Tensor):
            sha.update(f"{name} {x.dtype} {tuple(x.shape)} ".encode())
            values = x.detach().cpu().contiguous().view(-1)
            sha.update(values.view(torch.uint8).numpy().data)
        else:
            sha.update(f"{name} {x!r} ".encode())
    return sha.hexdigest()[:16]


@whole_or_not_there  # package only
def save_checkpoint(folder, step, state):
    """Write `state` into a file that is whole or not there; keep the last two.

    Raises:
        ValueError: for NaN or infinity, or if it holds anything but numbers, strings and tensors.
        OSError: if the disk is full.
    """
    data = io.BytesIO()
    torch.save(state, data)
    unfinished = Path(folder, UNFINISHED)
    with open(unfinished, "wb") as file:
        file.write(data.getbuffer())
        file.flush()
        os.fsync(file.fileno())  # wait until the disk has it
    os.replace(unfinished, Path(folder, f"step-{step:08}-{digest_of(state)}.pt"))
    sync_folder(folder)  # the new name, too
    for old in checkpoints(folder)[:-2]:
        old.unlink()


def newest_checkpoint(folder):
    """The path and the state of the newest whole checkpoint, or None and None.
    One that is not whole is reported and renamed.

    Tensors are on the CPU. The file may hold only numbers, strings and tensors: no code in it is run.

    Raises:
        OSError: if a file cannot be read. It stays where it is.
    """
    for path in reversed(checkpoints(folder)):
        data = io.BytesIO(path.read_bytes())
        try:
            state = torch.load(data, "cpu", weights_only=True)
            digest = digest_of(state)
        except Exception as error:  # which one depends on the byte that is wrong
            state, digest = None, f"unknown ({type(error).__name__})"
        if path.stem.endswith(digest):
            return path, state
        path.rename(path.with_suffix(".broken"))
        print(f"{path.name} is not whole: its digest is {digest}")
    return None, None
