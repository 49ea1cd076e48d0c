"""The text of the code: what ruff finds in it, and whether its types are true; see [tool.ruff] and [tool.pyrefly]."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from revisions import tracked

RUFF = (sys.executable, "-m", "ruff", "check", "--no-cache", "--output-format=concise", "--quiet")
PYREFLY = (sys.executable, "-m", "pyrefly", "check", "--python-interpreter-path", sys.executable,
           "--output-format=min-text", "--summary=none")
tools = pytest.mark.parametrize("command", [RUFF, PYREFLY], ids=["ruff", "pyrefly"])


def run(command: tuple[str, ...], folder: Path) -> tuple[int, str]:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


@tools
def test_nothing_is_found(command: tuple[str, ...], root: Path) -> None:
    own = [] if command is PYREFLY else [str(file) for file in tracked(root) if file.suffix in (".py", ".ipynb")]
    code, said = run((*command, *own), root)
    if code:
        pytest.fail(f"Fix what `{command[2]} check` finds; `ruff check --fix` mends some of it (book/authors.md, The tools):\n\n{said}", pytrace=False)
