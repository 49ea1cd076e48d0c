"""A taught function as the chapter's cell shows it: without what only the package needs.

A cell leaves out each line that ends with `# package only`, and all of the docstring but its first paragraph.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable
from typing import Any

PACKAGE_ONLY = "  # package only"


def cell_text(source: str, node: ast.stmt) -> str:
    """What a cell shows of the definition `node` in a module with this source."""
    return "\n".join(line for line in _lines(source, node) if line is not None)


def _lines(source: str, node: ast.stmt) -> list[str | None]:
    """The lines of a definition; None for each that the cell leaves out."""
    first = _first_line(node)
    lines: list[str | None] = [None if line.endswith(PACKAGE_ONLY) else line
                               for line in source.splitlines()[first - 1:node.end_lineno]]
    if isinstance(node, ast.FunctionDef) and "\n\n" in (ast.get_docstring(node) or ""):
        begin, end = node.body[0].lineno - first, (node.body[0].end_lineno or 0) - first
        blank = next(i for i in range(begin, end) if lines[i] == "")
        lines[blank - 1:end + 1] = [f'{lines[blank - 1]}"""', *[None] * (end + 1 - blank)]
    return lines


def _first_line(node: ast.stmt) -> int:
    return min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])


def without_checks(*functions: Callable) -> list[Callable]:
    """The same functions as cells show them; where one calls another, it calls the unchecked one.

    For tests and pages that show what happens without the package's checks.
    """
    names: dict[str, Any] = {}
    modules = [sys.modules[fn.__module__] for fn in functions]
    for module in modules:
        names |= vars(module)
    for fn, module in zip(functions, modules):
        source = inspect.getsource(module)
        [node] = [n for n in ast.parse(source).body if getattr(n, "name", None) == fn.__name__]
        text = "\n" * (_first_line(node) - 1) + "\n".join(line or "" for line in _lines(source, node))
        exec(compile(text, module.__file__ or "", "exec", dont_inherit=True), names)  # with its line numbers
    plain = {fn: names[fn.__name__] for fn in functions}
    for copy in map(inspect.unwrap, plain.values()):  # a default, such as split_batch, is one of them too
        defaults = copy.__defaults__ or ()
        copy.__defaults__ = tuple(plain.get(x, x) if callable(x) else x for x in defaults) or None
    return list(plain.values())
