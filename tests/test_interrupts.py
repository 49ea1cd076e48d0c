"""Tests of d2lpar.interrupts, and interrupts at random: Ctrl-C at random moments leaves every step taken everywhere or nowhere."""

import gc
import math
import os
import random
import signal
import threading
import time

import pytest
import torch
from torch import nn

from d2lpar import allreduce, data, get_params, run_on_devices, train_batch, try_devices
from d2lpar.collectives import (
    allreduce_blocks,
    allreduce_flat,
    allreduce_naive,
    allreduce_ring,
    allreduce_tree,
)
from d2lpar.concise import train_data_parallel
from d2lpar.data_parallel import DataParallel
from d2lpar.interrupts import uninterrupted
from d2lpar.models import lenet_params
from d2lpar.scratch import same_bits
from helpers.waiting import until

pytestmark = pytest.mark.usefixtures("ctrl_c_is_obeyed")


def ctrl_c():
    signal.raise_signal(signal.SIGINT)


# One interrupt, by hand


def test_an_interrupt_waits_for_the_end_of_the_block_and_is_raised_there():
    done = []
    with pytest.raises(KeyboardInterrupt):
        with uninterrupted():
            ctrl_c()
            done.append("all of it")
        done.append("what follows")
    assert done == ["all of it"]


def test_of_two_blocks_the_outer_one_counts():
    done = []
    with pytest.raises(KeyboardInterrupt), uninterrupted():
        with uninterrupted():
            ctrl_c()
        done.append("after the inner one")
    assert done == ["after the inner one"]


def test_an_error_and_an_interrupt_are_both_told():
    with pytest.raises(KeyboardInterrupt) as interrupt, uninterrupted():
        ctrl_c()
        raise KeyError("wrong")
    assert isinstance(interrupt.value.__context__, KeyError)


def test_the_third_interrupt_is_obeyed_at_once_and_raised_once():
    done = []
    with pytest.raises(KeyboardInterrupt):
        with uninterrupted():
            for number in range(1, 5):
                ctrl_c()
                done.append(number)
    assert done == [1, 2]


def test_within_a_block_without_end_to_its_patience_the_third_waits_too_and_outside_of_it_no_more():
    done = []
    with pytest.raises(KeyboardInterrupt), uninterrupted():
        with uninterrupted(math.inf):
            for number in range(4):
                ctrl_c()
                done.append(number)
        ctrl_c()
        done.append("outside")
    assert done == [0, 1, 2, 3]


def test_a_reader_who_ignores_interrupts_or_has_a_handler_of_her_own_is_served_as_she_wants():
    seen = []
    signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    with uninterrupted():
        ctrl_c()
        assert seen == []
    assert seen == [signal.SIGINT] and signal.getsignal(signal.SIGINT).__name__ == "<lambda>"
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with uninterrupted():
        ctrl_c()
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_in_another_thread_there_is_nothing_to_do():
    def work():
        with uninterrupted():
            results.append(signal.getsignal(signal.SIGINT))

    results = []
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert results == [signal.default_int_handler]


def test_run_on_devices_raises_it_when_all_ranks_are_done_and_the_next_call_works():
    finished, started = [], threading.Barrier(2)

    def work(rank):
        started.wait(60)
        if rank == 0:
            os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)
        finished.append(rank)

    with pytest.raises(KeyboardInterrupt):
        run_on_devices(work, range(2))
    assert sorted(finished) == [0, 1]
    assert run_on_devices(abs, [-1, -2, -3]) == [1, 2, 3]


def test_three_interrupts_end_the_wait_for_a_rank_that_never_ends():
    release, ended = threading.Event(), []

    def work(rank):
        if rank == 0:
            waiting = signal.getsignal(signal.SIGINT)
            for number in range(1, 4):
                if signal.getsignal(signal.SIGINT) is waiting:
                    os.kill(os.getpid(), signal.SIGINT)
                    until(lambda: waiting.count == number)  # signals that come together count once
            ended.append((waiting.count, release.wait(60)))

    with pytest.raises(KeyboardInterrupt):
        run_on_devices(work, range(2))
    release.set()
    assert run_on_devices(abs, [-1, -2]) == [1, 2] and ended == [(3, True)]


# Interrupts at random


def interrupted(work, longest_s):
    """Call `work` again and again until a Ctrl-C, sent at a random moment of the first `longest_s`, ends it."""
    sender = threading.Timer(random.uniform(0, longest_s), os.kill, (os.getpid(), signal.SIGINT))
    gc.disable()  # an interrupt that comes in a callback of the search for garbage is lost
    try:
        sender.start()
        while True:
            work()
    except KeyboardInterrupt:
        pass
    finally:
        gc.enable()
    sender.join()


def bits(tensors):
    return b"".join(x.detach().cpu().contiguous().numpy().tobytes() for x in tensors)


def a_training(k):
    """A training step on k devices, all its replicas, and a way back to the start."""
    generator = torch.Generator().manual_seed(0)
    X, y = torch.rand(8, 1, 28, 28, generator=generator), torch.randint(10, (8,), generator=generator)
    devices = try_devices(k)
    replicas = [get_params(lenet_params(), device) for device in devices]
    return (lambda: train_batch(X, y, replicas, devices, lr=0.05)), replicas


def seconds_of(work, calls=5):
    """Of the fastest of some calls: one during which the machine stood still says nothing of the others."""
    taken = []
    for _ in range(1 + calls):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return min(taken)


def interrupt_train_batch(interrupts):
    for k, share in ((2, 0.4), (3, 0.3), (5, 0.2), (8, 0.1)):  # the more devices, the longer a step takes
        step, replicas = a_training(k)
        step_s = seconds_of(step)
        for trial in range(round(interrupts * share)):
            interrupted(step, 2 * step_s)
            assert same_bits(replicas), f"the replicas of {k} devices differ after interrupt {trial}"
        step()
        assert same_bits(replicas)


def test_after_an_interrupt_all_replicas_have_taken_the_step_or_none(one_core):
    interrupt_train_batch(80)


@pytest.mark.parametrize("stride", [1, 2])  # with gaps in memory a buffer is copied, and written back
@pytest.mark.parametrize("f", [allreduce, allreduce_ring, *(pytest.param(f, marks=pytest.mark.slow) for f in (
    allreduce_naive, allreduce_tree, allreduce_blocks))], ids=lambda f: f.__name__)
def test_after_an_interrupt_every_buffer_holds_the_sum_or_what_it_held(f, stride, one_core):
    k, calls = 4, 0  # a power of two, so that the sums of the sums stay exact
    buffers = [torch.ones(200_000 * stride, dtype=torch.float64)[::stride] for _ in range(k)]

    def work():
        nonlocal calls
        f(buffers)
        calls += 1

    work_s = seconds_of(work)
    for _ in range(60):
        for x in buffers:
            x.fill_(1.0)
        calls = 0
        interrupted(work, 2 * work_s)
        value = buffers[0][0].item()
        assert all((x == value).all() for x in buffers)
        if calls < 500:  # else it came very late, and the sums may be infinite
            assert value in (float(k) ** calls, float(k) ** (calls + 1))  # the count itself can be one behind


def test_after_an_interrupt_lists_of_tensors_hold_the_sums_or_what_they_held(one_core):
    tensors = [[torch.ones(50_000), torch.ones(3)] for _ in range(3)]
    work_s = seconds_of(lambda: allreduce_flat(tensors))
    for _ in range(60):
        for x in (x for own in tensors for x in own):
            x.fill_(1.0)
        interrupted(lambda: allreduce_flat(tensors), 2 * work_s)
        assert len({x.unique().item() for own in tensors for x in own}) == 1


def test_after_an_interrupt_the_statistics_of_a_data_parallel_module_belong_to_whole_batches(one_core):
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.BatchNorm2d(4))
    parallel, X = DataParallel(net, try_devices(3)), torch.rand(12, 1, 20, 20)
    start = {name: x.clone() for name, x in net.state_dict().items()}
    after = [bits(net.buffers())]
    for _ in range(200):
        parallel(X)
        after.append(bits(net.buffers()))
    net.load_state_dict(start)
    step_s, steps = seconds_of(lambda: parallel(X)), []
    for _ in range(40):
        net.load_state_dict(start)
        steps.clear()
        interrupted(lambda: steps.append(parallel(X) is None), 2 * step_s)
        assert bits(net.buffers()) in after or len(steps) > 190  # it came very late


def test_an_interrupt_in_the_middle_of_an_update_lets_a_training_finish_it(one_core, monkeypatch, capsys):
    monkeypatch.setattr(data, "NUM_TRAIN", 64)
    monkeypatch.setattr(data, "NUM_TEST", 8)

    class Interrupted(torch.optim.SGD):
        def step(self):
            [group] = self.param_groups
            with torch.no_grad():
                for number, p in enumerate(group["params"]):
                    p -= 1000.0
                    if number == 0:
                        ctrl_c()

    monkeypatch.setattr(torch.optim, "SGD", Interrupted)
    net = nn.Sequential(nn.Flatten(), nn.Linear(784, 10), nn.Linear(10, 10))
    with pytest.raises(KeyboardInterrupt):
        train_data_parallel(net, 2, 8, 0.05)
    assert all((p < -900).all() for p in net.parameters())
