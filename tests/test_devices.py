"""Tests of d2lpar.devices: who gets which device, and what a replica's thread inherits, shares and survives."""

import contextlib
import gc
import importlib
import os
import random
import select
import signal
import subprocess
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import torch

from d2lpar import describe_devices, devices, pages, run_on_devices, same_bits, train, try_devices
from d2lpar.devices import all_gather_here, cores_per_device, make_gpus_reproducible, num_ranks_here, rank_here
from helpers.waiting import until

WAIT_S = 20  # a time-out only for tests that would hang otherwise; none of them comes near it


# Which devices


@pytest.mark.parametrize("gpus, expected", [
    (0, ["cpu", "cpu", "cpu"]),
    (1, ["cuda:0", "cuda:0", "cuda:0"]),
    (2, ["cuda:0", "cuda:1", "cuda:0"]),
    (4, ["cuda:0", "cuda:1", "cuda:2"]),
])
def test_three_devices_are_dealt_in_turn_over_the_gpus(monkeypatch, gpus, expected):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    assert [str(d) for d in try_devices(3)] == expected
    assert [str(d) for d in try_devices()] == expected[:1]


def test_no_devices_are_refused():
    with pytest.raises(ValueError, match="whole number of at least 1, got 0"):
        try_devices(0)


def test_the_description_says_what_is_virtual_and_what_is_shared(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"Model {device.index}")
    monkeypatch.setattr(devices, "cpu_name", lambda: "Some CPU")
    monkeypatch.setattr(devices, "all_cores", lambda: 8)
    cpu, gpu0, gpu1 = torch.device("cpu"), torch.device("cuda:0"), torch.device("cuda:1")
    assert describe_devices([]) == "no devices"
    assert describe_devices([cpu]) == "[cpu]: 1 virtual device on Some CPU, 1 of 8 cores"
    with cores_per_device(4):
        assert describe_devices([cpu, cpu]) == "[cpu, cpu]: 2 virtual devices on Some CPU, 4 of 8 cores each"
    assert describe_devices([gpu0, gpu1]) == "[cuda:0, cuda:1]: cuda:0 (Model 0), cuda:1 (Model 1)"
    assert describe_devices([gpu0, gpu1, gpu0]) == (
        "[cuda:0, cuda:1, cuda:0]: 2 virtual devices on cuda:0 (Model 0), cuda:1 (Model 1)")
    assert describe_devices([gpu0, cpu]) == (
        "[cuda:0, cpu]: cuda:0 (Model 0), 1 virtual device on Some CPU, 1 of 8 cores")


# Calls and results


@pytest.mark.parametrize("k", [1, 2, 3, 5, 8])
def test_results_come_in_rank_order_whoever_finishes_first(k):
    done = [threading.Event() for _ in range(k + 1)]
    done[k].set()

    def last_rank_first(rank, word):
        assert done[rank + 1].wait(WAIT_S)
        done[rank].set()
        return rank, word

    words = [f"word {r}" for r in range(k)]
    assert run_on_devices(last_rank_first, range(k), words) == list(enumerate(words))


def test_a_device_keeps_its_thread_also_when_more_devices_join():
    first = run_on_devices(lambda rank: threading.get_ident(), range(2))
    assert threading.get_ident() not in first
    assert run_on_devices(lambda rank: threading.get_ident(), range(5))[:2] == first
    assert run_on_devices(lambda rank: threading.get_ident(), range(2)) == first


@pytest.mark.parametrize("columns, lengths", [((), r"\[\]"), (([], []), r"\[0, 0\]"), (([1, 2], [3]), r"\[2, 1\]")])
def test_lists_that_do_not_fit_are_refused_with_their_lengths(columns, lengths):
    with pytest.raises(ValueError, match=f"got lengths {lengths}"):
        run_on_devices(lambda *args: pytest.fail("must not be called"), *columns)


# Failure


def test_an_error_names_its_rank_and_comes_after_the_other_ranks_have_finished():
    finished, failing = [], threading.Event()

    def work(rank):
        if rank in (1, 3):
            failing.set()
            raise KeyError(f"from rank {rank}")
        assert failing.wait(WAIT_S)
        time.sleep(0.03 * rank)
        finished.append(rank)

    with pytest.raises(KeyError, match="from rank 1") as error:  # the lowest rank that failed
        run_on_devices(work, range(4))
    assert sorted(finished) == [0, 2], "the error came while other ranks were still at work"
    assert error.value.__notes__ == ["raised on rank 1 of 4 devices"]
    assert run_on_devices(abs, [-1, -2, -3, -4]) == [1, 2, 3, 4], "the threads are lost after an error"


def test_a_replicas_backward_pass_is_its_threads_own_and_the_callers_is_as_it_was():
    mode = torch._C._is_multithreading_enabled
    assert run_on_devices(lambda rank: mode(), range(2)) == [False, False] and mode()
    with torch.inference_mode():
        assert run_on_devices(lambda rank: mode(), range(2)) == [False, False]


def forks(test):
    test = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")(test)
    # Python 3.12 warns at every fork of a process that has threads
    return pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")(test)


@contextmanager
def forked(fn):
    """A forked child that runs fn(say); gives its process id and a function that waits for what it says next."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            fn(lambda word: os.write(write_end, str(word).encode()))
        finally:
            os._exit(0)
    os.close(write_end)

    def hear():
        readable, _, _ = select.select([read_end], [], [], WAIT_S)
        assert readable, "the child hangs"
        return os.read(read_end, 1000).decode()

    try:
        yield child, hear
    finally:
        os.close(read_end)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@forks
def test_a_forked_child_starts_threads_of_its_own_and_the_parent_keeps_its():
    before = run_on_devices(lambda rank: threading.get_ident(), range(2))
    with devices._calls_lock, forked(lambda say: say(run_on_devices(abs, [-1, -2]))) as (_, hear):
        assert hear() == "[1, 2]"  # it would wait for ever for threads or for a lock that only its parent has
    assert run_on_devices(lambda rank: threading.get_ident(), range(2)) == before


@forks
def test_a_call_inside_a_device_thread_is_refused_and_does_not_hang():
    def child(say):
        try:
            run_on_devices(lambda rank: rank and run_on_devices(abs, [1, 2]), range(2))
        except RuntimeError as error:
            say(error)

    with forked(child) as (_, hear):  # a process that can be killed when it does hang
        assert hear() == "run_on_devices was called from device 1's own thread and would deadlock"


# Meetings of the ranks of one call


in_20_s = pytest.mark.timeout(WAIT_S)  # for a rank that would wait for ever


@in_20_s
@pytest.mark.parametrize("k", [1, 2, 3, 5, 8])
def test_every_rank_gets_what_all_have_brought_in_rank_order_meeting_after_meeting(k):
    def work(rank):
        for number in range(20):
            time.sleep(random.random() / 1000)
            assert all_gather_here((rank, number)) == [(r, number) for r in range(k)]
        return all_gather_here([rank])

    results = run_on_devices(work, range(k))
    assert results == [[[r] for r in range(k)]] * k
    assert all(a is b for result in results for a, b in zip(result, results[0])), "the objects themselves"


def test_a_thread_of_no_device_has_nobody_to_meet():
    with pytest.raises(RuntimeError, match="is for functions that run_on_devices calls"):
        all_gather_here(1)
    assert run_on_devices(lambda rank: num_ranks_here(), range(3)) == [3] * 3
    assert (num_ranks_here(), rank_here()) == (None, None)
    with pytest.raises(KeyError):
        run_on_devices({}.__getitem__, range(2))
    assert run_on_devices(lambda rank: num_ranks_here(), [0]) == [1], "after an error the next call has its own"


@in_20_s
@pytest.mark.parametrize("failing", range(4))
@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_rank_that_raises_releases_all_that_wait_and_its_own_error_is_reported(failing, after):
    released = []

    def work(rank):
        for number in range(5):
            if (rank, number) == (failing, after):
                time.sleep(0.02)
                raise KeyError(f"from rank {rank}")
            try:
                all_gather_here(rank)
            except RuntimeError as error:
                released.append(str(error))
                if rank == 0:
                    raise
                if rank == 1:
                    raise error from error  # a circle
                raise ValueError("in other words") from error

    with pytest.raises(KeyError, match=f"from rank {failing}") as error:
        run_on_devices(work, range(4))
    assert error.value.__notes__ == [f"raised on rank {failing} of 4 devices"]
    assert sorted(released) == [
        f"rank {r} waits in vain for rank {failing}, whose function has raised KeyError"
        for r in range(4) if r != failing]
    assert run_on_devices(all_gather_here, [4, 5, 6, 7]) == [[4, 5, 6, 7]] * 4


@in_20_s
@pytest.mark.parametrize("gone", range(3))
def test_a_rank_that_returns_early_is_named_by_the_lowest_rank_that_waits(gone):
    def work(rank):
        all_gather_here(rank)
        if rank != gone:
            all_gather_here(rank)

    lowest = 1 if gone == 0 else 0
    with pytest.raises(RuntimeError, match=f"rank {lowest} waits .* for rank {gone}, .* has returned") as error:
        run_on_devices(work, range(3))
    assert error.value.__notes__ == [f"raised on rank {lowest} of 3 devices"]


@in_20_s
def test_whoever_comes_when_another_rank_is_gone_already_does_not_wait():
    gone = threading.Event()

    def work(rank):
        if rank == 1:
            assert gone.wait(WAIT_S)
            time.sleep(0.05)
            return all_gather_here(rank)
        gone.set()

    with pytest.raises(RuntimeError, match="rank 1 waits in vain for rank 0"):
        run_on_devices(work, range(2))


@in_20_s
def test_callers_at_once_do_not_block_each_other_and_have_meetings_of_their_own(monkeypatch):
    # Replicas that wait for one another deadlock if rank 0 starts with one caller's work and rank 1 with the other's.
    def slowly(rank, real=devices._calls_of):
        time.sleep(random.random() / 1000)
        return real(rank)

    monkeypatch.setattr(devices, "_calls_of", slowly)

    def call_often(caller):
        for number in range(20):
            k = 2 + (caller + number) % 3
            words = [(caller, number, rank) for rank in range(k)]
            assert run_on_devices(lambda word: [all_gather_here(word) for _ in range(3)], words) == [[words] * 3] * k

    with ThreadPoolExecutor(3) as callers:
        for call in [callers.submit(call_often, caller) for caller in range(3)]:
            call.result()


@in_20_s
def test_a_meeting_keeps_nothing_alive_when_it_is_over_or_has_failed():
    class Thing:
        pass

    def meet(rank, thing, fails):
        if rank == 0 and fails:
            raise KeyError
        all_gather_here(thing)

    for fails in (False, True):
        things = [Thing(), Thing(), Thing()]
        watch = [weakref.ref(thing) for thing in things]
        gc.collect()
        gc.disable()
        try:
            with contextlib.suppress(KeyError):
                run_on_devices(meet, range(3), things, fails=fails)
            del things
            until(lambda: [ref() for ref in watch] == [None] * 3)  # the threads let go a moment later
        finally:
            gc.enable()


# What PyTorch keeps per thread


def test_grad_mode_of_the_caller_holds_in_every_replica():
    def grad_mode(rank):
        return torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    assert run_on_devices(grad_mode, range(3)) == [(True, False)] * 3
    with torch.no_grad():
        assert run_on_devices(grad_mode, range(3)) == [(False, False)] * 3
        with torch.enable_grad():
            assert run_on_devices(grad_mode, range(3)) == [(True, False)] * 3
    with torch.inference_mode():
        assert run_on_devices(grad_mode, range(3)) == [(False, True)] * 3
        with torch.inference_mode(False), torch.no_grad():
            assert run_on_devices(grad_mode, range(3)) == [(False, False)] * 3
    assert run_on_devices(grad_mode, range(3)) == [(True, False)] * 3


def test_autocast_of_the_caller_holds_in_every_replica():
    X = torch.ones(2, 2)

    def product_dtype(rank):
        return (X @ X).dtype, torch.is_autocast_cache_enabled()

    assert run_on_devices(product_dtype, range(2)) == [(torch.float32, True)] * 2
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        assert run_on_devices(product_dtype, range(2)) == [(torch.bfloat16, False)] * 2
        with torch.autocast("cpu", enabled=False):
            assert run_on_devices(product_dtype, range(2))[0][0] is torch.float32
    with torch.autocast("cpu", torch.float16):
        assert run_on_devices(product_dtype, range(2)) == [(torch.float16, True)] * 2
    assert run_on_devices(product_dtype, range(2)) == [(torch.float32, True)] * 2


def threads_in_replicas(k=2):
    return run_on_devices(lambda rank: torch.get_num_threads(), range(k))


def test_a_replica_has_its_share_of_the_cores_and_everyone_else_what_they_had():
    caller = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        assert threads_in_replicas() == [1, 1]
        with cores_per_device(2):
            assert threads_in_replicas() == [2, 2]
            assert threads_in_replicas(k=9) == [2] * 9, "a thread that is new here has another share"
            assert torch.get_num_threads() == 2, "the update of one device would have other cores than the rest"
        with contextlib.suppress(KeyError), cores_per_device(3):
            with cores_per_device(2):
                pass
            assert devices.device_cores() == 3
            raise KeyError
        assert threads_in_replicas() == [1, 1]
        assert torch.get_num_threads() == 3
        with ThreadPoolExecutor(1) as new:
            assert new.submit(torch.get_num_threads).result() == 3, "every thread started later would be limited too"
    finally:
        torch.set_num_threads(caller)


def test_importing_the_pages_tells_gpus_to_give_the_same_bits_in_every_run():
    cudnn, cublas = torch.backends.cudnn, torch.backends.cuda.matmul
    before = cudnn.allow_tf32, cublas.allow_tf32, cudnn.deterministic
    try:
        cudnn.allow_tf32, cublas.allow_tf32, cudnn.deterministic = True, True, False
        importlib.reload(pages)
        assert (cudnn.allow_tf32, cublas.allow_tf32, cudnn.deterministic) == (False, False, True)
    finally:
        cudnn.allow_tf32, cublas.allow_tf32, cudnn.deterministic = before


IMPORTED = """
import torch
from torch.backends import cuda, cudnn
cudnn.allow_tf32, cuda.matmul.allow_tf32, cudnn.deterministic, cudnn.benchmark = True, True, False, True
import d2lpar
print(cudnn.allow_tf32, cuda.matmul.allow_tf32, cudnn.deterministic, cudnn.benchmark)
"""


@pytest.mark.slow
def test_importing_the_package_alone_leaves_the_settings_of_gpus_to_the_user():
    run = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["True", "True", "False", "True"]


@pytest.mark.gpu
def test_training_runs_on_a_gpu_all_have_the_same_bits():
    make_gpus_reproducible()
    runs = [train(3, batch_size=64, lr=0.03, num_epochs=1, num_train=700)[0][0] for _ in range(3)]
    assert same_bits(runs)


@pytest.mark.gpu
def test_real_gpus_are_different_as_long_as_there_are_enough():
    gpus = torch.cuda.device_count()
    assert len(set(try_devices(gpus))) == gpus
    assert try_devices(gpus + 1)[-1] == torch.device("cuda:0")
    assert torch.cuda.get_device_name(0) in describe_devices(try_devices(1))


@pytest.mark.gpu
@pytest.mark.timeout(120, method="thread")  # what waits for ever waits in C++
def test_a_backward_pass_of_a_replica_on_a_gpu_is_computed_in_its_own_thread():
    def thread_of_backward(device):
        x, threads = torch.ones(3, device=device, requires_grad=True), []
        x.register_hook(lambda grad: threads.append(threading.current_thread()))
        all_gather_here(rank_here())
        x.square().sum().backward()
        return threads == [threading.current_thread()]

    assert run_on_devices(thread_of_backward, try_devices(2)) == [True, True]

    class Both(torch.autograd.Function):  # runs in PyTorch's thread for the GPU
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            with torch.enable_grad():
                assert run_on_devices(thread_of_backward, try_devices(2)) == [True, True]
            return grad

    Both.apply(torch.ones(1, device="cuda", requires_grad=True)).sum().backward()


@pytest.mark.gpu
def test_autocast_on_the_gpu_holds_in_every_replica():
    X = torch.ones(2, 2, device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        assert run_on_devices(lambda rank: (X @ X).dtype, range(2)) == [torch.bfloat16] * 2
