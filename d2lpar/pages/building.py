"""What the building edition needs: `yours` marks a function that the reader writes, and `check` tells her whether it is right.

Until she has written the function, `yours` returns the book's own, as its cell has it, so every later cell runs.
The checks are in `d2lpar.pages.to_write`. They look at what a function does and never at how: at what it returns, at
what it does to its arguments, and at whose memory it uses, compared with the package's own function on inputs that no
page prints.
"""

from __future__ import annotations

import ast
import copy
import inspect
import linecache
import math
import re
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from traceback import extract_tb
from typing import Any

import torch
from torch import Tensor, nn

from d2lpar.launch import RankError, RankGroup
from d2lpar.pages.cells import cell_text
from d2lpar.pages.elsewhere import pretending
from d2lpar.pages.to_write import TO_WRITE
from d2lpar.ranks import Traffic

LIMIT_S = 15.0  # for one call, and for one run on ranks


class Difference(Exception):
    """What is different in the reader's function, in words that follow "Not yet: "."""


def yours(fn: Callable) -> Callable:
    """`fn` if it has been written, otherwise the book's own function, as its cell has it, and a line that says so."""
    if not is_stub(fn):
        return fn
    name = fn.__name__
    print(f"Not written yet: the book's own `{name}` is used.")
    own = as_in_cell(name, inspect.unwrap(fn).__globals__)
    own.__dict__["not_written"] = True
    return own


def is_stub(fn: Callable) -> bool:
    """Whether the body of `fn` does nothing, or contains a line that is still `... = ...`."""
    def documented() -> None:
        """As stubs are."""

    def bare() -> None: ...

    own = inspect.unwrap(fn)
    code, others = own.__code__, set(own.__code__.co_consts) - {None, own.__doc__}
    return Ellipsis in others or (not others and code.co_code in (documented.__code__.co_code, bare.__code__.co_code))


def as_in_cell(name: str, names: dict[str, Any]) -> Callable:
    """The function `name` of the package as the chapter's cell defines it, among these global names."""
    module = inspect.getmodule(home(name))
    source = inspect.getsource(module)  # type: ignore[arg-type]
    [node] = [node for node in ast.parse(source).body if getattr(node, "name", None) == name]
    text, place = cell_text(source, node), f"<the book's {name}>"
    linecache.cache[place] = len(text), None, text.splitlines(keepends=True), place  # for tracebacks and getsource
    found: dict[str, Any] = {}
    exec(compile(text, place, "exec", dont_inherit=True), names, found)
    return found[name]


def home(name: str) -> Callable:
    """The package's own function of this name."""
    return getattr(import_module(f"d2lpar.{TO_WRITE[name]}"), name)


def check_function(fn: Callable) -> None:
    """Print "Right.", or "Not yet: " and the smallest case in which `fn` differs from what its docstring says."""
    name = getattr(fn, "__name__", "")
    if name not in TO_WRITE:
        print(f"Nothing to check: `{name or fn!r}` is not a function that this book asks you to write.")
    elif "not_written" not in vars(fn):
        print(f"Not written yet: `{name}` does nothing." if is_stub(fn) else what_is_wrong(fn) or "Right.")


def what_is_wrong(fn: Callable) -> str:
    """The sentence for the smallest case in which `fn` is wrong, or nothing. Functions that it calls are checked first."""
    own = inspect.unwrap(fn)
    for name in own.__code__.co_names:
        used = own.__globals__.get(name)
        if name in TO_WRITE and name != fn.__name__ and inspect.isfunction(used) and "not_written" not in vars(used) \
                and used is not home(name) and (wrong := what_is_wrong(used)):
            return f"Not yet: `{fn.__name__}` calls your `{name}`, which is not right yet: {wrong.removeprefix('Not yet: ')}"
    checks = import_module(f"d2lpar.pages.to_write.of_{TO_WRITE[fn.__name__]}")
    try:
        getattr(checks, f"check_{fn.__name__}")(fn)
    except Difference as difference:
        return f"Not yet: {difference}"
    return ""


def compare(fn: Callable, words: str, make: Callable[[], tuple], own: Callable | None = None) -> None:
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
    look_at_arguments(words, ours, theirs, before)
    same("result", found, expected, words)
    shared = any(same_memory(a, b) for _, a in tensors(expected) for _, b in tensors(theirs))
    for path, tensor in tensors({"result": found}):
        for argument, other in tensors(ours):
            if same_memory(tensor, other) and not shared:
                raise Difference(f"{words}, {named(path)} shares its memory with `{argument}`: if one is changed, so is "
                                 "the other. It should be a copy.")


def look_at_arguments(words: str, ours: dict, theirs: dict, before: dict) -> None:
    """Raise Difference unless the arguments are now as they should be."""
    places = [dict(leaves(arguments)) for arguments in (ours, theirs, before)]
    for path, should in places[1].items():
        now, was = places[0].get(path), places[2].get(path)
        if not (problem := differs(now, should)):
            continue
        if not differs(now, was):
            raise Difference(f"{words}, `{path}` is {shown(now)} as before, but your function should change it to "
                             f"{shown(should)}." + (" (An assignment, such as `x = ...` or `data[i] = ...`, does not "
                                                    "change a tensor.)" if path in dict(tensors(before)) else ""))
        if not differs(should, was):
            raise Difference(f"{words}, your function changes `{path}`, which belongs to the caller: afterwards it "
                             f"{differs(now, was)}.")
        raise Difference(f"{words}, afterwards `{path}` {problem}.")


def call(fn: Callable, words: str, *args: Any) -> Any:
    """What `fn(*args)` returns; Difference if it raises, or does not return."""
    try:
        with time_limit(LIMIT_S), pretending(*args):
            return fn(*args)
    except (Exception, SystemExit) as error:
        if isinstance(error, OutOfTime):
            raise Difference(f"{words}, your function has not returned after {LIMIT_S:.0f} seconds{where(fn, error)}.") from None
        raise Difference(f"{words}, your function raises {type(error).__name__}{where(fn, error)}: "
                         f"{first_line(error)}") from None


def where(fn: Callable, error: BaseException) -> str:
    """The line of `fn` that the error has come from, if it can be found."""
    code = inspect.unwrap(fn).__code__
    lines = [entry.line for entry in extract_tb(error.__traceback__) if entry.filename == code.co_filename and entry.line]
    return f" in the line `{lines[-1]}`" if lines else ""


def first_line(error: BaseException) -> str:
    """What the error says, without the pages that PyTorch adds."""
    return (str(error).strip().splitlines() or ["(it says nothing)"])[0]


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


@cache
def group(world_size: int) -> RankGroup:
    """Ranks on which functions are tried; they stay until Python ends."""
    return RankGroup(world_size, "gloo")


def compare_on_ranks(fn: Callable, words: str, scene: Callable, *args: Any, world_size: int = 2) -> None:
    """Raise Difference unless `scene(rank, fn, *args)` returns on every rank what it returns with the package's function.

    A scene builds what the function needs, calls it, and returns what can be compared, on the CPU. A notebook's function
    travels to the ranks with all that it uses. After an error or a hang, the next call starts new ranks.
    """
    ranks = group(world_size)
    expected = ranks.run(on_rank, scene, home(fn.__name__), *args, timeout_s=60)
    try:
        found = ranks.run(on_rank, scene, fn, *args, timeout_s=LIMIT_S)
    except TimeoutError as error:
        raise Difference(f"{words}, {where_ranks_stand(fn, str(error))}") from None
    except RankError as error:
        raise Difference(f"{words}, {what_a_rank_raised(fn, str(error))}") from None
    except ValueError as error:
        raise Difference(f"your function cannot be sent to the ranks, because something that it uses belongs to this "
                         f"process alone: {error.__cause__}. (Is it a group of ranks?)") from None
    counts = [count for _, count in found]
    if len(set(counts)) > 1:
        ranks.close()  # or the collective that one rank has started meets one of the next case
        raise Difference(f"{words}, the ranks take part in different numbers of collectives: "
                         f"{', '.join(f'rank {rank} in {count}' for rank, count in enumerate(counts))}. {SAME_ORDER}")
    for rank, ((ours, _), (theirs, _)) in enumerate(zip(found, expected)):
        for (name, a), b in zip(ours.items(), theirs.values()):
            if name == "the result" and a is None:
                raise Difference(f"{words}, your function returns nothing. Is there a `return`?")
            same(name, a, b, f"{words}, on rank {rank}")


SAME_ORDER = "All ranks have to call the same collectives, in the same order."


def on_rank(rank: int, scene: Callable, fn: Callable, *args: Any) -> tuple[dict, int]:
    """What the scene returns, and how many collectives this rank has taken part in."""
    with Traffic() as sent:
        return scene(rank, fn, *args), sent.counts.total()


def where_ranks_stand(fn: Callable, message: str) -> str:
    """After a time-out: the line of `fn` in which each rank is, from the stacks in the launcher's message."""
    stands: dict[str, list[str]] = {}
    own = re.escape(inspect.unwrap(fn).__code__.co_filename)
    for rank, stack in re.findall(r"^(rank \d+): (.*?)(?=\n\nrank \d+: |\Z)", message, re.DOTALL | re.MULTILINE):
        inside = re.search(rf'File "{own}", line \d+ in \S+\n    (.*)', stack)
        place = f"is in the line `{inside[1]}`" if inside else \
            "has returned" if stack == "fn had returned" else "is outside your function"
        stands.setdefault(place, []).append(rank)
    many = {"is": "are", "has": "have"}
    text = f"after {LIMIT_S:.0f} seconds, " + ", and ".join(
        f"{ranks[0]} {place}" if len(ranks) == 1 else f"{' and '.join(ranks)} {many[verb]} {place.removeprefix(verb).strip()}"
        for place, ranks in stands.items() for verb in [place.split()[0]])
    if "torch/distributed" not in message.replace("\\", "/"):
        return f"your function has not returned on all ranks: {text}."
    return f"a rank waits for another that never comes: {text}. {SAME_ORDER}"


def what_a_rank_raised(fn: Callable, message: str) -> str:
    """The error of a rank and the line of `fn` that it comes from, from the launcher's message."""
    head, _, rest = message.partition("\n\n")
    rank = " ".join(head.split()[:2])
    if sizes := re.search(r"op\.nbytes\. (\d+) vs (\d+)", rest):
        return (f"two ranks' collectives do not match: {sizes[1]} bytes arrive where {sizes[2]} are expected, and "
                f"PyTorch ends the process. {SAME_ORDER}")
    if "Traceback" not in rest:
        return f"{head.replace('before fn', 'before your function')}: {rest}".rstrip(": ") + "."
    last = rest.rpartition("Traceback (most recent call last):\n")[2]
    error = next((line for line in last.splitlines() if line and not line.startswith(" ")), "(it says nothing)")
    own = re.escape(inspect.unwrap(fn).__code__.co_filename)
    lines = re.findall(rf'File "{own}", line \d+, in \S+\n    (.*)', last)
    name, _, said = error.partition(": ")
    said = re.sub(r"\[rank\d+\]:\[.*?\] |, layout=.*?memory_format=\(nullopt\)", "", said)  # noise of PyTorch's C++
    return (f"your function raises {name.rpartition('.')[2]} on {rank}" + (f" in the line `{lines[-1]}`" if lines else "")
            + f": {said or '(it says nothing)'}")


def compare_values(fn: Callable, words: str, *args: Any) -> None:
    """As `compare`, for a result of lists and numbers alone: the sentence shows the whole of it. Tuples pass for lists."""
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
            raise Difference(f"{words}, your function changes `{name}`, which belongs to the caller: it was {shown(was)}, "
                             f"and is now {shown(now)}.")


def plain(x: Any) -> Any:
    """Lists in place of tuples and of what can be looped over."""
    return [plain(y) for y in x] if isinstance(x, (list, tuple, range, Iterator)) else x


def same(name: str, ours: Any, theirs: Any, words: str) -> None:
    """Raise Difference unless the two values are the same, to within rounding."""
    flat, expected = dict(leaves(ours, name)), dict(leaves(theirs, name))
    if is_many(ours) and is_many(theirs) and len(ours) != len(theirs):
        raise Difference(f"{words}, {named(name)} has {len(ours)} {'entry' if len(ours) == 1 else 'entries'}, but should "
                         f"have {len(theirs)}.")
    if [path for path in flat if not path.endswith(".grad")] != [path for path in expected if not path.endswith(".grad")]:
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
        return tensor_differs(ours, theirs) if isinstance(ours, Tensor) else f"is {shown(ours)}, but should be the tensor {shown(theirs)}"
    if isinstance(ours, Tensor):
        note = " that remembers how it was computed (it has a `grad_fn`)" if ours.grad_fn is not None else ""
        return f"is a tensor{note}, but should be {shown(theirs)}"
    if isinstance(theirs, (int, float)) and isinstance(ours, (int, float)):
        if math.isclose(ours, theirs, rel_tol=1e-9, abs_tol=1e-12) or (math.isnan(ours) and math.isnan(theirs)):
            return ""
        if math.isclose(ours, theirs, rel_tol=1e-5):
            return f"is {ours:.12g}, but should be {theirs:.12g}: it has the digits of float32, and not those of float64"
        return f"is {shown(ours)}, but should be {shown(theirs)}"
    return "" if type(ours) is type(theirs) and ours == theirs else f"is {shown(ours)}, but should be {shown(theirs)}"


def tensor_differs(ours: Tensor, theirs: Tensor) -> str:
    """How a tensor differs from the expected one, as the end of a sentence; empty if it does not."""
    for what in ("shape", "device", "dtype"):
        a, b = getattr(ours, what), getattr(theirs, what)
        if a != b:
            a, b = (tuple(a), tuple(b)) if what == "shape" else (a, b)
            return f"is on the device {a}, but should be on {b}" if what == "device" else f"has the {what} {a}, but should have {b}"
    if ours.grad_fn is not None and theirs.grad_fn is None:
        return "remembers how it was computed (it has a `grad_fn`), but should not: detach it"
    if ours.requires_grad != theirs.requires_grad:
        return "does not require a gradient, but should" if theirs.requires_grad else "requires a gradient, but should not"
    if theirs.device.type == "meta":
        return ""
    a, b = (x.detach().double() for x in (ours, theirs))
    if bool(a.isnan().any()) and not bool(b.isnan().any()):
        return f"contains NaN: {shown(ours)}, but should be {shown(theirs)}"
    tolerance = 1e-9 if ours.dtype == torch.float64 else 1e-5
    gap, length = (float(x.nan_to_num().norm()) for x in (a.nan_to_num() - b.nan_to_num(), b))
    if gap <= tolerance * length and torch.equal(a.isnan(), b.isnan()):
        return ""
    factor = float((a * b).sum() / (b * b).sum()) if length else 0.0
    if factor and abs(factor - 1) > 1e-3 and float((a - factor * b).norm()) <= tolerance * abs(factor) * length and b.numel() > 1:
        return f"is {factor:.4g} times what it should be ({shown(ours)}, not {shown(theirs)})" if b.numel() <= 8 else \
            f"is {factor:.4g} times what it should be"
    if b.numel() <= 8 or not 0 < gap < 1e6 * length:
        return f"is {shown(ours)}, but should be {shown(theirs)}"
    factor = float((a * b).sum() / (b * b).sum())
    if float((a - factor * b).norm()) <= tolerance * length:
        return f"is {factor:.4g} times what it should be"
    return f"is off by {gap / length:.2g} times its length" if gap > length else f"is off by {gap / length:.2%}"


def shown(x: Any) -> str:
    """A value in a sentence: short."""
    if isinstance(x, Tensor):
        if x.device.type == "meta" or x.numel() > 8:
            return f"a tensor of shape {tuple(x.shape)}"
        return str([float(f"{v:.4g}") for v in x.detach().flatten().tolist()] if x.dim() else float(f"{x.item():.4g}"))
    if isinstance(x, float):
        return f"{x:.6g}"
    return "nothing" if x is None else text if len(text := repr(x)) <= 60 else f"{text[:57]}..."


def same_contents(x: Any) -> Any:
    """Lists, tuples and dictionaries of its own, with the same tensors in them: the reader's function may change the lists."""
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
    if "meta" in (a.device.type, b.device.type) or not (a.numel() and b.numel()):
        return False
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
