"""Checkpoints: what is left when a run is killed. Each is a file written by `torch.save`, whole or not there at all.

`step-00000040-9c56cc51b374c3ba.pt` is the state after 40 updates. The digits after the step are the digest of the
state, so equal states have equal names, whichever run wrote them. Only one process may write to a folder at a time.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path

import torch
from torch import Tensor
from torch.utils._pytree import keystr, tree_leaves_with_path

from d2lpar.checks import check_counts

NAME = re.compile(r"step-([0-9]{8,})-[0-9a-f]{16}\.pt")
UNFINISHED = "unfinished"
CAN_BE_READ = {Tensor, torch.nn.Parameter, bool, int, float, complex, str, type(None), torch.Size, torch.dtype}


def step_of(path: Path) -> int | None:
    """The number of updates in a checkpoint's name; None if this is not the name of a checkpoint."""
    name = NAME.fullmatch(path.name)
    return int(name[1]) if name else None


def checkpoints(folder: str | Path) -> list[Path]:
    """The checkpoints in `folder`, oldest first: by step, as a number. It does not check whether they are whole."""
    found = [(step, path) for path in Path(folder).glob("step-*.pt") if (step := step_of(path)) is not None]
    return [path for _, path in sorted(found)]


def superseded(newest: Path) -> list[Path]:
    """The checkpoints that `newest` makes superfluous: all earlier ones but the last, and others of the same step."""
    step = step_of(newest) or 0
    others = [(step_of(path) or 0, path) for path in checkpoints(newest.parent) if path != newest]
    earlier = [path for its, path in others if its < step]
    return earlier[:-1] + [path for its, path in others if its == step]


def check_is_newest(folder: str | Path, step: int) -> None:
    """Raise ValueError if `folder` holds a checkpoint of a later step, which `newest_checkpoint` would go on giving."""
    check_counts(0, step=step)
    last = checkpoints(folder)[-1:]
    if last and (step_of(last[0]) or 0) > step:
        raise ValueError(f"{last[0].name} in {folder} is of a later step than {step}: nothing was saved, because that "
                         "file would still be the newest checkpoint. Choose a different folder, or move the later "
                         "checkpoints away")


def check_finite(state: object) -> None:
    """Raise ValueError if `state` holds NaN, or a tensor in it infinity, before it replaces a good checkpoint.

    An attention mask in a network's state may hold minus infinity: its finite values are all the same. Infinity in a
    Python float stays: a scheduler has it as the best loss until there is one.
    """
    for path, x in tree_leaves_with_path(state):
        name = f"state{keystr(path)}"
        if isinstance(x, float | complex) and x != x:
            raise ValueError(f"{name} is {x}: nothing was saved, and the previous checkpoint stays")
        if not isinstance(x, Tensor) or not (x.is_floating_point() or x.is_complex()) or x.isfinite().all():
            continue
        rest = torch.view_as_real(x) if x.is_complex() else x.double()  # the numbers of eight bits cannot be compared
        rest = rest[rest != -torch.inf]
        is_mask = bool(rest.isfinite().all() and (rest == rest[:1]).all()) and "optim" not in name.lower()
        if not is_mask:
            what = "NaN" if x.isnan().any() else "infinity"
            raise ValueError(f"{name}, of shape {tuple(x.shape)}, holds {what}: nothing was saved, and the previous "
                             "checkpoint stays. If it is a buffer that the network computes itself, register it with "
                             "persistent=False")


def check_readable(state: object) -> None:
    """Raise ValueError if `state` holds what cannot be saved, or an object that `newest_checkpoint` refuses, because
    loading it may run code."""
    for path, x in tree_leaves_with_path(state):
        if type(x) not in CAN_BE_READ:
            raise ValueError(f"state{keystr(path)} is of {type(x)}: nothing was saved, because a checkpoint is read "
                             "back only if it holds nothing but numbers, strings and tensors")
        if isinstance(x, Tensor) and (kind := unusual_kind(x)):
            raise ValueError(f"state{keystr(path)} is {kind}: nothing was saved, because a checkpoint can hold only "
                             "tensors that have a value of their own for each element")


def unusual_kind(x: Tensor) -> str:
    """What is unusual about how `x` stores its values, with what to save instead; "" if they are simply there."""
    kinds = {
        "a nested tensor (save its parts, x.unbind())": x.is_nested,
        "a tensor without values, on the device meta": x.is_meta,
        "a quantized tensor (save x.int_repr(), its scale and its zero point)": x.is_quantized,
        f"a sparse tensor, with the layout {x.layout} (save x.to_dense())": x.layout != torch.strided,
        "a view that is conjugated or negated only when it is read (save x.resolve_conj().resolve_neg())":
            x.is_conj() or x.is_neg(),
    }
    return next((words for words, is_it in kinds.items() if is_it), "")


@contextmanager
def no_remains(folder: str | Path) -> Generator[None]:
    """Make the folder; if a file is left unfinished there, as on a full disk, delete it."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        Path(folder, UNFINISHED).unlink(missing_ok=True)


def whole_or_not_there(save: Callable) -> Callable:
    """The same function, but it first refuses what should not be saved, and it leaves no half-written file."""
    @wraps(save)
    def checked_save(folder: str | Path, step: int, state: object) -> None:
        check_is_newest(folder, step)
        check_readable(state)
        check_finite(state)
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


def write_whole(data, path, unfinished):
    """Write the bytes `data` to `path` under the name `unfinished`, and rename it. The
    disk must have the bytes before the file has its name, and the name at the end."""
    unfinished.unlink(missing_ok=True)  # of a run that was killed
    with open(unfinished, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())  # wait until the disk has it
    os.replace(unfinished, path)
    sync_folder(path.parent)  # the new name, too


@whole_or_not_there  # package only
def save_checkpoint(folder, step, state):
    """Write `state` into a file that is whole or not there; keep the last two.

    Raises:
        ValueError: for NaN, for infinity in a tensor (a Python float may be infinite), if it holds anything but
            numbers, strings and tensors, or if the folder holds a checkpoint of a later step.
        OSError: if the disk is full.
    """
    data = io.BytesIO()
    torch.save(state, data)
    newest = Path(folder, f"step-{step:08}-{digest_of(state)}.pt")
    write_whole(data.getbuffer(), newest, Path(folder, UNFINISHED))
    for old in superseded(newest):
        old.unlink()


def read_checkpoint(path):
    """The state in a file and its digest. If the file cannot be loaded, the state is
    None, and the second value says why."""
    data = io.BytesIO(path.read_bytes())
    try:
        state = torch.load(data, "cpu", weights_only=True)
        return state, digest_of(state)
    except Exception as error:  # which one depends on the byte that is wrong
        return None, f"unknown ({type(error).__name__})"


def newest_checkpoint(folder):
    """The path and the state of the newest whole checkpoint, or None and None.
    One that is not whole is reported and renamed.

    Tensors are on the CPU. The file may hold only numbers, strings and tensors: no code in it is run.

    Raises:
        OSError: if a file cannot be read. It stays where it is.
    """
    for path in reversed(checkpoints(folder)):
        state, digest = read_checkpoint(path)
        if path.stem.endswith(digest):
            return path, state
        path.rename(path.with_suffix(".broken"))
        print(f"{path.name} is not whole: its digest is {digest}")
    return None, None
