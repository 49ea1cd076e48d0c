"""Tests of d2lpar.launch: what comes back from the ranks, whose failure is reported, and that no process is left."""

import atexit
import contextlib
import ctypes
import gc
import importlib
import io
import itertools
import linecache
import multiprocessing
import multiprocessing.popen_forkserver
import multiprocessing.reduction
import multiprocessing.util
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
import torch
import torch.distributed as dist

from d2lpar import launch
from d2lpar.devices import cores_per_device
from d2lpar.launch import RankError, RankGroup, run_ranks
from helpers.waiting import until

pytestmark = pytest.mark.slow  # each rank loads PyTorch
resource = pytest.importorskip("resource")  # these tests are of POSIX

WAIT_S = 60  # for what takes a few seconds


@pytest.fixture(scope="module", autouse=True)
def fork_server():
    """What stays as long as the program is there before the first test."""
    run_ranks(abs, 1)


def files_left():
    """In the folder for temporary files, but for PyTorch's own cache, which `torch._dynamo` makes when it is loaded."""
    return [name for name in os.listdir(tempfile.gettempdir()) if not name.startswith("torchinductor_")]


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path, monkeypatch):
    """Every call, also one that fails, leaves the caller as it was; what earlier tests have left may end meanwhile."""

    def state():
        gc.collect()
        return files_left(), {**os.environ, "PYTEST_CURRENT_TEST": ""}

    temporary = tempfile.mkdtemp(prefix="d2lpar-")  # in a folder of pytest's the name of a socket can be too long
    monkeypatch.setattr(tempfile, "tempdir", temporary)
    before, files, processes, threads = state(), open_files(), started(), {*threading.enumerate()}
    yield
    assert state() == before
    now = open_files()
    assert now.keys() <= files.keys()
    assert [file for file, on_disk in files.items() if on_disk and file not in now] == [], "somebody else's file is closed"
    assert {*threading.enumerate()} <= threads
    assert {process for process in started() - processes if alive(process.pid)} == set()
    assert not dist.is_initialized()
    shutil.rmtree(temporary)


def started():
    """All processes that this one has started, and theirs, but for the two that stay."""
    staying = server(), resource_tracker._resource_tracker._pid
    return {child for child in psutil.Process().children(recursive=True) if child.pid not in staying}


def server():
    return forkserver._forkserver._forkserver_pid


def open_files():
    """Each as its number and what it is, with whether it is a file on disk (and no connection)."""
    found = {}
    for number in {*map(int, os.listdir("/dev/fd"))} - {forkserver._forkserver._forkserver_alive_fd}:
        with contextlib.suppress(OSError):  # the listing itself, which is closed now
            what = os.fstat(number)
            found[number, what.st_dev, what.st_ino] = stat.S_ISREG(what.st_mode)
    return found


@pytest.fixture(params=["forks", pytest.param("fresh Pythons", marks=pytest.mark.weekly)])
def both_ways(request, monkeypatch):
    """Ranks as they are on Linux and macOS, and as they are elsewhere (which other tests try daily)."""
    if request.param == "fresh Pythons":
        monkeypatch.setattr(launch, "_start_method", lambda: "spawn")


# What the ranks of the tests run


def place():
    return torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")


def add_up(rank, X):
    os.write(1, b"noise of a library in C++\n")
    os.write(2, b"noise of a library in C++\n")
    X = X.to(place()) * 10**rank
    dist.all_reduce(X)
    time.sleep(0.2 * (2 - rank))  # the last rank comes first
    print("from", rank)
    print("to stderr\nnot ended", file=sys.stderr, end="")
    return rank, X.cpu(), torch.get_num_threads(), os.environ["OMP_NUM_THREADS"]


def outlast(rank):
    process = torch.tensor([os.getpid()], device=place())
    dist.broadcast(process, src=1)
    time.sleep(0.0 if rank == 1 else 0.7)
    return psutil.pid_exists(process.item()) and psutil.Process(process.item()).status() != psutil.STATUS_ZOMBIE


def fail(rank, folder):
    print("working")
    if rank == 1:
        dist.barrier()  # for ever
    if rank == 0:
        until(lambda: list(Path(folder).glob("*/2-error")))
        time.sleep(0.05)  # a file's time may have steps of some milliseconds
    raise KeyError(f"no such thing on rank {rank}")


def die(rank, how):
    if rank == 1:
        os.write(2, b"last words")
        how(os.getpid(), signal.SIGKILL)
    dist.barrier()


def leave(process, code):
    os._exit(code)


def stay(rank, folder):
    if rank == 0:
        return
    if rank == 1:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path(folder, f"stays {rank}").touch()
    sleep_on()


def sleep_on():
    time.sleep(1000)


def children_in(folder):
    return [int(path.read_text()) for path in folder.glob("child *") if path.read_text()]


def start_a_child(rank, folder, then):
    child = subprocess.Popen(["sleep", "1000"])
    Path(folder, f"child {rank}").write_text(str(child.pid))
    until(lambda: len(children_in(folder)) == 2)  # or the end of one rank would end the other before it has one
    then()
    return "done"


def hold_the_interpreter():
    ctypes.PyDLL(None).sleep(1000)  # a call in C that lets no other thread run


def print_and_wait(rank, file):
    print("first\nsecond, not yet", end="")
    if rank == 0:
        until(file.exists)
    print(" finished")


def ask_its_input(rank):
    return subprocess.run(["cat"], capture_output=True, timeout=WAIT_S).stdout, sys.stdin.read()


def give_what_cannot_be_read(rank):
    class Sealed:
        def __reduce__(self):
            return open, ("/no/such/file",)

    return Sealed() if rank == 1 else None


def names(rank):
    return dist.get_backend(), torch.cuda.current_device()


# Results


def test_a_rank_that_finishes_early_stays_for_its_peers_to_talk_to(capfd):
    assert run_ranks(outlast, 2) == [True, True]
    assert capfd.readouterr() == ("", "")


def test_what_rank_0_prints_is_shown_at_once_and_the_others_when_all_is_done(tmp_path, monkeypatch, capsys):
    def show(line, **options):
        print(line)
        if line == "rank 0: first":
            (tmp_path / "seen").touch()  # rank 0 has waited for it

    monkeypatch.setattr(launch, "print", show, raising=False)
    run_ranks(print_and_wait, 2, tmp_path / "seen", timeout_s=WAIT_S)
    assert capsys.readouterr().out == "".join(f"rank {rank}: {line}\n" for rank in range(2)
                                              for line in ("first", "second, not yet finished"))


def test_of_an_overwritten_line_the_last_state_is_shown_also_where_letters_are_missing(monkeypatch):
    page = io.TextIOWrapper(io.BytesIO(), "ascii")
    monkeypatch.setattr(sys, "stdout", page)
    run_ranks(lambda rank: print("\r 0%|   |\r50%|## |\rdone: é"), 1)
    page.flush()
    assert page.buffer.getvalue() == b"rank 0: done: \\xe9\n"


def test_a_function_defined_anywhere_takes_along_what_it_uses():
    class Pair:
        def __init__(self, a, b):
            self.both = (a, b)

    def helper(x):
        return x + shift

    shift = 100
    first, second = run_ranks(lambda rank, x: Pair(helper(rank), x), 2, "y")
    assert (first.both, second.both) == ((100, "y"), (101, "y"))
    assert type(first) is Pair, "what comes back is of the very class"


# Failure


def test_an_error_shows_the_line_of_a_notebooks_cell():
    source = "def work(rank):\n    return 1 / rank  # in a cell\n"
    name, scope = "/tmp/no/such/cell.py", {"__name__": "__main__"}
    linecache.cache[name] = len(source), None, source.splitlines(True), name  # as IPython does
    exec(compile(source, name, "exec"), scope)
    with pytest.raises(RankError, match=r"(?s)^rank 0 raised.*line 2, in work\n    return 1 / rank  # in a cell\n"):
        run_ranks(scope["work"], 2)


def test_the_first_rank_that_raises_ends_all_and_is_named_with_its_traceback(capsys, monkeypatch):
    monkeypatch.setattr(launch, "_LOOK_S", 2.0)  # at most looks, both errors are there
    start = time.monotonic()
    with pytest.raises(RankError) as error:
        run_ranks(fail, 3, tempfile.gettempdir(), timeout_s=2 * WAIT_S)
    assert time.monotonic() - start < WAIT_S
    message = str(error.value)
    assert message.startswith("rank 2 raised an exception\n\nTraceback (most recent call last):\n")
    assert 'raise KeyError(f"no such thing on rank {rank}")\n' in message
    assert message.endswith("KeyError: 'no such thing on rank 2'")
    assert capsys.readouterr().out == "rank 0: working\nrank 1: working\nrank 2: working\n"


@pytest.mark.parametrize("how, words", [(os.kill, "was killed by SIGKILL"), (leave, "ended with exit code 9")])
def test_a_rank_that_dies_is_named_and_not_the_peers_that_lose_it(how, words):
    with pytest.raises(RankError, match=f"^rank 1 {words} before fn had returned\n\nlast words$"):
        run_ranks(die, 2, how)


def alive(process):
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(process).status() != psutil.STATUS_ZOMBIE
    return False


def give_up():
    raise KeyError("enough")


@pytest.mark.parametrize("then", [bool, give_up, sleep_on, partial(os._exit, 9), hold_the_interpreter],
                         ids=["returns", "raises", "is ended after a time-out", "dies", "cannot even hear"])
def test_a_child_of_a_rank_ends_with_it(then, tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "time", when(lambda: len(children_in(tmp_path)) == 2 and then not in (bool, give_up),
                                             "time out"))
    with contextlib.suppress(RankError, TimeoutError):
        assert run_ranks(start_a_child, 2, tmp_path, then, timeout_s=WAIT_S) == ["done"] * 2
    assert len(children_in(tmp_path)) == 2
    until(lambda: not any(map(alive, children_in(tmp_path))))


def test_a_result_that_cannot_be_read_here_names_its_rank():
    with pytest.raises(RankError, match="^what rank 1 returned cannot be read here: FileNotFoundError"):
        run_ranks(give_what_cannot_be_read, 2)


def test_the_time_limit_holds_while_the_ranks_are_started(monkeypatch):
    monkeypatch.setattr(launch, "time", SimpleNamespace(monotonic=lambda: len(group._started.ranks) if group._started else 0, sleep=time.sleep))
    group = RankGroup(2**70)  # which takes a second for each rank
    with pytest.raises(TimeoutError, match=r"^after 2\.5 s, only 3 of 1180591620717411303424 ranks had been started$"):
        group.run(names, timeout_s=2.5)


def when(condition, then):
    """A module `time` for launch: while `condition` holds, each sleep is interrupted, or at the 50th look the time is out."""
    looks = itertools.count(1)

    def sleep(s):
        if then == "Ctrl-C" and condition():
            signal.raise_signal(signal.SIGINT)
        time.sleep(s)

    return SimpleNamespace(monotonic=lambda: time.monotonic() + 1000 * (then == "time out" and condition() and next(looks) >= 50),
                           sleep=sleep)


def test_a_time_out_says_who_stood_where_and_ends_also_those_that_will_not(tmp_path, monkeypatch, both_ways):
    # the time is out when all are where they stay, however long this machine takes to start them
    def all_are_there():
        return len([*tmp_path.glob("stays *"), *Path(tempfile.gettempdir()).glob("*/0-result")]) == 3

    monkeypatch.setattr(launch, "time", when(all_are_there, "time out"))
    with pytest.raises(TimeoutError) as error:
        run_ranks(stay, 3, tmp_path, timeout_s=WAIT_S)
    message = str(error.value)
    assert message.startswith(f"after {WAIT_S} s, rank 1, rank 2 of 3 ranks had not finished\n\n"
                              "rank 0: fn had returned\n\nrank 1: ")
    assert "in sleep_on\n" in message.partition("rank 2: ")[2]


def test_a_time_out_shows_the_line_of_code_also_in_a_folder_whose_name_is_not_ascii(tmp_path, monkeypatch):
    folder = tmp_path / "Bücher, 书"
    folder.mkdir()
    (folder / "waits_here.py").write_text("import time\n\ndef wait(rank):\n    time.sleep(1000)  # here\n")
    monkeypatch.syspath_prepend(folder)
    wait = importlib.import_module("waits_here").wait
    monkeypatch.setattr(launch, "_GRACE_S", 0.5)
    with RankGroup(1) as group:
        group.run(lambda rank: None)  # the start is not what is waited for
        with pytest.raises(TimeoutError) as error:
            group.run(wait, timeout_s=0.5)
    assert f'File "{folder / "waits_here.py"}", line 4 in wait\n    time.sleep(1000)  # here' in str(error.value)


def test_ctrl_c_ends_the_ranks_and_reaches_the_caller(tmp_path, monkeypatch, ctrl_c_is_obeyed):
    monkeypatch.setattr(launch, "time", when(lambda: (tmp_path / "stays 1").exists(), "Ctrl-C"))
    with pytest.raises(KeyboardInterrupt):
        run_ranks(stay, 2, tmp_path)


def test_an_interrupt_goes_to_the_programs_own_handler_which_need_not_raise(tmp_path, ctrl_c_is_obeyed):
    def interrupt(rank, caller):
        if rank == 0:
            os.kill(caller, signal.SIGINT)
        until((tmp_path / "obeyed").exists)
        return rank

    before = signal.signal(signal.SIGINT, lambda *_: (tmp_path / "obeyed").touch())
    try:
        assert run_ranks(interrupt, 2, os.getpid(), timeout_s=WAIT_S) == [0, 1]
    except KeyboardInterrupt:
        pytest.fail("the handler was not asked")
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_rank_that_has_left_its_group_and_ignores_sigterm_is_ended(tmp_path, monkeypatch):
    def away(rank):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.setpgid(0, os.getpgid(os.getppid()))
        (tmp_path / "new").write_text(str(os.getpid()))
        (tmp_path / "new").rename(tmp_path / "away")
        sleep_on()

    monkeypatch.setattr(launch, "time", when((tmp_path / "away").exists, "time out"))
    with pytest.raises(TimeoutError, match="rank 0: it did not say where: stopped, or deaf to SIGTERM$"):
        run_ranks(away, 1, timeout_s=WAIT_S)
    assert not alive(int((tmp_path / "away").read_text()))


# A group that stays


def own_number(rank, then=None):
    if then is not None and rank == 1:
        then()
    return os.getpid()


def count_calls(rank):
    os.calls = getattr(os, "calls", 0) + 1  # in this process alone
    print("call", os.calls)
    return os.calls


def sum_of_ranks(rank):
    total = torch.tensor([rank], device=place())
    dist.all_reduce(total)
    return total.item(), torch.get_num_threads()


@pytest.fixture
def two():
    with RankGroup(2) as group:
        yield group


def test_a_group_stays_for_many_calls_with_what_they_leave_behind(two, capsys):
    first = two.run(own_number)
    assert two.run(count_calls) == [1, 1] and two.run(count_calls) == [2, 2]
    assert capsys.readouterr().out == "".join(f"rank {rank}: call {n}\n" for n in (1, 2) for rank in (0, 1))
    with cores_per_device(3):
        assert two.run(sum_of_ranks) == [(1, 3)] * 2, "the share of the cores is that of the call"
    assert two.run(own_number) == first


def test_a_group_is_started_by_its_first_call_and_gone_once_it_is_closed():
    before, group = started(), RankGroup(2)
    group.close()  # nothing is there yet
    assert started() == before
    first = group.run(own_number)
    assert len(started() - before) == 3, "two ranks and the reaper"
    group.close()
    group.close()
    assert not any(map(psutil.pid_exists, first)) and started() == before
    assert not set(group.run(own_number)) & set(first), "and another call starts it again"
    del group  # nobody holds it
    assert started() == before


def test_what_serves_multiprocessing_is_not_in_the_callers_group_for_whose_end_a_kernel_waits():
    """ipykernel would wait for them when the kernel is shut down, until Jupyter kills it and its temporary files stay."""
    assert os.getpgrp() not in {os.getpgid(server()), os.getpgid(resource_tracker._resource_tracker._pid)}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system copies no process")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_copy_of_the_caller_does_not_end_its_ranks(two):
    first = two.run(own_number)
    for what in (two._started.end, two.close, lambda: os.rmdir(tempfile.mkdtemp())):
        copy = os.fork()
        if copy == 0:
            try:
                what()
                multiprocessing.util._exit_function()  # as at the end of a program
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(copy, 0)[1] == 0
        assert two.run(own_number) == first


def test_a_line_that_goes_on_in_the_next_call_loses_nothing(two, capsys):
    two.run(lambda rank: print("abc", end=""))
    two.run(lambda rank: print("def"))
    assert capsys.readouterr().out == "rank 0: abc\nrank 1: abc\nrank 0: def\nrank 1: def\n"


def test_who_is_to_blame_is_not_who_heard_of_it_first(two):
    def leaves_the_group(rank):
        try:
            if rank == 1:
                raise KeyError("the cause")
            dist.barrier()
        finally:
            dist.destroy_process_group()
            time.sleep(0.3 * rank)

    def dies_after_its_result(rank, folder):
        if rank == 0:
            threading.Thread(target=lambda: until(lambda: list(Path(folder).glob("*/0-result"))) or os.kill(os.getpid(), 40)).start()
        else:
            dist.barrier()

    with pytest.raises(RankError, match="(?s)^rank 1 raised .*KeyError: 'the cause'$"):
        two.run(leaves_the_group)
    with pytest.raises(RankError, match="^rank 0 was killed by (signal 40|SIGRT.*) after fn had returned"):
        two.run(dies_after_its_result, tempfile.gettempdir())


def test_a_child_of_a_rank_that_is_ended_does_not_say_where_the_rank_stood(two, tmp_path, monkeypatch):
    def hang(rank):
        child = os.fork()
        if child == 0:
            sleep_on()
        time.sleep(0.3)
        os.kill(child, signal.SIGTERM)
        os.waitpid(child, 0)
        if rank == 0:
            (tmp_path / "waits").touch()
            dist.barrier()

    two.run(own_number)
    monkeypatch.setattr(launch, "time", when((tmp_path / "waits").exists, "time out"))
    with pytest.raises(TimeoutError, match="(?s)rank 0: Stack(?!.*sleep_on).*barrier"):
        two.run(hang, timeout_s=WAIT_S)


@pytest.mark.parametrize("then, words", [
    (give_up, "rank 1 raised an exception(?s:.*)KeyError: 'enough'"),
    (sys.exit, "rank 1 raised an exception(?s:.*)SystemExit"),
    (partial(os._exit, 0), "rank 1 ended with exit code 0 before fn had returned"),
    (lambda: signal.raise_signal(signal.SIGKILL), "rank 1 was killed by SIGKILL"),
])
def test_after_a_call_that_failed_the_next_one_finds_fresh_ranks(two, then, words):
    first = two.run(own_number)
    with pytest.raises(RankError, match=words):
        two.run(own_number, then)
    assert not set(first) & set(two.run(own_number))


def test_a_rank_that_was_killed_between_two_calls_is_replaced_with_all_others(two):
    first = two.run(own_number)
    os.kill(first[1], signal.SIGKILL)
    until(two._started.ranks[1].has_ended)
    assert not set(first) & set(two.run(own_number))


def test_a_rank_that_has_left_its_group_is_told_so_at_the_next_call(two):
    assert two.run(lambda rank: dist.destroy_process_group()) == [None, None]
    with pytest.raises(RankError, match="has left its group in an earlier call"):
        two.run(own_number)


def is_stopped(process):
    return psutil.Process(process).status() == psutil.STATUS_STOPPED


def test_a_rank_that_is_stopped_is_ended_and_did_not_say_where_it_was(two, monkeypatch):
    first, ranks = two.run(own_number)[0], two._started.ranks
    waits = when(lambda: alive(first) and is_stopped(first) and ranks[1].file("result").exists(), "time out")
    monkeypatch.setattr(launch, "time", waits)
    with pytest.raises(TimeoutError) as error:
        two.run(lambda rank: rank or signal.raise_signal(signal.SIGSTOP), timeout_s=WAIT_S)
    assert str(error.value) == (f"after {WAIT_S} s, rank 0 of 2 ranks had not finished\n\n"
                                "rank 0: it did not say where: stopped, or deaf to SIGTERM\n\nrank 1: fn had returned")


def test_a_rank_that_never_joins_does_not_hold_the_caller(monkeypatch):
    start = launch._Rank.__init__

    def start_and_stop(process, method, rank, *settings):
        start(process, method, rank, *settings)
        if rank == 1:
            os.kill(process.pid, signal.SIGSTOP)
            until(lambda: is_stopped(process.pid))

    monkeypatch.setattr(launch._Rank, "__init__", start_and_stop)
    joining = when(lambda: any(Path(tempfile.gettempdir()).glob("*/store")), "time out")
    monkeypatch.setattr(launch, "time", joining)
    with pytest.raises(TimeoutError, match="(?s)rank 0, rank 1 of 2 .*rank 1: it (was starting still|did not say where.*)$"):
        run_ranks(own_number, 2, timeout_s=WAIT_S)


@pytest.mark.parametrize("gpus, world_size, backend", [(0, 2, "gloo"), (1, 1, "nccl"), (1, 2, "gloo"), (4, 3, "nccl")])
def test_nccl_is_chosen_where_each_rank_has_a_gpu_and_too_few_are_spoken_of(gpus, world_size, backend, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(dist, "is_nccl_available", lambda: True)
    assert RankGroup(world_size).backend == backend
    assert capsys.readouterr().out.startswith(f"{world_size} ranks, but GPUs: {gpus}.") == (0 < gpus < world_size)
    assert RankGroup(world_size, "gloo").backend == "gloo"
    assert capsys.readouterr().out == "", "who asks for the CPU knows it"


# The caller is a script: this one has no main guard, and its function is in a file beside it

SCRIPT = """
import sys, beside
from d2lpar.launch import run_ranks
print(run_ranks(beside.work, 2, ""), flush=True)
if sys.argv[1:]:
    run_ranks(beside.work, 2, *sys.argv[1:])
"""
BESIDE = """
import ctypes, os, subprocess, sys
def work(rank, folder):
    if folder:
        child = subprocess.Popen(["sleep", "1000"])
        with open(f"{folder}/child {rank}.new", "w") as file:
            file.write(str(child.pid))
        os.rename(file.name, f"{folder}/child {rank}")
        if rank == 1:
            os.setpgid(0, os.getpgid(os.getppid()))  # it leaves its group
        ctypes.PyDLL(None).sleep(1000)  # no other thread of this process runs any more
    return rank, "matplotlib" in sys.modules
"""


def script(folder, *arguments):
    (folder / "script.py").write_text(SCRIPT)
    (folder / "beside.py").write_text(BESIDE)
    return subprocess.Popen([sys.executable, "-W", "error::ResourceWarning", "script.py", *arguments], cwd=folder,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            env=os.environ | {"TMPDIR": tempfile.gettempdir()})


def test_where_the_name_of_a_socket_would_be_too_long_ranks_are_fresh_pythons(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("long" * 30)))
    os.mkdir(tempfile.gettempdir())
    with script(tmp_path) as caller:
        assert caller.stdout.read() == "[(0, False), (1, False)]\n"
    assert files_left() == []


def test_a_script_needs_no_guard_its_ranks_load_what_they_need_and_if_it_is_killed_nothing_is_left(tmp_path):
    with script(tmp_path, str(tmp_path)) as caller:
        assert caller.stdout.readline() == "[(0, False), (1, False)]\n"
        until(lambda: caller.poll() is not None or len(list(tmp_path.glob("child ?"))) == 2)
        processes = psutil.Process(caller.pid).children(recursive=True)
        try:
            assert len(processes) == 7, "two ranks, a child of each, the reaper, and the two that stay"
            caller.kill()
            until(lambda: not any(alive(process.pid) for process in processes))
            until(lambda: files_left() == [])
        finally:
            for process in processes:
                if process.is_running():
                    process.kill()


PROGRAM = """
import os, signal, threading
from multiprocessing import forkserver
import psutil, torch
from d2lpar.launch import RankGroup, run_ranks
from d2lpar.pages import plot
signal.signal(signal.SIGINT, lambda *_: print("obeyed"))
threading.Timer(0.5, os.killpg, (0, signal.SIGINT)).start()  # as Ctrl-C in a terminal, while PyTorch is loaded
print(run_ranks(abs, 1))
torch.optim.SGD([torch.zeros(1)])
plot.use_book_style()
print(run_ranks(lambda rank: os.getppid(), 1) == [forkserver._forkserver._forkserver_pid], flush=True)
if os.fork() == 0:
    raise SystemExit  # the copy of a program ends without a word, too
os.wait()
group = RankGroup(2)
print(os.getpid(), *group.run(lambda rank: os.getpid()), *[child.pid for child in psutil.Process().children(recursive=True)])
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """What such a program says, line by line; it has to end without a word on its errors."""
    file = tmp_path_factory.mktemp("program") / "program.py"
    file.write_text(PROGRAM)
    run = subprocess.run([sys.executable, "-W", "error::ResourceWarning", file], capture_output=True, text=True, timeout=WAIT_S,
                         start_new_session=True)
    assert run.stderr == ""
    return run.stdout.splitlines()


def test_ctrl_c_while_pytorch_is_loaded_reaches_the_caller_alone(program):
    assert program[:2] == ["obeyed", "[0]"]


def test_what_pytorch_and_figures_set_in_the_environment_costs_no_forks(program):
    assert program[2] == "True"


def test_a_program_that_leaves_a_group_open_leaves_no_process(program):
    assert len(program) == 4 and len(program[3].split()) >= 6
    until(lambda: not any(map(alive, map(int, program[3].split()))))


# The fork server


def draws(rank):
    return random.random(), np.random.rand(), torch.rand(1).item(), os.getpid()


def test_forks_draw_random_numbers_of_their_own():
    assert [len(set(each)) for each in zip(*run_ranks(draws, 2), *run_ranks(draws, 2))] == [4] * 4


def test_another_folder_or_environment_is_followed(two, monkeypatch, tmp_path):
    def here(rank):
        return os.getppid(), os.environ.get("SOMETHING_NEW"), os.getcwd(), multiprocessing.get_start_method()

    def load(rank):
        import written_later

        return written_later.VALUE

    before, method = two.run(here), multiprocessing.get_start_method()
    with monkeypatch.context() as patch:
        patch.chdir(tmp_path)
        assert run_ranks(here, 1) == [(server(), None, str(tmp_path), method)]
        patch.setattr(sys, "path", ["", *sys.path])
        (tmp_path / "written_later.py").write_text("VALUE = 7")
        assert run_ranks(load, 1) == [7]
        patch.setenv("SOMETHING_NEW", "3")
        assert run_ranks(here, 1) == [(os.getpid(), "3", str(tmp_path), method)], "a fresh Python"
    assert two.run(here) == before, "the group that was there stays"


@pytest.mark.parametrize("platform, gpus", [("darwin", 0), ("win32", 0), ("linux", 1)])
def test_elsewhere_ranks_are_fresh_pythons(platform, gpus, monkeypatch):
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    assert launch._start_method() == "spawn"


def leave_something_behind(rank, folder):
    def work():
        time.sleep(0.3)
        (folder / "thread").touch()

    atexit.register(print, "last words", end="")
    threading.Thread(target=work).start()
    sys.left = open(folder / "log.txt", "w"), tempfile.TemporaryDirectory(prefix="temporary", dir=folder)  # noqa: SIM115
    sys.left[0].write("the end")


def test_a_rank_ends_as_every_python(tmp_path, capsys):
    run_ranks(leave_something_behind, 1, tmp_path)
    assert capsys.readouterr().out == "rank 0: last words\n"
    assert (tmp_path / "log.txt").read_text() == "the end"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.txt", "thread"]


def test_where_the_fork_server_was_killed_there_is_another_one(two):
    first, killed = two.run(own_number), server()
    os.kill(killed, signal.SIGKILL)
    until(lambda: not alive(killed))
    assert not set(first) & set(two.run(own_number)) and server() != killed
    until(lambda: not any(map(alive, first)))


def test_results_and_prints_come_in_rank_order_with_one_sum_on_all_ranks(capfd, both_ways):
    with cores_per_device(3):
        results = run_ranks(add_up, 3, torch.tensor([1.0, 2.0]))
    assert [rank for rank, *_ in results] == [0, 1, 2]
    for _, X, *cores in results:
        assert torch.equal(X, torch.tensor([111.0, 222.0]))
        assert cores == [3, "1"]
    printed = [f"rank {r}: {line}\n" for r in range(3) for line in (f"from {r}", "to stderr", "not ended")]
    assert capfd.readouterr() == ("".join(printed), "")


def cores_as_seen_by_two_modules(rank):
    from d2lpar import devices, launch
    return devices.all_cores(), launch.all_cores()


def test_a_rank_knows_as_many_cores_as_its_caller(both_ways):
    assert run_ranks(cores_as_seen_by_two_modules, 2) == [cores_as_seen_by_two_modules(0)] * 2


@pytest.fixture(params=["forkserver", "spawn"])
def method(request, monkeypatch):
    """Each way of starting ranks, daily."""
    monkeypatch.setattr(launch, "_start_method", lambda: request.param)
    return request.param


def test_a_program_that_ignores_the_end_of_its_children_gets_results_and_keeps_no_process(method):
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    how = "with exit code 9" if method == "forkserver" else r"\(how is unknown, as this program ignores SIGCHLD\)"
    try:
        with RankGroup(1) as group:
            assert group.run(ask_its_input) == [(b"", "")], "a child of a rank finds no pipe of ours on its input"
            with pytest.raises(RankError, match=f"^rank 0 ended {how} before fn had returned$"):
                group.run(lambda rank: os._exit(9))
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_a_program_without_standard_streams_gets_results(method):
    saved = {number: os.dup(number) for number in (0, 1, 2)}
    try:
        for number in saved:
            os.close(number)
        with RankGroup(1) as group:
            got = [group.run(ask_its_input) for _ in range(2)]
            taken = [number for number in saved if number in {*map(int, os.listdir("/dev/fd"))}]
    finally:
        for number, copy in saved.items():
            os.dup2(copy, number)
            os.close(copy)
    assert got == [[(b"", "")]] * 2
    assert len(taken) <= 1, "the listing itself; but no pipe of ours has one of these numbers"


@pytest.fixture
def server_is_stopped(monkeypatch):
    """The fork server of a program that has had a group answers nothing more."""
    run_ranks(abs, 1)  # an earlier test may have ended it
    monkeypatch.setattr(launch, "_GRACE_S", 0.2)
    pid = server()
    os.kill(pid, signal.SIGSTOP)
    until(lambda: is_stopped(pid))
    yield pid
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def test_a_time_out_counts_while_the_fork_server_does_not_answer_and_the_next_group_has_a_new_one(server_is_stopped):
    start = time.monotonic()
    with pytest.raises(TimeoutError, match=r"^after 0\.5 s, only 0 of 2 ranks had been started$"):
        run_ranks(own_number, 2, timeout_s=0.5)
    assert time.monotonic() - start < WAIT_S and not psutil.pid_exists(server_is_stopped)
    assert len(run_ranks(own_number, 2)) == 2 and server() not in (None, server_is_stopped)


def test_ctrl_c_counts_while_the_fork_server_does_not_answer_and_a_rank_that_starts_after_it_is_ended(
        server_is_stopped, monkeypatch, ctrl_c_is_obeyed):
    before, start, settings = started(), launch._start_process, []

    def interrupted(method, of_rank, look):
        settings.append(of_rank)
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        return start(method, of_rank, look)

    monkeypatch.setattr(launch, "_start_process", interrupted)
    monkeypatch.setattr(launch, "_end_server", lambda: os.kill(server_is_stopped, signal.SIGCONT))  # it answers, too late
    with pytest.raises(KeyboardInterrupt):
        run_ranks(own_number, 2)
    assert len(settings) == 1
    until(lambda: started() == before)


def test_where_no_fork_can_be_had_the_server_is_ended_and_the_rank_is_a_fresh_python(monkeypatch):
    def refused(files):
        raise ConnectionRefusedError(111, "Connection refused")

    ended = []
    monkeypatch.setattr(multiprocessing.popen_forkserver.forkserver, "connect_to_new_process", refused)
    monkeypatch.setattr(launch, "_end_server", lambda: ended.append(server()))
    assert run_ranks(lambda rank: os.getppid(), 1) == [os.getpid()] and ended == [server()]


@pytest.mark.weekly
def test_a_fork_server_that_has_died_of_too_few_files_harms_no_later_group(monkeypatch):
    run_ranks(abs, 1)
    failing, send = server(), multiprocessing.reduction.sendfds

    def too_many_files(*args):
        monkeypatch.setattr(multiprocessing.reduction, "sendfds", send)
        raise OSError(24, "Too many open files")  # and the server, which waits for them, dies

    monkeypatch.setattr(multiprocessing.reduction, "sendfds", too_many_files)
    assert run_ranks(lambda rank: os.getppid(), 1) == [os.getpid()]
    assert not psutil.pid_exists(failing)
    assert run_ranks(lambda rank: os.getppid(), 1) == [server()]


def test_a_group_whose_reaper_cannot_be_started_leaves_no_folder(monkeypatch):
    def fail(*args, **named):
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(subprocess, "Popen", fail)
    with pytest.raises(OSError, match="Too many open files"):
        run_ranks(abs, 1)
    assert files_left() == []


def test_who_deletes_the_folder_of_a_group_is_told_so_and_the_next_call_works(two, tmp_path):
    two.run(own_number)
    shutil.rmtree(folder := two._started.folder)
    words = f"^the folder {folder}, into which ranks write what they return, was deleted: the ranks were ended, and the next call starts new ones"
    with pytest.raises(RankError, match=words):
        two.run(own_number)
    two.run(own_number)
    folder = two._started.folder  # this group's alone: other processes have groups as well
    with pytest.raises(RankError, match=f"^the folder {folder}, into which ranks write what they return, was deleted: the ranks were ended"):
        two.run(lambda rank: rank or os.rename(folder, tmp_path / "gone"))  # at once, while rank 1 may be writing there
    assert len(two.run(own_number)) == 2


def test_a_full_disk_is_named_with_the_folder(two, monkeypatch):
    def return_too_much(rank):
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        return bytes(10**5 * (1 - rank))

    two.run(own_number)
    folder = two._started.folder
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=0))
    with pytest.raises(RankError, match=f"^rank 0 ended with exit code 1 before fn had returned. The disk with {folder}, into which ranks write what they return, is full"):
        two.run(return_too_much)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    two.run(own_number)
    folder = two._started.folder
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(OSError, match=rf"^\[Errno 27\] File too large: '{folder}/call'$"):
            two.run(own_number, bytes(10**5))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_where_there_is_no_folder_for_temporary_files_its_name_is_told(tmp_path, monkeypatch):
    words = rf"^ranks need a folder for temporary files, and {tmp_path}/gone is no longer there: create it"
    with monkeypatch.context() as patch, pytest.raises(FileNotFoundError, match=words):
        patch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
        run_ranks(abs, 1)


def test_a_rank_whose_caller_has_died_and_whose_folder_is_gone_leaves_without_a_traceback(tmp_path):
    run_ranks(abs, 1)
    theirs, words = multiprocessing.Pipe(duplex=False)
    settings = (str(tmp_path / "gone"), 0, 1, "gloo", theirs, sys.path, "spawn", 1, [])
    with theirs, words:
        _, process = launch._start_process("forkserver", settings, lambda: None)
        process.join(WAIT_S)
    assert process.exitcode == 0
    process.close()


# Bad input


@pytest.mark.parametrize("world_size, args, timeout_s, words", [
    (0, (), 1, "at least 1, got 0"), (2.0, (), 1, r"whole number of at least 1, got 2\.0"), (2, (), 0, "more than 0 seconds, got 0"),
    (2, (), float("nan"), "more than 0 seconds, got nan"), (2, (threading.Lock(),), 1, r"can be pickled: .*lock"),
])
def test_bad_input_is_named_before_any_process_starts(world_size, args, timeout_s, words, monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", lambda *args, **kwargs: pytest.fail("a process was started"))
    with pytest.raises(ValueError, match=words):
        run_ranks(names, world_size, *args, timeout_s=timeout_s)


# GPU


@pytest.mark.gpu
@pytest.mark.skipif(not dist.is_nccl_available(), reason="needs NCCL")
def test_ranks_that_can_have_a_gpu_each_talk_by_nccl():
    gpus = torch.cuda.device_count()
    assert run_ranks(names, gpus) == [("nccl", rank) for rank in range(gpus)]
    assert run_ranks(lambda rank: place(), 1) == [torch.device("cuda")]
