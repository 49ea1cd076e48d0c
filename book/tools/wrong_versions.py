"""What the checks of the building edition say of wrong versions: `python book/tools/wrong_versions.py [FUNCTION ...]`.

For each function that readers write, `tests/wrong_versions/FUNCTION.py` holds versions of it, each under a name of its
own, with a docstring that says what is wrong. They see the names that the function's module has.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from d2lpar.pages.building import what_is_wrong
from d2lpar.pages.cells import without_checks
from d2lpar.pages.differences import home
from d2lpar.pages.to_write import TO_WRITE

FOLDER = Path(__file__).resolve().parents[2] / "tests" / "wrong_versions"


def wrong_versions(name: str) -> dict[str, Callable]:
    """The wrong versions of the function `name`, by what they are called in its file."""
    path = FOLDER / f"{name}.py"
    if not path.exists():
        return {}
    names: dict[str, Any] = {**vars(inspect.getmodule(home(name))), "__name__": "__main__"}  # so pickle sends the code
    text = path.read_text("utf8")
    exec(compile(text, str(path), "exec", dont_inherit=True), names)
    found = {node.name: names[node.name] for node in ast.parse(text).body
             if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")}
    for fn in found.values():
        inspect.unwrap(fn).__name__ = fn.__name__ = name
    return found


def main(names: list[str]) -> None:
    for name in names or TO_WRITE:
        print(f"\n{name}: {what_is_wrong(without_checks(home(name))[0]) or 'Right.'}")
        for title, fn in wrong_versions(name).items():
            print(f"  {title.replace('_', ' ')}: {fn.__doc__}\n    -> {what_is_wrong(fn) or 'Right.'}")


if __name__ == "__main__":
    main(sys.argv[1:])
