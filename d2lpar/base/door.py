"""The door of a taught function: what makes it safe for everybody, and is not in the cell that teaches it.

A chapter shows a function's text *below its door*: the algorithm and nothing else. A reader's own function has no
door, so what goes wrong silently goes wrong there; the package's own refuses it.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from functools import wraps
from typing import Any, TypeVar

from d2lpar.base.interrupts import uninterrupted

F = TypeVar("F", bound=Callable)


def taught(*checks: Callable, whole: bool = False, around: Callable | None = None, more: str = "", raises: str = "",
           source: str = "", **seen: Callable) -> Callable[[F], F]:
    """A decorator for a function that a chapter teaches, and for nothing else; it stands first, above all others.

    Args:
        checks: called before, each with those of the function's arguments that it names; they raise if one is wrong.
        whole: an interrupt waits until the call is done.
        around: gives a context manager in which the function runs; called as a check is.
        more, raises, source: for the docstring: what goes beyond its first lines, what is raised, whose method it is.
        seen: by the name of an argument, what checks and function get in its place; called as a check is. So what is
            gone through only later is checked as it comes, and an iterator is a list for both.
    """
    def at_the_door(fn: F) -> F:
        parts = [inspect.getdoc(fn), more, raises and f"Raises:\n    {raises}", source and f"Source: {source}"]
        fn.__doc__ = "\n\n".join(filter(None, parts))
        if not (checks or whole or around or seen):
            return fn
        signature = inspect.signature(fn)
        asked = [_asking(check, signature) for check in checks]
        entered = [_asking(around, signature)] if around is not None else []
        replaced = {name: _asking(fit, signature) for name, fit in seen.items()}

        @wraps(fn)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            given = None
            with suppress(TypeError):
                given = signature.bind(*args, **kwargs)
            if given is None:
                return fn(*args, **kwargs)  # raises in Python's own words
            given.apply_defaults()
            with ExitStack() as stack:
                if whole:
                    stack.enter_context(uninterrupted())
                given.arguments.update({name: fit(given.arguments) for name, fit in replaced.items()})
                for check in asked:
                    check(given.arguments)
                for block in entered:
                    stack.enter_context(block(given.arguments))
                return fn(*given.args, **given.kwargs)

        return guarded  # type: ignore[return-value]

    return at_the_door


def bare(*functions: Callable) -> list[Callable]:
    """The same functions without their doors, also where they call each other: as a reader has written them.

    For whoever wants to let a trap spring: tests, and pages.
    """
    names: dict[str, Any] = {}
    for fn in functions:
        names |= vars(sys.modules[fn.__module__])
    plain = {}
    for fn in functions:
        module = sys.modules[fn.__module__]
        [node] = [n for n in ast.parse(inspect.getsource(module)).body if getattr(n, "name", None) == fn.__name__]
        assert isinstance(node, ast.FunctionDef)
        node.decorator_list = [d for d in node.decorator_list if not is_door(d)]
        exec(compile(ast.Module([node], []), module.__file__ or "", "exec", dont_inherit=True), names)
        plain[fn] = names[fn.__name__]
    for copy in map(inspect.unwrap, plain.values()):
        copy.__defaults__ = copy.__defaults__ and tuple(plain[x] if callable(x) and x in plain else x
                                                       for x in copy.__defaults__)
    return list(plain.values())


def is_door(decorator: ast.expr) -> bool:
    """Whether this is `@taught(...)`."""
    return isinstance(decorator, ast.Call) and getattr(decorator.func, "id", None) == taught.__name__


def _asking(what: Callable, signature: inspect.Signature) -> Callable[[Mapping[str, Any]], Any]:
    """A call of `what` with those arguments of a function with this signature that it names."""
    names = [name for name in inspect.signature(what).parameters if name in signature.parameters]
    return lambda arguments: what(**{name: arguments[name] for name in names})
