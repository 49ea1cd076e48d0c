"""Which lines of a script only some ranks reach, and which all, as far as its text says: is there an `if`?"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

RANK = re.compile(r"\b(local_?|global_?|my_?)?rank\b|\bget_(local_|global_)?rank\(|RANK['\"]|"
                  r"\bis_(main|master|primary|rank_?(0|zero))|\b(main|master)_process\b", re.I)
SAME_ON_ALL = re.compile(r"[\w.]*rank(\(\))? (!= -1|== -1|>= 0|> -1|< 0|is not None|is None)", re.I)


ONE_TO_ONE = {"send", "recv", "isend", "irecv", "batch_isend_irecv"}


class _Branch(NamedTuple):
    """One side of an `if` that asks for the rank."""

    words: str
    first: int  # line
    last: int
    calls: list[tuple[int, int, set[str]]]  # of each call: the first and the last line; its function and keywords


def under_rank_test(places: Iterable[tuple[str, int]]) -> str:
    """The `if` on the rank that one of these lines of files is under, as in ", under `if rank == 0` in line 3".

    "" if there is none, or if the line may be right: what it calls is also called under a different `if`, as with a
    pair of barriers, or is given a group, or has one sender and one receiver.
    """
    return next((words for file, line in places if (words := _under(file, line))), "")


@lru_cache(1024)
def _under(file: str, line: int) -> str:
    around = [branch for branch in _branches(file) if branch.first <= line <= branch.last]
    if not around:
        return ""
    innermost = min(around, key=lambda branch: branch.last - branch.first)
    called = set().union(*(names for first, last, names in innermost.calls if first <= line <= last))
    elsewhere = set().union(*(names for branch in _branches(file) if branch not in around
                              for _, _, names in branch.calls)) - set(dir(builtins))
    return "" if called & (elsewhere | ONE_TO_ONE | {"group="}) else f", under {innermost.words}"


@lru_cache(64)
def _branches(file: str) -> list[_Branch]:
    try:
        tree = ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return []
    found = []
    for node in ast.walk(tree):
        test = ast.unparse(node.test) if isinstance(node, ast.If) else ""
        if isinstance(node, ast.If) and RANK.search(SAME_ON_ALL.sub("", test)):
            for side, body in (("", node.body), ("the else of ", node.orelse)):
                calls = [(one.lineno, one.end_lineno or one.lineno, {
                    ast.unparse(one.func).rpartition(".")[2], *(f"{keyword.arg}=" for keyword in one.keywords
                                                               if keyword.arg == "group")})
                         for statement in body for one in ast.walk(statement) if isinstance(one, ast.Call)]
                if body:
                    found.append(_Branch(f"{side}`if {test}` in line {node.lineno}", body[0].lineno,
                                         body[-1].end_lineno or body[-1].lineno, calls))
    return found


def saves_on_all_ranks(file: str) -> list[int]:
    """The lines of a script on which all ranks call `torch.save`.

    A call counts only if there is no `if`, no early return and no `with` around it that could ask for the rank, and
    nothing in the name of its file does.
    """
    try:
        tree = ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return []
    above = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    saves = [call for call in calls
             if ast.unparse(call.func) == "torch.save" and "rank" not in ast.unparse(call).lower()]
    return [call.lineno for call in saves if _is_reached_by_all(call, above, calls, set())]


def _is_reached_by_all(call: ast.Call, above: dict[ast.AST, ast.AST], calls: list[ast.Call], seen: set[str]) -> bool:
    node: ast.AST = call
    while (parent := above.get(node)) is not None:
        if isinstance(parent, (ast.If, ast.IfExp, ast.With, ast.BoolOp, ast.Try, ast.Lambda)) and not (
                isinstance(parent, ast.If) and "__name__" in ast.unparse(parent.test)):
            return False
        if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if parent.name in seen or any(isinstance(one, ast.Return) and one.lineno < call.lineno
                                          for one in ast.walk(parent)):
                return False
            sites = [one for one in calls if ast.unparse(one.func).rpartition(".")[2] == parent.name]
            return bool(sites) and any(_is_reached_by_all(one, above, calls, seen | {parent.name}) for one in sites)
        node = parent
    return True
