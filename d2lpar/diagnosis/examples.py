"""Which examples does a loader give, and what are they? And may its epoch be ended early?

Examples are compared by digests, so that they can be recorded, whatever they are made of.
"""

from __future__ import annotations

import dis
import hashlib
import inspect
import random
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from d2lpar.diagnosis.recording import of_the_script, row_keys

ROWS, OF_ROW = 64, 4096  # how many examples, and how many values of each, are used to tell minibatches apart


# who draws, and what


def takes_the_end(frame: Any) -> bool:
    """Whether the code that asks for a batch takes a StopIteration as the end of an epoch.

    A for loop does, and so does a try statement that names it. A generator of the script's own may be endless and count
    its batches, so it gets all of them.
    """
    for _ in range(20):  # calls between a trainer's loop and its loader
        if frame is None:
            break
        code = frame.f_code
        is_generator = bool(code.co_flags & inspect.CO_GENERATOR)
        takes = code.co_code[frame.f_lasti] == dis.opmap["FOR_ITER"] or _catches_the_end(frame)
        if takes and not is_generator:
            return True
        if of_the_script(code.co_filename) or (is_generator and not takes):  # in which it would be an error
            return False
        frame = frame.f_back
    return False


def _catches_the_end(frame: Any) -> bool:
    """Whether this call is in a try statement that names StopIteration; a `__next__` may raise it again."""
    code = frame.f_code
    if "StopIteration" not in code.co_names or code.co_name == "__next__":
        return False
    entries = getattr(dis, "_parse_exception_table", lambda _: ())(code)  # not public
    return any(entry.start <= frame.f_lasti < entry.end for entry in entries)


def is_in_next(frame: Any) -> bool:
    """Whether a library's `__next__` begins this pass, as one does that goes through its loader again and again."""
    while frame is not None and not of_the_script(frame.f_code.co_filename):
        if frame.f_code.co_name == "__next__":
            return True
        frame = frame.f_back
    return False


def takes_a_part(loader: Any) -> bool:
    """Whether a sampler says that it takes one rank's part: PyTorch's, or one around it or inside, as Accelerate's."""
    waiting, seen = [loader.batch_sampler, loader.sampler], set()
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        if any(isinstance(n := getattr(one, name, 1), int) and n > 1 for name in ("num_replicas", "num_processes")):
            return True
        waiting += [getattr(one, name, None) for name in ("sampler", "batch_sampler")]
    return False


# minibatches


def with_rows(batch: Any) -> list[Tensor]:
    """The tensors in an argument that have a row for each example: in nested lists, tuples and dicts, too."""
    tensors = list(_tensors(batch))
    first = next((x for x in tensors if x.dim() > 1), None)  # a single example has no rows
    if first is None:
        return []
    return [first, *(x for x in tensors if x is not first and x.dim() and len(x) == len(first))]


def _tensors(x: Any, depth: int = 3) -> Iterator[Tensor]:
    if isinstance(x, Tensor):
        yield x
    elif depth and isinstance(x, (list, tuple, Mapping)):
        for part in x.values() if isinstance(x, Mapping) else x:
            yield from _tensors(part, depth - 1)


def keys_of_rows(tensors: list[Tensor]) -> list[bytes]:
    """A key for each example, of everything that belongs to it: a mask alone would not tell examples apart."""
    keys = [row_keys(x, ROWS, OF_ROW) for x in tensors]
    return [b"".join(parts) for parts in zip(*filter(None, keys))]


def length(x: Any) -> int | None:
    """How long something is; None if it does not say."""
    try:
        return len(x)
    except (TypeError, NotImplementedError, AttributeError, ValueError):
        return None


def sampler_of(loader: DataLoader) -> Any:
    """The sampler that chooses a loader's examples, possibly inside a batch sampler."""
    return getattr(loader.batch_sampler, "sampler", loader.batch_sampler) or loader.sampler


def random_state() -> str:
    """A digest of the state of PyTorch's random number generator."""
    return hashlib.blake2b(torch.get_rng_state().numpy().tobytes(), digest_size=8).hexdigest()


def other_states() -> dict[str, str]:
    """Digests of the states of NumPy's and of Python's global random number generators."""
    states = {"NumPy's generator": np.random.get_state(), "Python's generator": random.getstate()}
    return {name: hashlib.blake2b(repr([getattr(x, "tolist", lambda x=x: x)() for x in state]).encode(),
                                  digest_size=8).hexdigest() for name, state in states.items()}


def probe(dataset: Any) -> tuple[dict[int, str] | None, bool]:
    """Digests of the first and the last example, drawn with one random state on all ranks; and whether one is random.

    An example is left out if it cannot be read, or if that is not enough for two ranks to have the same one, as with a
    random generator of the data set's own. None if neither is left.
    """
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()
    attributes = [(part, dict(vars(part))) for part in _parts(dataset)]
    indices = sorted({0, (length(dataset) or 1) - 1})
    draws: list[dict[int, str]] = []
    try:
        for seed in (1, 2, 1):
            draws.append({})
            for i in indices:
                torch.default_generator.manual_seed(seed), random.seed(seed), np.random.seed(seed)
                with suppress(Exception):  # such as an index that the script's sampler never draws
                    draws[-1][i] = _digest(dataset[i])
    finally:
        torch.set_rng_state(states[0]), random.setstate(states[1]), np.random.set_state(states[2])
        for part, before in attributes:  # a file that was opened for this cannot be sent to a worker
            vars(part).clear(), vars(part).update(before)
    one, other, again = draws
    known = {i: digest for i, digest in one.items() if again.get(i) == digest}
    return known or None, any(other.get(i) != digest for i, digest in known.items())


def _parts(dataset: Any) -> Iterator[Any]:
    """A data set, and those that it wraps."""
    while hasattr(dataset, "__dict__"):
        yield dataset
        dataset = vars(dataset).get("dataset")


def _digest(x: Any) -> str:
    leaves = list(_leaves(x))
    if not leaves:
        raise TypeError(f"nothing in a {type(x).__name__} can be compared")
    return hashlib.blake2b(b"|".join(leaves), digest_size=8).hexdigest()


def _leaves(x: Any, depth: int = 5) -> Iterator[bytes]:
    """What an example contains, in nested containers too, as far as equal contents are equal bytes on all ranks."""
    if isinstance(x, Tensor):
        x = x.detach().cpu()
        yield (x.float() if x.dtype == torch.bfloat16 else x).numpy().tobytes()
    elif isinstance(x, (int, float, str, bytes, np.generic)) or x is None:
        yield repr(x).encode()
    elif isinstance(x, (list, tuple, Mapping)):
        for part in (x.values() if isinstance(x, Mapping) else x) if depth else ():
            yield from _leaves(part, depth - 1)
    elif hasattr(x, "tobytes"):  # such as a NumPy array or a PIL image
        yield x.tobytes()
