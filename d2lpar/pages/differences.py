"""How a function that a reader has written differs from the package's own: in sentences, for the smallest case.

`compare` calls both with equal arguments. It looks at what they return, at what they do to their arguments, and at
whose memory they use; values may differ by rounding.
"""

from __future__ import annotations

import ast
import copy
import inspect
import math
import signal
import textwrap
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import combinations
from traceback import extract_tb
from typing import Any

import torch
from torch import Tensor, nn

from d2lpar.pages.elsewhere import pretending
from d2lpar.pages.to_write import TO_WRITE

LIMIT_S = 15.0  # for one call, and for one run on ranks


class Difference(Exception):
    """What is different in the reader's function, in words that follow "Not yet: "."""


def home(name: str) -> Callable:
    """The package's own function of this name."""
    return getattr(import_module(f"d2lpar.{TO_WRITE[name]}"), name)


def compare(fn: Callable, words: str, make: Callable[[], Sequence], own: Callable | None = None) -> None:
    """Raise Difference unless `fn(*make())` returns what the package's own function returns, and does to its arguments
    what that does: the values to within rounding, and which memory is whose.

    `words` say what the case is, so that the sentence can begin with them: "for shards of 3 and 1 examples".
    """
    own = own or home(fn.__name__)
    names = list(inspect.signature(own).parameters)
    ours, theirs, before = (dict(zip(names, make())) for _ in range(3))
    expected = own(*same_contents(theirs).values())
    found = call(fn, words, *same_contents(ours).values())
    if found is None and expected is not None:
        raise Difference(f"{words}, your function returns nothing. Is there a `return`?")
    if found is not None and expected is None:
        changed = any(differs(a, b) for (_, a), (_, b) in zip(leaves(before), leaves(theirs)))
        raise Difference(f"{words}, your function returns {shown(found)}, but it should return nothing"
                         + (", and change its arguments in place." if changed else "."))
    look_at_arguments(fn, words, ours, theirs, before)
    same("result", found, expected, words)
    shared = any(same_memory(a, b) for _, a in tensors(expected) for _, b in tensors(theirs))
    for path, tensor in tensors({"result": found}):
        for argument, other in tensors(ours):
            if same_memory(tensor, other) and not shared:
                raise Difference(f"{words}, {named(path)} shares its memory with `{argument}`: if one is changed, so "
                                 "is the other. It should be a copy.")


def look_at_arguments(fn: Callable, words: str, ours: dict, theirs: dict, before: dict) -> None:
    """Raise Difference unless the arguments are now as they should be."""
    places = [dict(leaves(arguments)) for arguments in (ours, theirs, before)]
    for path, should in places[1].items():
        now, was = places[0].get(path), places[2].get(path)
        if not (problem := differs(now, should)):
            continue
        if not differs(now, was):
            text = (f"{words}, `{path}` is {shown(now)} as before, but your function should change it to "
                    f"{shown(should)}.")
            if (line := rebinding(fn)) and isinstance(now, Tensor) and not path.endswith(".grad"):
                text += (f" The line `{line}` does not change a tensor: it makes a name, or an entry of a list, refer "
                         "to a different one.")
            raise Difference(text)
        if not differs(should, was):
            how = differs(now, was)
            raise Difference(f"{words}, your function changes `{path}`, which belongs to the caller"
                             + ("." if how.startswith("is wrong") else f": afterwards it {how}."))
        raise Difference(f"{words}, afterwards `{path}` {problem}.")
    kept, new = ([pair for pair in combinations(tensors(arguments), 2) if same_memory(pair[0][1], pair[1][1])]
                 for arguments in (theirs, ours))
    if new and not kept:
        (a, _), (b, _) = new[0]
        raise Difference(f"{words}, `{a}` and `{b}` share their memory afterwards: if one is changed, so is the other. "
                         "Overwrite each tensor, as `copy_` does.")


def rebinding(fn: Callable) -> str:
    """A line of `fn` that assigns to a name from a loop, or to a place in an argument, if there is one."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(fn))))
        [node] = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    except (OSError, SyntaxError, ValueError):
        return ""
    given = {arg.arg for arg in node.args.args}
    looped = {name.id for loop in ast.walk(node) if isinstance(loop, ast.For)
              for name in ast.walk(loop.target) if isinstance(name, ast.Name)}
    for line in ast.walk(node):
        for target in line.targets if isinstance(line, ast.Assign) else []:
            whole = isinstance(target, ast.Subscript) and isinstance(target.slice, (ast.Slice, ast.Constant)) \
                and (isinstance(target.slice, ast.Slice) or target.slice.value is ...)
            holder = target.value if isinstance(target, ast.Subscript) and not whole else None
            if (isinstance(target, ast.Name) and target.id in looped) or (
                    isinstance(holder, ast.Name) and holder.id in given):
                return ast.unparse(line)
    return ""


def call(fn: Callable, words: str, *args: Any) -> Any:
    """What `fn(*args)` returns; Difference if it raises, or does not return."""
    try:
        with time_limit(LIMIT_S), pretending(*args):
            return fn(*args)
    except OutOfTime as error:
        raise Difference(f"{words}, your function has not returned after {LIMIT_S:.0f} seconds{where(fn, error)}.") \
            from None
    except (Exception, SystemExit) as error:
        said = first_line(error)
        if "NVIDIA driver" in said or "__deepcopy__" in said:
            said = ("the GPUs of this check are simulated. They support only `to`, `cuda` and `cpu`, so use one of "
                    "these. (Is there a `device` that is not used?)")
        elif "'NoneType' object has no attribute" in said:
            said += (f". (After the line `{line}`, that name means a new tensor, which has no gradient.)"
                     if (line := rebinding(fn)) else ". (A gradient is None until `backward` has run for its tensor.)")
        raise Difference(f"{words}, your function raises {type(error).__name__}{where(fn, error)}: {said}") from None


def where(fn: Callable, error: BaseException) -> str:
    """The line of `fn` that the error has come from, if it can be found."""
    code = inspect.unwrap(fn).__code__
    lines = [entry.line for entry in extract_tb(error.__traceback__)
             if entry.filename == code.co_filename and entry.line]
    return f" in the line `{lines[-1]}`" if lines else ""


def first_line(error: BaseException) -> str:
    """What the error says, without the pages that PyTorch adds."""
    return (str(error).strip().splitlines() or ["(it says nothing)"])[0].removesuffix(", but expected one of:")


class OutOfTime(Exception):
    """A function has been running for too long."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """OutOfTime in a Python function that runs for longer, where the system can interrupt one."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def compare_values(fn: Callable, words: str, *args: Any) -> None:
    """As `compare`, for a result of lists and numbers alone: the sentence shows all of it. Tuples pass for lists."""
    expected = plain(home(fn.__name__)(*copy.deepcopy(args)))
    ours = copy.deepcopy(args)
    found = call(fn, words, *ours)
    if found is None:
        raise Difference(f"{words}, your function returns nothing. Is there a `return`?")
    if tensors(found):
        raise Difference(f"{words}, your function returns {kind(found)}, but should return {shown(expected)}.")
    if plain(found) != expected:
        raise Difference(f"{words}, your function returns {shown(plain(found))}, but should return {shown(expected)}.")
    for name, now, was in zip(inspect.signature(home(fn.__name__)).parameters, ours, args):
        if not any(isinstance(x, Tensor) for _, x in leaves(was)) and now != was:
            raise Difference(f"{words}, your function changes `{name}`, which belongs to the caller: it was "
                             f"{shown(was)}, and is now {shown(now)}.")


def plain(x: Any) -> Any:
    """The same value with lists instead of tuples, ranges and iterators."""
    return [plain(y) for y in x] if isinstance(x, (list, tuple, range, Iterator)) else x


def same(name: str, ours: Any, theirs: Any, words: str) -> None:
    """Raise Difference unless the two values are the same, to within rounding."""
    flat, expected = dict(leaves(ours, name)), dict(leaves(theirs, name))
    if is_many(ours) and is_many(theirs) and len(ours) != len(theirs):
        raise Difference(f"{words}, {named(name)} has {len(ours)} {'entry' if len(ours) == 1 else 'entries'}, but "
                         f"should have {len(theirs)}.")
    if [path for path in flat if not path.endswith(".grad")] != [
            path for path in expected if not path.endswith(".grad")]:
        raise Difference(f"{words}, {named(name)} should be {kind(theirs)}, but it is {kind(ours)}.")
    for path, value in expected.items():
        if path in flat and (problem := differs(flat[path], value)):
            raise Difference(f"{words}, {named(path)} {problem}.")


def named(path: str) -> str:
    """A value in a sentence: an expression, or words as they are."""
    return "the result" if path == "result" else path if " " in path else f"`{path}`"


def kind(x: Any) -> str:
    """What sort of value it is, down to the entries of a list or tuple."""
    if isinstance(x, (list, tuple)) and x:
        return f"a {type(x).__name__} of {len(x)} ({', '.join(map(kind, x[:3]))}{', ...' if len(x) > 3 else ''})"
    return "a tensor" if isinstance(x, Tensor) else "nothing" if x is None else f"of type {type(x).__name__}"


def differs(ours: Any, theirs: Any) -> str:
    """How a value differs from the expected one, as the end of a sentence; empty if it does not."""
    if isinstance(theirs, Tensor):
        if isinstance(ours, Tensor):
            return tensor_differs(ours, theirs)
        return f"is {shown(ours)}, but should be {'the tensor ' * shown(theirs).startswith('[')}{shown(theirs)}"
    if isinstance(ours, Tensor):
        note = " that remembers how it was computed (it has a `grad_fn`)" if ours.grad_fn is not None else ""
        return f"is a tensor{note}, but should be {shown(theirs)}"
    if isinstance(theirs, (int, float)) and isinstance(ours, (int, float)):
        if math.isclose(ours, theirs, rel_tol=1e-9, abs_tol=1e-12) or (math.isnan(ours) and math.isnan(theirs)):
            return ""
        if math.isclose(ours, theirs, rel_tol=1e-5):
            like = ": it seems to have been computed in float32" * math.isclose(ours, theirs, rel_tol=1e-7)
            return f"is {ours:.12g}, but should be {theirs:.12g}{like}"
        return f"is {shown(ours)}, but should be {shown(theirs)}"
    return "" if type(ours) is type(theirs) and ours == theirs else f"is {shown(ours)}, but should be {shown(theirs)}"


def tensor_differs(ours: Tensor, theirs: Tensor) -> str:
    """How a tensor differs from the expected one, as the end of a sentence; empty if it does not."""
    for what in ("shape", "device", "dtype"):
        a, b = getattr(ours, what), getattr(theirs, what)
        if a != b:
            a, b = (tuple(a), tuple(b)) if what == "shape" else (a, b)
            return (f"is on the device {a}, but should be on {b}" if what == "device" else
                    f"has the {what} {a}, but should have {b}")
    if ours.grad_fn is not None and theirs.grad_fn is None:
        return "remembers how it was computed (it has a `grad_fn`), but should not: detach it"
    if ours.requires_grad != theirs.requires_grad:
        return ("does not require a gradient, but should" if theirs.requires_grad else
                "requires a gradient, but should not")
    a, b = (x.detach().double() for x in (ours, theirs))
    if bool(a.isnan().any()) and not bool(b.isnan().any()):
        return f"contains NaN: {shown(ours)}, but should be {shown(theirs)}"
    tolerance = 1e-9 if ours.dtype == torch.float64 else 1e-5
    finite = b.isfinite()
    if not (torch.equal(finite, a.isfinite()) and torch.equal(a[~finite].nan_to_num(), b[~finite].nan_to_num())):
        return f"is {shown(ours)}, but should be {shown(theirs)}"
    a, b = a[finite], b[finite]
    gap, length = float((a - b).norm()), float(b.norm())
    if gap <= tolerance * length:
        return ""
    factor = float((a * b).sum() / (b * b).sum()) if length else 0.0
    if factor and b.numel() > 1 and float((a - factor * b).norm()) <= tolerance * abs(factor) * length:
        values = f" ({shown(ours)}, not {shown(theirs)})" if theirs.numel() <= 8 else ""
        return f"is {factor:.4g} times what it should be{values}"
    if theirs.numel() <= 8 or gap >= 1e6 * length:
        return f"is {shown(ours)}, but should be {shown(theirs)}"
    if gap == length and not bool(a.any()):
        return "is zero, but should not be"
    return f"is wrong: its relative distance from the right value is {gap / length:.2g}"


def shown(x: Any) -> str:
    """A value in a sentence: short."""
    if isinstance(x, Tensor):
        if x.numel() > 8:
            return f"a tensor of shape {tuple(x.shape)}"
        return str([float(f"{v:.4g}") for v in x.detach().flatten().tolist()] if x.dim() else float(f"{x.item():.4g}"))
    if isinstance(x, float):
        return f"{x:.6g}"
    return "nothing" if x is None else text if len(text := repr(x)) <= 60 else f"{text[:57]}..."


def same_contents(x: Any) -> Any:
    """Lists, tuples and dictionaries of its own, with the same tensors: the reader's function may change the lists."""
    if isinstance(x, dict):
        return {key: same_contents(value) for key, value in x.items()}
    return type(x)(map(same_contents, x)) if type(x) in (list, tuple) else x


def is_many(x: Any) -> bool:
    """Whether it is a list, a tuple or a dictionary."""
    return isinstance(x, (list, tuple, Mapping))


def leaves(x: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """All that is in a value, each with the expression that leads to it; a tensor's gradient is a leaf of its own."""
    if isinstance(x, Mapping):
        for key, value in x.items():
            yield from leaves(value, f"{path}[{key!r}]" if path else str(key))
    elif isinstance(x, (list, tuple)):
        for i, value in enumerate(x):
            yield from leaves(value, f"{path}[{i}]")
    elif isinstance(x, nn.Module):
        for name, value in [*x.named_parameters(), *x.named_buffers()]:
            yield from leaves(value, f"{path}.{name}")
    else:
        yield path, x
        if isinstance(x, Tensor) and x.is_leaf and (x.requires_grad or x.grad is not None):
            yield f"{path}.grad", x.grad


def tensors(x: Any) -> list[tuple[str, Tensor]]:
    """The tensors in a value."""
    return [(path, leaf) for path, leaf in leaves(x) if isinstance(leaf, Tensor)]


def same_memory(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors use the same memory."""
    return bool(a.numel() and b.numel()) and a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
