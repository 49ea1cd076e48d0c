"""Tests of d2lpar.timing: what a training shows while it runs, and what is left of it."""

import re
import signal

import pytest
import torch

from d2lpar import timing
from d2lpar.timing import History

CPU = [torch.device("cpu")]


def test_two_epochs_by_hand(monkeypatch, capsys):
    clock = iter([10.0, 11.5, 20.0, 22.0])
    monkeypatch.setattr(timing.time, "perf_counter", lambda: next(clock))
    with History(2, 3, CPU) as training:
        assert list(training.clocked("abc")) == ["a", "b", "c"]
        training.add(0.5)
        assert list(training.clocked("abc")) == ["a", "b", "c"]
        training.add(0.625)
    assert (training.epoch_s, training.accuracies) == ([1.5, 2.0], [0.5, 0.625])
    first, second, last, where = capsys.readouterr().out.splitlines()
    assert (first, second) == ("epoch  1: 1.50 s, test acc 0.500", "epoch  2: 2.00 s, test acc 0.625")
    assert last == "test acc 0.62, 1.8 s/epoch"
    assert re.fullmatch(r"on \[cpu\]: 1 virtual device .*", where)


def test_the_clock_waits_for_the_devices_and_stands_still_outside_the_batches(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(timing.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(timing, "synchronize", lambda devices: clock.__setitem__(0, clock[0] + 7 * len(devices)))
    with History(1, 2, CPU) as training:
        clock[0] += 100
        for _ in training.clocked("ab"):
            clock[0] += 1
        clock[0] += 100
        training.add(0.5)
    assert training.epoch_s == [1 + 1 + 7]


def test_an_epoch_that_was_left_by_break_has_no_time_and_is_not_added():
    with pytest.raises(RuntimeError, match="ended early"), History(2, 2, CPU) as training:
        list(training.clocked("ab"))
        training.add(0.5)
        for _ in training.clocked("ab"):
            break
        training.add(0.6)
    assert training.accuracies == [0.5] and len(training.epoch_s) == 1


def test_a_training_that_fails_prints_no_last_line_and_closes_its_bar(capsys):
    with pytest.raises(ZeroDivisionError), History(2, 2, CPU) as training:
        for _ in training.clocked("ab"):
            pass
        training.add(0.5)
        1 / 0
    assert capsys.readouterr().out.count("test acc") == 1
    assert training._bar.disable


def test_an_interrupt_waits_for_the_end_of_the_step_in_which_it_comes(ctrl_c_is_obeyed):
    done = []
    with pytest.raises(KeyboardInterrupt), History(1, 3, CPU) as training:
        for batch in training.clocked("abc"):
            if batch == "b":
                signal.raise_signal(signal.SIGINT)
            done.append(batch)
    assert done == ["a", "b"] and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_after_a_loop_was_left_comes_before_the_next_epoch(ctrl_c_is_obeyed):
    done = []
    with pytest.raises(KeyboardInterrupt), History(2, 3, CPU) as training:
        for epoch in range(2):
            for batch in training.clocked("abc"):
                done.append((epoch, batch))
                break
            signal.raise_signal(signal.SIGINT)
    assert done == [(0, "a")] and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_after_a_step_that_fails_interrupts_come_at_once_again(ctrl_c_is_obeyed):
    with pytest.raises(ZeroDivisionError) as error, History(1, 2, CPU) as training:
        for _ in training.clocked("ab"):
            1 / 0
    assert error.value is not None and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
