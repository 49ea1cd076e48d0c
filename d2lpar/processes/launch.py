"""`RankGroup` and `run_ranks`: a function, called in several processes at once.

Every rank is a fresh Python, on Linux without GPUs a copy of one that has loaded PyTorch. `fn` travels to it by its
name or, where it is defined in a notebook or a script, as it is, with the functions, classes and values that it uses;
the program that started it is not run again, so a script needs no `if __name__ == "__main__"`.
"""

from __future__ import annotations

import linecache
import math
import os
import pickle
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import cloudpickle
import torch
import torch.distributed as dist

from d2lpar.base.checks import check_counts, shown
from d2lpar.base.devices import device_cores
from d2lpar.base.interrupts import Waiting, uninterrupted
from d2lpar.processes import children

_LOOK_S = 0.02  # the caller looks this often for news
_FOREVER_S = 1e9  # some thirty years
_CALL, _LEAVE = b"c", b"."  # what a rank is told
_GRACE_S = 1.0  # between asking a process to end and killing it
_PEER_LOST = re.compile(r"[Cc]onnection (?:closed|reset) by peer|Broken pipe|remote process exited")
_HERE = Path(__file__).parent


class RankError(RuntimeError):
    """One of the ranks failed; the message names it and holds its traceback."""


class RankGroup:
    """`world_size` processes that form one process group, and stay for many calls.

    They are started by the first `run`, and live until `close`, or as long as this object or the program; after a call
    that failed the next one starts fresh ones. A start takes some seconds; on Linux without GPUs mostly far less,
    because each rank is then a copy of a process that has loaded PyTorch and waits. The group's backend is the one
    that is named, "nccl" or "gloo"; else NCCL where each rank can have a GPU of its own, which is then its current
    device, and otherwise Gloo, with the share of the cores that a virtual device has; if there are GPUs, but not
    enough, it says so.

        with RankGroup(2) as ranks:
            ranks.run(fn, X)

    The ranks keep what they have once loaded: after an edit of a module that `fn` imports, or of `os.environ`, `close`
    the group, and the next call finds all that is new.

    Once it is closed no rank is left and no process that a rank has started (but for those that have left the rank's
    process group, as daemons do). On Linux and macOS that also holds if the caller is killed, but for a rank that it
    was starting in that very moment; if the caller has copies of itself, made by `os.fork`, when they are gone too. The
    processes that have loaded PyTorch end with the program, or when they have had no copies for five minutes.

    Raises:
        ValueError: if `world_size` is not an integer of at least 1, or there is no such backend.
    """

    def __init__(self, world_size: int, backend: str | None = None) -> None:
        check_counts(the_number_of_ranks=world_size)
        if backend not in (None, "gloo", "nccl"):
            raise ValueError(f'the backend must be "gloo" or "nccl", got {shown(backend)}')
        self.world_size, self.backend = world_size, backend or _backend(world_size)
        self._started: _Started | None = None
        self._running = threading.Lock()

    def __reduce__(self) -> Any:
        raise TypeError("a RankGroup cannot be sent: it belongs to the process that made it")

    def run(self, fn: Callable, *args: Any, timeout_s: float = 300.0) -> list:
        """Run `fn(rank, *args)` on every rank; give the results in rank order.

        Blocks until all ranks have finished. What Python prints on rank 0 is shown at once, that of the others when
        all have ended, in rank order. Arguments and results are pickled: tensors travel by value. What `fn` leaves
        behind in its process, such as the state of a random generator, is there for the next call.

        Args:
            fn: any function, also one that is defined in a notebook.
            timeout_s: for everything, the start of the processes included, until the results are there to be read.

        Raises:
            RuntimeError: if another thread is running a call.
            ValueError: before any process is started, if `timeout_s` makes no sense, or `fn` or `args` cannot be sent
                to another process.
            RankError: if `fn` raised on a rank, or the rank's process died, or its result cannot be read here; the one
                that failed first. The others are ended at once.
            TimeoutError: after `timeout_s`, with where each rank stood.
        """
        _check(fn, timeout_s)
        deadline = time.monotonic() + timeout_s
        call = _pickle_call(fn, args)
        # an interrupt is looked for where there is time for it, so that it never finds a process that nobody knows of
        with uninterrupted(math.inf) as waiting, self._alone():
            started = self._own()
            if started is None or any(process.child.has_ended() for process in started.processes):
                self.close()  # of a group that has lost a rank
                started = self._started = _Started()
            try:
                started.start(self.world_size, self.backend, deadline, timeout_s, waiting)
                started.call(call)
                _wait_for_results(started.processes, deadline, timeout_s, waiting)
                for process in started.processes:
                    process.show_prints()
                return [process.result() for process in started.processes]
            except BaseException:
                self._started = None
                started.end()
                raise

    def close(self) -> None:
        """End the ranks, which leave their process group first; nothing happens if there are none."""
        with uninterrupted(math.inf):
            started, self._started = self._own(), None
            if started is not None:
                _release(started.processes)
                started.end()

    def _own(self) -> _Started | None:
        """The ranks, unless this is a copy of the process that has started them, made by os.fork."""
        return self._started if self._started and self._started.owner == os.getpid() else None

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if not self._running.acquire(blocking=False):
            raise RuntimeError("this group is running a call of another thread; use a group for each thread")
        try:
            yield
        finally:
            self._running.release()

    def __enter__(self) -> RankGroup:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def run_ranks(fn: Callable, world_size: int, *args: Any, timeout_s: float = 300.0) -> list:
    """Run `fn(rank, *args)` in `world_size` fresh processes that form one group; give the results in rank order.

    A `RankGroup` for one call: see there for the backend and for what is left afterwards, and its
    `run` for arguments, prints, results and errors.
    """
    _check(fn, timeout_s)
    with RankGroup(world_size) as group:
        return group.run(fn, *args, timeout_s=timeout_s)


class _Started:
    """The processes of a group, their folder, and the keeper; ended at the latest when nobody holds this object."""

    def __init__(self) -> None:
        self.owner, self.folder = os.getpid(), tempfile.mkdtemp(prefix="d2lpar-")
        self._keeper = _start_keeper(self.folder)
        self.processes: list[_Process] = []
        self.end = weakref.finalize(self, _end, self.owner, self.processes, self._keeper, self.folder)

    def start(self, world_size: int, backend: str, deadline: float, timeout_s: float, waiting: Waiting | None) -> None:
        """Start the processes, unless they are there."""
        def look() -> None:
            _leave_if_interrupted(waiting)
            if time.monotonic() > deadline:
                there = len(self.processes)
                raise TimeoutError(f"after {timeout_s} s, only {there} of {world_size} ranks had been started")

        environment = _environment()
        loaded = []  # all of them first, because they take seconds
        for rank in range(len(self.processes), world_size):
            look()
            loaded.append(children.load(rank, backend, environment, Path(self.folder, f"{rank}-log")))
        for one in loaded:
            look()
            rank = len(self.processes)
            self.processes.append(_Process(rank, world_size, self.folder, backend, environment, one, look))
            _input_of(self._keeper).write(b"%d\n" % self.processes[-1].child.pid)

    def call(self, call: bytes) -> None:
        """Let every rank run what is pickled in `call`."""
        Path(self.folder, "call").write_bytes(call)
        for process in self.processes:
            process.child.tell(_CALL)


def _environment() -> dict[str, str]:
    """The environment of the ranks, which is the caller's, with what a rank needs."""
    environment = {"GLOO_SOCKET_IFNAME": loopback()} | os.environ | {
        "OMP_NUM_THREADS": str(device_cores()),
        "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path),  # "" is the current folder
    }
    environment.pop("PYTEST_CURRENT_TEST", None)  # it changes all the time, and so would the ranks' surroundings
    return environment


def _leave_if_interrupted(waiting: Waiting | None) -> None:
    if waiting is not None and waiting.count:
        raise KeyboardInterrupt


class _Process:
    """A rank's process as its caller sees it, and the files it writes.

    `result` or `error`, one of them, as its last act; `printed` by Python; `log` by everything beneath it, such as
    the greetings of Gloo; `stack`, where it stood when it was asked to end.
    """

    def __init__(self, rank: int, world_size: int, folder: str, backend: str, environment: Mapping[str, str],
                 loaded: children.Loaded | None, look: Callable[[], None]) -> None:
        self.name, self._prefix, self._shown = f"rank {rank}", Path(folder, f"{rank}-"), 0
        settings = [folder, str(rank), str(world_size), backend]
        self.child = children.start(loaded, settings, environment, self.file("log"), look)

    def file(self, what: str) -> Path:
        return Path(f"{self._prefix}{what}")

    def text(self, what: str) -> str:
        return self.file(what).read_bytes().decode("utf-8", "replace") if self.file(what).exists() else ""

    def show_prints(self, unfinished: bool = True) -> None:
        """Print what is new, the last line only if it is finished or nothing more will come."""
        encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
        for line in re.findall(r".*\n|.+", self.text("printed")[self._shown:]):
            if not line.endswith("\n") and not unfinished:
                break
            self._shown += len(line)
            line = line.removesuffix("\n")
            left = line.rstrip("\r").rpartition("\r")[2]  # of a line that was overwritten, such as a bar's
            print(f"{self.name}: {left}".encode(encoding, "backslashreplace").decode(encoding), flush=True)

    def result(self) -> Any:
        """What the function returned; asked for once."""
        try:
            return pickle.loads(self.file("result").read_bytes())
        except Exception as error:
            raise RankError(f"what {self.name} returned cannot be read here: {error!r}") from error
        finally:
            self.file("result").unlink()

    def has_lost_a_peer(self) -> bool:
        """Whether its error is about another rank's end."""
        return bool(_PEER_LOST.search(self.text("error").rpartition("\nRuntimeError: ")[2]))

    def where(self) -> str:
        """Where it stood when it was asked to end."""
        if self.file("result").exists():
            return "fn had returned"
        if self.child.is_stopped():
            return "had been stopped by a signal"
        return _with_source(self.text("stack")) or "nobody knows where; it may have been starting still"

    def why_dead(self) -> str:
        self.child.kill_group()
        code = self.child.reap()
        names = {number.value: number.name for number in signal.Signals}
        if code is None:
            how = "ended"
        else:
            how = f"was killed by {names.get(-code, f'signal {-code}')}" if code < 0 else f"ended with exit code {code}"
        when = "after" if self.file("result").exists() else "before"
        full = shutil.disk_usage(self.file("log").parent).free < 2**20
        why = "\n\nthe disk that holds the folder for temporary files is full" if full else ""
        return f"{self.name} {how} {when} fn had returned{why}\n\n{self.text('log')[-2000:]}".rstrip()


def _wait_for_results(processes: Sequence[_Process], deadline: float, timeout_s: float,
                      interrupts: Waiting | None) -> None:
    while waiting := [process for process in processes if not process.file("result").exists()]:
        _leave_if_interrupted(interrupts)
        processes[0].show_prints(unfinished=False)
        failed = [process for process in waiting if process.file("error").exists()]
        if failed:
            _rest(0.1)  # the end of a process can show later than the error of a rank that lost it as a peer
            if all(process.has_lost_a_peer() for process in failed):
                _rest(1.0)  # and so can the error of a process that has left the group on its way out
        for process in processes:
            if process.child.has_ended() and not process.file("error").exists():
                raise RankError(process.why_dead())
        if failed:
            failed = [process for process in waiting if process.file("error").exists()]
            first = min(failed, key=lambda process: (process.has_lost_a_peer(),
                                                     process.file("error").stat().st_mtime_ns))
            raise RankError(f"{first.name} raised an exception\n\n{first.text('error')}".rstrip())
        if time.monotonic() > deadline:
            _ask_to_end(processes)
            stood = [f"{process.name}: {process.where()}" for process in processes]
            raise TimeoutError(f"after {timeout_s} s, {', '.join(process.name for process in waiting)} of "
                               f"{len(processes)} ranks had not finished\n\n" + "\n\n".join(stood))
        time.sleep(_LOOK_S)


def _release(processes: Sequence[_Process]) -> None:
    """Let the ranks go, which have waited for one another so that none loses a peer that it still needs."""
    for process in processes:
        process.child.tell(_LEAVE)
    _wait_for_ends(processes, 5 * _GRACE_S)


def _end(owner: int, processes: Sequence[_Process], keeper: subprocess.Popen, folder: str) -> None:
    """Leave no process, whatever it is doing, and no file."""
    if os.getpid() != owner:  # in a copy of the caller, made by os.fork
        return
    if not all(process.child.has_ended() for process in processes):
        _ask_to_end(processes)
    for process in processes:
        process.child.kill_group()
    keeper.kill()  # before the ranks are reaped: it must not know numbers that may be somebody else's
    keeper.wait()
    _input_of(keeper).close()
    for process in processes:
        process.child.reap()
        process.show_prints()
    shutil.rmtree(folder, ignore_errors=True)


def _with_source(stack: str) -> str:
    """What faulthandler has written, without our own part, and with the lines of code that it does not know."""
    told = []
    for line in stack.splitlines():
        if f'"{_HERE / "rank.py"}"' in line:
            break
        told.append(line)
        if place := re.match(r'  File "(.*)", line (\d+) in ', line):
            source = linecache.getline(place[1], int(place[2])).strip()
            told += [f"    {source}"] * bool(source)
    return "\n".join(told)


def _ask_to_end(processes: Sequence[_Process]) -> None:
    for process in processes:
        if not process.child.has_ended():
            with suppress(OSError):
                os.kill(process.child.pid, signal.SIGTERM)
    _wait_for_ends(processes, _GRACE_S)


def _wait_for_ends(processes: Sequence[_Process], patience_s: float) -> None:
    _rest(patience_s, lambda: all(process.child.has_ended() for process in processes))


def _rest(seconds: float, enough: Callable[[], bool] = lambda: False) -> None:
    """Sleep so long, or until it is enough; in pieces, of which only one passes where the machine stands still."""
    for _ in range(math.ceil(seconds / _LOOK_S)):
        if enough():
            break
        time.sleep(min(seconds, _LOOK_S))


def _start_keeper(folder: str) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-I", "-S", _HERE / "keeper.py", folder], stdin=subprocess.PIPE, bufsize=0,
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, process_group=0)


def _input_of(process: subprocess.Popen) -> IO[bytes]:
    assert process.stdin is not None  # all that is started here is started with a pipe
    return process.stdin


def _backend(world_size: int) -> str:
    """NCCL if each rank can have a GPU, otherwise Gloo; where there are too few GPUs it is said."""
    gpus = torch.cuda.device_count() if dist.is_nccl_available() else 0
    if 0 < gpus < world_size:
        print(f"{world_size} ranks, but GPUs: {gpus}. NCCL needs one for each rank, so all of them compute on the CPU "
              "and talk by Gloo.")
    return "nccl" if gpus >= world_size else "gloo"


def _check(fn: Callable, timeout_s: float) -> None:
    if not callable(fn):
        raise ValueError(f"ranks run a function, got {shown(fn)}")
    if not isinstance(timeout_s, int | float) or isinstance(timeout_s, bool) or not 0 < timeout_s < _FOREVER_S:
        raise ValueError(f"the time-out must be a number of seconds greater than 0 and below {_FOREVER_S:.0e}, "
                         f"got {shown(timeout_s)}")


def _pickle_call(fn: Callable, args: tuple) -> bytes:
    """`fn` and `args`, and the source of what has no file, such as a notebook's cells, for tracebacks."""
    cells = {name: entry for name, entry in linecache.cache.items() if len(entry) == 4 and entry[1] is None}
    try:
        return cloudpickle.dumps((fn, args, cells, device_cores()))
    except Exception as error:
        raise ValueError(f"fn and its arguments must be such that they can be pickled: {error}") from error


def loopback() -> str:
    """The network interface of this machine with itself, which spares Gloo to look up a host name; "" if unknown."""
    names = [name for _, name in socket.if_nameindex()]
    return next((name for name in ("lo", "lo0") if name in names), "")
