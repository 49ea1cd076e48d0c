"""Tests of d2lpar.processes: what comes back from the ranks, whose failure is reported, and that no process is left."""

import atexit
import contextlib
import ctypes
import gc
import io
import itertools
import linecache
import multiprocessing
import os
import random
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import weakref
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
import torch
import torch.distributed as dist

from d2lpar.base.devices import cores_per_device
from d2lpar.processes import RankError, RankGroup, children, launch, run_ranks
from helpers.waiting import until

pytestmark = pytest.mark.slow  # each rank loads PyTorch
resource = pytest.importorskip("resource")  # these tests are of POSIX

WAIT_S = 60  # for what takes a few seconds


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path, monkeypatch):
    """Every call, also one that fails, leaves the caller as it was; what earlier tests have left may end meanwhile."""

    def state():
        gc.collect()
        return os.listdir(temporary), {**os.environ, "PYTEST_CURRENT_TEST": ""}

    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    before, files, processes, threads = state(), open_files(), beside_the_loaded(), {*threading.enumerate()}
    yield
    assert state() == before
    now = open_files()
    assert now.keys() <= files.keys()
    assert [file for file, on_disk in files.items() if on_disk and file not in now] == [], "somebody else's file is closed"
    assert {*threading.enumerate()} <= threads
    assert {process for process in beside_the_loaded() - processes if alive(process.pid)} == set()
    until(lambda: beside_the_loaded() <= processes)  # where much goes on, a loaded process takes its time to forget a copy
    assert not dist.is_initialized()


def loaded_processes():
    """Those that ranks are copies of: they stay, each with a connection."""
    return [one for one in children.every_loaded if one.end.alive]


def beside_the_loaded():
    """All other processes that this one has started, and theirs."""
    loaded = [one.pid for one in loaded_processes()]
    return {child for child in psutil.Process().children(recursive=True) if child.pid not in loaded}


def open_files():
    """Each as its number and what it is, with whether it is a file on disk (and no connection)."""
    found = {}
    for number in {*map(int, os.listdir("/dev/fd"))} - {one._control.fileno() for one in loaded_processes()}:
        with contextlib.suppress(OSError):  # the listing itself, which is closed now
            what = os.fstat(number)
            found[number, what.st_dev, what.st_ino] = stat.S_ISREG(what.st_mode)
    return found


@pytest.fixture(params=["copies", "fresh Pythons"])
def both_ways(request, monkeypatch):
    """Ranks as they are on Linux, and as they are elsewhere and with GPUs."""
    if request.param == "fresh Pythons":
        monkeypatch.setattr(children, "copies_can_be_made", lambda backend: False)


# What the ranks of the tests run


def place():
    return torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")


def place_of(rank):
    return place()


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


def fail(rank):
    print("working")
    if rank == 1:
        dist.barrier()  # for ever
    if rank == 0:
        until(Path(sys.argv[1], "2-error").exists)  # a rank is told its group's folder first
        time.sleep(0.05)  # a file's time may have steps of some milliseconds
    raise KeyError(f"no such thing on rank {rank}")


def die(rank, how):
    if rank == 1:
        os.write(2, b"last words")
        how(os.getpid(), signal.SIGKILL)
    dist.barrier()


def leave(process, code):
    os._exit(code)


def give_a_lock(rank):
    return threading.Lock()


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


def print_a_bar(rank):
    print("\r 0%|   |\r50%|## |\rdone: é")


def test_of_an_overwritten_line_the_last_state_is_shown_also_where_letters_are_missing(monkeypatch):
    page = io.TextIOWrapper(io.BytesIO(), "ascii")
    monkeypatch.setattr(sys, "stdout", page)
    run_ranks(print_a_bar, 1)
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


class Trace:
    """Python calls this when it takes apart what is loaded."""

    def __init__(self, path):
        self.path = path

    def __del__(self):
        self.path.touch()


LEFT = []


def leave_something_behind(rank, folder, file_is_open):
    def work():
        time.sleep(0.3)
        (folder / "thread").touch()

    atexit.register((folder / "exit function").touch)
    atexit.register(print, "last words", end="")
    threading.Thread(target=work).start()
    LEFT.append(Trace(folder / "taken apart"))
    if file_is_open:
        LEFT.append(open(folder / "log.txt", "w"))  # noqa: SIM115
        LEFT[1].write("the end")


@pytest.mark.parametrize("file_is_open", [False, True])
def test_a_rank_ends_as_every_python_but_takes_nothing_apart_unless_a_file_is_open(file_is_open, tmp_path, both_ways, capsys):
    run_ranks(leave_something_behind, 1, tmp_path, file_is_open)
    assert (tmp_path / "exit function").exists() and (tmp_path / "thread").exists()
    assert capsys.readouterr().out == "rank 0: last words\n"
    assert (tmp_path / "taken apart").exists() == file_is_open
    if file_is_open:
        assert (tmp_path / "log.txt").read_text() == "the end"


def start_a_python(rank):
    child = multiprocessing.get_context("spawn").Process(target=sys.exit, args=(3,))
    child.start()
    child.join()
    return child.exitcode


def test_a_process_that_a_rank_has_started_ends_with_its_own_code(both_ways):
    assert run_ranks(start_a_python, 1) == [3]


def spoil_the_report(rank):
    os.replace = None


def test_a_rank_that_cannot_write_its_report_ends_with_an_exit_code(both_ways):
    with pytest.raises(RankError, match="^rank 0 ended with exit code 1 "):
        run_ranks(spoil_the_report, 1)


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
        run_ranks(fail, 3, timeout_s=2 * WAIT_S)
    assert time.monotonic() - start < WAIT_S
    message = str(error.value)
    assert message.startswith("rank 2 raised an exception\n\nTraceback (most recent call last):\n")
    assert 'raise KeyError(f"no such thing on rank {rank}")\n' in message
    assert message.endswith("KeyError: 'no such thing on rank 2'")
    assert capsys.readouterr().out == "rank 0: working\nrank 1: working\nrank 2: working\n"


@pytest.mark.parametrize("how, words", [(os.kill, "was killed by SIGKILL"), (leave, "ended with exit code 9")])
def test_a_rank_that_dies_is_named_and_not_the_peers_that_lose_it(how, words, both_ways):
    with pytest.raises(RankError, match=f"^rank 1 {words} before fn had returned\n\nlast words$"):
        run_ranks(die, 2, how)


@pytest.mark.slow
def test_a_rank_that_dies_for_want_of_room_is_told_so(monkeypatch):
    monkeypatch.setattr(launch.shutil, "disk_usage", lambda folder: SimpleNamespace(free=1000))
    with pytest.raises(RankError, match="^rank 1 was killed by SIGKILL before fn had returned\n\nthe disk .* is full"):
        run_ranks(die, 2, os.kill)


def alive(process):
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(process).status() != psutil.STATUS_ZOMBIE
    return False


def give_up():
    raise KeyError("enough")


@pytest.mark.slow
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


def test_the_time_limit_holds_while_the_ranks_are_started(monkeypatch, both_ways):
    now = itertools.count()
    monkeypatch.setattr(launch, "time", SimpleNamespace(monotonic=lambda: next(now), sleep=time.sleep))
    with pytest.raises(TimeoutError, match=r"^after 2\.5 s, only 0 of 1180591620717411303424 ranks had been started$"):
        run_ranks(names, 2**70, timeout_s=2.5)
    if children.copies_can_be_made("gloo"):
        return  # one waits for a copy, and looks at the clock as often as it takes
    now = itertools.count()
    with pytest.raises(TimeoutError, match=r"^after 3\.5 s, only 1 of 2 ranks had been started$"):
        run_ranks(names, 2, timeout_s=3.5)


def test_a_result_that_cannot_be_sent_is_named():
    with pytest.raises(RankError, match="(?s)^rank 0 .*cannot be pickled: <class '_thread.lock'>$"):
        run_ranks(give_a_lock, 1)


def when(condition, then):
    """A module `time` for launch: while `condition` holds, each sleep is interrupted, or at the 50th look the time is out."""
    looks = itertools.count(1)

    def sleep(s):
        if then == "Ctrl-C" and condition():
            signal.raise_signal(signal.SIGINT)
        time.sleep(s)

    return SimpleNamespace(monotonic=lambda: time.monotonic() + 1000 * (then == "time out" and condition() and next(looks) >= 50),
                           sleep=sleep)


@pytest.mark.slow
def test_a_time_out_says_who_stood_where_and_ends_also_those_that_will_not(tmp_path, monkeypatch, both_ways):
    # the time is out when all are where they stay, however long this machine takes to start them
    def all_are_there():
        return len([*tmp_path.glob("stays *"), *tmp_path.glob("temporary/*/0-result")]) == 3

    monkeypatch.setattr(launch, "time", when(all_are_there, "time out"))
    with pytest.raises(TimeoutError) as error:
        run_ranks(stay, 3, tmp_path, timeout_s=WAIT_S)
    message = str(error.value)
    assert message.startswith(f"after {WAIT_S} s, rank 1, rank 2 of 3 ranks had not finished\n\n"
                              "rank 0: fn had returned\n\nrank 1: ")
    assert "in sleep_on\n" in message.partition("rank 2: ")[2]


def test_ctrl_c_ends_the_ranks_and_reaches_the_caller(tmp_path, monkeypatch, ctrl_c_is_obeyed, both_ways):
    monkeypatch.setattr(launch, "time", when(lambda: (tmp_path / "stays 1").exists(), "Ctrl-C"))
    with pytest.raises(KeyboardInterrupt):
        run_ranks(stay, 2, tmp_path)


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


def test_a_group_stays_for_many_calls_with_what_they_leave_behind(both_ways, two, capsys):
    first = two.run(own_number)
    assert two.run(count_calls) == [1, 1] and two.run(count_calls) == [2, 2]
    assert capsys.readouterr().out == "".join(f"rank {rank}: call {n}\n" for n in (1, 2) for rank in (0, 1))
    with cores_per_device(3):
        assert two.run(sum_of_ranks) == [(1, 3)] * 2, "the share of the cores is that of the call"
    assert two.run(own_number) == first


def test_a_group_is_started_by_its_first_call_and_gone_once_it_is_closed(both_ways):
    def started():
        return len(beside_the_loaded() - before)

    before, group = beside_the_loaded(), RankGroup(2)
    group.close()  # nothing is there yet
    assert started() == 0
    first = group.run(own_number)
    assert started() == 3, "two ranks and the keeper"
    group.close()
    group.close()
    assert not any(map(psutil.pid_exists, first)) and started() == 0
    assert not set(group.run(own_number)) & set(first), "and another call starts it again"
    del group  # nobody holds it
    assert started() == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system copies no process")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_copy_of_the_caller_does_not_end_its_ranks(two):
    first = two.run(own_number)
    for what in (two._started.end, two.close, lambda: os.rmdir(tempfile.mkdtemp())):
        copy = os.fork()
        if copy == 0:
            what()
            weakref.finalize._exitfunc()  # as at the end of a program
            os._exit(0)
        os.waitpid(copy, 0)
        assert two.run(own_number) == first


def test_two_threads_do_not_get_one_anothers_results(two, tmp_path):
    def wait(rank):
        (tmp_path / str(rank)).touch()
        until((tmp_path / "go").exists)
        return rank

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(two.run, wait)
        until((tmp_path / "1").exists)
        with pytest.raises(RuntimeError, match="a call of another thread"):
            two.run(own_number)
        (tmp_path / "go").touch()
        assert first.result() == [0, 1]
    with pytest.raises(ValueError, match="a RankGroup cannot be sent"):
        two.run(lambda rank: two)


def test_a_line_that_goes_on_in_the_next_call_loses_nothing(two, capsys):
    two.run(lambda rank: print("abc", end=""))
    two.run(lambda rank: print("def"))
    assert capsys.readouterr().out == "rank 0: abc\nrank 1: abc\nrank 0: def\nrank 1: def\n"


@pytest.mark.slow
def test_who_is_to_blame_is_not_who_heard_of_it_first(two):
    def leaves_the_group(rank):
        try:
            if rank == 1:
                raise KeyError("the cause")
            dist.barrier()
        finally:
            dist.destroy_process_group()
            time.sleep(0.3 * rank)

    def dies_after_its_result(rank):
        if rank == 0:
            threading.Thread(target=lambda: until(Path(sys.argv[1], "0-result").exists) or os.kill(os.getpid(), 40)).start()
        else:
            dist.barrier()

    with pytest.raises(RankError, match="(?s)^rank 1 raised .*KeyError: 'the cause'$"):
        two.run(leaves_the_group)
    with pytest.raises(RankError, match="^rank 0 was killed by (signal 40|SIGRT.*) after fn had returned"):
        two.run(dies_after_its_result)


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_rank_that_was_killed_between_two_calls_is_replaced_with_all_others(both_ways, two):
    first = two.run(own_number)
    os.kill(first[1], signal.SIGKILL)
    until(two._started.processes[1].child.has_ended)
    assert not set(first) & set(two.run(own_number))


@pytest.mark.slow
def test_a_rank_that_has_left_its_group_is_told_so_at_the_next_call(two):
    assert two.run(lambda rank: dist.destroy_process_group()) == [None, None]
    with pytest.raises(RankError, match="has left its group in an earlier call"):
        two.run(own_number)


def test_a_time_out_says_which_rank_was_stopped_and_which_one_waited_where(both_ways, two, monkeypatch):
    two.run(own_number)
    first, second = two._started.processes
    monkeypatch.setattr(launch, "time", when(lambda: first.child.is_stopped() and second.file("result").exists(), "time out"))
    with pytest.raises(TimeoutError) as error:
        two.run(lambda rank: rank or signal.raise_signal(signal.SIGSTOP), timeout_s=WAIT_S)
    assert str(error.value) == (f"after {WAIT_S} s, rank 0 of 2 ranks had not finished\n\n"
                                "rank 0: had been stopped by a signal\n\nrank 1: fn had returned")


@pytest.mark.slow
def test_a_rank_that_never_joins_does_not_hold_the_caller(monkeypatch):
    start = launch._Process.__init__

    def start_and_stop(process, rank, *settings):
        start(process, rank, *settings)
        if rank == 1:
            os.kill(process.child.pid, signal.SIGSTOP)
            until(process.child.is_stopped)

    monkeypatch.setattr(launch._Process, "__init__", start_and_stop)
    joining = when(lambda: any(Path(tempfile.gettempdir()).glob("*/store")), "time out")
    monkeypatch.setattr(launch, "time", joining)
    with pytest.raises(TimeoutError, match="(?s)rank 0, rank 1 of 2 .*rank 1: had been stopped by a signal$"):
        run_ranks(own_number, 2, timeout_s=WAIT_S)


@pytest.mark.parametrize("gpus, world_size, backend", [(0, 2, "gloo"), (1, 1, "nccl"), (1, 2, "gloo"), (4, 3, "nccl")])
def test_nccl_is_chosen_where_each_rank_has_a_gpu_and_too_few_are_spoken_of(gpus, world_size, backend, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(dist, "is_nccl_available", lambda: True)
    assert RankGroup(world_size).backend == backend
    assert capsys.readouterr().out.startswith(f"{world_size} ranks, but GPUs: {gpus}.") == (0 < gpus < world_size)


def test_a_backend_that_is_named_is_taken_and_another_word_is_refused(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert RankGroup(2, "gloo").backend == "gloo" and RankGroup(3, backend="gloo").backend == "gloo"
    assert capsys.readouterr().out == "", "who asks for the CPU knows it"
    with pytest.raises(ValueError, match='the backend must be "gloo" or "nccl", got \'mpi\''):
        RankGroup(2, "mpi")


# The caller is a script: this one has no main guard, and its function is in a file beside it

SCRIPT = """
import sys, beside
from d2lpar.processes import run_ranks
print(run_ranks(beside.work, 2, sys.argv[1]))
"""
BESIDE = """
import ctypes, os, subprocess, sys
def work(rank, folder):
    if folder:
        child = subprocess.Popen(["sleep", "1000"])
        with open(f"{folder}/child {rank}.new", "w") as file:
            file.write(str(child.pid))
        os.rename(file.name, f"{folder}/child {rank}")
        ctypes.PyDLL(None).sleep(1000)  # no other thread of this process runs any more
    return rank, "d2lpar" in sys.modules
"""


def script(folder, *arguments):
    (folder / "script.py").write_text(SCRIPT)
    (folder / "beside.py").write_text(BESIDE)
    return subprocess.Popen([sys.executable, "-W", "error::ResourceWarning", "script.py", *arguments], cwd=folder,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            env=os.environ | {"TMPDIR": tempfile.gettempdir()})


@pytest.mark.slow
def test_a_script_needs_no_guard_and_its_ranks_load_no_more_than_its_function_needs(tmp_path):
    with script(tmp_path, "") as caller:
        assert caller.stdout.read() == "[(0, False), (1, False)]\n"


@pytest.mark.slow
def test_a_caller_that_is_killed_leaves_no_process_and_no_folder(tmp_path):
    with script(tmp_path, str(tmp_path)) as caller:
        until(lambda: caller.poll() is not None or len(list(tmp_path.glob("child ?"))) == 2)
        processes = psutil.Process(caller.pid).children(recursive=True)
        try:
            loaded = 2 * children.copies_can_be_made("gloo")
            assert len(processes) == 5 + loaded, "two ranks, a child of each, the keeper, and those that ranks are copies of"
            caller.kill()
            until(lambda: not any(alive(process.pid) for process in processes))
            until(lambda: os.listdir(tempfile.gettempdir()) == [])
        finally:
            for process in processes:
                if process.is_running():
                    process.kill()


# Copies of loaded processes

only_copies = pytest.mark.skipif(not children.copies_can_be_made("gloo"), reason="here every rank is a fresh Python")


def surroundings(rank):
    files = sorted(os.readlink(f"/proc/self/fd/{fd}").split(":")[0].rpartition("-")[2] for fd in range(10)
                   if os.path.exists(f"/proc/self/fd/{fd}"))
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE)]
    return (sys.argv[2:], sys.path, os.getcwd(), {**os.environ}, os.getpgid(0) == os.getpid(), threading.active_count(),
            handlers, files, sys.stdin.read())


@only_copies
def test_a_copy_finds_itself_where_a_fresh_python_does(monkeypatch):
    copies = run_ranks(surroundings, 2)
    monkeypatch.setattr(children, "copies_can_be_made", lambda backend: False)
    for copy, fresh in zip(copies, run_ranks(surroundings, 2)):
        for one, other in zip(copy, fresh, strict=True):
            assert one == other


def draws(rank):
    return random.random(), np.random.rand(), torch.rand(1).item(), hash("a word"), os.getppid(), os.getpid()


@only_copies
def test_copies_draw_numbers_of_their_own_and_have_the_hashes_of_no_other_rank(monkeypatch):
    monkeypatch.setattr(children, "_PASSED_ON", [np.random.__name__])  # NumPy loads it when it is asked for
    first, second = run_ranks(draws, 2), run_ranks(draws, 2)
    *numbers, hashes, loaded, ranks = zip(*first, *second)
    assert [len(set(each)) for each in (*numbers, ranks)] == [4] * 4
    assert hashes[:2] == hashes[2:] and len(set(hashes)) == 2, "and rank 1 is always a copy of the same process"
    assert loaded[:2] == loaded[2:] and len(set(loaded)) == 2


CHANGES = {
    "umask": lambda: os.umask(0o077), "limits": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (500, resource.getrlimit(resource.RLIMIT_NOFILE)[1])),
    "ignored signals": lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    "blocked signals": lambda: signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})}
if os.nice(0) < 19:
    CHANGES["nice"] = lambda: os.nice(1)
if hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) > 1:
    CHANGES["cores"] = lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def inherited(rank):
    mask = os.umask(0)
    os.umask(mask)
    return (mask, resource.getrlimit(resource.RLIMIT_NOFILE), os.nice(0), os.sched_getaffinity(0),
            signal.getsignal(signal.SIGHUP), signal.pthread_sigmask(signal.SIG_BLOCK, []))


@only_copies
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_what_a_program_changes_of_itself_its_later_ranks_have_too():
    program = os.fork()  # so that the changes are not those of the tests
    if program == 0:
        code = 4
        try:
            os.umask(0o022)  # whatever the tests were started with, as nohup does
            signal.signal(signal.SIGHUP, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
            run_ranks(inherited, 1)
            seen = [children._surroundings({})]
            for change in CHANGES.values():
                change()
                seen.append(children._surroundings({}))
                assert seen[-1] != seen[-2]
            assert run_ranks(inherited, 1) == [inherited(0)]
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            try:
                children._end_all()
                sys.stderr.flush()
            finally:
                os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(program, 0)[1]) == 0


@only_copies
def test_when_the_loaded_processes_are_killed_their_ranks_go_on_and_later_ones_are_made_anew(two):
    first = two.run(draws)
    for *_, loaded, _ in first:
        os.kill(loaded, signal.SIGKILL)
        until(lambda: not alive(loaded))
    assert [pid for *_, pid in two.run(draws)] == [pid for *_, pid in first]
    assert not {loaded for *_, loaded, _ in first} & {loaded for *_, loaded, _ in run_ranks(draws, 2)}
    two.close()
    until(lambda: not any(alive(pid) for *_, pid in first))


def add_a_name(rank):
    ctypes.CDLL(None).prctl(15, "ranks äöüäöü".encode(), 0, 0, 0)  # is cut within a letter


@only_copies
def test_a_copy_may_have_any_name(two):
    two.run(add_a_name)
    with open(f"/proc/{two.run(own_number)[0]}/comm", "rb") as file, pytest.raises(UnicodeDecodeError):
        file.read().decode()
    two.close()


@only_copies
def test_a_loaded_process_that_is_stopped_holds_nobody_and_goes_on_as_if_nothing_were_left(two, monkeypatch):
    first = two.run(draws)
    for *_, loaded, _ in first:
        os.kill(loaded, signal.SIGSTOP)
    with pytest.raises(TimeoutError, match="^after 0.5 s, only 0 of 1 ranks had been started"):
        run_ranks(draws, 1, timeout_s=0.5)
    with monkeypatch.context() as patch:
        patch.setattr(children, "_PATIENCE_S", 0.1)  # here alone: a busy machine takes longer now and then
        two.close()
    assert all(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE for *_, pid in first)
    for *_, loaded, _ in first:
        os.kill(loaded, signal.SIGCONT)
    second = two.run(draws, timeout_s=WAIT_S)
    assert [loaded for *_, loaded, _ in second] == [loaded for *_, loaded, _ in first]
    assert not any(psutil.pid_exists(pid) for *_, pid in first)
    assert len(psutil.Process(second[0][-2]).children()) == 1, "and not the copy that nobody has waited for"


@only_copies
def test_where_the_machine_stands_still_no_patience_is_lost(two, monkeypatch):
    forget, leaps = children.Loaded.forget, itertools.count(step=1000)

    def forget_late(loaded, pid):
        os.kill(loaded.pid, signal.SIGSTOP)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(lambda: time.sleep(0.2) or os.kill(loaded.pid, signal.SIGCONT))
            return forget(loaded, pid)

    two.run(own_number)
    ranks = [process.child for process in two._started.processes]
    monkeypatch.setattr(children.Loaded, "forget", forget_late)
    monkeypatch.setattr(children, "time", SimpleNamespace(monotonic=lambda: next(leaps), sleep=time.sleep))
    two.close()
    assert [rank.reap() for rank in ranks] == [0, 0], "how they ended was waited for"
    naps = []
    monkeypatch.setattr(launch, "time", SimpleNamespace(monotonic=lambda: next(leaps), sleep=naps.append))
    launch._rest(1.0)
    assert 40 <= len(naps) <= 60 and 0.9 < sum(naps) < 1.1
    launch._rest(1.0, lambda: len(naps) == 70)
    assert len(naps) == 70


@only_copies
def test_garbage_that_is_found_while_a_copy_is_made_may_hold_a_group(monkeypatch):
    copy = children.Loaded.copy

    def find_garbage(loaded, settings, log, look):
        def collect():
            os.kill(loaded.pid, signal.SIGCONT)
            gc.collect()
            look()

        os.kill(loaded.pid, signal.SIGSTOP)  # so that it does not answer before the garbage is found
        return copy(loaded, settings, log, collect)

    gc.disable()
    try:
        group = RankGroup(1)
        group.run(own_number)
        group.itself = group
        garbage = []
        weakref.finalize(group, garbage.append, "found")
        del group
        monkeypatch.setattr(children.Loaded, "copy", find_garbage)
        assert garbage == []
        assert len(run_ranks(own_number, 1, timeout_s=20)) == 1
        assert garbage == ["found"]
    finally:
        gc.enable()


@only_copies
def test_a_loaded_process_that_dies_just_then_is_replaced_by_a_fresh_python(monkeypatch):
    run_ranks(draws, 1)
    monkeypatch.setattr(children.Loaded, "is_there", lambda loaded: True)
    os.kill(run_ranks(draws, 1)[0][-2], signal.SIGKILL)
    [(*_, parent, _)] = run_ranks(draws, 1)
    assert parent == os.getpid()


@only_copies
def test_a_loaded_process_that_nobody_needs_ends_by_itself():
    code = ("import runpy, sys; make_copies = runpy.run_path(sys.argv[1])['make_copies']; "
            "make_copies.__globals__['_IDLE_S'] = 0.1; make_copies()")
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        assert subprocess.run([sys.executable, "-c", code, Path(children.__file__).with_name("rank.py")], stdin=theirs,
                              timeout=WAIT_S).returncode == 0


PROGRAM = """
import os
import psutil
from d2lpar.processes import RankGroup, run_ranks
run_ranks(abs, 1)
if os.fork() == 0:
    raise SystemExit  # the copy of a program ends without a word, too
os.wait()
group = RankGroup(2)
print(os.getpid(), *group.run(lambda rank: os.getpid()))
print(*[child.pid for child in psutil.Process().children(recursive=True)])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system copies no process")
def test_a_program_that_leaves_a_group_open_leaves_no_process(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    run = subprocess.run([sys.executable, "-W", "error::ResourceWarning", tmp_path / "program.py"], capture_output=True,
                         text=True, timeout=WAIT_S)
    assert run.stderr == "" and len(run.stdout.split()) >= 6
    assert not any(map(alive, map(int, run.stdout.split())))


# Other surroundings: PyTorch is loaded anew for each, so these tests come after those that share what is loaded


@only_copies
def test_another_environment_or_folder_needs_processes_that_are_loaded_anew(two, monkeypatch, tmp_path):
    def here(rank):
        return os.getppid(), os.environ.get("SOMETHING_NEW"), os.getcwd()

    before = two.run(here)
    with monkeypatch.context() as patch:
        patch.setenv("SOMETHING_NEW", "3")
        patch.chdir(tmp_path)
        after = run_ranks(here, 2)
    assert [rest for _, *rest in after] == [["3", str(tmp_path)]] * 2
    assert not {parent for parent, *_ in before} & {parent for parent, *_ in after}
    assert two.run(here) == before, "the group that was there stays"


def test_results_and_prints_come_in_rank_order_with_one_sum_on_all_ranks(capfd, both_ways):
    with cores_per_device(3):
        results = run_ranks(add_up, 3, torch.tensor([1.0, 2.0]))
    assert [rank for rank, *_ in results] == [0, 1, 2]
    for _, X, *cores in results:
        assert torch.equal(X, torch.tensor([111.0, 222.0]))
        assert cores == [3, "3"]
    printed = [f"rank {r}: {line}\n" for r in range(3) for line in (f"from {r}", "to stderr", "not ended")]
    assert capfd.readouterr() == ("".join(printed), "")


def test_a_program_that_ignores_the_end_of_its_children_gets_results_and_keeps_no_process():
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert run_ranks(ask_its_input, 2) == [(b"", "")] * 2, "a child of a rank finds no pipe of ours on its input"
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_a_port_that_somebody_else_has_taken_does_not_matter(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server, monkeypatch.context() as patch:
        patch.setenv("MASTER_ADDR", "127.0.0.1")
        patch.setenv("MASTER_PORT", str(server.getsockname()[1]))
        assert [total for total, _ in run_ranks(sum_of_ranks, 2)] == [1, 1]


@only_copies
def test_a_module_written_after_the_first_start_is_found(tmp_path, monkeypatch):
    def load(rank):
        import written_later

        return written_later.VALUE

    folder = tmp_path / "later"
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    run_ranks(draws, 1)
    folder.mkdir()
    (folder / "written_later.py").write_text("VALUE = 7")
    assert run_ranks(load, 1) == [7]


@only_copies
def test_interrupted_while_the_processes_load_the_call_ends_at_once_and_the_next_one_works(monkeypatch, ctrl_c_is_obeyed):
    look, looks = launch._leave_if_interrupted, itertools.count()

    def interrupt(waiting):
        if next(looks) == 3:  # the first one after a copy has been asked for
            signal.raise_signal(signal.SIGINT)
        look(waiting)

    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("SOMETHING_NEW", "4")  # so that they load
        with monkeypatch.context() as patch:
            patch.setattr(launch, "_leave_if_interrupted", interrupt)
            patch.setattr(children, "Copy", None)  # nor is one made
            with pytest.raises(KeyboardInterrupt):
                run_ranks(draws, 2)
        assert len(run_ranks(draws, 2)) == 2


# Bad input


@pytest.mark.parametrize("fn, world_size, args, timeout_s, words", [
    (names, 0, (), 1, "at least 1, got 0"),
    (names, -1, (), 1, "at least 1, got -1"),
    (names, 1.5, (), 1, r"at least 1, got 1\.5"),
    (names, True, (), 1, "at least 1, got True"),
    (names, "2", (), 1, "at least 1, got '2'"),
    (names, 2, (), 0, "greater than 0 .* got 0"),
    (names, 2, (), -2.5, r"greater than 0 .* got -2\.5"),
    (names, 2, (), float("nan"), "greater than 0 .* got nan"),
    (names, 2, (), float("inf"), "greater than 0 .* got inf"),
    ("names", 2, (), 1, "run a function, got 'names'"),
    (names, 2, (), "3", "greater than 0 .* got '3'"),
    (names, 2, (), 1e300, "greater than 0 .* got 1e.300"),
    (names, 2, (threading.Lock(),), 1, r"can be pickled: .*lock"),
])
def test_bad_input_is_named_before_any_process_starts(fn, world_size, args, timeout_s, words, monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", lambda *args, **kwargs: pytest.fail("a process was started"))
    with pytest.raises(ValueError, match=words):
        run_ranks(fn, world_size, *args, timeout_s=timeout_s)


# GPU


@pytest.mark.gpu
@pytest.mark.skipif(not dist.is_nccl_available(), reason="needs NCCL")
def test_ranks_that_can_have_a_gpu_each_talk_by_nccl():
    gpus = torch.cuda.device_count()
    assert run_ranks(names, gpus) == [("nccl", rank) for rank in range(gpus)]
    assert run_ranks(place_of, 1) == [torch.device("cuda")]
