"""What the building edition needs: `yours` marks a function that the reader writes, and `check_function` checks it.

Until she has written the function, `yours` returns the book's own, as its cell has it, so every later cell runs.
The checks are in `d2lpar.pages.to_write`. They look at what a function does and never at how.
"""

from __future__ import annotations

import ast
import inspect
import linecache
from collections.abc import Callable
from importlib import import_module
from typing import Any

from d2lpar.pages.cells import cell_text
from d2lpar.pages.differences import Difference, home
from d2lpar.pages.to_write import PARTLY, TO_WRITE


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
    """Whether the body of `fn` does nothing; where only lines are missing, whether one of them is still `x = ...`."""
    def documented() -> None:
        """As stubs are."""

    def bare() -> None: ...

    own = inspect.unwrap(fn)
    code, others = own.__code__, set(own.__code__.co_consts) - {None, own.__doc__}
    if own.__name__ in PARTLY and Ellipsis in others:
        return True
    return not others and code.co_code in (documented.__code__.co_code, bare.__code__.co_code)


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


def check_function(fn: Callable) -> None:
    """Print "Right.", or "Not yet: " and the smallest case in which `fn` differs from what its docstring says."""
    name = getattr(fn, "__name__", "")
    if name not in TO_WRITE:
        print(f"Nothing to check: `{name or fn!r}` is not a function that this book asks you to write.")
    elif "not_written" not in vars(fn):
        print(f"Not written yet: `{name}` does nothing." if is_stub(fn) else what_is_wrong(fn) or "Right.")


def what_is_wrong(fn: Callable) -> str:
    """The sentence for the smallest case in which `fn` is wrong, or nothing. What it calls is checked first."""
    own = inspect.unwrap(fn)
    for name in own.__code__.co_names:
        used = own.__globals__.get(name)
        theirs = inspect.isfunction(used) and used is not home(name) and "not_written" not in vars(used) \
            if name in TO_WRITE and name != fn.__name__ else False
        if theirs and (wrong := what_is_wrong(used)):
            return (f"Not yet: `{fn.__name__}` calls your `{name}`, which is not right yet: "
                    f"{wrong.removeprefix('Not yet: ')}")
    checks = import_module(f".of_{TO_WRITE[fn.__name__]}", "d2lpar.pages.to_write")
    try:
        getattr(checks, f"check_{fn.__name__}")(fn)
    except Difference as difference:
        return f"Not yet: {difference}"
    return ""
