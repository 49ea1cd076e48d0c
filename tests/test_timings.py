"""Tests of d2lpar.pages.timings: a page prints medians and speed-ups that were worked out by hand."""

import pytest

from d2lpar.pages.timings import print_speedups, quietly


def test_a_speed_up_compares_the_cases_repeat_by_repeat(capsys):
    print_speedups({"one": [0.010, 0.020, 0.030], "two, half as long": [0.005, 0.005, 0.030]})
    assert capsys.readouterr().out.splitlines() == [
        "one                 20.0 ms (15.0 to 25.0)",
        "two, half as long    5.0 ms (5.0 to 17.5)   2.00 times as fast (1.50 to 3.00)"]


def test_cases_with_different_numbers_of_repeats_are_refused():
    with pytest.raises(ValueError, match="shorter"):
        print_speedups({"one": [1.0, 2.0, 3.0], "two": [1.0, 2.0]})


def test_a_quiet_call_returns_its_result_and_prints_nothing(capsys):
    def speak(word, times=1):
        print(word)
        return word * times

    assert quietly(speak, "a", times=3) == "aaa"
    assert capsys.readouterr().out == ""
