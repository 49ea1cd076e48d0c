"""Tests of tests/mutations.toml and of book/lab/mutate.py: every mistake has its place, and one may survive."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

import mutate
from mutate import Mutation, mutated, mutations

ROOT = Path(__file__).resolve().parents[1]
GUIDE = "(book/authors.md, Change a function)"


@pytest.mark.parametrize("mutation", mutations(ROOT), ids=lambda m: f"{m.function}: {m.why}")
def test_every_mistake_has_one_place_in_the_package_and_a_test_file(mutation: Mutation, root: Path) -> None:
    wrong = ""
    try:
        file, source = mutated(root, mutation)  # which compiles
    except (ValueError, SyntaxError) as error:
        wrong = str(error)
    assert wrong == "", f"Change the entry in tests/mutations.toml {GUIDE}"
    assert source != file.read_text("utf8"), f"Let `new` differ from `old` in tests/mutations.toml {GUIDE}"
    name, _, test = mutation.test.partition("::")
    files = [*root.glob(f"tests/**/{name}")]
    assert len(files) == 1, f"Name exactly one test file in tests/mutations.toml: {len(files)} are called {name} {GUIDE}"
    assert not test or f"def {test}(" in files[0].read_text("utf8"), f"Name a test of {name} in tests/mutations.toml {GUIDE}"


def test_no_mistake_is_there_twice_and_each_is_said_in_one_line(root: Path) -> None:
    every = mutations(root)
    counts = Counter((m.function, m.old, m.new) for m in every)
    assert [place for place, count in counts.items() if count > 1] == [] and len(every) >= 60, f"Enter each mistake once in tests/mutations.toml {GUIDE}"
    assert [m for m in every if not m.why or "\n" in m.why] == [], f"Say `why` in one line {GUIDE}"


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A book of one module, whose tests do not look at negative numbers."""
    monkeypatch.setattr(mutate, "PYTEST", [*mutate.PYTEST, "-p", "no:nbval", "-p", "no:hypothesispytest"])  # quick
    (tmp_path / "d2lpar").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "d2lpar" / "__init__.py").write_text(
        "def twice(x):\n    return 2 * x, abs(x)\n\n\ndef start():\n    return 1\n\n\nSTART = start()\n")
    (tmp_path / "tests" / "test_twice.py").write_text(
        "from d2lpar import twice\n\n\ndef test_three_is_doubled():\n    assert twice(3) == (6, 3)\n")
    return tmp_path


def mistake(function: str, old: str, new: str) -> str:
    return f'[[mutation]]\nfunction = "{function}"\nold = "{old}"\nnew = "{new}"\ntest = "test_twice.py"\nwhy = "{new}"\n'


@pytest.mark.weekly
def test_a_mistake_that_no_test_notices_survives_and_one_that_cannot_be_imported_is_not_killed(
        book: Path, capsys: pytest.CaptureFixture) -> None:
    (book / "tests" / "mutations.toml").write_text(
        mistake("twice", "2 * x", "3 * x") + mistake("twice", "abs(x)", "x") + mistake("start", "return 1", "return 1 / 0"))
    before = {file: file.read_bytes() for file in book.rglob("*.py")}
    assert mutate.main([], book) == 2
    said = capsys.readouterr().out
    assert re.search(r"^twice, 3 \* x: killed by tests/test_twice.py::test_three_is_doubled$", said, re.M)
    assert re.search(r"^twice, x: SURVIVED$", said, re.M)
    assert re.search(r"^start, return 1 / 0: SURVIVED \(pytest ends with [2-5]: .*1 error in", said, re.M)
    assert "1 of 3 mistakes were noticed" in said
    assert {file: file.read_bytes() for file in book.rglob("*.py")} == before
