"""Tests of book/tools/language.py: what it reads, and that no phrase that is always a mistake is in the book."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

import language

PLANTED = {
    "whoever": "Whoever compares the replicas once has found it.",
    "in another order": "Three devices add in another order, and round.",
    "another than": "Together they train another network than a single device does.",
    "rounded otherwise": "On three ranks the sums are rounded otherwise, by a bit.",
    "from N on": "It pays from 34 images per GPU on, in such a cluster.",
    "as many times too": "Each is as many times too small as there are ranks.",
    "also where": "All gradients are equal, also where the shards are unequal.",
    "in the mean": "The last step takes 12 points in the mean, and once 60.",
    "shall": "What another rank shall know must be sent to it.",
    "long since, dearer": "The first run has had such buckets long since.",
    "lies on the device": "On a GPU the tensor lies on the device already.",
    "is no list": "The shard is empty, and still it is no error.",
    "That of": "That of the ring is wrong by several times.",
    "who without a noun": "There is a text for who sees neither picture.",
    "infinitive as subject": "To use it takes one line of code.",
    "predicate first": "Documented is the other order of the two.",
    "You need X, and that": "You need ranks, and that DDP averages gradients.",
    "trainings": "Two of the published trainings began with other weights.",
    "42 %, .82": "In the end it was right for 42 % of the images.",
}
@pytest.fixture
def found_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The patterns found, each with its kind of text, in a file with this name and source."""
    monkeypatch.setattr(language, "ROOT", tmp_path)

    def found_in(name: str, source: str) -> list[tuple[str, str]]:
        (tmp_path / name).write_text(source, "utf8")
        return [(pattern, words[1:].split(")")[0]) for _, pattern, words in language.hits([tmp_path / name])]

    return found_in


def notebook(kind: str, source: str, caption: str = "") -> str:
    cell = {"cell_type": kind, "id": "a", "source": source, "metadata": {"mystnb": {"figure": {"caption": caption}}}}
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [
        cell | ({"outputs": [], "execution_count": None} if kind == "code" else {})]})


def test_a_sentence_is_planted_for_every_pattern_that_fails() -> None:
    assert list(PLANTED) == [name for name, pattern in language.patterns().items() if pattern.get("fails")]
    assert all(pattern["write"] for pattern in language.patterns().values())


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_sentence_is_found_in_every_kind_of_text(name: str, found_in) -> None:
    planted = PLANTED[name]
    broken = planted.replace(" ", "\n    ", 1)  # over two lines
    for kind, file, source in [
            ("prose", "a.md", f"# Title\n\nWell.\n- {planted}\n\nMore."),
            ("prose", "b.ipynb", notebook("markdown", f"```{{exercise}} A\n```\n\n{planted}\n\n```python\nx\n```")),
            ("docstring", "c.py", f'def f():\n    """{broken}"""\n'),
            ("docstring", "d.ipynb", notebook("code", f'%time\nclass A:\n    """First.\n\n    {planted}\n    """')),
            ("message", "e.py", f'raise ValueError(f"{{x}} is not right. {planted[:20]}" "{planted[20:]}")'),
            ("message", "f.ipynb", notebook("code", f'print("{planted}")')),
            ("figure", "g.ipynb", notebook("code", "x", caption=planted)),
            ("figure", "h.md", f"```{{figure}} a.svg\n:alt: {planted}\n```"),
            ("figure", "i.md", f"![{planted}](a.svg)"),
            ("figure", "j.vl.json", json.dumps({"description": planted}))]:
        assert (name, kind) in found_in(file, source), (file, source)


@pytest.mark.parametrize("source", [
    "`is no list`", "```python\nx = 'Whoever'\n```", "[here](Whoever.md)", "$.5$ and `42 %`", "> Whoever reads this.",
    'They write: "In the end, Whoever was ready first waited for all the others."', "Version 1.2.3, at 0.82 and 42%."])
def test_code_quotations_and_addresses_are_left_out(source: str, found_in) -> None:
    assert found_in("a.md", f"It is so: {source}" if source[0] not in "`>" else source) == []


def test_comments_names_and_strings_of_tests_are_left_out(found_in, tmp_path: Path) -> None:
    assert found_in("a.py", "# Whoever\nWhoever = 'Whoever'\n") == []
    (tmp_path / "tests").mkdir()
    assert found_in("tests/a.py", "x = 'Whoever reads this string'\n") == []


def test_good_uses_are_not_found(found_in) -> None:
    assert found_in("a.md", "The sum is right, whichever rank was first. There is no error. Until then, all wait.") == []


def test_no_phrase_that_is_always_a_mistake_is_in_the_book() -> None:
    found = [f"{file}: {words} ({language.patterns()[name]['write']})" for file, name, words in language.hits(language.files())
             if language.patterns()[name].get("fails")]
    assert found == []


def test_the_command_counts_and_shows(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    page = str(Path(language.ROOT, "book", "setup.md"))
    monkeypatch.setattr(sys, "argv", ["language.py", page])
    language.main()
    counted = capsys.readouterr().out
    assert counted.startswith("book/setup.md")
    monkeypatch.setattr(sys, "argv", ["language.py", page, "--show", "another"])
    language.main()
    shown = capsys.readouterr().out.splitlines()
    number = re.search(r"another (\d+)", counted)  # a page without one is not counted
    assert shown[0].startswith("Write: different") and sum(map(bool, shown[1:])) == int(number[1] if number else 0)
