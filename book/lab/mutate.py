"""How strong are the tests? Each entry of `tests/mutations.toml` is a mistake, and its test file must notice it.

    python book/lab/mutate.py [NAME ...]

Each core has a copy of the book, makes one mistake at a time in it, and runs the test file that should notice it;
NAMEs select functions. Before that, the test files must pass on the unchanged code: a test that already fails proves
nothing. If a test file does not notice its mistake, all fast tests are run, to see whether any of them does. The exit
code is 1 if a mistake survived.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from importlib.util import cache_from_source
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
NOT_COPIED = {".git", ".venv", "_build", "data", "lab"}  # of the top folder
OF_THE_TEXT = ("lint", "mutations", "notebooks")  # test files that fail when the text changes, also if it is no mistake
PYTEST = [sys.executable, "-m", "pytest", "-x", "-q", "-rfE", "--tb=no", "-p", "no:cacheprovider", "-n", "0"]
LIMIT_S, SUITE_LIMIT_S = 150, 1800


class Mutation(NamedTuple):
    """A mistake: in the text of one function, wherever its module lies, `old` becomes `new`."""

    function: str  # at the top of a module, or Class.method; no other one has its name
    old: str
    new: str
    test: str  # the file that notices it, or file::test where the whole file takes minutes
    why: str  # what the mistake is
    slow: bool = False  # whether that takes a test which runs only with the notebooks


def mutations(root: Path) -> list[Mutation]:
    """Those of the book in `root`, in their order."""
    return [Mutation(**entry) for entry in tomllib.loads((root / "tests/mutations.toml").read_text("utf8"))["mutation"]]


def mutated(root: Path, mutation: Mutation) -> tuple[Path, str]:
    """The module of the function, and its text with the mistake; ValueError unless there is one place for it."""
    owner, _, name = mutation.function.rpartition(".")
    found = []
    for file in [file for folder in ("d2lpar", "book/lab") for file in sorted(root.glob(f"{folder}/**/*.py"))
                 if file.parent.name != "stored" and file.name != "train_gpt.py"]:  # other versions of functions
        text = file.read_text("utf8")
        body = ast.parse(text).body if f"def {name}(" in text else []
        bodies = [c.body for c in body if isinstance(c, ast.ClassDef) and c.name == owner] if owner else [body]
        found += [(file, f) for body in bodies for f in body if isinstance(f, ast.FunctionDef) and f.name == name]
    if len(found) != 1:
        raise ValueError(f"{mutation.function} is there {len(found)} times")
    [(file, f)] = found
    lines = file.read_text("utf8").splitlines(keepends=True)
    text = "".join(lines[f.lineno - 1:f.end_lineno])
    if (count := text.count(mutation.old)) != 1:
        raise ValueError(f"{mutation.function} holds {mutation.old!r} {count} times")
    source = "".join([*lines[:f.lineno - 1], text.replace(mutation.old, mutation.new), *lines[f.end_lineno:]])
    compile(source, str(file), "exec")
    return file, source


def copied(root: Path, copy: Path) -> Path:
    """A copy of the book, without what is made in it."""
    shutil.copytree(root, copy, ignore=lambda folder, names: {
        name for name in names if name == "__pycache__" or (Path(folder) == root and name in NOT_COPIED)})
    (copy / ".venv").mkdir()  # where conftest.py keeps settings from run to run
    return copy


def first_failure(copy: Path, test: str, slow: bool) -> str:
    """The test that fails first, or "time-out"; "" if all pass, and in brackets what else keeps pytest from passing."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    selected = [f"--ignore-glob=**/test_{name}.py" for name in OF_THE_TEXT]
    if test:
        file, colons, one = test.partition("::")
        [path] = copy.glob(f"tests/**/{file}")
        selected = [f"{path}{colons}{one}", *["--nbval"] * slow]
    with subprocess.Popen([*PYTEST, *selected], cwd=copy, env=environment | {"PYTHONPATH": str(copy)},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True) as tests:
        try:
            said, _ = tests.communicate(timeout=LIMIT_S if test else SUITE_LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(tests.pid, signal.SIGKILL)
            return "time-out"
    failed = re.search(r"^(?:FAILED|ERROR) (\S+?::.*?)(?: - .*)?$", said, re.M)
    if tests.returncode == 1 and failed:  # 2 to 5: it could not begin, as where a module cannot be imported
        return failed[1]
    return f"(pytest ends with {tests.returncode}: {' '.join(said.split())[-200:]})" if tests.returncode else ""


def failure_with(mutation: Mutation, copy: Path, test: str, slow: bool) -> str:
    """What fails first in a copy that has the mistake, and has it no more when this ends."""
    file, source = mutated(copy, mutation)
    right = file.read_text("utf8")
    try:
        file.write_text(source, "utf8")
        return first_failure(copy, test, slow)
    finally:
        file.write_text(right, "utf8")
        Path(cache_from_source(str(file))).unlink(missing_ok=True)  # has the mistake, and may be as new as `file`


def main(names: list[str], root: Path = ROOT) -> int:
    """Try the mutations, print a line on each, and give the number of those that survive."""
    start, cores = time.perf_counter(), os.cpu_count() or 1
    chosen = [m for m in mutations(root) if not names or m.function in names]
    if not chosen:
        sys.exit(f"no mutation is of {' or '.join(names)}")
    with tempfile.TemporaryDirectory(prefix="d2lpar-mutate-") as folder, ThreadPoolExecutor(cores) as pool:
        copies: SimpleQueue[Path] = SimpleQueue()
        for core in range(cores):
            copies.put(copied(root, Path(folder, str(core))))

        def tried(mutation: Mutation | None, test: str, slow: bool = False) -> str:
            """What fails first in this test file, or for "" in all quick tests."""
            copy = copies.get()
            try:
                return first_failure(copy, test, slow) if mutation is None else failure_with(mutation, copy, test, slow)
            finally:
                copies.put(copy)

        def survivors(some: list[Mutation], alone: bool) -> list[Mutation]:
            """Those that their files do not notice, or all quick tests do not; prints a line on each."""
            left = []
            for m, by in zip(some, pool.map(lambda m: tried(m, m.test if alone else "", m.slow and alone), some)):
                killed = by and not by.startswith("(")
                how = f"killed by {by}" if killed else f"not noticed by {m.test}" if alone else "SURVIVED"
                print(f"{m.function}, {m.why}: {how}{'' if killed else by and f' {by}'}", flush=True)
                left += [] if killed else [m]
            return left

        files = sorted({(m.test, m.slow) for m in chosen})
        red = [f"{file} fails without a mistake: {by}"
               for (file, _), by in zip(files, pool.map(lambda it: tried(None, *it), files)) if by]
        if red:
            sys.exit("\n".join(red))
        print(f"{len(files)} test files pass without a mistake, in {time.perf_counter() - start:.0f} s", flush=True)
        if left := survivors(chosen, alone=True):
            if by := tried(None, ""):
                print(f"without a mistake the quick tests fail too, and prove nothing: {by}")
            else:
                left = survivors(left, alone=False)
    print(f"{len(chosen) - len(left)} of {len(chosen)} mistakes were noticed, in {time.perf_counter() - start:.0f} s")
    return len(left)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) > 0)
