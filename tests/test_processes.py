"""Tests of d2lpar.processes: what comes back from the ranks, whose failure is reported, and that no process is left."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch
import torch.distributed as dist

from d2lpar.devices import cores_per_device
from d2lpar.processes import RankError, launch, run_ranks

WAIT_S = 60  # for what takes a few seconds


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path, monkeypatch):
    """Every call, also one that fails, leaves the caller as it was."""

    def state():
        this, environment = psutil.Process(), {**os.environ, "PYTEST_CURRENT_TEST": ""}
        return this.children(recursive=True), this.num_fds(), threading.enumerate(), os.listdir(temporary), environment

    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    before = state()
    yield
    assert state() == before
    assert not dist.is_initialized()


def until(condition):
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


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


def fail(rank):
    print("working")
    if rank == 1:
        dist.barrier()  # for ever
    time.sleep(0.0 if rank == 2 else 0.05)
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


def names(rank):
    return dist.get_backend(), torch.cuda.current_device()


# Results


def test_results_and_prints_come_in_rank_order_with_one_sum_on_all_ranks(capfd):
    with cores_per_device(3):
        results = run_ranks(add_up, 3, torch.tensor([1.0, 2.0]))
    assert [rank for rank, *_ in results] == [0, 1, 2]
    for _, X, *cores in results:
        assert torch.equal(X, torch.tensor([111.0, 222.0]))
        assert cores == [3, "3"]
    printed = [f"rank {r}: {line}\n" for r in range(3) for line in (f"from {r}", "to stderr", "not ended")]
    assert capfd.readouterr() == ("".join(printed), "")


def test_a_rank_that_finishes_early_stays_for_its_peers_to_talk_to(capfd):
    assert run_ranks(outlast, 2) == [True, True]
    assert capfd.readouterr() == ("", "")


# Failure


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
def test_a_rank_that_dies_is_named_and_not_the_peers_that_lose_it(how, words):
    with pytest.raises(RankError, match=f"^rank 1 {words} before fn had returned\n\nlast words$"):
        run_ranks(die, 2, how)


def test_a_result_that_cannot_be_sent_is_named():
    with pytest.raises(RankError, match="(?s)^rank 0 .*cannot be pickled: <class '_thread.lock'>$"):
        run_ranks(give_a_lock, 1)


def when(condition, then):
    """A module `time` for launch, whose clock and whose sleep are changed by `then` from when `condition` holds."""
    return SimpleNamespace(monotonic=lambda: time.monotonic() + 1000 * (then == "time out" and condition()),
                           sleep=lambda s: signal.raise_signal(signal.SIGINT) if then == "Ctrl-C" and condition()
                           else time.sleep(s))


def test_a_time_out_says_who_stood_where_and_ends_also_those_that_will_not(tmp_path, monkeypatch):
    # the time is out when all are where they stay, however long this machine takes to start them
    def all_are_there():
        staying = [path.stat().st_mtime for path in tmp_path.glob("stays *")]
        return len(staying) == 2 and time.time() > max(staying) + 1 and any(tmp_path.glob("temporary/*/0-result"))

    monkeypatch.setattr(launch, "time", when(all_are_there, "time out"))
    with pytest.raises(TimeoutError) as error:
        run_ranks(stay, 3, tmp_path, timeout_s=WAIT_S)
    message = str(error.value)
    assert message.startswith(f"after {WAIT_S} s, rank 1, rank 2 of 3 ranks had not finished\n\nrank 1: ")
    assert "in sleep_on\n" in message.partition("rank 2: ")[2]


def test_ctrl_c_ends_the_ranks_and_reaches_the_caller(tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "time", when(lambda: (tmp_path / "stays 1").exists(), "Ctrl-C"))
    with pytest.raises(KeyboardInterrupt):
        run_ranks(stay, 2, tmp_path)


# The caller is a script: this one has no main guard, and its function is in a file beside it

SCRIPT = """
import sys, beside
from d2lpar.processes import run_ranks
print(run_ranks(beside.work, 2, sys.argv[1]))
"""
BESIDE = """
import os, sys, time
def work(rank, folder):
    if folder:
        open(f"{folder}/started {rank}", "w").close()
        time.sleep(1000)
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
        until(lambda: caller.poll() is not None or len(list(tmp_path.glob("started *"))) == 2)
        ranks = psutil.Process(caller.pid).children()
        try:
            assert len(ranks) == 2
            caller.kill()
            until(lambda: not any(rank.is_running() and rank.status() != psutil.STATUS_ZOMBIE for rank in ranks))
            until(lambda: os.listdir(tempfile.gettempdir()) == [])
        finally:
            for rank in ranks:
                if rank.is_running():
                    rank.kill()


# Bad input


@pytest.mark.parametrize("fn, world_size, args, timeout_s, words", [
    (names, 0, (), 1, "at least 1, got 0"),
    (names, -1, (), 1, "at least 1, got -1"),
    (names, 1.5, (), 1, r"at least 1, got 1\.5"),
    (names, True, (), 1, "at least 1, got True"),
    (names, "2", (), 1, "at least 1, got '2'"),
    (names, 2, (), 0, "greater than 0, got 0"),
    (names, 2, (), -2.5, r"greater than 0, got -2\.5"),
    (names, 2, (), float("nan"), "greater than 0, got nan"),
    (names, 2, (), float("inf"), "greater than 0, got inf"),
    ("names", 2, (), 1, "run a function, got 'names'"),
    (names, 2, (), "3", "greater than 0, got '3'"),
    (names, 2, (threading.Lock(),), 1, r"can be pickled: .*lock"),
])
def test_bad_input_is_named_before_any_process_starts(fn, world_size, args, timeout_s, words, monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", lambda *args, **kwargs: pytest.fail("a process was started"))
    with pytest.raises(ValueError, match=words):
        run_ranks(fn, world_size, *args, timeout_s=timeout_s)


# GPU


@pytest.mark.gpu
def test_ranks_that_can_have_a_gpu_each_talk_by_nccl():
    gpus = torch.cuda.device_count()
    assert run_ranks(names, gpus) == [("nccl", rank) for rank in range(gpus)]
    assert run_ranks(place, 1) == [torch.device("cuda")]
