"""Tests of d2lpar.pages.verdicts: a reader's answer is judged in words, whatever it is."""

import linecache
import sys
from fractions import Fraction
from functools import cache

import pytest

from d2lpar.checks import shown
from d2lpar.pages.verdicts import check, verdict


def is_two(answer):
    return "Right." if answer(1) + 1 == 3 else f"Not yet: {answer(1)} is not 2."


def divides(number):
    return number // 0


@pytest.mark.parametrize("answer, words", [
    (lambda x: 2, "Right.\n"),
    (lambda x: 3, "Not yet: 3 is not 2.\n"),
    (lambda x: "2", "Not yet: the check cannot read what your function gives, TypeError: "),
    (divides, "Not yet: your function raises in the line `return number // 0`, ZeroDivisionError: "),
    (lambda: 2, "Not yet: your function raises, TypeError: "),
    (cache(divides), "Not yet: your function raises, ZeroDivisionError: "),
    (eval("lambda number: 1 // 0"), "Not yet: your function raises, ZeroDivisionError: "),
    (sys.exit, "Not yet: your function raises, SystemExit: 1"),
    (2, "Not yet: the answer must be a function, but it is 2.\n"),
])
def test_an_answer_is_judged_in_words(answer, words, capsys):
    linecache.checkcache()
    verdict(is_two, answer)
    assert capsys.readouterr().out.startswith(words)


@pytest.mark.parametrize("answer, words", [
    (0.75, "Right."), (Fraction(3, 4), "Right."), (Fraction(4, 3), "Not yet: 1.33333? That is upside down."),
])
def test_a_number_found_by_hand_may_be_a_fraction(answer, words, capsys):
    check("ex-factor", answer)
    assert capsys.readouterr().out == f"{words}\n"


def test_nothing_but_a_finite_number_is_a_number_found_by_hand(capsys):
    for wrong in (None, True, "3/4", float("nan"), float("inf"), 10**400, 1j, [0.75], divides):
        check("ex-factor", wrong)
        assert capsys.readouterr().out == f"Not yet: the answer must be a number, but it is {shown(wrong)}.\n"


def test_an_interrupt_is_no_answer():
    def interrupted(x):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        verdict(is_two, interrupted)
